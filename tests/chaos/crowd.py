"""The client processes of a chaos run."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import random
import signal
import time
from dataclasses import dataclass
from multiprocessing.context import ForkServerProcess
from pathlib import Path

from tests.patience import until

from .clients.process import live

NURSERY = multiprocessing.get_context("forkserver")
"""Clients are forked from a process that has imported all they need: quick, and easy to replace."""
NURSERY.set_forkserver_preload([f"{__package__}.clients.process"])
STOP_SECONDS = 60


@dataclass
class Cast:
    """One client process: what it does, and through what."""

    role: str
    name: str
    is_proxied: bool = False
    skew: float = 0.0
    life: int = 0
    process: ForkServerProcess | None = None

    @property
    def worker(self) -> str:
        return f"{self.name}.{self.life}"


@dataclass
class Options:
    seconds: float
    seed: int
    without: frozenset[str] = frozenset()


class Crowd:
    """All clients of a run. `urls` are two ways to the broker: a plain one, and one by a proxy."""

    def __init__(self, place: Path, options: Options, chance: random.Random) -> None:
        self._place, self._options, self._chance = place, options, chance
        self._stories = place / "stories"
        self._casts: list[Cast] = []
        self._urls = ("", "")
        self.complaints: list[str] = []

    def start(self, urls: tuple[str, str]) -> None:
        self._urls = urls
        for at in range(2):
            for role in ("publish", "queue", "read"):
                self._casts.append(Cast(role, f"{role}{at}", is_proxied=at == 1))
        self._casts.append(Cast("manage", "manage0"))
        if "skew" not in self._options.without:
            self._casts.append(Cast("publish", "late", skew=-60.0))
            self._casts.append(Cast("publish", "early", skew=60.0))
        for cast in self._casts:
            self._begin(cast)

    def _begin(self, cast: Cast) -> None:
        cast.life += 1
        url = self._urls[cast.is_proxied]
        facts = (cast.role, url, self._stories, cast.worker, self._options.seed, cast.skew)
        cast.process = NURSERY.Process(target=live, args=facts, daemon=True)
        cast.process.start()

    def kill_one(self) -> str:
        spared = "read" if "reader-kill" in self._options.without else ""
        cast = self._chance.choice([cast for cast in self._casts if cast.role != spared])
        worker = cast.worker
        assert cast.process is not None
        cast.process.kill()
        cast.process.join()
        self._begin(cast)
        return worker

    async def pause_one(self, seconds: float) -> str:
        cast = self._chance.choice(self._casts)
        assert cast.process is not None
        assert cast.process.pid is not None
        os.kill(cast.process.pid, signal.SIGSTOP)
        await asyncio.sleep(seconds)
        os.kill(cast.process.pid, signal.SIGCONT)
        return cast.worker

    def stop(self) -> None:
        for cast in self._casts:
            assert cast.process is not None
            cast.process.terminate()
        give_up = time.monotonic() + STOP_SECONDS
        for cast in self._casts:
            assert cast.process is not None
            cast.process.join(max(0.1, give_up - time.monotonic()))
            code = cast.process.exitcode
            if code is None:
                self.complaints.append(f"{cast.worker} did not end within {STOP_SECONDS} s")
                cast.process.kill()
                cast.process.join()
            elif code and (self._stories / cast.worker).exists():  # else it had not begun yet
                said = (self._place / f"{cast.worker}.err").read_text().strip()
                self.complaints.append(f"{cast.worker} ended with {code}: {said[-1500:]}")

    def kill(self) -> None:
        for cast in self._casts:
            if cast.process is not None and cast.process.is_alive():
                cast.process.kill()
                cast.process.join()

    def proxied(self) -> list[str]:
        return [cast.name for cast in self._casts if cast.is_proxied]

    async def at_work(self) -> None:
        """Wait until all have begun."""
        await until(
            lambda: all((self._stories / cast.worker).exists() for cast in self._casts),
            "not all clients came up",
        )
