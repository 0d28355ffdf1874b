"""How an attempt ended, each way by a name of its own. Only LANDED changes anything but the ledger."""

from __future__ import annotations

from enum import StrEnum


class Verdict(StrEnum):
    """Value: what a person reads."""

    LANDED = "landed"
    PROVED = "proved on what is there already"
    PASSED = "passed, not landed yet"
    NO_CHANGE = "the agent ended and changed nothing"
    REJECTED_SCOPE = "it touched what the task does not allow"
    REJECTED_GATES = "a gate did not pass"
    REJECTED_EXPECTATION = "a command did not do what was expected"
    REWROTE_HISTORY = "its branch does not hold the base any more"
    COMMITTED_ELSEWHERE = "it made commits on other branches than its own"
    CONFLICT_MARKERS = "it left the marks of a conflict"
    CONFLICT = "it does not merge with what landed meanwhile"
    AGENT_FAILED = "the agent ended with an error"
    AGENT_MISSING = "the agent's command is not there"
    TIMED_OUT = "the agent was ended at its time limit"
    IDLE = "the agent was ended for its silence"
    FLOODED = "the agent was ended for its output"
    DISK_FULL = "the agent was ended for what it wrote"
    RATE_LIMITED = "the agent's service asks to wait"
    STOPPED = "it was stopped"
    INTERRUPTED = "the runner died"
    OVER_BUDGET = "its tokens or money are used up"

    @property
    def done(self) -> bool:
        return self in (Verdict.LANDED, Verdict.PROVED)

    @property
    def counts(self) -> bool:
        """Whether it uses up an attempt: what is not the agent's doing does not."""
        return self not in (
            Verdict.LANDED,
            Verdict.PROVED,
            Verdict.PASSED,
            Verdict.RATE_LIMITED,
            Verdict.STOPPED,
            Verdict.INTERRUPTED,
            Verdict.CONFLICT,
        )
