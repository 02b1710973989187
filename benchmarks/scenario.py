"""What a scenario is: named cases, and the figures each of them yields.

A scenario is a file in `scenarios/` with a `SCENARIO` in it; its name is the file's name.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeVar

Figures = Mapping[str, float]
Unit = Literal["rate", "times", "microseconds", "seconds", "MiB", "bytes", "count"]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Settings:
    """How long a run may take. `quick` is for trying out whether a scenario works at all."""

    quick: bool = False
    seconds: float = 3.0

    def pick(self, full: T, quick: T) -> T:
        return quick if self.quick else full


Part = Callable[[Settings], Awaitable[Figures]]


@dataclass(frozen=True, slots=True)
class Case:
    """One line of a table.

    `run`, `bare` and `peer` are executed one after the other, each in a process of its own. `peer`
    may have no figures, where what it measures is not installed. `memory_bytes` is about what a
    part will use: so much is touched and given back before it starts. On a virtual machine the
    first use of memory after a pause is several times slower, and would be charged to whichever
    part goes first.
    """

    run: Part
    bare: Part | None = None
    peer: Part | None = None
    memory_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Column:
    """A figure as the table shows it. `ratio_of` divides two others of the same run."""

    name: str
    heading: str
    unit: Unit
    ratio_of: tuple[str, str] | None = None
    with_range: bool = False


@dataclass(frozen=True, slots=True)
class Scenario:
    title: str
    columns: tuple[Column, ...]
    cases: Mapping[str, Case]
    notes: tuple[str, ...] = ()
    every_loop: bool = True
    """False where the event loop does not matter: one is enough then."""
    prepare: Callable[[], str] | None = None
    """Builds what `peer` needs; why it could not be, for the notes. Quick runs build nothing."""


def scenario_names() -> list[str]:
    from . import scenarios

    return sorted(module.name for module in pkgutil.iter_modules(scenarios.__path__))


def load(name: str) -> Scenario:
    module = importlib.import_module(f".scenarios.{name}", __package__)
    scenario = module.SCENARIO
    assert isinstance(scenario, Scenario)
    return scenario


def with_ratios(scenario: Scenario, figures: Figures) -> dict[str, float]:
    """The figures of one run, and the ratios among them."""
    whole = dict(figures)
    for column in scenario.columns:
        if column.ratio_of is not None:
            above, below = column.ratio_of
            if above in whole and whole.get(below):
                whole[column.name] = whole[above] / whole[below]
    return whole
