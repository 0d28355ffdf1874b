"""Stop when the validation loss no longer falls."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import Any

from volta.errors import CheckpointError, UsageError


@dataclass(frozen=True, slots=True)
class EarlyStop:
    """State after some evaluations. patience 0: never stop.

    An evaluation counts as better when it is below the best by more than `margin`.
    """

    patience: int
    margin: float = 0.0
    best: float | None = None
    best_step: int | None = None
    waited: int = 0

    def __post_init__(self) -> None:
        if self.patience < 0:
            raise UsageError(f"[early stop] patience is {self.patience}: expected at least 0 evaluations")
        if not (math.isfinite(self.margin) and self.margin >= 0.0):
            raise UsageError(f"[early stop] margin is {self.margin}: expected a finite number of at least 0")

    @property
    def stop(self) -> bool:
        """True once `patience` evaluations in a row were not better."""
        return 0 < self.patience <= self.waited

    def after(self, step: int, loss: float) -> EarlyStop:
        """The state after an evaluation at `step`. A NaN is never better."""
        if loss < math.inf and (self.best is None or loss < self.best - self.margin):
            return replace(self, best=loss, best_step=step, waited=0)
        return replace(self, waited=self.waited + 1)

    def to_json(self) -> dict[str, Any]:
        """For Checkpoint.state: resuming must stop where the uninterrupted run stops."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> EarlyStop:
        """Raises CheckpointError for anything that to_json does not write."""
        try:
            return cls(**value)
        except (TypeError, UsageError) as error:
            raise CheckpointError(f"[checkpoint] early-stop state is {value!r}: {error}") from error
