"""Judges a chaos run by what its clients told. Shares no code with the broker.

It reads the stories of all processes (`tests/chaos/story.py`), and asks each rule. A rule says how
much it could judge, so that one that has judged nothing is seen.
"""

from __future__ import annotations

from pathlib import Path

from .history import History, events_below
from .rules import RULES
from .verdict import Check, Verdict

__all__ = ["Check", "History", "Verdict", "check", "judge"]


def check(directory: Path) -> Verdict:
    """What the stories below a directory come to."""
    return judge(History(events_below(directory)))


def judge(history: History) -> Verdict:
    return Verdict(history.verbs(), [rule(history) for rule in RULES])
