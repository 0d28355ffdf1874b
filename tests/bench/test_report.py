"""A result as JSON, CSV, Markdown and picture: what is written is what was measured, and reads back."""

from __future__ import annotations

import copy
import csv
import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.bench.conftest import SCHEMA, valid
from tests.bench.results import drawn, measurement, report

from volta.bench import plot
from volta.bench.reading import ReportError, read_json
from volta.bench.report import (
    Report,
    comma_separated,
    counted,
    duration,
    header,
    markdown,
    rows,
    write_bytes,
    write_json,
)
from volta.errors import CheckpointError, UsageError

DOCUMENT = report(
    measurement(drawn(0, 1e-3, 2e-3)),
    measurement({"volta": drawn(1, 1e-3, 2e-3)["volta"]}, name="int8 8x8x8", threads=2),
    skipped=("torch: not installed",),
).document()


@pytest.fixture
def result() -> Report:
    return report(
        measurement({"volta": [1e-3, 2e-3, 3e-3], "numpy": [2e-3, 4e-3, 9e-3]}),
        measurement({"volta": [4e-3, 4e-3, 4e-3]}, name="int8 8x8x8", threads=2),
        skipped=("torch: not installed",),
    )


# --- JSON ------------------------------------------------------------------------------------------


def test_a_result_reads_back_as_it_was_written(result: Report, tmp_path: Path) -> None:
    write_json(result, tmp_path / "a.json")
    assert read_json(tmp_path / "a.json") == result
    assert valid(result.document())


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of all values inside a document."""
    if path:
        yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from places(inner, (*path, key))


PLAIN = json.loads(json.dumps(DOCUMENT))
DERIVED = ("summary",)  # computed anew from what is read


@given(
    path=st.sampled_from([path for path in places(PLAIN) if path[0] not in DERIVED]),
    value=st.sampled_from(
        [None, True, -1, 0, 1, 1e-9, 10**400, 1e999, float("nan"), "text", [], {}, [[]], {"a": 1}]
    ),
)
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_damage_to_one_value_gets_further_than_the_reader(
    path: tuple[Any, ...], value: Any, tmp_path: Path
) -> None:
    """What the reader lets pass can be shown, summed up and compared: no NaN, no zero seconds, no gap."""
    document = copy.deepcopy(PLAIN)
    holder = document
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] = value
    (tmp_path / "a.json").write_text(json.dumps(document).replace("Infinity", "1e999"))
    try:
        found = read_json(tmp_path / "a.json")
    except ReportError:
        return
    for one in found.measurements:
        for bounds in (*one.sides.values(), *one.ratios.values()):
            assert 0 < bounds.low <= bounds.median <= bounds.high
    assert markdown(found)
    assert comma_separated(found)
    # machine, method, rooflines: only what a table shows of them is read
    read = {**document, **{name: PLAIN[name] for name in ("suite", "machine", "method", "rooflines")}}
    assert valid(read)
    json.dumps(read, allow_nan=False)


@pytest.mark.parametrize(
    "path", [path for path in places(PLAIN) if isinstance(path[-1], str) and path[0] in ("measurements",)]
)
def test_a_missing_value_is_named(path: tuple[Any, ...], tmp_path: Path) -> None:
    """Where the schema requires it."""
    document = copy.deepcopy(PLAIN)
    holder = document
    for key in path[:-1]:
        holder = holder[key]
    del holder[path[-1]]
    (tmp_path / "a.json").write_text(json.dumps(document))
    if path[-1] == "numpy" and "sides" in path:  # its ratio is still there
        with pytest.raises(ReportError, match=r"sides\.numpy is missing"):
            read_json(tmp_path / "a.json")
    elif valid(document):
        read_json(tmp_path / "a.json")
    else:
        with pytest.raises(ReportError, match=f"{path[-1]} is missing"):
            read_json(tmp_path / "a.json")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is not JSON"),
        (b"nonsense", "is not JSON"),
        (b"\xff\xfe\x00", "is not JSON"),
        (b"[" * 100_000, "is not JSON"),
        (b"[]", "has schema 'list': expected 'volta-bench/1'"),
        (b'{"schema": "volta-bench/2"}', "has schema 'volta-bench/2'"),
        (b'{"schema": "volta-bench/1"}', "machine is missing"),
    ],
)
def test_what_is_no_result_is_refused_by_name(content: bytes, said: str, tmp_path: Path) -> None:
    path = tmp_path / "baseline.json"
    path.write_bytes(content)
    with pytest.raises(ReportError, match=r"baseline\.json") as error:
        read_json(path)
    assert said in str(error.value)


def test_the_schema_refuses_what_it_does_not_know() -> None:
    """A field that nobody documented is an error of the writer, found here."""
    assert valid(PLAIN)
    for holder in ({**PLAIN, "extra": 1}, {**PLAIN, "machine": {**PLAIN["machine"], "extra": 1}}):
        assert not valid(holder)
    assert not valid({**PLAIN, "schema": "volta-bench/2"})


def test_the_schema_describes_every_field_of_a_result() -> None:
    fields = SCHEMA["$defs"]["report"]["properties"]
    assert set(fields) == set(DOCUMENT)
    assert set(SCHEMA["$defs"]["measurement"]["properties"]) == set(DOCUMENT["measurements"][0])
    assert set(SCHEMA["$defs"]["timing"]["properties"]) == set(DOCUMENT["measurements"][0]["sides"]["volta"])
    assert set(SCHEMA["$defs"]["ratio"]["properties"]) == set(DOCUMENT["measurements"][0]["ratios"]["numpy"])


# --- tables ----------------------------------------------------------------------------------------


def test_the_summary_is_the_geometric_mean_of_the_cases_a_peer_has(result: Report) -> None:
    assert result.summary() == {"numpy": {"geometric_mean": 2.0, "least": 2.0, "most": 2.0, "cases": 1}}


def test_markdown_has_every_case_and_names_what_was_skipped(result: Report) -> None:
    lines = markdown(result).splitlines()
    table = [line for line in lines if line.startswith("|")]
    assert len(table) == 2 + len(result.measurements)
    assert {line.count("|") for line in table} == {len(header(result)) + 1}
    assert "2.00 (2.00 to 3.00)" in table[2]
    assert table[3].endswith("| - |")
    assert any("skipped: torch: not installed" in line for line in lines)


def test_a_row_has_a_cell_for_every_column(result: Report) -> None:
    assert {len(row) for row in rows(result)} == {len(header(result))}


def test_csv_has_a_line_for_every_side_with_the_measured_numbers(result: Report) -> None:
    lines = list(csv.DictReader(io.StringIO(comma_separated(result))))
    assert [(line["case"], line["side"]) for line in lines] == [
        ("f32 8x8x8", "volta"),
        ("f32 8x8x8", "numpy"),
        ("int8 8x8x8", "volta"),
    ]
    assert float(lines[1]["median_seconds"]) == 4e-3
    assert (float(lines[1]["ratio"]), lines[0]["ratio"]) == (2.0, "")


@pytest.mark.parametrize(
    ("seconds", "text"), [(2.0, "2 s"), (1.5e-3, "1.5 ms"), (2e-6, "2 us"), (3.4e-9, "3.4 ns")]
)
def test_durations_have_a_unit_that_fits(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_counts_agree_in_number() -> None:
    assert [counted(number, "case") for number in (0, 1, 2)] == ["0 cases", "1 case", "2 cases"]


# --- files -----------------------------------------------------------------------------------------


def test_a_file_that_cannot_be_written_stays_as_it_was(result: Report, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="cannot be written"):
        write_json(result, tmp_path / "missing" / "a.json")
    assert list(tmp_path.iterdir()) == []


def test_no_result_with_nan_is_written(tmp_path: Path) -> None:
    """JSON has no NaN: a reader elsewhere would fail."""
    broken = report(measurement({"volta": [float("nan")]}))
    with pytest.raises(ValueError, match="JSON"):
        write_json(broken, tmp_path / "a.json")
    assert list(tmp_path.iterdir()) == []


def test_a_pipe_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    """An atomic write renames over its target: /dev/null would become a file."""
    link = tmp_path / "null"
    link.symlink_to("/dev/null")
    write_bytes(link, b"gone")
    assert link.is_symlink()
    assert not link.is_file()


# --- the picture -----------------------------------------------------------------------------------


@pytest.fixture
def pyplot(monkeypatch: pytest.MonkeyPatch) -> MagicMock:
    """What stands for matplotlib: the tests do not install it."""
    library, found = MagicMock(), MagicMock()
    axes, figure = MagicMock(), MagicMock()
    axes.get_legend_handles_labels.return_value = ([1, 2], ["volta", "numpy"])
    figure.savefig.side_effect = lambda file, **options: file.write(b"a picture")
    found.subplots.return_value = figure, axes
    library.pyplot = found
    monkeypatch.setitem(sys.modules, "matplotlib", library)
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", found)
    return found


def test_the_picture_has_a_bar_for_every_side_as_long_as_its_share(
    result: Report, pyplot: MagicMock, tmp_path: Path
) -> None:
    plot.draw(result, tmp_path / "a.png")
    figure, axes = pyplot.subplots.return_value
    bars = [(call.args[1], call.kwargs["label"]) for call in axes.barh.call_args_list]
    assert bars == [(0.5, "volta"), (1.0, "numpy"), (1.0, None)]  # each side once in the legend
    assert axes.plot.call_count == 2  # the roofline's limit of each case
    assert figure.savefig.call_args.kwargs["format"] == "png"
    assert (tmp_path / "a.png").read_bytes() == b"a picture"


def test_a_picture_that_fails_leaves_no_file(result: Report, pyplot: MagicMock, tmp_path: Path) -> None:
    def fail(file: io.BytesIO, **options: object) -> None:
        file.write(b"half")
        raise OSError("no font")

    pyplot.subplots.return_value[0].savefig.side_effect = fail
    with pytest.raises(OSError, match="no font"):
        plot.draw(result, tmp_path / "a.png")
    assert list(tmp_path.iterdir()) == []


def test_without_matplotlib_one_line_says_what_to_install(
    result: Report, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(UsageError, match=r"pip install 'volta-runtime\[plot\]'"):
        plot.draw(result, tmp_path / "a.png")


def test_other_formats_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"expected a name that ends in \.png, \.svg, \.pdf"):
        plot.check(tmp_path / "a.gif")
