"""How much of the tests a run does: `--effort check`, `test` or `all`. The whole rule is here.

                  check (make check)          test (make test)             all (pytest alone)
    tests         not slow, not spark         every one                    every one
    contract      on memory, and on file or   on memory, file and flint,   on every way
                  flint, by turns             a quarter of the other ways
    console       none: they are slow         wide and light or narrow     in both looks
                                              and dark, by turns
    properties    20 examples at most         200 examples at most         as many as each says

Which ways a test of the contract runs on follows from its name: it is the same in every run, and
every way has its share of the tests. No way and no test is left out of `make test`.

Properties try the same examples in every run, so that none fails now and then. To look for new
ones: `--hypothesis-profile search`. There is no deadline: a busy machine breaks no promise.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any, Literal
from zlib import crc32

import pytest
from hypothesis import HealthCheck, settings

Effort = Literal["check", "test", "all"]
EFFORTS: tuple[Effort, ...] = ("check", "test", "all")
EXAMPLES_AT_MOST: dict[str, int] = {"check": 20, "test": 200}
ALWAYS = "memory"
BY_TURNS = ("file", "flint")
"""With memory they go through every layer: engine, disk, wire, client."""


def ways_of(test: str, every: list[str], effort: Effort) -> list[str]:
    """On which ways of running a broker a test of the contract runs, of those it is about."""
    if effort == "all":
        return every
    turn = crc32(test.encode())
    if effort == "check":
        beside = [way for way in BY_TURNS if way in every]
        return [way for way in every if way == ALWAYS or way == beside[turn % len(beside)]]
    others = [way for way in every if way not in (ALWAYS, *BY_TURNS)]
    return [way for way in every if way not in others or (turn + others.index(way)) % 4 == 0]


def looks_of(test: str, every: list[str], effort: Effort) -> list[str]:
    """In which looks a test has its actions done in the console."""
    return every if effort == "all" else [every[crc32(test.encode()) % len(every)]]


def register_profiles() -> None:
    """The profiles of Hypothesis. A test that failed prints how to repeat it."""
    settings.register_profile(
        "full",
        deadline=None,
        derandomize=True,
        print_blob=True,
        suppress_health_check=[HealthCheck.too_slow],
    )
    full = settings.get_profile("full")
    settings.register_profile("check", full, max_examples=EXAMPLES_AT_MOST["check"])
    settings.register_profile("test", full)
    settings.register_profile("search", full, derandomize=False)
    settings.load_profile("full")


def at_most(wanted: settings) -> settings:
    """The settings of a property, with no more examples than a run of this effort has time for."""
    most = EXAMPLES_AT_MOST.get(settings.get_current_profile_name(), wanted.max_examples)
    return settings(wanted, max_examples=min(wanted.max_examples, most))


def limit_examples(item: pytest.Item) -> None:
    """What `@settings` of a single property says outranks a profile, but not an effort."""
    function = getattr(item, "obj", None)
    if (own := getattr(function, "_hypothesis_internal_use_settings", None)) is not None:
        inner: Any = getattr(function, "__func__", function)
        inner._hypothesis_internal_use_settings = at_most(own)
    machine: Any = getattr(item, "cls", None)
    if isinstance(own := getattr(machine, "settings", None), settings):
        machine.settings = at_most(own)


@cache
def is_left_out_of_checks(path: Path) -> bool:
    """Whether every test of a file is slow or needs Spark: a check need not import it."""
    return bool(re.search(r"^pytestmark = .*mark\.(slow|spark)\b", path.read_text(), re.MULTILINE))
