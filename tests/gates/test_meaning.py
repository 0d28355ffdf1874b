"""What a diff takes from its judges is found by meaning, and what it does not take is left alone."""

from __future__ import annotations

import pytest
from gates.law.meaning import compare, read

TESTS = """
import pytest
import numpy as np

SIZES = (1, 2, 3)
ULPS = 2
LIMIT_BYTES = 32 << 20

@pytest.mark.parametrize("n", [1, 2, 3])
def test_one(n: int) -> None:
    assert n
    with pytest.raises(ValueError, match="x"):
        f(n)

def test_two() -> None:
    np.testing.assert_allclose(f(1), 2, rtol=1e-4, atol=2 * 2**-24)
    assert_parity(g)

def test_three(rounds: int = 5) -> None:
    run(samples=10)
    assert True is f()
"""


def said(old: str, new: str) -> list[str]:
    assert old in TESTS
    found = compare(read({"tests/test_x.py": TESTS}), read({"tests/test_x.py": TESTS.replace(old, new, 1)}))
    return [str(finding) for finding in found]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("def test_two()", "def two()", "test test_two was deleted"),
        ("    assert n\n", "", "asserts less: 2 before, 1 now"),
        ("    assert n\n", "    assert True\n", "asserts less"),
        ("    assert n\n", "    assert n or True\n", "asserts less"),
        ("    assert_parity(g)\n", "    g()\n", "asserts less"),
        ("def test_two()", "@pytest.mark.skip\ndef test_two()", "has a new pytest.mark.skip"),
        (
            "def test_two()",
            '@pytest.mark.skipif(1, reason="")\ndef test_two()',
            "has a new pytest.mark.skipif",
        ),
        ("def test_two()", "@pytest.mark.xfail\ndef test_two()", "has a new pytest.mark.xfail"),
        ("def test_two()", "@pytest.mark.slow\ndef test_two()", "has a new pytest.mark.slow"),
        ("    assert_parity(g)", '    pytest.skip("no")\n    assert_parity(g)', "has a new pytest.skip"),
        ("[1, 2, 3])", "[1])", "fewer cases: 3 before, 1 now"),
        ("rtol=1e-4", "rtol=1e-2", "tolerance np.testing.assert_allclose.rtol: 0.0001 before, 0.01 now"),
        ("2 * 2**-24", "9 * 2**-24", "tolerance np.testing.assert_allclose.atol"),
        ("ULPS = 2", "ULPS = 3", "tolerance ULPS"),
        ("SIZES = (1, 2, 3)", "SIZES = (1,)", "SIZES: 3 entries before, 1 now"),
        ("32 << 20", "32 << 10", "LIMIT_BYTES"),
        ("samples=10", "samples=2", "run.samples: 10 before, 2 now"),
        ("rounds: int = 5", "rounds: int = 1", "test_three.rounds"),
        ("import numpy as np", "import numpy as (", "cannot be parsed"),
    ],
)
def test_what_judges_less_is_said(old: str, new: str, expected: str) -> None:
    assert any(expected in line for line in said(old, new)), said(old, new)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("def test_two()", "def test_renamed()"),
        ("    assert n\n", "    assert n\n    assert n > 0\n"),
        ("rtol=1e-4", "rtol=1e-6"),
        ("SIZES = (1, 2, 3)", "SIZES = (1, 2, 3, 4)"),
        ("samples=10", "samples=20"),
        ("[1, 2, 3])", "[1, 2, 3, 4])"),
        ("SIZES = ", "# what a kernel keeps\nSIZES = "),
    ],
)
def test_what_judges_as_much_is_left_alone(old: str, new: str) -> None:
    assert said(old, new) == []


def test_a_test_that_moves_to_another_file_has_not_gone() -> None:
    assert compare(read({"tests/test_x.py": TESTS}), read({"tests/test_y.py": TESTS})) == []


def test_a_helper_that_asserts_less_is_found() -> None:
    before = read({"tests/parity.py": "def check_all(x):\n    assert x\n    assert x > 1\n"})
    after = read({"tests/parity.py": "def check_all(x):\n    assert x\n"})
    assert [str(one) for one in compare(before, after)] == ["tests/parity.py: assertions: 2 before, 1 now"]


@pytest.mark.parametrize("text", ["X_BYTES = 2 ** (10 ** 10)\n", "X_BYTES = 1 / 0\n", "X_BYTES = ~f()\n"])
def test_a_source_cannot_make_the_judge_compute_for_ever(text: str) -> None:
    assert read({"tests/x.py": text}).numbers == {}
