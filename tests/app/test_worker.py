"""`flintmq worker`: apps in processes of their own."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path

import pytest

from flintmq import App, InvalidRequest
from flintmq.app.blocking import BlockedLoopWatch
from flintmq.app.child import ChildOrder, ChildReport
from flintmq.app.figures import HandlerFigures
from flintmq.app.health import HealthServer
from flintmq.app.loading import AppNotLoaded, load_app
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

RUNS = "asyncio.run(flintmq.App().run())\n"


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
        ("workers_b.py", r"does not name an app; .*: workers_b:app"),
        ("src/workers_b:app", r"variable: src\.workers_b:app"),
        (":app", "does not name an app"),
        ("no_such_module:app", "there is no module 'no_such_module' in "),
        ("workers_b:nothing", r"'nothing' is nothing, not a flintmq.App; its apps: app"),
        ("workers_b:number", "'number' is a int"),
        ("workers_wrong:app", r"cannot be imported: ZeroDivisionError: .*workers_wrong\.py:2\)"),
        ("workers_needs:app", r"cannot be imported: ModuleNotFoundError: .*'nobody_has_this'"),
        ("workers_exits:app", r"SystemExit: 3 \(.*workers_exits\.py:2\)"),
        ("workers_runs:app", r"'workers_runs' runs its app when it is imported.*runs\.py:3\)"),
    ],
)
def test_what_is_no_app_is_refused_with_what_is_wrong(here: Path, place: str, why: str) -> None:
    (here / "workers_b.py").write_text(PROGRAM)
    (here / "workers_wrong.py").write_text("one = 1\none / 0\n")
    (here / "workers_needs.py").write_text("import nobody_has_this\n")
    (here / "workers_exits.py").write_text("import sys\nsys.exit(3)\n")
    (here / "workers_runs.py").write_text("import asyncio, flintmq\n\n" + RUNS)

    with pytest.raises(InvalidRequest, match=why):
        load_app(place)


@pytest.mark.parametrize(
    ("place", "file"),
    [
        ("broken:app", "broken.py"),
        ("around:app", "broken.py"),
        ("around:app", "around.py"),
        ("coming:app", "coming.py"),
        ("coming:app", "coming/__init__.py"),
    ],
)
def test_what_kept_an_app_from_being_loaded_is_looked_at_for_a_change(
    here: Path, place: str, file: str
) -> None:
    (here / "broken.py").write_text("def add(\n")
    (here / "around.py").write_text("import broken\n")

    with pytest.raises(AppNotLoaded) as error:
        load_app(place)

    assert str(here / file) in error.value.files


def test_a_function_that_blocks_the_event_loop_is_named() -> None:
    told: list[str] = []
    watch = BlockedLoopWatch(told.append)

    def hang() -> None:
        thread = threading.Thread(target=watch.look)
        thread.start()
        thread.join()

    hang()

    (text,) = told
    assert "hang (" in text
    assert text.endswith(") blocks the event loop")
    assert __file__ in text


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
    second.heard_at -= 20
    assert supervisor.troubles()[1:] == ["process 2 has not answered for 20 s"]
    second.report.troubles.append("no connection to the broker")
    assert supervisor.troubles()[1:] == ["process 2: no connection to the broker"]


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
            assert "running: add, process, die" in told

            app = App(url)
            add = app.task(name="add")(lambda a, b: None)
            die = app.task(name="die")(lambda: None)
            assert add.send_sync(1, 2).get(timeout=PATIENCE_SECONDS) == 3
            die.send_sync()
            assert "exit code 9" in worker.stdout.readline()
            for handle in [add.send_sync(n, n) for n in range(3)]:
                handle.get(timeout=PATIENCE_SECONDS)
            app.close_sync()

            worker.send_signal(signal.SIGTERM)
            rest = worker.stdout.read()
            assert worker.wait(PATIENCE_SECONDS) == 0
    assert "draining" in rest
    assert re.search(r"stopped; [34] done, ", rest), rest


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
            assert "running: " in worker.stdout.readline()
            worker.stdout.close()
            worker.send_signal(signal.SIGTERM)
            worker.wait(PATIENCE_SECONDS)


@pytest.mark.slow
def test_an_app_that_cannot_be_loaded_ends_the_command(tmp_path: Path) -> None:
    (tmp_path / "empty.py").write_text("import flintmq\napp = flintmq.App()\n")
    typed = [sys.executable, "-m", "flintmq.cli", "worker", "empty:app", "--processes", "2"]

    done = subprocess.run(typed, cwd=tmp_path, capture_output=True, text=True, check=False)

    assert done.returncode == 2, "as the unit of systemd takes for granted"
    assert "has nothing to run" in done.stderr


@pytest.mark.slow
def test_a_program_that_cannot_be_imported_is_waited_for_with_reload(tmp_path: Path) -> None:
    program = tmp_path / "shop.py"
    program.write_text(PROGRAM + "def broken(\n")
    typed = [sys.executable, "-m", "flintmq.cli", "worker", "shop:app", "--reload"]
    with subprocess.Popen(
        typed, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as worker:
        assert worker.stdout is not None
        told = worker.stdout.readline()
        assert "SyntaxError" in told
        assert "waiting for a change" in told
        program.write_text(PROGRAM)
        assert "files have changed" in worker.stdout.readline()
        assert "no broker yet" in worker.stdout.readline()
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(PATIENCE_SECONDS) == 0
