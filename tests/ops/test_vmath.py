"""Clauses N0, N3 and N8: every function of vmath.h is within 2 ulp of the true value and gives the
same bits on every target; philox.h is Philox4x32-10.

The C program vmath_sweep.c beside this file does the work; it is compiled here for each target.
The default tests take an even sample of the 2^32 floats, those marked slow take all of them.
"""

import math
import os
import platform
import shutil
import struct
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

HERE = Path(__file__).parent
CSRC = HERE.parents[1] / "engine" / "csrc"

CONTRACT = ["-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math"]
STRICT = ["-std=c11", "-Wall", "-Wextra", "-Werror"]

# target: (compiler flags, CPU flags it needs). The first two run anywhere.
TARGETS = {
    "unoptimised": (["-O0"], set()),
    "plain": (["-O3"], set()),
    "avx2": (["-O3", "-mavx2", "-mfma"], {"avx2", "fma"}),
    "avx512": (
        ["-O3", "-mavx512f", "-mavx512dq", "-mavx512vl", "-mfma", "-mprefer-vector-width=512"],
        {"avx512f", "avx512dq", "avx512vl", "fma"},
    ),
}

VECTORISED = [
    "exp",
    "log",
    "tanh",
    "sigmoid",
    "erf",
    "gelu_tanh",
    "gelu_erf",
    "silu",
    "rsqrt",
    "gelu_tanh_slope",
    "gelu_erf_slope",
    "silu_slope",
]
FUNCTIONS = [*VECTORISED, "sin", "cos"]

SPACE = 2**32
SAMPLE, SAMPLE_STRIDE = 2_000_000, 2147  # odd, so coprime to 2^32; together they span it once
INF, NAN = math.inf, math.nan

# Exact results: function -> (input, result) pairs (not a dictionary, where -0.0 is 0.0)
ODD_ZERO = [(0.0, 0.0), (-0.0, -0.0)]
GATE = [*ODD_ZERO, (INF, INF), (3e38, 3e38), (-INF, -0.0), (-3e38, -0.0), (1e-45, 0.0)]
SLOPE = [(0.0, 0.5), (-0.0, 0.5), (INF, 1.0), (3e38, 1.0), (-INF, -0.0), (-3e38, -0.0)]
SPECIAL = {
    "exp": [(0.0, 1.0), (-0.0, 1.0), (INF, INF), (89.0, INF), (-INF, 0.0), (-104.0, 0.0)],
    "log": [(0.0, -INF), (-0.0, -INF), (1.0, 0.0), (INF, INF), (-INF, NAN), (-1e-45, NAN)],
    "tanh": [*ODD_ZERO, (INF, 1.0), (-INF, -1.0), (1e-45, 1e-45), (-10.0, -1.0)],
    "sigmoid": [(0.0, 0.5), (-0.0, 0.5), (INF, 1.0), (-INF, 0.0), (-104.0, 0.0)],
    "erf": [*ODD_ZERO, (INF, 1.0), (-INF, -1.0), (4.0, 1.0)],
    "gelu_tanh": GATE,
    "gelu_erf": [*GATE[:-1], (-1e-45, -0.0)],
    "silu": GATE,
    "rsqrt": [(0.0, INF), (-0.0, -INF), (INF, 0.0), (4.0, 0.5), (-1.0, NAN), (-INF, NAN)],
    "gelu_tanh_slope": SLOPE,
    "gelu_erf_slope": SLOPE,
    "silu_slope": SLOPE,
    "sin": [*ODD_ZERO, (1e-45, 1e-45), (INF, NAN), (-INF, NAN)],
    "cos": [(0.0, 1.0), (-0.0, 1.0), (INF, NAN), (-INF, NAN)],
}

# Inputs near every seam of the definitions, their neighbours and their negatives are judged too.
SEAMS = [
    0x00000001, 0x007FFFFF, 0x00800000, 0x1F800000, 0x32800000, 0x33800000, 0x3EB17218,
    0x3F3504F3, 0x3F490FDB, 0x3F600000, 0x3F800000, 0x3FB504F3, 0x40800000, 0x41200000,
    0x41340000, 0x41680000, 0x416C0000, 0x42AEAC50, 0x42B17218, 0x42B20000, 0x42CFF1B5,
    0x42D00000, 0x42E00000, 0x47FFFFFF, 0x48000000, 0x7F7FFFFF, 0x7F800000,
]  # fmt: skip


def bits(x: float) -> str:
    """The binary32 nearest to x, as the eight hexadecimal digits that vmath_sweep reads."""
    return f"{struct.unpack('<I', struct.pack('<f', x))[0]:08x}"


def is_nan(word: str) -> bool:
    return int(word, 16) & 0x7FFFFFFF > 0x7F800000


def cpu_flags() -> set[str]:
    cpuinfo = Path("/proc/cpuinfo")
    if not cpuinfo.exists():
        return set()
    lines = cpuinfo.read_text(encoding="utf-8").splitlines()
    return {word for line in lines if line.startswith("flags") for word in line.split()[2:]}


def compiler() -> str:
    found = shutil.which("cc") or shutil.which("gcc")
    assert found, "the tests of vmath.h need a C compiler named cc or gcc"
    return found


def run(*command: object) -> str:
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command} gave {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="session")
def sweep(tmp_path_factory):
    """sweep(target) is the path of vmath_sweep compiled for a target, once per session."""
    folder = tmp_path_factory.mktemp("vmath")
    built: dict[str, Path] = {}

    def build(target: str) -> Path:
        flags, needs = TARGETS[target]
        missing = needs - cpu_flags()
        if missing:
            pytest.skip(f"this CPU lacks {', '.join(sorted(missing))}")
        if target not in built:
            program = folder / target
            source = HERE / "vmath_sweep.c"
            run(compiler(), *STRICT, *CONTRACT, *flags, f"-I{CSRC}", source, "-o", program, "-lm")
            built[target] = program
        return built[target]

    return build


@pytest.fixture(scope="session")
def fastest(sweep):
    """The program of the widest target that this CPU has."""
    flags = cpu_flags()
    return sweep([name for name, (_, needs) in TARGETS.items() if needs <= flags][-1])


def worst_error(program: Path, function: str, start: int, count: int, stride: int):
    words = run(program, "error", function, f"{start:x}", count, stride).split()
    return float(words[2]), words[4], int(words[7])


def test_sweep_knows_exactly_these_functions(fastest):
    assert sorted(run(fastest, "list").split()) == sorted(FUNCTIONS)
    assert sorted(SPECIAL) == sorted(FUNCTIONS)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_n3_within_two_ulp_on_a_sample(fastest, function):
    """N3: at most 2 ulp from the true value (slopes: or 2^-23)."""
    worst, where, over = worst_error(fastest, function, 1, SAMPLE, SAMPLE_STRIDE)
    assert over == 0, f"{function}({where}) is {worst} ulp off; {over} inputs are over 2"


@pytest.mark.slow
@pytest.mark.parametrize("function", FUNCTIONS)
def test_n3_within_two_ulp_of_all_inputs(fastest, function):
    """N3: at most 2 ulp from the true value (slopes: or 2^-23), for all 2^32 inputs."""
    parts = 16
    size = SPACE // parts
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = pool.map(lambda part: worst_error(fastest, function, part * size, size, 1), range(parts))
        worst, where, _ = max(found)
    assert worst <= 2.0, f"{function}({where}) is {worst} ulp off"


@pytest.mark.parametrize("function", FUNCTIONS)
def test_n3_within_two_ulp_at_the_seams(fastest, function):
    """N3: the bound holds on both sides of every threshold in the definitions."""
    near = [seam + step for seam in SEAMS for step in (-1, 0, 1)]
    words = [f"{sign | b:08x}" for b in near for sign in (0, 0x80000000)]
    for line in run(fastest, "values", function, *words).splitlines():
        x, y, error = line.split()
        assert float(error) <= 2.0, f"{function}({x}) = {y} is {error} ulp off"


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_n3_special_values_are_exact(sweep, target, function):
    """N3: infinities, zeros and their signs, saturation; NaN in gives NaN out."""
    cases = [(bits(x), bits(y)) for x, y in SPECIAL[function]]
    cases += [(nan, bits(NAN)) for nan in ("7fc00000", "ffc00000", "7f800001", "ffffffff")]
    out = run(sweep(target), "values", function, *(x for x, _ in cases)).splitlines()
    for (x, expected), line in zip(cases, out, strict=True):
        y = line.split()[1]
        assert y == expected or (is_nan(y) and is_nan(expected)), f"{function}({x}) = {y}"


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("target", [t for t in TARGETS if t != "plain"])
def test_n3_same_bits_on_every_target(sweep, target, function):
    """N3: one text, one result; no instruction set, vector width or optimisation changes it."""
    args = ("hash", function, "3", SAMPLE // 4, 4 * SAMPLE_STRIDE + 1)
    assert run(sweep(target), *args) == run(sweep("plain"), *args)


@pytest.mark.slow
@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("target", ["avx2", "avx512"])
def test_n3_same_bits_on_every_target_for_a_sixteenth_of_all_inputs(sweep, target, function):
    """N3, as above, for 2^28 inputs: without FMA instructions more would take hours."""
    args = ("hash", function, "5", 2**28, 17)
    with ThreadPoolExecutor(2) as pool:
        one, other = pool.map(lambda program: run(program, *args), (sweep(target), sweep("plain")))
    assert one == other


@pytest.mark.parametrize("isa", ["avx2,fma", "avx512f"])
@pytest.mark.parametrize("function", VECTORISED)
def test_a_plain_loop_vectorises(tmp_path, isa, function):
    """A loop over the function becomes vector code by itself, with no call left in it."""
    if platform.machine() not in ("x86_64", "AMD64"):
        pytest.skip(f"{isa} is an x86-64 instruction set, this is {platform.machine()}")
    if "Free Software Foundation" not in run(compiler(), "--version"):
        pytest.skip("the report that is read here is GCC's")
    source = tmp_path / "loop.c"
    source.write_text(
        f'#pragma GCC target("{isa}")\n#include "vmath.h"\n'
        "void loop(const float *restrict x, float *restrict y, long n) {\n"
        f"  for (long i = 0; i < n; ++i) y[i] = volta_{function}(x[i]);\n}}\n",
        encoding="utf-8",
    )
    report, assembly = tmp_path / "report", tmp_path / "loop.s"
    run(
        compiler(), *STRICT, *CONTRACT, "-O3", "-mprefer-vector-width=512", f"-I{CSRC}",
        f"-fopt-info-vec-optimized={report}", "-S", source, "-o", assembly,
    )  # fmt: skip
    width = 64 if isa == "avx512f" else 32
    assert f"loop vectorized using {width} byte vectors" in report.read_text(encoding="utf-8")
    assert "call" not in assembly.read_text(encoding="utf-8")


# counter, key -> block: the known answers of the Random123 distribution (kat_vectors)
PHILOX = {
    ("0 0 0 0", "0 0"): "6627e8d5 e169c58d bc57ac4c 9b00dbd8",
    (
        "ffffffff ffffffff ffffffff ffffffff",
        "ffffffff ffffffff",
    ): "408f276d 41c83b0e a20bc7c6 6d5451fd",
    (
        "243f6a88 85a308d3 13198a2e 03707344",
        "a4093822 299f31d0",
    ): "d16cfe09 94fdcceb 5001e420 24126ea1",
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("counter", "key"), PHILOX)
def test_n8_philox_known_answers(sweep, target, counter, key):
    """N8: the generator is Philox4x32-10."""
    block = run(sweep(target), "philox", *counter.split(), *key.split()).strip()
    assert block == PHILOX[counter, key]


def test_n8_uniform_is_in_zero_one(sweep):
    """N8: the top 24 bits times 2^-24, so 0 and 1 - 2^-24 are the extremes and 1 is never drawn."""
    program = sweep("plain")
    for word, value in (("0", 0.0), ("ff", 0.0), ("100", 2.0**-24), ("ffffffff", 1 - 2.0**-24)):
        assert float.fromhex(run(program, "uniform", word, 1, 1).split()[1]) == value
    words = run(program, "uniform", "0", SAMPLE, SAMPLE_STRIDE).split()
    assert 0.0 <= float.fromhex(words[1]) < float.fromhex(words[3]) < 1.0


def test_n8_normal_pair_is_finite_at_its_extremes(sweep):
    """N8: u1 is in (0, 1]: 1 gives the point 0, 2^-24 gives the largest radius, sqrt(48 ln 2)."""
    program = sweep("plain")
    assert run(program, "pair", "ffffffff", "0").split() == ["00000000", "00000000"]
    z0, z1 = run(program, "pair", "0", "0").split()
    radius = struct.unpack(">f", bytes.fromhex(z0))[0]
    assert math.isclose(radius, math.sqrt(48 * math.log(2)), rel_tol=2.0**-22)
    assert z1 == "00000000"


@pytest.mark.parametrize("target", TARGETS)
def test_n8_normal_values_are_standard_and_equal_on_every_target(sweep, target):
    """N8: mean 0 and variance 1 within five standard errors, the same bits on every target."""
    count = 400_000
    out = run(sweep(target), "normal", count)
    words = out.split()
    assert abs(float(words[1])) < 5 / math.sqrt(count)
    assert abs(float(words[3]) - 1.0) < 5 * math.sqrt(2 / count)
    assert float(words[5]) < 5.77
    assert out == run(sweep("plain"), "normal", count)
