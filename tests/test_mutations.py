"""The deliberate breaks of scripts/mutate-* still fit the source they are to break."""

from __future__ import annotations

import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(params=["mutate-durability", "mutate-cluster"])
def script(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    name = request.param
    loader = SourceFileLoader(name.replace("-", "_"), str(ROOT / "scripts" / name))
    spec = spec_from_loader(loader.name, loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module


def test_every_break_applies_to_the_source(script: ModuleType) -> None:
    do_not_apply = sys.modules["breaks"].do_not_apply
    assert do_not_apply(script.BREAKS) == []


def test_there_are_tests_for_every_break(script: ModuleType) -> None:
    for item in script.BREAKS:
        assert item.tests or item.seeds, item.name
        for test in item.tests:
            assert (ROOT / test.partition("::")[0]).exists(), item.name


def test_there_are_enough_of_them_and_each_breaks_something(script: ModuleType) -> None:
    names = [item.name for item in script.BREAKS]

    assert len(names) == len(set(names)) >= 20
    assert all(item.old != item.new for item in script.BREAKS)


def test_every_break_of_the_raft_core_applies_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    loader = SourceFileLoader("mutate_raft", str(ROOT / "scripts" / "mutate-raft"))
    spec = spec_from_loader(loader.name, loader)
    assert spec is not None
    module = module_from_spec(spec)
    monkeypatch.setitem(sys.modules, loader.name, module)
    loader.exec_module(module)
    source = ROOT / "src" / "flintmq"
    counts = {one.name: (source / one.file).read_text().count(one.old) for one in module.BREAKS}
    assert {name for name, count in counts.items() if count != 1} == set()
