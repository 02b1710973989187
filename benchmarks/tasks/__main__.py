"""Compares task queues: `python -m benchmarks.tasks [--tasks 10000] [--latency-seconds 10]`.

For each system: one worker process, an empty task, 100 bytes of argument, no results kept. First
the tasks are stored, then the worker is started: tasks per second from its first to its last. Then
100 tasks a second on a new server: from the call in the sender to the function in the worker.

NATS has no tasks: its row is a loop by hand, and the last row is the same loop over FlintMQ.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..peers.install import library_path
from .installed import installed

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = "benchmarks.tasks.programs"
SYSTEMS = {
    "flintmq": "FlintMQ (`flintmq worker`), each task synced",
    "celery": "Celery 5.7.0 + Redis (prefork, 1)",
    "dramatiq": "dramatiq 2.2.1 + Redis (1 process, 8 threads)",
    "taskiq": "taskiq 0.13.0 + Redis streams (1 worker)",
    "nats": "NATS JetStream, a pull consumer by hand",
    "flintmq-poll": "FlintMQ, a poll loop by hand",
}
DURABLE = {
    "flintmq": "synced before it is acknowledged",
    "celery": "Redis appendonly, synced each second",
    "dramatiq": "Redis appendonly, synced each second",
    "taskiq": "Redis appendonly, synced each second",
    "nats": "file, synced every 2 minutes",
    "flintmq-poll": "synced before it is acknowledged",
}
PATIENCE_SECONDS = 180.0


class Bench:
    def __init__(self, python: Path, redis: Path) -> None:
        self.python, self.redis = python, redis

    def measure(self, system: str, count: int, rate: float) -> dict[str, float]:
        with tempfile.TemporaryDirectory(prefix="bench-tasks-") as name:
            place = Path(name)
            port = _free_port()
            environment = {
                **os.environ,
                "BENCH_SYSTEM": system,
                "BENCH_PORT": str(port),
                "BENCH_TASKS": str(count),
                "BENCH_OUT": str(place / "figures.json"),
                "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}",
                "PATH": f"{self.python.parent}:{os.environ['PATH']}",
            }
            send = [str(self.python), "-m", PROGRAMS, "send", str(count), str(rate)]
            served = environment
            if system in ("celery", "dramatiq", "taskiq"):
                served = {**environment, **library_path(self.redis)}
            with running(self._server(system, place, port), served, place):
                _wait_for(port)
                if rate:
                    with running(self._worker(system), environment, place):
                        time.sleep(6)  # all of them listen by now
                        subprocess.run(send, env=environment, cwd=ROOT, check=True)
                        return _figures(place)
                subprocess.run(send, env=environment, cwd=ROOT, check=True)
                with running(self._worker(system), environment, place):
                    return _figures(place)

    def _server(self, system: str, place: Path, port: int) -> list[str]:
        python = str(self.python)
        if system.startswith("flintmq"):
            data = str(place / "data")
            listen = f"127.0.0.1:{port}"
            return [python, "-m", "flintmq.cli", "serve", "--data-dir", data, "--listen", listen]
        if system == "nats":
            server = str(self.python.parent / "nats-server")
            return [server, "-js", "-sd", str(place), "-a", "127.0.0.1", "-p", str(port)]
        return [
            *(str(self.redis), "--port", str(port), "--bind", "127.0.0.1", "--dir", str(place)),
            *("--appendonly", "yes", "--appendfsync", "everysec"),
        ]

    def _worker(self, system: str) -> list[str]:
        python = [str(self.python), "-m"]
        return {
            "flintmq": [*python, "flintmq.cli", "worker", f"{PROGRAMS}:app"],
            "celery": [*python, "celery", "-A", PROGRAMS, "worker", "-c", "1", "-l", "ERROR"],
            "dramatiq": [*python, "dramatiq", PROGRAMS, "-p", "1", "-t", "8"],
            "taskiq": [*python, "taskiq", "worker", f"{PROGRAMS}:broker", "--workers", "1"],
            "nats": [*python, PROGRAMS, "work"],
            "flintmq-poll": [*python, PROGRAMS, "work"],
        }[system]


@contextmanager
def running(command: list[str], environment: dict[str, str], place: Path) -> Iterator[None]:
    with (
        open(place / "log", "ab") as log,
        subprocess.Popen(
            command, env=environment, cwd=ROOT, stdout=log, stderr=log, start_new_session=True
        ) as process,
    ):
        try:
            yield
        except BaseException:
            print((place / "log").read_text()[-2000:], file=sys.stderr)
            raise
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()


def _figures(place: Path) -> dict[str, float]:
    path, until = place / "figures.json", time.monotonic() + PATIENCE_SECONDS
    while not path.exists():
        if time.monotonic() > until:
            raise SystemExit("the worker has not come to an end")
        time.sleep(0.05)
    found: dict[str, float] = json.loads(path.read_text())
    return found


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


def _wait_for(port: int) -> None:
    until = time.monotonic() + 30
    while time.monotonic() < until:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise SystemExit("the server does not listen")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=10_000)
    parser.add_argument("--latency-seconds", type=float, default=10.0)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("systems", nargs="*", choices=[*SYSTEMS, []], help="Default: all.")
    given = parser.parse_args()
    bench = Bench(*installed())
    rows: dict[str, dict[str, float]] = {}
    for _ in range(given.rounds):
        for system in given.systems or SYSTEMS:
            drained = bench.measure(system, given.tasks, 0)
            timed = bench.measure(system, round(100 * given.latency_seconds), 100)
            row = {"rate": drained["rate"], "p50": timed["p50"], "p99": timed["p99"]}
            known = rows.get(system)
            if known is not None:  # the best of the rounds: others use this machine, too
                row = {
                    "rate": max(row["rate"], known["rate"]),
                    "p50": min(row["p50"], known["p50"]),
                    "p99": min(row["p99"], known["p99"]),
                }
            rows[system] = row
            print(system, json.dumps(row), file=sys.stderr)
    print("| | tasks/s | p50 at 100/s | p99 at 100/s | a stored task is |")
    print("|---|---:|---:|---:|---|")
    for system, row in rows.items():
        times = f"{row['p50'] * 1000:.1f} ms | {row['p99'] * 1000:.1f} ms"
        print(f"| {SYSTEMS[system]} | {row['rate']:,.0f} | {times} | {DURABLE[system]} |")
    print(json.dumps(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
