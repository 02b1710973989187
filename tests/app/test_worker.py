"""`flintmq worker`: apps in processes of their own."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from flintmq import App, InvalidRequest
from flintmq.app.child import ChildOrder, ChildReport
from flintmq.app.figures import HandlerFigures
from flintmq.app.health import HealthServer
from flintmq.app.loading import load_app
from flintmq.app.supervising import WorkerPlan, WorkerSupervisor
from flintmq.cli.worker import command
from tests.patience import PATIENCE_SECONDS
from tests.serving import serving

PROGRAM = """
import os
import flintmq

app = flintmq.App("flint://127.0.0.1:1")
number = 3

@app.task
async def add(a: int, b: int) -> int:
    return a + b

@app.task
def process() -> int:
    return os.getpid()

@app.task
def die() -> None:
    os._exit(9)
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    return tmp_path


def test_an_app_is_found_by_its_module_and_name(here: Path) -> None:
    (here / "workers_a.py").write_text(PROGRAM)

    assert isinstance(load_app("workers_a:app"), App)
    assert load_app("workers_a") is load_app("workers_a:app")


@pytest.mark.parametrize(
    ("place", "why"),
    [
        ("workers_b.py", r"no place of an app: .* as in workers_b:app"),
        ("src/workers_b:app", r"as in src\.workers_b:app"),
        (":app", "no place of an app"),
        ("no_such_module:app", "there is no module 'no_such_module' in "),
        ("workers_b:nothing", r"'nothing' is nothing, not a flintmq.App; its apps: app"),
        ("workers_b:number", "'number' is a int"),
        ("workers_wrong:app", r"cannot be imported: ZeroDivisionError: .*workers_wrong\.py:2\)"),
        ("workers_needs:app", r"cannot be imported: ModuleNotFoundError: .*'nobody_has_this'"),
    ],
)
def test_what_is_no_app_is_refused_with_what_is_wrong(here: Path, place: str, why: str) -> None:
    (here / "workers_b.py").write_text(PROGRAM)
    (here / "workers_wrong.py").write_text("one = 1\none / 0\n")
    (here / "workers_needs.py").write_text("import nobody_has_this\n")

    with pytest.raises(InvalidRequest, match=why):
        load_app(place)


def test_health_says_what_is_wrong() -> None:
    troubles = ["process 2 is not running"]
    server = HealthServer(lambda: troubles, lambda: "a_total 1\n")

    failing = server.answer(b"GET /health HTTP/1.1\r\n\r\n")
    troubles.clear()
    well = server.answer(b"GET /ready?x HTTP/1.1\r\n\r\n")

    assert failing.startswith(b"HTTP/1.1 503 ")
    assert failing.endswith(b'{"status":"failing","troubles":["process 2 is not running"]}')
    assert well.startswith(b"HTTP/1.1 200 ")
    assert server.answer(b"GET /metrics HTTP/1.1\r\n\r\n").endswith(b"a_total 1\n")
    assert server.answer(b"GET /other HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.1 404 ")
    assert server.answer(b"POST /health HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.1 405 ")


async def test_what_a_process_did_before_it_died_still_counts() -> None:
    plan = WorkerPlan(order=ChildOrder(place="a:app", report_to=-1), processes=2)
    supervisor = WorkerSupervisor(plan, lambda text: None)
    first, second = supervisor.workers

    def report(done: int) -> ChildReport:
        add = HandlerFigures(
            name="add", kind="task", topic="t", group="g", running=1, done=done, buckets=[0]
        )
        return ChildReport(handlers=[add])

    first.report, second.report = report(3), report(4)
    assert supervisor.troubles() == []
    first.ended()

    assert supervisor.progress() == "7 done, 0 failed (0 dead letters), 1 running"
    assert supervisor.troubles() == ["process 1 is not running"]


def examples() -> list[str]:
    lines = (command.help or "").splitlines()
    return [line.strip() for line in lines if line.strip().startswith("flintmq worker")]


@pytest.mark.slow
@pytest.mark.parametrize("line", examples())
def test_the_examples_work_and_a_dead_process_is_started_again(tmp_path: Path, line: str) -> None:
    (tmp_path / "orders.py").write_text(PROGRAM)
    typed = [sys.executable, "-m", "flintmq.cli", *shlex.split(line.replace(":9100", ":0"))[1:]]
    with serving(tmp_path / "data") as url:
        environment = {**os.environ, "FLINTMQ_SERVER": url, "PYTHONPATH": str(tmp_path)}
        with subprocess.Popen(
            typed, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True
        ) as worker:
            assert worker.stdout is not None
            told = worker.stdout.readline()
            if "health at" in told:
                health, told = told.split("health at ")[1].strip(), worker.stdout.readline()
                with urllib.request.urlopen(health, timeout=PATIENCE_SECONDS) as answer:
                    assert json.load(answer)["status"] == "ok"
            assert "at work: add, process, die" in told

            app = App(url)
            add = app.task(name="add")(lambda a, b: None)
            die = app.task(name="die")(lambda: None)
            assert add.send_sync(1, 2).get(timeout=PATIENCE_SECONDS) == 3
            die.send_sync()
            assert "exit code 9" in worker.stdout.readline()
            app.close_sync()

            worker.send_signal(signal.SIGTERM)
            rest = worker.stdout.read()
            assert worker.wait(PATIENCE_SECONDS) == 0
    assert "draining" in rest
    assert "stopped; " in rest


@pytest.mark.slow
def test_workers_whose_output_nobody_reads_any_more_can_be_stopped(tmp_path: Path) -> None:
    """As behind `| head`: what could not be told kept SIGTERM from being heard."""
    (tmp_path / "orders.py").write_text(PROGRAM)
    typed = [sys.executable, "-m", "flintmq.cli", "worker", "orders:app"]
    with serving(tmp_path / "data") as url:
        environment = {**os.environ, "FLINTMQ_SERVER": url, "PYTHONPATH": str(tmp_path)}
        with subprocess.Popen(
            typed, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True
        ) as worker:
            assert worker.stdout is not None
            assert "at work" in worker.stdout.readline()
            worker.stdout.close()
            worker.send_signal(signal.SIGTERM)
            worker.wait(PATIENCE_SECONDS)


@pytest.mark.slow
def test_an_app_that_cannot_be_loaded_ends_the_command(tmp_path: Path) -> None:
    (tmp_path / "empty.py").write_text("import flintmq\napp = flintmq.App()\n")
    typed = [sys.executable, "-m", "flintmq.cli", "worker", "empty:app", "--processes", "2"]

    done = subprocess.run(typed, cwd=tmp_path, capture_output=True, text=True, check=False)

    assert done.returncode != 0
    assert "has nothing to run" in done.stderr
