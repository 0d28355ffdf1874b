"""Text, tokens and batches: the same everywhere, and one clear error for text that cannot train."""

from __future__ import annotations

import hashlib
import os
import sysconfig
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from volta.errors import DataError, UsageError
from volta.ir.philox import philox
from volta.train import data, draws, text
from volta.train.synthetic import synthetic_text
from volta.train.text import load_text, text_sha256
from volta.train.tokenizer import ByteTokenizer

TEXT = np.frombuffer(synthetic_text(5000), np.uint8)


# --- N8: Philox ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("counter", "key", "words"),
    [
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_philox_gives_the_known_answers_of_its_authors(
    counter: tuple[int, ...], key: tuple[int, ...], words: tuple[int, ...]
) -> None:
    """N8: the vectors of Random123's kat_vectors for philox4x32-10."""
    c0, c1, c2, c3 = (np.array([word], np.uint64) for word in counter)
    assert tuple(philox((c0, c1, c2, c3), (key[0], key[1]))[0].tolist()) == words


def _philox_by_hand(counter: list[int], key: list[int]) -> list[int]:
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = p1 >> 32 ^ c1 ^ k0, p1 % 2**32, p0 >> 32 ^ c3 ^ k1, p0 % 2**32
        k0, k1 = (k0 + 0x9E3779B9) % 2**32, (k1 + 0xBB67AE85) % 2**32
    return [c0, c1, c2, c3]


def test_a_window_start_is_the_documented_function_of_seed_step_and_row() -> None:
    """floor(w * n / 2^64) with w = word 0 + 2^32 word 1 of counter (row, 0, "data", step)."""
    seed, step, n = 0x0123456789ABCDEF, 3, 4_000_000_007
    drawn = draws.integers(seed, draws.DATA_STREAM, step, 5, n)
    for row, value in enumerate(drawn.tolist()):
        words = _philox_by_hand([row, 0, 0x64617461, step], [seed % 2**32, seed >> 32])
        assert value == (words[0] + (words[1] << 32)) * n >> 64


def test_a_negative_seed_is_its_two_s_complement() -> None:
    np.testing.assert_array_equal(draws.blocks(-1, 0, 0, 3), draws.blocks(2**64 - 1, 0, 0, 3))


@pytest.mark.parametrize(("stream", "step"), [(-1, 0), (0, -1), (1 << 32, 0), (0, 1 << 32)])
def test_counters_outside_32_bits_are_refused(stream: int, step: int) -> None:
    with pytest.raises(UsageError, match=r"expected 0 \.\. 2\^32 - 1"):
        draws.blocks(0, stream, step, 1)


def test_steps_drawn_together_are_the_steps_drawn_alone() -> None:
    together = draws.integers(7, draws.DATA_STREAM, range(60, 70), 5, 1000)
    for row, step in zip(together, range(60, 70), strict=True):
        np.testing.assert_array_equal(row, draws.integers(7, draws.DATA_STREAM, step, 5, 1000))


@pytest.mark.parametrize("step", [0, data.AT_ONCE - 1, data.AT_ONCE, (1 << 32) - 1])
def test_a_batch_is_a_function_of_its_own_step(step: int) -> None:
    tokens = np.arange(1000)
    inputs, targets = data.Batches(tokens, 5, 8, seed=7).at(step)
    np.testing.assert_array_equal(inputs[:, 0], draws.integers(7, draws.DATA_STREAM, step, 5, 992))
    np.testing.assert_array_equal(targets, inputs + 1)


@pytest.mark.parametrize("below", [0, -1, 1 << 32])
def test_ranges_outside_32_bits_are_refused(below: int) -> None:
    with pytest.raises(UsageError, match="below is"):
        draws.integers(0, 0, 0, 1, below)


def test_every_value_of_a_range_is_drawn_about_equally_often() -> None:
    counts = np.bincount(draws.integers(1, 2, 3, 70_000, 7), minlength=7)
    assert counts.sum() == 70_000
    assert abs(counts - 10_000).max() < 500  # five standard deviations


# --- batches ---------------------------------------------------------------------------------------


def test_a_batch_depends_on_seed_and_step_alone() -> None:
    one = data.Batches(TEXT, 4, 16, seed=1)
    forward = [one.at(step) for step in range(5)]
    for step in reversed(range(5)):
        again = data.Batches(TEXT.copy(), 4, 16, seed=1).at(step)
        for a, b in zip(forward[step], again, strict=True):
            np.testing.assert_array_equal(a, b)
    drawn = {inputs.tobytes() for inputs, _ in forward} | {
        data.Batches(TEXT, 4, 16, seed=2).at(0)[0].tobytes()
    }
    assert len(drawn) == 6


def test_the_first_batch_of_the_synthetic_text_is_pinned() -> None:
    """Pinned: the batches of a published run may never change."""
    inputs, targets = data.Batches(TEXT, 12, 64, seed=1).at(0)
    digest = hashlib.sha256(inputs.astype("<i4").tobytes() + targets.astype("<i4").tobytes()).hexdigest()
    assert digest == "aeacb02db279248fa02ba6bc8f95ed318fed68cfb5dfcb5c02c69dd180966b01"


def test_rows_do_not_depend_on_the_size_of_the_batch() -> None:
    small, large = data.Batches(TEXT, 2, 16, 9).at(4)[0], data.Batches(TEXT, 7, 16, 9).at(4)[0]
    np.testing.assert_array_equal(small, large[:2])


def test_targets_are_the_inputs_one_token_later() -> None:
    inputs, targets = data.Batches(TEXT, 3, 10, 5).at(2)
    assert inputs.shape == targets.shape == (3, 10)
    assert inputs.dtype == targets.dtype == np.int32
    assert inputs.flags.c_contiguous
    assert targets.flags.c_contiguous
    np.testing.assert_array_equal(inputs[:, 1:], targets[:, :-1])
    text_bytes = TEXT.tobytes()
    for row in range(3):
        window = bytes(inputs[row].tolist()) + bytes([int(targets[row, -1])])
        assert window in text_bytes


def test_every_window_can_be_drawn_and_none_leaves_the_text() -> None:
    tokens = np.arange(12, dtype=np.uint16)
    starts = {int(data.Batches(tokens, 1, 8, 0).at(step)[0][0, 0]) for step in range(200)}
    assert starts == {0, 1, 2, 3}


def test_a_text_of_one_window_trains_on_it() -> None:
    inputs, targets = data.Batches(np.arange(9), 2, 8, 0).at(0)
    np.testing.assert_array_equal(inputs, [list(range(8))] * 2)
    np.testing.assert_array_equal(targets, [list(range(1, 9))] * 2)


@pytest.mark.parametrize("kind", [data.Batches, data.Validation])
def test_a_text_below_one_window_is_an_error_with_both_lengths(kind: Any) -> None:
    with pytest.raises(DataError, match=r"has 64 tokens: expected at least 65 \(context 64 \+ 1\)"):
        kind(TEXT[:64], 4, 64, 1)


@pytest.mark.parametrize(("batch", "context", "name"), [(0, 4, "batch"), (4, 0, "context")])
def test_batch_and_context_must_be_positive(batch: int, context: int, name: str) -> None:
    with pytest.raises(UsageError, match=f"{name} is 0: expected at least 1"):
        data.Batches(TEXT, batch, context, 0)


@pytest.mark.parametrize("tokens", [np.zeros((3, 3), np.int32), np.zeros(9, np.float32)])
def test_tokens_are_integers_of_one_axis(tokens: npt.NDArray[Any]) -> None:
    with pytest.raises(DataError, match="expected integers of one axis"):
        data.Batches(tokens, 1, 2, 0)


def test_a_text_that_32_bit_positions_cannot_cover_is_an_error() -> None:
    endless = np.broadcast_to(np.zeros(1, np.uint8), (1 << 32,))
    with pytest.raises(DataError, match="expected at most 4294967295"):
        data.Batches(endless, 1, 8, 0)


# --- validation ------------------------------------------------------------------------------------


def test_validation_windows_are_consecutive_when_they_fill_the_text_exactly() -> None:
    tokens = np.arange(4 * 3 * 5 + 1)
    batches = data.Validation(tokens, batch=3, context=5)
    assert len(batches) == 4
    np.testing.assert_array_equal(np.concatenate([batches.at(i)[0].ravel() for i in range(4)]), tokens[:-1])
    np.testing.assert_array_equal(np.concatenate([batches.at(i)[1].ravel() for i in range(4)]), tokens[1:])


def test_a_limited_validation_spans_the_whole_text() -> None:
    batches = data.Validation(np.arange(10_000), batch=4, context=8, limit=2)
    assert len(batches) == 2
    assert batches.at(0)[0][0, 0] == 0
    assert batches.at(1)[1][-1, -1] == 9_999


def test_a_short_validation_text_gives_one_batch_of_overlapping_windows() -> None:
    batches = data.Validation(np.arange(10), batch=4, context=6)
    assert len(batches) == 1
    np.testing.assert_array_equal(batches.at(0)[0][:, 0], [0, 1, 2, 3])
    one = data.Validation(np.arange(7), batch=2, context=6)
    np.testing.assert_array_equal(one.at(0)[1], [list(range(1, 7))] * 2)
    assert data.Validation(np.arange(30), batch=1, context=20).at(0)[0][0, 0] == 0


def test_validation_batches_outside_the_count_are_refused() -> None:
    batches = data.Validation(TEXT, 4, 64)
    for index in (-1, len(batches)):
        with pytest.raises(IndexError, match=r"expected 0 \.\."):
            batches.at(index)
    with pytest.raises(UsageError, match="limit is 0"):
        data.Validation(TEXT, 4, 64, limit=0)


@pytest.mark.parametrize(("fraction", "sizes"), [(0.0, (5000, 0)), (0.1, (4500, 500)), (0.99999, (1, 4999))])
def test_the_last_tokens_validate(fraction: float, sizes: tuple[int, int]) -> None:
    training, validation = data.split(TEXT, fraction)
    assert (len(training), len(validation)) == sizes
    np.testing.assert_array_equal(np.concatenate((training, validation)), TEXT)


@pytest.mark.parametrize("fraction", [-0.1, 1.0, float("nan")])
def test_a_validation_fraction_outside_its_range_is_refused(fraction: float) -> None:
    with pytest.raises(UsageError, match="expected 0 <= fraction < 1"):
        data.split(TEXT, fraction)


# --- tokens ----------------------------------------------------------------------------------------


def test_every_byte_is_a_token_and_comes_back() -> None:
    tokenizer = ByteTokenizer()
    every = bytes(range(256))
    tokens = tokenizer.encode(every)
    assert tokens.dtype == np.int32
    assert tokens.tolist() == list(every)
    assert tokenizer.decode_bytes(tokens) == every
    assert tokenizer.vocabulary == 256


@pytest.mark.parametrize("sample", ["", "def f(x):\n", "\u00e9\u4e2d\U0001f600"])
def test_text_comes_back(sample: str) -> None:
    assert ByteTokenizer().decode(ByteTokenizer().encode(sample)) == sample


def test_bytes_that_are_not_utf8_decode_to_the_replacement_character() -> None:
    assert ByteTokenizer().decode([0x61, 0xFF, 0xC3]) == "a\ufffd\ufffd"
    assert ByteTokenizer().encode(b"\xff".decode("utf-8", "surrogateescape")).tolist() == [0xFF]


def test_what_is_no_text_and_no_token_is_refused() -> None:
    with pytest.raises(UsageError, match=r"text holds '\\ud800': not a character"):
        ByteTokenizer().encode("a\ud800")
    for token in (-1, 256):
        with pytest.raises(UsageError, match=rf"token {token}: expected 0 \.\. 255"):
            ByteTokenizer().decode([65, token])


# --- text ------------------------------------------------------------------------------------------


def _tree(root: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)
    return root


def test_a_file_is_taken_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "any.bin").write_bytes(b"\xff\0text")
    assert load_text(tmp_path / "any.bin") == b"\xff\0text"
    (tmp_path / "link").symlink_to("any.bin")
    assert load_text(tmp_path / "link") == b"\xff\0text"


def test_a_directory_is_its_text_files_in_the_order_of_their_names(tmp_path: Path) -> None:
    root = _tree(
        tmp_path / "tree",
        {
            "b.txt": b"b\n",
            "a/z.py": b"az",
            "a.md": b"a.md\n",
            "A.TXT": b"A\n",
            "a/empty.py": b"",
            "binary.txt": b"x\0y",
            "latin.txt": b"\xe9",
            "picture.png": b"text",
            ".hidden/x.py": b"hidden",
            ".x.py": b"hidden",
        },
    )
    assert load_text(root) == b"A\na.md\naz\nb\n"


def test_links_stay_inside_the_tree(tmp_path: Path) -> None:
    root = _tree(tmp_path / "tree", {"a.txt": b"a\n", "sub/b.txt": b"b\n"})
    (tmp_path / "secret.txt").write_bytes(b"secret\n")
    (root / "out.txt").symlink_to(tmp_path / "secret.txt")
    (root / "in.txt").symlink_to(root / "a.txt")
    (root / "gone.txt").symlink_to(root / "nothing")
    (root / "loop").symlink_to(root, target_is_directory=True)
    os.mkfifo(root / "pipe.txt")
    assert load_text(root) == b"a\na\nb\n"


def test_missing_empty_and_textless_paths_are_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty.txt").write_bytes(b"")
    (tmp_path / "nothing").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for path, match in (
        (tmp_path / "missing", "is not there: expected a file or a directory of text"),
        (tmp_path / "empty.txt", "is empty: expected text"),
        (tmp_path / "nothing", r"holds no text: expected UTF-8 files named \*.txt"),
        (tmp_path / "pipe", "is not a regular file"),
        (tmp_path / "empty.txt" / "x", "cannot be read: Not a directory"),
        (Path("a\0b"), "cannot be read: "),
    ):
        with pytest.raises(DataError, match=match) as caught:
            load_text(path)
        assert "\n" not in str(caught.value)


def test_a_directory_that_cannot_be_read_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(path: object) -> object:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(os, "scandir", refused)
    for path in (tmp_path, None):
        with pytest.raises(DataError, match="cannot be read: Permission denied"):
            load_text(path)


def test_the_default_text_is_the_standard_library_without_tests_up_to_its_limit() -> None:
    first = load_text(None)
    assert 1 << 20 < len(first) <= text.DEFAULT_LIMIT
    assert first == load_text(None)
    assert text_sha256(first) == hashlib.sha256(first).hexdigest()
    assert (Path(sysconfig.get_path("stdlib")) / "__future__.py").read_bytes() in first


def test_the_default_text_leaves_out_what_is_not_the_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _tree(
        tmp_path,
        {
            "b.py": b"b\n" * 8,
            "a.py": b"a\n" * 8,
            "test/t.py": b"t",
            "json/tests/t.py": b"t",
            "site-packages/s.py": b"s",
            "dist-packages/s.py": b"s",
            "_sysconfigdata__linux.py": b"built",
            "notes.txt": b"notes",
        },
    )
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(tmp_path))
    assert load_text(None) == b"a\n" * 8 + b"b\n" * 8
    monkeypatch.setattr(text, "DEFAULT_LIMIT", 16)
    assert load_text(None) == b"a\n" * 8
    monkeypatch.setattr(text, "DEFAULT_LIMIT", 19)
    assert load_text(None) == b"a\n" * 8 + b"b\nb"
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(tmp_path / "test" / "empty"))
    (tmp_path / "test" / "empty").mkdir()
    with pytest.raises(DataError, match="holds no Python sources: give --text"):
        load_text(None)


# --- the synthetic text ----------------------------------------------------------------------------


def test_the_synthetic_text_is_pinned() -> None:
    """Pinned: `volta doctor --bits` compares weights that were trained on it."""
    assert (
        hashlib.sha256(synthetic_text(1 << 16)).hexdigest()
        == "8ceb0bc417d3bfd4bd7dac034763faf8e41a210471bb20ae9ea265b6e129a72d"
    )


def test_a_longer_synthetic_text_begins_with_a_shorter_one() -> None:
    whole = synthetic_text(100_000)
    assert len(whole) == 100_000
    for length in (0, 1, 999, 65_536):
        assert synthetic_text(length) == whole[:length]
    whole.decode("ascii")
    with pytest.raises(UsageError, match="length is -1"):
        synthetic_text(-1)


def test_the_synthetic_text_is_valid_python() -> None:
    compile(synthetic_text(20_000).rsplit(b"\n\n", 1)[0], "synthetic", "exec")
