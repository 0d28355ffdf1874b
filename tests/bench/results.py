"""Results made of given or drawn times, as if they had been measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from volta.bench.machine import machine
from volta.bench.report import Measurement, Report, Timing
from volta.bench.statistics import paired_ratio


def timing(seconds: Sequence[float], description: str = "a library") -> Timing:
    return Timing(
        description, tuple(seconds), float(np.median(seconds)), min(seconds), max(seconds), "compared"
    )


def measurement(
    sides: Mapping[str, Sequence[float]],
    name: str = "f32 8x8x8",
    threads: int = 1,
    parameters: Mapping[str, Any] | None = None,
    descriptions: Mapping[str, str] | None = None,
) -> Measurement:
    described = descriptions or {}
    return Measurement(
        name=name,
        parameters={"dtype": "f32", "m": 8, "n": 8, "k": 8} if parameters is None else parameters,
        threads=threads,
        flops=1024,
        bytes=768,
        sides={side: timing(values, described.get(side, f"{side} 1.0")) for side, values in sides.items()},
        ratios={
            side: paired_ratio(sides["volta"], values) for side, values in sides.items() if side != "volta"
        },
        limit=1e-9,
        bound="arithmetic",
    )


def report(*measurements: Measurement, suite: str = "gemm", skipped: tuple[str, ...] = ()) -> Report:
    return Report(
        suite=suite,
        command=f"volta bench {suite}",
        version="0",
        machine=machine(),
        method={"rounds": 11},
        rooflines=(),
        measurements=measurements,
        skipped=skipped,
    )


def drawn(
    seed: int, volta: float, peer: float, rounds: int = 11, noise: float = 0.05
) -> dict[str, list[float]]:
    """Times around two medians. What slows the machine for a while slows both sides of a pair."""
    generator = np.random.default_rng(seed)
    shared = np.exp(noise * generator.standard_normal(rounds))
    own = np.exp(noise * generator.standard_normal((2, rounds)))
    return {"volta": list(volta * shared * own[0]), "numpy": list(peer * shared * own[1])}
