"""The capability matrix is what the tables say, line by line."""

from __future__ import annotations

from pathlib import Path

from gates import capability

ROOT = Path(__file__).parents[2]


def test_targets_are_own_kernels_or_plain_c() -> None:
    text = (
        "VOLTA_TARGET(COPY,   copy_ref,   copy_avx2,  copy_avx512)\n"
        "VOLTA_TARGET(GATHER, gather_ref, gather_ref, gather_ref)\n"
        "VOLTA_TARGET_WORKSPACE(COPY, a, b, c)\n"
    )
    assert capability.targets(text) == {"copy": ("C", "own", "own"), "gather": ("C", "C", "C")}


def test_a_line_says_what_runs_an_operation() -> None:
    kernels = {"copy": ("C", "own", "own")}
    assert capability.line(["pad", "copy", "copy", "N0", "x:any", "yes"], kernels) == (
        "| pad | x:any | N0 | yes | C | own | own |"
    )
    assert capability.line(["slice", "view", "", "N0", "x:any", "yes"], kernels).endswith(
        "| view | view | view |"
    )
    assert "| none |" in capability.line(["odd", "row", "odd", "N0", "x*", "no"], kernels)


def test_the_page_has_a_row_for_every_operation() -> None:
    from volta.ir.ops import OPS

    text = (ROOT / capability.PATH).read_text()
    computed = [op.name for op in OPS.values() if op.kind not in ("leaf", "result", "fused")]
    assert [line.split(" | ")[0].removeprefix("| ") for line in text.splitlines() if line.startswith("| ")][
        1:
    ] == computed
