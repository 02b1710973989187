"""`taskiq worker` and `taskiq scheduler` as users run them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.patience import until
from tests.serving import serving

from .processes import kill_all, ran, started, tool

pytestmark = pytest.mark.slow

PROGRAM = """
import asyncio, os, time
from pathlib import Path
from taskiq import TaskiqScheduler
from taskiq.schedule_sources import LabelScheduleSource
from flintmq.adapters.taskiq import FlintBroker, FlintResultBackend

url = os.environ["BROKER"]
broker = FlintBroker(url, lease=2).with_result_backend(FlintResultBackend(url))
scheduler = TaskiqScheduler(broker, [LabelScheduleSource(broker)])


@broker.task
async def double(number: int) -> int:
    return 2 * number


@broker.task
def in_a_thread(name: str) -> str:
    Path(f"{name}.begun").touch()
    while not Path(f"{name}.may-end").exists():
        time.sleep(0.01)
    return name


@broker.task(schedule=[{"interval": 1, "args": ["tick"]}])
async def leave(name: str) -> None:
    Path(name).touch()


async def main() -> None:
    await broker.startup()
    tasks = [await double.kiq(number) for number in range(10)]
    print([(await one.wait_result(timeout=60)).return_value for one in tasks])
    await broker.shutdown()


async def send() -> None:
    await broker.startup()
    await in_a_thread.kiq("slow")
    await broker.shutdown()
"""

WORKER = [tool("taskiq"), "worker", "tasks:broker", "--workers", "1"]


async def test_a_program_of_taskiq_needs_another_line_for_the_broker_only(tmp_path: Path) -> None:
    (tmp_path / "tasks.py").write_text(PROGRAM)
    python = sys.executable
    with serving(tmp_path / "data") as url:
        with started(WORKER, tmp_path, log="worker.log", BROKER=url) as worker:
            printed = ran(
                [python, "-c", "import asyncio, tasks; asyncio.run(tasks.main())"],
                tmp_path,
                BROKER=url,
            )
            assert printed == f"{[2 * number for number in range(10)]}\n"

            with started(
                [tool("taskiq"), "scheduler", "tasks:scheduler"],
                tmp_path,
                log="scheduler.log",
                BROKER=url,
            ):
                await until((tmp_path / "tick").exists, "the scheduler sent nothing")

            ran(
                [python, "-c", "import asyncio, tasks; asyncio.run(tasks.send())"],
                tmp_path,
                BROKER=url,
            )
            begun = tmp_path / "slow.begun"
            await until(begun.exists, "the task did not begin")
            kill_all(worker)
        begun.unlink()
        with started(WORKER, tmp_path, log="worker.log", BROKER=url) as worker:
            await until(begun.exists, "what the killed worker had was lost")
            (tmp_path / "slow.may-end").touch()
            worker.terminate()
            assert worker.wait(60) == 0
