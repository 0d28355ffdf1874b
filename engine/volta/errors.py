"""One exception tree. Every message says what was given and what was expected."""

from __future__ import annotations


class VoltaError(Exception):
    """Base of every error that Volta raises on purpose."""


class UsageError(VoltaError, ValueError):
    """An argument that no run could accept: sampling values, flags, environment variables."""


class ShapeError(VoltaError, ValueError):
    """Shapes that an operation cannot combine."""


class DTypeError(VoltaError, TypeError):
    """A dtype that an operation does not take."""


class DeviceError(VoltaError, RuntimeError):
    """A device or instruction set that was asked for and is not there."""


class VerifyError(VoltaError, RuntimeError):
    """A graph or plan that breaks a rule; `rule` is the rule's name."""

    def __init__(self, rule: str, message: str) -> None:
        super().__init__(f"[{rule}] {message}")
        self.rule = rule


class BudgetError(VoltaError, MemoryError):
    """A plan that needs more bytes than its budget allows; nothing was allocated."""


class RunError(VoltaError):
    """A failure that a program met while it ran. step: the program's step; detail: two numbers of the
    kernel (the value and its limit; the flat index)."""

    def __init__(self, message: str, step: int = -1, detail: tuple[int, int] = (0, 0)) -> None:
        super().__init__(message)
        self.step = step
        self.detail = detail


class IndexRangeError(RunError, IndexError):
    """An index, token or position outside its table."""


class NotFiniteError(RunError, ArithmeticError):
    """A finite check found NaN or infinity."""


class CheckpointError(VoltaError, RuntimeError):
    """A checkpoint that is missing, damaged, of another version or of another model."""


class DataError(VoltaError, ValueError):
    """Training text that is missing, empty or too short."""


class GradientError(VoltaError, RuntimeError):
    """A gradient that does not exist; the message gives the reason."""
