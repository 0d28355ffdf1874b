"""What the sanitizers' reports say is read: errors of kernels, no leaks, nothing of Python's own."""

from __future__ import annotations

from pathlib import Path

from gates.context import Done
from gates.evidence.verdict import Finding

from gates import sanitizers

ERROR = """<error><kind>{kind}</kind><stack>
<frame><obj>/usr/lib/libc.so</obj><fn>memcpy</fn></frame>
<frame><obj>{obj}</obj><fn>volta_reduce_ref</fn><file>reduce.c</file></frame>
</stack></error>"""


def test_memchecks_errors_in_kernels_are_findings_once_and_leaks_are_none(tmp_path: Path) -> None:
    native, python = "/x/volta/_native.abi3.so", "/usr/bin/python3"
    report = tmp_path / "memcheck.xml"
    kinds = (("UninitCondition", native), ("UninitCondition", native), ("UninitValue", python))
    leaks = (("Leak_DefinitelyLost", native), ("Leak_PossiblyLost", native))
    text = "".join(ERROR.format(kind=kind, obj=obj) for kind, obj in (*kinds, *leaks))
    report.write_text(f"<valgrindoutput>{text}</valgrindoutput>")
    assert sanitizers.errors(report) == [Finding("memcheck: UninitCondition in volta_reduce_ref", "reduce.c")]


def test_a_report_of_the_compilers_sanitizers_is_a_finding_with_its_place() -> None:
    output = (
        "engine/csrc/cpu/ref/reduce.c:41:3: runtime error: signed integer overflow\n"
        "SUMMARY: UndefinedBehaviorSanitizer: undefined-behavior engine/csrc/cpu/ref/reduce.c:41:3\n"
    )
    first, second = sanitizers.reports(Done(["x"], 1, output, 0.0))
    assert (first.path, first.line) == ("engine/csrc/cpu/ref/reduce.c", 41)
    assert first.message == "runtime error: signed integer overflow"
    assert second.message.startswith("SUMMARY")


def test_a_worker_that_dies_without_a_word_is_a_finding_and_one_that_ends_well_is_none() -> None:
    (one,) = sanitizers.reports(Done(["x"], 134, "", 0.0))
    assert "exit code 134" in one.message
    assert list(sanitizers.reports(Done(["x"], 0, "fine", 0.0))) == []
