"""The AMX tiles give the bits of N9 and N10: on every machine by an emulation of the tile instructions;
where the processor has them, tests/ops/test_matmul_tiles.py runs the real ones too."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from cffi import FFI
from tests.ops import matmuls
from tests.ops.matmuls import any_bf16, bf16, int8, multiply, scales
from tests.ops.parity import Array, assert_same_bits

HERE, CSRC = Path(__file__).parent, Path(__file__).parents[2] / "engine" / "csrc"
DECLARATIONS = """
typedef struct {
  int kind;
  int64_t m, n, k, group, kc, a_rs, a_cs, b_rs, b_cs, c_rs;
} harness_shape;
int harness_run(
    const harness_shape *s, const void *a, const void *b, const float *scale, float *c);
"""
Run = Callable[..., Array]


@pytest.fixture(scope="module")
def amx(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """a @ b through the emulated tiles."""
    compiler = shutil.which("gcc")
    assert compiler is not None, "the kernels were compiled, so gcc is here"
    library = tmp_path_factory.mktemp("amx") / "harness.so"
    flags = ["-std=c11", "-O2", "-ffp-contract=off", "-shared", "-fPIC", "-Wall", "-Wextra"]
    command = [compiler, *flags, "-DVOLTA_AMX_EMULATED", f"-I{CSRC}", f"-I{HERE}"]
    subprocess.run([*command, str(HERE / "amx_harness.c"), "-o", str(library), "-lm"], check=True)
    ffi = FFI()
    ffi.cdef(DECLARATIONS)
    lib = ffi.dlopen(str(library))

    def run(a: Array, b: Array, scale: Array | None = None, kc: int = 1 << 20) -> Array:
        m, k, n = *a.shape, b.shape[1]
        out = np.full((m, n + 3), np.nan, np.float32)
        group = k if scale is None else k // scale.shape[0]
        strides = [stride // x.itemsize for x in (a, b) for stride in x.strides]
        shape = ffi.new("harness_shape *", [1 if scale is None else 2, m, n, k, group, kc, *strides, n + 3])

        def pointer(x: Array) -> object:
            return ffi.cast("void *", x.ctypes.data)

        scale_pointer = ffi.NULL if scale is None else ffi.cast("float *", scale.ctypes.data)
        status = lib.harness_run(
            shape, pointer(a), pointer(b), scale_pointer, ffi.cast("float *", out.ctypes.data)
        )
        assert status == 0
        assert np.isnan(out[:, n:]).all(), "something was written between the rows"
        return np.ascontiguousarray(out[:, :n])

    return run


SHAPES = [(1, 1, 1), (16, 16, 32), (32, 32, 64), (33, 47, 100), (15, 17, 31), (64, 96, 128), (5, 70, 33)]


@pytest.mark.parametrize("layout", ["rows", "turned"])
@pytest.mark.parametrize(("m", "n", "k"), SHAPES)
def test_bf16_tiles_are_n9(amx: Run, m: int, n: int, k: int, layout: str) -> None:
    a, b = bf16(m, k, seed=1), bf16(k, n, seed=2)
    view = matmuls.LAYOUTS[layout]
    for kc in (32, 64, 1 << 20):
        assert_same_bits(amx(view(a), view(b), kc=kc), multiply(a, b), f"{m} {n} {k} kc={kc}")


@pytest.mark.parametrize("exponent", [-62, -63, -64])
def test_bf16_tiles_flush_as_n9_does(amx: Run, exponent: int) -> None:
    """Products and sums about 2^-126."""
    a, b = bf16(33, 70, seed=3, exponent=exponent), bf16(70, 40, seed=4, exponent=exponent)
    for kc in (32, 1 << 20):
        assert_same_bits(amx(a, b, kc=kc), multiply(a, b), f"2^{exponent} kc={kc}")
    a, b = any_bf16(33, 70, seed=5), any_bf16(70, 40, seed=6)
    assert_same_bits(amx(a, b), multiply(a, b), "any bits")


@pytest.mark.parametrize("layout", ["rows", "turned"])
@pytest.mark.parametrize(("m", "n", "k", "groups"), [(*shape, 1) for shape in SHAPES] + [(20, 40, 192, 3)])
def test_int8_tiles_are_n10(amx: Run, m: int, n: int, k: int, groups: int, layout: str) -> None:
    a, w, scale = int8(m, k, seed=1), int8(k, n, seed=2), scales(groups, n)
    view = matmuls.LAYOUTS[layout]
    for kc in (k // groups, k):
        found = amx(view(a), view(w), scale, kc=kc)
        assert_same_bits(found, multiply(a, w, scale=scale), f"{m} {n} {k} kc={kc}")
