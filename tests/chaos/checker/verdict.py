"""What a rule found, and what all of them found."""

from __future__ import annotations

from dataclasses import dataclass, field

FAILURES_MAX = 100
"""More of one kind say no more."""


@dataclass
class Check:
    name: str
    judged: int = 0
    failures: list[str] = field(default_factory=list)

    def expect(self, is_kept: bool, failure: str) -> None:
        self.judged += 1
        if not is_kept and len(self.failures) < FAILURES_MAX:
            self.failures.append(failure)


@dataclass
class Verdict:
    verbs: dict[str, dict[str, int]]
    """How often each verb was done, and how often it failed."""
    checks: list[Check]

    @property
    def is_good(self) -> bool:
        return not any(one.failures for one in self.checks)
