"""The deliberate breaks of scripts/mutate-durability still fit the source they are to break."""

from __future__ import annotations

import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    loader = SourceFileLoader("mutate_durability", str(ROOT / "scripts" / "mutate-durability"))
    spec = spec_from_loader(loader.name, loader)
    assert spec is not None
    module = module_from_spec(spec)
    monkeypatch.setitem(sys.modules, loader.name, module)
    loader.exec_module(module)
    return module


def test_every_break_applies_to_the_source(script: ModuleType) -> None:
    assert script.do_not_apply(script.BREAKS) == []


def test_there_are_tests_for_every_break(script: ModuleType) -> None:
    for item in script.BREAKS:
        for test in item.tests:
            assert (ROOT / test.partition("::")[0]).exists(), item.name


def test_there_are_enough_of_them_and_each_breaks_something(script: ModuleType) -> None:
    names = [item.name for item in script.BREAKS]

    assert len(names) == len(set(names)) >= 20
    assert all(item.old != item.new for item in script.BREAKS)
