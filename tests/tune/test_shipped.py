"""Tables that ship with the package: used without being asked for, below the cache's, and changing no bit."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from tests.ops.parity import assert_same_bits, isas
from tests.tune.products import KINDS, step_of

from volta.backends.cpu import native, tuned
from volta.backends.cpu.tuned import DEFAULT, Blocks, TunedWarning
from volta.cli import main
from volta.errors import UsageError, VoltaError
from volta.runtime import gateway
from volta.runtime.policy import Policy

FAST = isas()[1:]
pytestmark = pytest.mark.skipif(not FAST, reason="this processor has no tiles to choose from")

ISA = isas()[-1]
KEY, OTHER, THIRD = (f"f32 x f32 {m}x30x40 a rows/40 b rows/30 {ISA} 1 threads" for m in (20, 21, 22))
ONE, TWO = Blocks(kc=64, gain=1.25), Blocks(kc=96, nc=256, gain=1.5)
DAMAGE: dict[str, tuple[Callable[[dict[str, Any]], dict[str, Any]], str]] = {
    "another hash": (lambda document: {**document, "sha256": "0" * 64}, "do not have the hash"),
    "a later schema": (lambda document: {**document, "schema": "volta-tuned/2"}, "has schema"),
    "blocks that no kernel takes": (lambda document: signed(document, kc=48), "kc is 48"),
}


def ship(entries: dict[str, Blocks], name: str = "") -> Path:
    """As a file of the package."""
    path = tuned.SHIPPED / (name or tuned.name_of_table())
    path.parent.mkdir(exist_ok=True)
    plain = {key: asdict(value) for key, value in entries.items()}
    fields = {"schema": tuned.SCHEMA, "processor": tuned.processor(), "blocks": plain}
    path.write_text(json.dumps({**fields, "sha256": tuned._sha256(plain)}))
    tuned.forget()
    return path


def signed(document: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """An entry changed, the hash made anew."""
    document["blocks"][KEY].update(changes)
    return {**document, "sha256": tuned._sha256(document["blocks"])}


@pytest.fixture
def volta(cache: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """What `volta tune ARGUMENTS` prints."""

    def run(*arguments: str) -> str:
        with pytest.raises(SystemExit) as caught:
            main(["tune", *arguments])
        assert caught.value.code == 0
        return capsys.readouterr().out

    return run


# --- used --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("isa", FAST)
@pytest.mark.parametrize("name", KINDS)
def test_a_product_uses_its_shipped_row_and_keeps_its_bits(cache: Path, isa: str, name: str) -> None:
    product, policy = KINDS[name], Policy(isa=isa, threads=2)
    plain = gateway.compile(product.graph, policy)
    key, _ = step_of(product.graph, isa, 2)
    tile = native.tiles_of(product.a, isa)[0]
    blocks = Blocks(tile.name, 64, 64, 256, 5, 10, 1)
    ship({key: blocks})
    executable = gateway.compile(product.graph, policy)
    assert [step.ints[-7:] for step in executable.plan.steps] == [blocks.ints()]
    assert executable.plan.fingerprint != plain.plan.fingerprint
    assert executable.signature == f"{plain.signature}/tuned {gateway.tuned_table().digest}"
    assert_same_bits(executable.run(product.arrays())[0], product.expected(), name)
    gateway.keep_tuned({key: DEFAULT})
    assert gateway.compile(product.graph, policy) is plain


def test_the_caches_entries_stand_over_the_shipped_ones_key_by_key(cache: Path) -> None:
    ship({KEY: ONE, OTHER: ONE})
    tuned.add({OTHER: TWO, THIRD: TWO})
    tables = tuned.tables()
    assert tables.shipped == {KEY: ONE, OTHER: ONE}
    assert tables.cached == {OTHER: TWO, THIRD: TWO}
    assert tuned.current() is tables.used
    assert tables.used.blocks == {KEY: ONE, OTHER: TWO, THIRD: TWO}
    tuned.clear()
    assert tuned.current().blocks == {KEY: ONE, OTHER: ONE}


def test_several_files_of_a_processor_are_one_table_later_names_over_earlier_ones(cache: Path) -> None:
    ship({KEY: ONE, OTHER: ONE}, "a.json")
    ship({KEY: TWO}, "b.json")
    ship({THIRD: TWO}, "c.txt")
    assert tuned.current().blocks == {KEY: TWO, OTHER: ONE}


def test_no_directory_and_an_empty_one_are_no_table(cache: Path) -> None:
    assert not tuned.SHIPPED.exists()
    assert tuned.current().blocks == {}
    tuned.SHIPPED.mkdir()
    tuned.forget()
    assert tuned.current().blocks == {}


def test_files_are_read_once_whatever_is_asked_and_written(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cache's again after it was written, and for another directory; what ships never."""
    path = ship({KEY: ONE})
    opened: list[Path] = []
    real = tuned._content

    def content(path: Path) -> bytes | None:
        opened.append(path)
        return real(path)

    monkeypatch.setattr(tuned, "_content", content)
    for _ in range(3):
        tuned.current()
        gateway.tuned_tables()
    assert opened == [path, tuned.path_of_table()]
    tuned.add({OTHER: TWO})
    monkeypatch.setenv("VOLTA_CACHE", str(cache / "other"))
    assert tuned.current().blocks == {KEY: ONE}
    assert opened.count(path) == 1
    tuned.forget()
    tuned.current()
    assert opened.count(path) == 2


# --- switched off ------------------------------------------------------------------------------------


def test_the_defaults_blocks_in_the_cache_switch_a_shipped_entry_off(cache: Path) -> None:
    """They stay in the file; those of a key that does not ship take the entry out."""
    ship({KEY: ONE, OTHER: ONE})
    tuned.add({KEY: TWO, THIRD: TWO})
    path = tuned.add({KEY: DEFAULT, THIRD: DEFAULT})
    assert tuned.read(path).blocks == {KEY: DEFAULT}
    assert tuned.current().blocks == {OTHER: ONE}
    tuned.forget()
    assert tuned.current().blocks == {OTHER: ONE}
    assert tuned.current().digest == tuned.Table({OTHER: ONE}).digest
    tuned.add({KEY: TWO})
    assert tuned.current().blocks == {KEY: TWO, OTHER: ONE}


def test_what_no_table_ships_any_more_needs_no_switch(cache: Path) -> None:
    shipped = ship({KEY: ONE})
    path = tuned.add({KEY: DEFAULT})
    shipped.unlink()
    tuned.forget()
    assert tuned.current().blocks == {}
    tuned.add({OTHER: TWO})
    assert tuned.read(path).blocks == {OTHER: TWO}


# --- not used ----------------------------------------------------------------------------------------


def assert_reported_once(path: Path, said: str, left: dict[str, Blocks]) -> None:
    tuned.forget()
    with pytest.warns(TunedWarning, match=said) as caught:
        assert tuned.current().blocks == left
    assert [str(one.message).startswith(f"[tuned] {path} ") for one in caught] == [True]
    assert str(caught[0].message).endswith(": it is ignored")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tuned.add({OTHER: TWO})
        assert tuned.current().blocks == {**left, OTHER: TWO}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_shipped_file_is_reported_once_and_ignored_whole(cache: Path, name: str) -> None:
    """And no other file with it."""
    ship({THIRD: ONE}, "z.json")
    path = ship({KEY: ONE, OTHER: ONE}, "a.json")
    change, said = DAMAGE[name]
    path.write_text(json.dumps(change(json.loads(path.read_bytes()))))
    assert_reported_once(path, said, {THIRD: ONE})


def test_what_is_no_table_at_all_is_reported_once_and_ignored(cache: Path) -> None:
    path = ship({KEY: ONE})
    path.write_bytes(b"{")
    assert_reported_once(path, "is damaged", {})
    path.write_bytes(b" " * (tuned.LARGEST_FILE + 1))
    tuned.clear()
    assert_reported_once(path, "more than", {})
    path.unlink()
    os.mkfifo(path)
    tuned.clear()
    assert_reported_once(path, "it is no regular file", {})


@pytest.mark.parametrize(
    "change",
    [{"cpu": "Another"}, {"abi": native.ABI_VERSION + 1}, {"tiles": []}],
    ids=lambda one: next(iter(one)),
)
def test_a_table_of_another_processor_is_passed_over_in_silence(cache: Path, change: dict[str, Any]) -> None:
    """Unjudged, for its blocks may be right there; warnings are errors in tests."""
    path = ship({KEY: Blocks(tile="f32_matmul_99x99_neon")}, "a.json")
    document = json.loads(path.read_bytes())
    path.write_text(json.dumps({**document, "processor": {**document["processor"], **change}}))
    ship({OTHER: ONE}, "b.json")
    assert tuned.current().blocks == {OTHER: ONE}


def test_more_files_than_are_read_is_said(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuned, "MOST_FILES", 1)
    ship({KEY: ONE}, "a.json")
    assert_reported_once(ship({OTHER: ONE}, "b.json"), "one too many", {KEY: ONE})


# --- show and clear ----------------------------------------------------------------------------------


def test_show_says_of_each_entry_where_it_comes_from(volta: Callable[..., str]) -> None:
    """One ships, one is in the cache, one switches a shipped one off."""
    ship({KEY: ONE, OTHER: ONE})
    tuned.add({OTHER: DEFAULT, THIRD: TWO})
    shown = json.loads(volta("show", "--json"))["blocks"]
    assert shown == {
        KEY: {**asdict(ONE), "from": "shipped"},
        OTHER: {**asdict(DEFAULT), "from": "cache"},
        THIRD: {**asdict(TWO), "from": "cache"},
    }
    lines = volta("show").splitlines()
    assert lines[:2] == [
        f"{tuned.path_of_table()}: 2 entries",
        "shipped with Volta: 2 entries, 1 in use",
    ]
    rows = [line.split("│")[1:-1] for line in lines if "x30x40" in line]
    assert [(row[2].strip(), row[3].strip()) for row in rows] == [
        ("-", "shipped"),
        ("the default", "cache"),
        ("-", "cache"),
    ]


def test_clear_clears_the_cache_and_says_what_stays(volta: Callable[..., str]) -> None:
    shipped = ship({KEY: ONE, OTHER: ONE})
    path = tuned.add({KEY: DEFAULT})
    stay = "shipped with Volta: 2 entries, 2 in use\n"
    assert volta("clear") == f"removed {path}\n{stay}"
    assert volta("clear") == f"nothing was tuned: no {path}\n{stay}"
    assert shipped.exists()
    assert tuned.current().blocks == {KEY: ONE, OTHER: ONE}


# --- export ------------------------------------------------------------------------------------------


def test_what_is_exported_ships(cache: Path) -> None:
    """Under the name of this processor, in a directory that is made."""
    tuned.add({KEY: ONE, OTHER: TWO})
    path = tuned.SHIPPED / tuned.name_of_table()
    assert path.name == tuned.path_of_table().name
    assert tuned.export(path) == 2
    assert gateway.tuned_tables().shipped == tuned.read(path).blocks == {KEY: ONE, OTHER: TWO}
    assert [one.name for one in tuned.SHIPPED.iterdir()] == [path.name]
    tuned.clear()
    assert tuned.current().blocks == {KEY: ONE, OTHER: TWO}


def test_an_export_leaves_other_entries_and_takes_out_what_is_switched_off(cache: Path) -> None:
    path = ship({KEY: ONE, OTHER: ONE, THIRD: ONE})
    tuned.add({KEY: DEFAULT, OTHER: TWO})
    assert tuned.export(path, [OTHER]) == 3
    assert tuned.read(path).blocks == {KEY: ONE, OTHER: TWO, THIRD: ONE}
    assert gateway.export_tuned(path, [KEY]) == 2
    assert tuned.read(path).blocks == {OTHER: TWO, THIRD: ONE}


def test_an_export_that_changes_nothing_writes_nothing(cache: Path) -> None:
    path = cache / "nowhere" / "t.json"
    assert tuned.export(path) == tuned.export(path, []) == 0
    assert not path.parent.exists()
    path = ship({KEY: ONE})
    before = path.read_bytes(), path.stat().st_ino
    tuned.add({KEY: ONE})
    assert tuned.export(path) == 1
    assert (path.read_bytes(), path.stat().st_ino) == before


def test_an_export_refuses_what_it_cannot_keep(cache: Path, tmp_path: Path) -> None:
    """A key that the cache lacks; a file that is damaged or of another processor; a place that is none."""
    tuned.add({KEY: ONE})
    with pytest.raises(UsageError, match=r"^\[tuned\] '.* 21x30x40 .*' is not in .*: expected a key that is"):
        tuned.export(tmp_path / "t.json", [KEY, OTHER])
    path = ship({OTHER: ONE})
    document = json.loads(path.read_bytes())
    for change in ({"sha256": ""}, {"processor": {**document["processor"], "cpu": "Another"}}):
        path.write_text(json.dumps({**document, **change}))
        before = path.read_bytes()
        with pytest.raises(VoltaError, match=r"^\[tuned\] "):
            tuned.export(path)
        assert path.read_bytes() == before
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(VoltaError, match="cannot be read: Not a directory"):
        tuned.export(tmp_path / "file" / "t.json")


# --- those of this repository ------------------------------------------------------------------------


def test_every_table_that_ships_is_whole_and_has_keys_of_matmuls() -> None:
    """Whatever processor it is for."""
    files = sorted((Path(tuned.__file__).parent / "tables").glob("*"))
    assert len(files) <= tuned.MOST_FILES
    for path in files:
        document = json.loads(path.read_bytes())
        assert path.suffix == ".json"
        assert document["schema"] == tuned.SCHEMA
        assert document["sha256"] == tuned._sha256(document["blocks"])
        assert document["processor"].keys() == tuned.processor().keys()
        for key, blocks in document["blocks"].items():
            assert tuned.KEY.fullmatch(key)
            assert Blocks(**blocks) != DEFAULT
