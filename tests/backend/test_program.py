"""Programs: steps run in order, what is invalid is refused, errors stop every thread."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from tests.ops.parity import THREADS, assert_same_bits, isas

from volta.backends.cpu import native
from volta.backends.cpu.native import Instruction, NativeProgram, Operand, Step, workspace_bytes
from volta.dtypes import float32, int32
from volta.errors import DeviceError, NotFiniteError, UsageError, VerifyError

Array = npt.NDArray[Any]


def contiguous(buffer: int, offset: int, shape: tuple[int, ...]) -> Operand:
    strides = tuple(int(np.prod(shape[axis + 1 :], dtype=np.int64)) for axis in range(len(shape)))
    return Operand(buffer, float32, offset, shape, strides)


def elementwise(
    op: str, out: Operand, *inputs: Operand, imm: tuple[float, ...] = (), barrier: bool = True
) -> Step:
    code = (Instruction(op, 0, tuple(range(1, len(inputs) + 1)), imm),)
    return Step("chain", (out, *inputs), 1, code=code, barrier=barrier)


def copy_step(out: Operand, source: Operand) -> Step:
    return Step("copy", (out, source), 1)


def pipeline(count: int, length: int) -> list[Step]:
    """arena[0] = x; then `length` times t = x * 1.5, x = t + x reversed; y = x."""
    size = 4 * count
    x, t = contiguous(0, 0, (count,)), contiguous(0, size, (count,))
    backwards = Operand(0, float32, size - 4, (count,), (-1,))
    steps = [copy_step(x, contiguous(1, 0, (count,)))]
    for _ in range(length):
        steps.append(elementwise("scale", t, x, imm=(1.5,)))
        steps.append(
            Step("chain", (t, t, backwards), 1, code=(Instruction("add", 0, (1, 2)),), workspace=2 * size)
        )
        steps.append(elementwise("copy", x, t))
    return [*steps, copy_step(contiguous(2, 0, (count,)), x)]


@pytest.mark.parametrize("count", [16, 64, 4992])
def test_dependent_steps_see_each_other_on_every_isa_and_thread_count(count: int) -> None:
    x = np.random.default_rng(0).standard_normal(count).astype(np.float32)
    expected = x.copy()
    for _ in range(20):
        expected = expected * np.float32(1.5) + expected[::-1]
    steps = pipeline(count, 20)
    for isa in isas():
        for threads in (*THREADS, 16):
            space = max(workspace_bytes(step, isa, threads) for step in steps)
            arena = 8 * count + space
            program = NativeProgram(steps, n_buffers=3, arena_bytes=arena, isa=isa, threads=threads)
            for _ in range(3):
                y = np.zeros_like(x)
                program.run([x, y])
                assert_same_bits(y, expected, f"{isa} {threads}")
            assert program.high_water == arena


def test_steps_without_a_barrier_run_beside_each_other() -> None:
    x = np.arange(3000, dtype=np.float32)
    source = contiguous(1, 0, (3000,))
    steps = [
        elementwise("scale", contiguous(2, 0, (3000,)), source, imm=(2.0,)),
        elementwise("scale", contiguous(3, 0, (3000,)), source, imm=(3.0,), barrier=False),
        elementwise("add", contiguous(4, 0, (3000,)), contiguous(2, 0, (3000,)), contiguous(3, 0, (3000,))),
    ]
    program = NativeProgram(steps, n_buffers=5, arena_bytes=0, isa="ref", threads=3)
    out = [np.zeros_like(x) for _ in range(3)]
    program.run([x, *out])
    assert_same_bits(out[2], x * 5)


def test_an_empty_program_runs() -> None:
    NativeProgram([], n_buffers=1, arena_bytes=0, isa="ref", threads=2).run([])


def test_traced_runs_give_the_same_bits_and_when_each_thread_did_what() -> None:
    count = 4096
    x = np.random.default_rng(0).standard_normal(count).astype(np.float32)
    steps = pipeline(count, 3)
    arena = 8 * count + max(workspace_bytes(step, "ref", 2) for step in steps)
    program = NativeProgram(steps, n_buffers=3, arena_bytes=arena, isa="ref", threads=2)
    plain, traced = np.zeros_like(x), np.zeros_like(x)
    program.run([x, plain])
    stamps = program.run_traced(program.bind([x, traced]))
    assert stamps.shape == (2, len(steps), 2)
    begin, end = stamps[..., 0], stamps[..., 1]
    assert (begin >= 0).all()
    assert (end >= begin).all()
    assert (begin[:, 1:] >= end[:, :-1]).all(), "a thread takes its steps in turn"
    assert_same_bits(traced, plain)


def test_high_water_counts_only_steps_that_ran() -> None:
    x = np.array([1, np.inf], np.float32)
    low, high = contiguous(0, 0, (2,)), contiguous(0, 1024, (2,))
    steps = [
        copy_step(low, contiguous(1, 0, (2,))),
        Step("check_finite", (low,), 0),
        copy_step(high, low),
    ]
    program = NativeProgram(steps, n_buffers=2, arena_bytes=4096, isa="ref", threads=2)
    with pytest.raises(NotFiniteError):
        program.run([x])
    assert program.high_water == 8
    x[1] = 0
    program.run([x])
    assert program.high_water == 1032
    assert program.arena()[1024:1032].view(np.float32).tolist() == [1, 0]


# --- failures while running --------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [1, 2, 3, 7])
def test_the_first_failure_stops_all_threads_and_the_program_runs_again(threads: int) -> None:
    count = 10_000
    whole = contiguous(1, 0, (count,))
    check = Step("check_finite", (whole,), 0)
    steps = [check, *[elementwise("scale", contiguous(2, 0, (count,)), whole, imm=(2.0,)) for _ in range(5)]]
    steps += [check, dataclasses.replace(check, barrier=False), check]
    program = NativeProgram(steps, n_buffers=3, arena_bytes=0, isa="ref", threads=threads)
    x, y = np.ones(count, np.float32), np.zeros(count, np.float32)
    for round_number in range(50):
        first = (round_number * 997) % count
        x[[first, count - 1]] = np.nan
        y[:] = 0
        with pytest.raises(NotFiniteError, match=rf"^\[check_finite\] step 0: element {first} is"):
            program.run([x, y])
        assert (y == 0).all()
        x[:] = 1
        program.run([x, y])
        assert (y == 2).all()


def test_a_failure_is_found_at_its_own_step() -> None:
    x = np.array([3e38], np.float32)
    one = contiguous(1, 0, (1,))
    steps = [
        Step("check_finite", (one,), 0),
        elementwise("scale", contiguous(2, 0, (1,)), one, imm=(10.0,)),
        Step("check_finite", (contiguous(2, 0, (1,)),), 0),
    ]
    program = NativeProgram(steps, n_buffers=3, arena_bytes=0, isa="ref", threads=2)
    with pytest.raises(NotFiniteError, match="step 2"):
        program.run([x, np.zeros(1, np.float32)])


# --- what is refused ------------------------------------------------------------------------------------

A, B = contiguous(0, 0, (4, 8)), contiguous(0, 128, (4, 8))
ADD = elementwise("add", A, A, B)
COPY = (Instruction("copy", 0, (1,)),)


def replaced(step: Step, index: int, **changes: Any) -> Step:
    operands = list(step.operands)
    operands[index] = dataclasses.replace(operands[index], **changes)
    return dataclasses.replace(step, operands=tuple(operands))


def with_code(*code: Instruction, step: Step = ADD) -> Step:
    return dataclasses.replace(step, code=code)


BROKEN = {
    "buffer": (replaced(ADD, 1, buffer=1), "buffer that does not exist"),
    "negative buffer": (replaced(ADD, 1, buffer=-1), "buffer that does not exist"),
    "beyond": (replaced(ADD, 2, offset=132), "beyond the end of the arena"),
    "beyond by a stride": (replaced(ADD, 2, strides=(9, 1)), "beyond the end of the arena"),
    "before": (replaced(ADD, 2, strides=(-8, 1), offset=64), "before the start"),
    "negative offset": (replaced(ADD, 2, offset=-4), "before the start"),
    "unaligned": (replaced(ADD, 2, offset=126), "not aligned"),
    "negative shape": (replaced(ADD, 2, shape=(-4, 8)), "shape is negative"),
    "overflow of the count": (replaced(ADD, 2, shape=(2**62, 8)), "too large"),
    "overflow of the stride": (replaced(ADD, 2, strides=(2**62, 1)), "too large"),
    "register": (with_code(Instruction("add", 0, (1, 64))), "register|registers"),
    "negative register": (with_code(Instruction("add", 0, (1, -1))), "register that does not exist"),
    "writes an input": (with_code(Instruction("add", 1, (1, 2))), "writes to an input"),
    "reads nothing": (
        with_code(Instruction("add", 0, (1, 3)), Instruction("copy", 3, (1,))),
        "before it is written",
    ),
    "no output": (with_code(Instruction("copy", 3, (1,))), "never written"),
    "no code": (with_code(), "never written"),
    "overwritten input": (
        with_code(Instruction("add", 0, (1, 2)), Instruction("add", 0, (0, 1))),
        "memory was overwritten",
    ),
    "shifted overlap": (replaced(ADD, 0, offset=4), "shares memory"),
    "transposed overlap": (
        Step("chain", (contiguous(0, 0, (4, 4)), Operand(0, float32, 0, (4, 4), (1, 4))), 1, code=COPY),
        "shares memory",
    ),
    "overlapping outputs": (
        Step("chain", (A, A, B), 2, code=(Instruction("copy", 0, (2,)), Instruction("copy", 1, (2,)))),
        "shares memory",
    ),
    "workspace": (dataclasses.replace(replaced(ADD, 2, strides=(0, 1)), workspace=192), "beyond the end"),
    "unaligned workspace": (dataclasses.replace(ADD, workspace=32), "not aligned"),
    "operand count": (Step("copy", (A,), 1), "another number of operands"),
    "output count": (Step("copy", (A, B), 2), "another number of operands"),
    "no outputs": (dataclasses.replace(ADD, n_outputs=0), "another number of operands"),
    "kernel": (dataclasses.replace(ADD, kernel="frobnicate"), "does not exist"),
    "op": (with_code(Instruction("frobnicate", 0, (1, 2))), "does not exist"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_an_invalid_step_is_refused_with_the_rule_it_breaks(name: str) -> None:
    step, message = BROKEN[name]
    with pytest.raises(VerifyError, match=message):
        NativeProgram([ADD, step], n_buffers=1, arena_bytes=256, isa="ref", threads=1)


def test_a_kernel_refuses_operands_that_it_cannot_run() -> None:
    program = NativeProgram(
        [replaced(ADD, 2, dtype=int32)], n_buffers=1, arena_bytes=256, isa="ref", threads=2
    )
    with pytest.raises(VerifyError, match=r"\[chain\] step 0"):
        program.run([])


@pytest.mark.parametrize(("threads", "arena"), [(0, 256), (-1, 256), (257, 256), (1, -1)])
def test_impossible_sizes_are_refused(threads: int, arena: int) -> None:
    with pytest.raises(VerifyError):
        NativeProgram([], n_buffers=1, arena_bytes=arena, isa="ref", threads=threads)


def test_an_arena_that_does_not_fit_is_a_memory_error() -> None:
    with pytest.raises(MemoryError, match="bytes could not be allocated"):
        NativeProgram([], n_buffers=1, arena_bytes=2**60, isa="ref", threads=1)


def test_an_isa_that_is_not_there_is_an_error() -> None:
    with pytest.raises(UsageError, match="expected one of ref, avx2, avx512, amx"):
        NativeProgram([], n_buffers=1, arena_bytes=0, isa="sse9", threads=1)
    missing = set(native.ISAS) - set(isas())
    for isa in missing:
        with pytest.raises(DeviceError):
            NativeProgram([], n_buffers=1, arena_bytes=0, isa=isa, threads=1)


def test_bound_buffers_must_be_large_enough_contiguous_and_writable() -> None:
    step = copy_step(contiguous(2, 0, (4,)), contiguous(1, 8, (4,)))
    program = NativeProgram([step], n_buffers=3, arena_bytes=0, isa="ref", threads=1)
    x, y = np.arange(6, dtype=np.float32), np.zeros(4, np.float32)
    program.run([x, y])
    assert y.tolist() == [2, 3, 4, 5]
    assert program.buffer_bytes(1) == 24
    frozen = y.copy()
    frozen.flags.writeable = False
    for buffers in ([x], [x[:5], y], [x, np.zeros(8, np.float32)[::2]], [x, frozen]):
        with pytest.raises(UsageError, match=r"\[program\]"):
            program.run(buffers)
