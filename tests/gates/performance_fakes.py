"""Samples without processes: what the tests of the timing method share."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from gates.context import Context
from gates.law.files import read
from gates.law.limits import PATH, Limits
from gates.performance.sampling import (
    Answer,
    Sample,
    Series,
)
from gates.trees.checkout import Checkout
from gates.trees.repository import Repository, Tree

ROOT = Path(__file__).resolve().parents[2]
LIMITS = read(ROOT, PATH, Limits).timing

Times = Callable[[str, str, int], Answer]  # of a side, a case, and how often the side was asked before


class FakeMeasure:
    """A Measure whose times come from a function; keeps what it was asked."""

    def __init__(self, times: Times) -> None:
        self.times, self.asked = times, []

    def __call__(self, side: str, cases: Sequence[str], seed: int) -> dict[str, Answer]:
        self.asked.append((side, tuple(cases), seed))
        number = sum(one[0] == side for one in self.asked) - 1
        answers = {case: self.times(side, case, number) for case in cases}
        # of equal inputs, equal results
        outputs = {case: (f"{case} {seed}", f"{case} {seed} again") for case in cases}
        return {
            case: replace(one, outputs=outputs[case]) if isinstance(one, Sample) and not one.outputs else one
            for case, one in answers.items()
        }


def sample(seconds: float, wall: float = 0.0, *outputs: str) -> Sample:
    return Sample(seconds, wall or 2 * seconds, outputs)


def nobody(series: Series) -> list[str]:
    return []


def context(where: Path, base: Path = ROOT, head: Path = ROOT, alone: bool = False, seed: int = 3) -> Context:
    tree = Tree("", "", "")
    return Context(
        Repository(where),
        Checkout(tree, base),
        Checkout(tree, head),
        seed=seed,
        evidence=where,
        deadline=time.monotonic() + 1000,
        alone=alone,
    )


def spread(side: str, case: str, number: int, share: float = 0.01) -> float:
    return math.exp(random.Random(f"{side} {case} {number}").gauss(0, share))
