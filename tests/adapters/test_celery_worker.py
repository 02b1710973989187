"""`celery worker` as users run it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.patience import until
from tests.serving import serving

from .processes import kill_all, ran, started, tool

pytestmark = pytest.mark.slow

PROGRAM = """
import os, time
from pathlib import Path
from celery import Celery, chord, group
import flintmq.adapters.celery

app = Celery("tasks", broker=os.environ["BROKER"], backend=os.environ["BROKER"])
app.conf.worker_prefetch_multiplier = 1


@app.task
def add(x, y):
    return x + y


@app.task
def total(numbers):
    return sum(numbers)


@app.task(bind=True, max_retries=3)
def third_time(self):
    if self.request.retries < 2:
        raise self.retry(countdown=0.1)
    return self.request.retries


@app.task(acks_late=True)
def slow(name):
    Path(f"{name}.begun").touch()
    while not Path(f"{name}.may-end").exists():
        time.sleep(0.01)


def main():
    print(add.delay(4, 4).get(timeout=60))
    print(add.apply_async((1, 2), countdown=0.2, priority=5).get(timeout=60))
    print(group(add.s(number, number) for number in range(5))().get(timeout=60))
    print(chord([add.s(number, number) for number in range(5)])(total.s()).get(timeout=60))
    print((add.s(1, 1) | add.s(3)).delay().get(timeout=60))
    print(third_time.delay().get(timeout=60))
    (answers,) = app.control.ping(timeout=30, limit=1)
    print(list(answers.values()))
"""
PRINTED = """\
8
3
[0, 2, 4, 6, 8]
20
5
2
[{'ok': 'pong'}]
"""

WORKER = [tool("celery"), "-A", "tasks", "worker", "--concurrency", "1"]


async def test_a_program_of_celery_needs_another_line_for_the_broker_only(tmp_path: Path) -> None:
    (tmp_path / "tasks.py").write_text(PROGRAM)
    python = sys.executable
    with serving(tmp_path / "data") as url:
        with started(WORKER, tmp_path, log="worker.log", BROKER=url) as worker:
            assert ran([python, "-c", "import tasks; tasks.main()"], tmp_path, BROKER=url) == (
                PRINTED
            )
            ran([python, "-c", "import tasks; tasks.slow.delay('slow')"], tmp_path, BROKER=url)
            begun = tmp_path / "slow.begun"
            await until(begun.exists, "the task did not begin")
            kill_all(worker)
        begun.unlink()
        with started(WORKER, tmp_path, log="worker.log", BROKER=url) as worker:
            await until(begun.exists, "what the killed worker had was lost")
            (tmp_path / "slow.may-end").touch()
            worker.terminate()
            assert worker.wait(60) == 0
