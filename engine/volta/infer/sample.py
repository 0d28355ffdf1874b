"""How the next token is chosen: settings, checked once, as the arrays the kernel reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from volta.errors import UsageError


@dataclass(frozen=True, slots=True)
class Sampling:
    """temperature 0: the likeliest token (greedy). top_k 0, top_p 1, min_p 0, repetition_penalty 1: off.

    top_k keeps the k likeliest; top_p the fewest whose probabilities reach p (Holtzman et al. 2020);
    min_p those at least min_p times as likely as the likeliest; repetition_penalty divides positive and
    multiplies negative logits of tokens seen before (Keskar et al. 2019).
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0

    def __post_init__(self) -> None:
        for name, given, good, expected in (
            ("temperature", self.temperature, 0 <= self.temperature <= 1000, "0 (greedy) to 1000"),
            ("top_k", self.top_k, 0 <= self.top_k < 2**31, "0 (all) or more"),
            ("top_p", self.top_p, 0 < self.top_p <= 1, "above 0, at most 1"),
            ("min_p", self.min_p, 0 <= self.min_p <= 1, "0 to 1"),
            (
                "repetition_penalty",
                self.repetition_penalty,
                0 < self.repetition_penalty <= 1000,
                "above 0, at most 1000",
            ),
        ):
            if not good:
                raise UsageError(f"[sample] {name} is {given}: expected {expected}")
        if 0 < self.temperature < 1e-30:
            raise UsageError(f"[sample] temperature is {self.temperature}: expected 0 or at least 1e-30")

    def arrays(self, batch: int) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """settings f32 [B, 4] and top_k i32 [B], the same for every row."""
        row = [self.temperature, self.top_p, self.repetition_penalty, self.min_p]
        return np.tile(np.array(row, np.float32), (batch, 1)), np.full(batch, self.top_k, np.int32)
