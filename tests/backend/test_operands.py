"""What kernels trust about their operands is checked when a program is made, and builds elsewhere."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import numpy as np
import pytest
from tests.ops.parity import isas

from volta.backends.cpu.native import Instruction, NativeProgram, Operand, Step, kernels, workspace_bytes
from volta.dtypes import DType, bfloat16, float32, int32
from volta.errors import VerifyError

CSRC = Path(__file__).resolve().parents[2] / "engine" / "csrc"
FORM = "does not have the dtype, shape or strides that the kernel takes"


def of(shape: tuple[int, ...], dtype: DType = float32, strides: tuple[int, ...] | None = None) -> Operand:
    """An operand in a buffer of its own, once `program` has numbered it; contiguous unless said."""
    packed = tuple(int(np.prod(shape[axis + 1 :], dtype=np.int64)) for axis in range(len(shape)))
    return Operand(0, dtype, 0, shape, packed if strides is None else strides)


def program(kernel: str, *operands: Operand, outputs: int = 1, ints: tuple[int, ...] = ()) -> NativeProgram:
    placed = tuple(
        Operand(index, one.dtype, one.offset, one.shape, one.strides)
        for index, one in enumerate(operands, start=1)
    )
    code = (Instruction("copy", 0, (1,)),) if kernel == "chain" else ()
    step = Step(kernel, placed, outputs, ints=ints, code=code)
    return NativeProgram([step], n_buffers=len(operands) + 1, arena_bytes=1 << 20, isa="ref", threads=1)


ROWS, TARGETS = of((5, 8)), of((5,), int32)
Q, K, POSITION = of((2, 4, 3, 6)), of((2, 2, 3, 6)), of((2,), int32)
MISFITS: dict[str, tuple[str, tuple[Operand, ...], int, int]] = {
    "fewer rows": ("softmax", (ROWS, of((4, 8))), 1, 1),
    "another width": ("softmax", (ROWS, of((5, 9))), 1, 1),
    "another rank": ("softmax", (ROWS, of((40,))), 1, 1),
    "bf16 for f32": ("softmax", (ROWS, of((5, 8), bfloat16)), 1, 1),
    "f32 for i32": ("cross_entropy", (of((5,)), ROWS, of((5,))), 1, 2),
    "last stride": ("softmax", (ROWS, of((5, 8), strides=(1, 5))), 1, 1),
    "fewer targets": ("cross_entropy", (of((5,)), ROWS, of((4,), int32)), 1, 2),
    "two numbers per row": ("layer_norm", (ROWS, of((5, 1)), ROWS, of((8,)), of((8,))), 2, 1),
    "not one": ("count_valid", (of((0,)), TARGETS), 1, 0),
    "not contiguous": ("dropout", (ROWS, of((5, 8), strides=(0, 1)), of((3,), int32)), 1, 1),
    "fewer elements": ("dropout", (ROWS, of((5, 7)), of((3,), int32)), 1, 1),
    "generator": ("random", (ROWS, of((2,), int32)), 1, 1),
    "odd width": (
        "rotary",
        (of((2, 4, 3, 5)), of((2, 4, 3, 5)), of((9, 2)), of((9, 2)), POSITION),
        1,
        2,
    ),
    "heads and key heads": (
        "attention",
        (Q, of((2, 4, 3, 2)), Q, of((2, 3, 3, 6)), of((2, 3, 3, 6)), POSITION),
        2,
        3,
    ),
    "keys and values": ("attention", (Q, of((2, 4, 3, 2)), Q, K, of((2, 2, 4, 6)), POSITION), 2, 4),
    "bf16 to be checked": ("check_finite", (of((4,), bfloat16),), 0, 0),
}


@pytest.mark.parametrize("name", MISFITS)
def test_an_operand_that_a_kernel_would_misread_is_refused_when_the_program_is_made(name: str) -> None:
    kernel, operands, outputs, misfit = MISFITS[name]
    with pytest.raises(VerifyError, match=rf"{FORM} \({misfit}\)"):
        program(kernel, *operands, outputs=outputs)


def test_strides_of_an_empty_operand_and_of_one_column_do_not_matter() -> None:
    program("softmax", of((0, 8)), of((0, 8), strides=(0, 0)))
    program("softmax", of((5, 1)), of((5, 1), strides=(1, 7)))


def test_every_kernel_but_chain_and_the_matmuls_takes_a_fixed_number_of_operands() -> None:
    for kernel in set(kernels()) - {"chain", "matmul", "matmul_scaled"}:
        with pytest.raises(VerifyError, match="another number of operands"):
            program(kernel, *[ROWS] * 12)


A, B, PRODUCT = of((3, 4)), of((4, 5)), of((3, 5))
BAD_MATMULS: dict[str, tuple[tuple[Operand, ...], int, int]] = {
    "no such operand": ((PRODUCT, A, B), 1, 1 << 40),
    "negative operand": ((PRODUCT, A, B), 1, -1),
    "an output as an input": ((PRODUCT, PRODUCT, A, B), 2, 1),
    "vectors": ((of((5,)), of((4,)), B), 1, 1),
    "inner lengths": ((PRODUCT, of((3, 3)), B), 1, 1),
    "rank": ((PRODUCT, of((2, 3, 4)), B), 1, 1),
    "batches": ((of((3, 3, 5)), of((2, 3, 4)), B), 1, 1),
    "a small extra": ((PRODUCT, A, B, of((2, 5))), 1, 1),
    "a small second output": ((PRODUCT, of((1, 5)), A, B), 2, 2),
}


@pytest.mark.parametrize("isa", isas())
@pytest.mark.parametrize("name", BAD_MATMULS)
def test_matmul_refuses_operands_that_do_not_fit_together(name: str, isa: str) -> None:
    operands, outputs, first_input = BAD_MATMULS[name]
    placed = tuple(
        Operand(index, x.dtype, 0, x.shape, x.strides) for index, x in enumerate(operands, start=1)
    )
    code = tuple(Instruction("copy", output, (0,)) for output in range(1, outputs))
    step = Step("matmul", placed, outputs, ints=(first_input,), code=code)
    assert workspace_bytes(step, isa, 2) == 0
    one = NativeProgram([step], n_buffers=len(placed) + 1, arena_bytes=1 << 16, isa=isa, threads=2)
    with pytest.raises(VerifyError, match=r"\[matmul\]"):
        one.run([np.zeros(64, np.float32) for _ in placed])


@pytest.mark.parametrize("isa", isas())
def test_the_workspace_of_a_chain_with_too_many_operands_is_an_error(isa: str) -> None:
    step = Step("chain", (of((4,)),) * 500, 1, code=(Instruction("copy", 0, (1,)),))
    with pytest.raises(VerifyError, match=r"\[chain\].*the kernel takes others"):
        workspace_bytes(step, isa, 1)


@pytest.mark.skipif(
    sys.platform != "linux" or not Path("/sys/kernel/mm/transparent_hugepage").exists(), reason="huge pages"
)
def test_a_large_arena_asks_for_huge_pages() -> None:
    one = NativeProgram([], n_buffers=1, arena_bytes=16 << 20, isa="ref", threads=1)
    address, here = one.arena().ctypes.data, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        first = line.split()[0]
        if "-" in first and not first.endswith(":"):
            low, high = (int(bound, 16) for bound in first.split("-"))
            here = low <= address < high
        elif here and first == "VmFlags:":
            assert "hg" in line.split()
            return
    pytest.skip("the kernel does not show VmFlags")


def compiler() -> list[str]:
    return shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "gcc")[:1]


@pytest.mark.skipif(shutil.which(compiler()[0]) is None, reason="no C compiler")
@pytest.mark.parametrize("path", sorted(CSRC.glob("cpu/avx*/*.c")), ids=lambda p: f"{p.parent.name}/{p.name}")
def test_where_there_is_no_x86_a_vector_file_is_empty(path: Path) -> None:
    """Even a target pragma is an error there."""
    preprocess = [*compiler(), "-E", "-P", "-U__x86_64__", "-I", str(CSRC), str(path)]
    assert subprocess.run(preprocess, capture_output=True, text=True, check=True).stdout.strip() == ""
