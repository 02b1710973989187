"""The systems in examples/: each runs by its own `make run`, and prints what its README says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import flintmq
from flintmq.testing import run

EXAMPLES = Path(__file__).parents[2] / "examples"
SYSTEMS = sorted(path.parent for path in EXAMPLES.glob("*/README.md") if path.parent.name[0] != ".")
PROGRAMS = [
    EXAMPLES / "order_processing" / "order_worker.py",
    EXAMPLES / "websocket_fanout" / "shop_web.py",
    EXAMPLES / "job_queue" / "job_runner.py",
]
RUN_SECONDS = 300
"""Only a bound: Spark takes half a minute, and more where others work on the same cores."""


def needs_spark(system: Path) -> list[pytest.MarkDecorator]:
    is_long = "spark" in (system / "run").read_text().lower()
    return [pytest.mark.spark, pytest.mark.timeout(RUN_SECONDS + 20)] if is_long else []


@pytest.mark.slow
@pytest.mark.parametrize(
    "system", [pytest.param(one, id=one.name, marks=needs_spark(one)) for one in SYSTEMS]
)
def test_a_system_runs_and_prints_what_its_readme_says(system: Path) -> None:
    done = subprocess.run(
        ["./run"],
        cwd=system,
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS,
        env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
    )
    (expected,) = re.findall(r"```text\n(.*?)```", (system / "README.md").read_text(), re.DOTALL)

    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == expected, done.stderr


@pytest.mark.parametrize("system", SYSTEMS, ids=lambda one: one.name)
def test_a_system_is_made_of_what_it_should_be(system: Path) -> None:
    assert (system / "Makefile").read_text() == ".PHONY: run\nrun:\n\t@./run\n"
    readme = (system / "README.md").read_text()
    assert "```sh\nmake run\n```" in readme
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", readme):
        assert (system / target).exists(), target
    programs = [path.name for path in system.glob("*.py")]
    assert [name for name in programs if f"]({name})" not in readme] == []


def test_where_a_package_is_missing_it_says_what_to_install() -> None:
    command = [str(EXAMPLES / "needs"), "'.[server,shop]'", "sys", "flint_shop"]
    done = subprocess.run(command, capture_output=True, text=True)

    assert done.returncode == 1
    assert "needs flint_shop: run pip install '.[server,shop]' in /" in done.stderr
    assert subprocess.run(command[:-1], check=False).returncode == 0


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda one: one.name)
def test_the_program_has_less_than_forty_lines(program: Path) -> None:
    assert len(program.read_text().splitlines()) < 40


def loaded(program: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A fresh module: what it registers is its own."""
    module = ModuleType(program.stem)
    monkeypatch.setitem(sys.modules, program.stem, module)
    exec(compile(program.read_text(), str(program), "exec"), module.__dict__)
    return module


async def test_the_order_worker_retries_and_has_dead_letters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    worker = loaded(PROGRAMS[0], monkeypatch)
    async with run(worker.app, raises=False) as t:
        await t.publish("orders", {"id": 1, "amount": 10})
        await t.publish("orders", {"id": 3, "amount": 10})
        await t.publish("orders", {"id": 4, "amount": -1})
        await t.publish("orders", {"id": "five"})
        await t.idle()
        await t.advance(10)

        invoices = await t.mq.poll("invoices", "test", 10)
        letters = await t.mq.dead_letters("orders", "billing")
    assert [one.decode()["order"] for one in invoices] == [1, 3]
    assert [one.message.decode()["id"] for one in letters] == [4, "five"]
    assert worker.attempts[3] == 3


async def test_the_job_runner_runs_what_is_sent_and_what_is_due(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runner = loaded(PROGRAMS[2], monkeypatch)
    async with run(runner.app) as t:
        first = await runner.resize.send("a.png")
        again = await runner.resize.send("a.png")
        assert again.id == first.id
        await t.advance(1)
        assert await first.get(timeout=5) == "a-800.png"
        await t.advance(2)
        assert (await t.mq.topic_stats("beats")).message_count >= 2


def test_the_web_application_documents_its_routes(monkeypatch: pytest.MonkeyPatch) -> None:
    web = loaded(PROGRAMS[1], monkeypatch)

    assert set(web.api.openapi()["paths"]) == {"/orders", "/orders/events"}
    assert isinstance(web.shop, flintmq.App)
