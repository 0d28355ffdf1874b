"""A static memory budget: a plan over it is refused before anything is allocated."""

from __future__ import annotations

from volta.errors import BudgetError
from volta.plan.steps import Plan


def enforce(plan: Plan, max_bytes: int | None) -> None:
    """Raises BudgetError, naming the largest buffers, when the plan's peak is over `max_bytes`."""
    if max_bytes is None or plan.peak_bytes <= max_bytes:
        return
    largest = sorted(plan.buffers, key=lambda buffer: -buffer.nbytes)[:5]
    names = ", ".join(f"{buffer.name} ({buffer.memory}, {buffer.nbytes:,} bytes)" for buffer in largest)
    raise BudgetError(
        f"[plan] needs {plan.peak_bytes:,} bytes, the budget is {max_bytes:,}: largest are {names}"
    )
