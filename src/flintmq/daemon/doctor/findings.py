"""A finding: what was checked, the verdict, and a remedy if there is a problem. Pure."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

Verdict = Literal["ok", "warn", "bad"]
_ORDER: dict[Verdict, int] = {"ok": 0, "warn": 1, "bad": 2}


class DoctorFinding(msgspec.Struct, frozen=True):
    name: str
    verdict: Verdict
    what: str
    remedy: str = ""
    facts: dict[str, Any] = {}


class Report(msgspec.Struct):
    findings: list[DoctorFinding] = []
    when: str = ""

    @property
    def exit_code(self) -> int:
        """0: no problems, 1: warnings, 2: errors."""
        return max((_ORDER[one.verdict] for one in self.findings), default=0)

    def text(self) -> str:
        width = max((len(one.name) for one in self.findings), default=0)
        lines = []
        for one in self.findings:
            lines.append(f"{one.verdict:<4}  {one.name:<{width}}  {one.what}")
            if one.remedy:
                lines.append(f"{'':<{width + 8}}→ {one.remedy}")
        return "\n".join(lines)


def ok(name: str, what: str, **facts: Any) -> DoctorFinding:
    return DoctorFinding(name, "ok", what, "", facts)


def warn(name: str, what: str, remedy: str, **facts: Any) -> DoctorFinding:
    return DoctorFinding(name, "warn", what, remedy, facts)


def bad(name: str, what: str, remedy: str, **facts: Any) -> DoctorFinding:
    return DoctorFinding(name, "bad", what, remedy, facts)
