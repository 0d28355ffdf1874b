"""A text from integers alone, the same on every machine: what `volta doctor --bits` trains on.

Short Python functions and English comments from a small grammar, so that a tiny model's loss falls
within a few steps.
"""

from __future__ import annotations

from collections.abc import Iterator

from volta.errors import UsageError
from volta.train.draws import TEXT_STREAM, blocks

_WORDS: dict[str, tuple[str, ...]] = {
    "a": ("left", "right", "value", "count", "index", "total"),
    "f": ("add", "scale", "update", "reduce", "select", "measure"),
    "n": ("row", "tensor", "batch", "kernel", "result", "buffer"),
    "j": ("first", "last", "small", "whole", "exact", "same"),
    "v": ("holds", "reads", "keeps", "follows", "gives", "needs"),
    "o": ("+", "-", "*"),
    "d": ("0", "1", "2", "4", "8", "16"),
}
_SENTENCES = (
    "# The {j} {n} {v} the {j} {n}.\n",
    "def {f}_{n}({a}, by={d}):\n    return {a} {o} by\n\n",
    "for {a} in range({d}):\n    {f}_{n}({a}, {d})\n\n",
    "if {a} == {d}:\n    {a} = {f}_{n}({a}, by={d})\n\n",
)


def synthetic_text(length: int) -> bytes:
    """The first `length` bytes of the text, ASCII. A longer text begins with every shorter one."""
    if length < 0:
        raise UsageError(f"[data] length is {length}: expected at least 0")
    words = _draws()
    parts: list[bytes] = []
    total = 0
    while total < length:
        sentence = _pick(_SENTENCES, next(words))
        chosen = {kind: _pick(choices, next(words)) for kind, choices in _WORDS.items()}
        parts.append(sentence.format_map(chosen).encode("ascii"))
        total += len(parts[-1])
    return b"".join(parts)[:length]


def _pick(choices: tuple[str, ...], word: int) -> str:
    return choices[word * len(choices) >> 32]


def _draws() -> Iterator[int]:
    """The words of (seed 0, "text"), in order, one block index after the other."""
    step = 0
    while True:
        yield from blocks(0, TEXT_STREAM, step, 1024).reshape(-1).tolist()
        step += 1
