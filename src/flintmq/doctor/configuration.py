"""The configuration: what is wrong with it, and what it says; secrets left out."""

from __future__ import annotations

from collections.abc import Iterator

from ..config import SETTINGS
from ..settings import Resolved
from .findings import Finding, bad, ok, warn


def look_at_configuration(resolved: Resolved) -> Iterator[Finding]:
    problems = resolved.all_problems()
    values = resolved.all_values()
    shown = {
        setting.name: setting.shown(values[setting.name])
        for setting in SETTINGS
        if setting.name in resolved.sources and setting.name in values
    }
    facts = {"settings": shown, "sources": dict(resolved.sources)}
    if problems:
        yield bad(
            "configuration",
            "; ".join(problems),
            "`flintmq config check` tells the same, `flintmq config show` what is in force",
            **facts,
        )
    else:
        said = ", ".join(f"{name}={value}" for name, value in shown.items())
        yield ok("configuration", said or "nothing but defaults", **facts)
    for doubt in resolved.doubts:
        yield warn("environment", doubt, "correct the name, or unset it")
