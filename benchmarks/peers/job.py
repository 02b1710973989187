"""What a client process is told to do, and what it tells of it. The standard library alone."""

from __future__ import annotations

import json
import mmap
import struct
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import Literal

Role = Literal[
    "publish",
    "open loop",
    "batches",
    "consume",
    "drain",
    "parked",
    "latency",
    "live publish",
    "live listen",
    "echo",
]
Shape = Literal["calls", "pipeline"]

BATCH = 100
BATCHES_AT_ONCE = 16
POLL = 256
LOOPS = 4
"""Loops that fetch and acknowledge at once, where a client can have several requests under way."""
DIFFERENT_VALUES = 1000
REST_SECONDS = 0.001
"""Between two messages whose latency is taken."""
QUIET_SECONDS = 5.0
"""Who hears nothing for so long has lost what is missing."""
AHEAD_MAX = 16_384
"""How many messages a live publisher may be ahead of the slowest listener."""


@dataclass(frozen=True, slots=True)
class Job:
    peer: str
    mode: str
    role: Role
    address: str
    topic: str
    seconds: float = 1.0
    in_flight: int = 1
    size: int = 100
    count: int = 0
    subscribers: int = 1
    topics: int = 1
    connections: int = 1
    variety: str = ""
    loops: int = LOOPS
    read: int = POLL
    """How many messages a consumer asks for at once."""
    servers: tuple[int, ...] = ()
    """The server's processes, whose processor time is part of the figure."""
    replicas: int = 1
    site: str = ""
    durability: str = "synced"
    shape: Shape = "calls"
    progress: str = ""

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Job:
        told = json.loads(text)
        return cls(**{**told, "servers": tuple(told["servers"])})

    @property
    def nodes(self) -> list[str]:
        """The addresses of a cluster; of a server alone, its own."""
        return self.address.split(",")

    @property
    def host(self) -> str:
        return self.address.rpartition(":")[0]

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    def values(self) -> list[bytes]:
        """Different ones of one size, the same for everybody; who publishes goes round them."""
        chance = Random(self.size)
        return [chance.randbytes(self.size) for _ in range(DIFFERENT_VALUES)]


class WrongCount(Exception):
    """What a server holds, or a client got, is not what was acknowledged: the figure is void."""

    def __init__(self, what: str, expected: int, found: int) -> None:
        super().__init__(f"{what}: expected {expected:,}, found {found:,}")


def check(what: str, *, expected: int, found: int) -> None:
    if expected != found:
        raise WrongCount(what, expected, found)


def latencies(taken: list[float]) -> dict[str, float]:
    """p50 and p99, in microseconds; p99.9 where there are enough to tell."""
    ordered = sorted(taken)
    figures = {
        "count": float(len(ordered)),
        "p50": ordered[len(ordered) // 2] * 1e6,
        "p99": ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)] * 1e6,
    }
    if len(ordered) >= 1000:
        figures["p99.9"] = ordered[len(ordered) * 999 // 1000] * 1e6
    return figures


class Progress:
    """How far the slowest listener is, in a page that two processes share."""

    _NUMBER = struct.Struct("=Q")

    def __init__(self, path: str) -> None:
        with Path(path).open("r+b") as file:
            self._page = mmap.mmap(file.fileno(), mmap.PAGESIZE)

    @staticmethod
    def create(path: Path) -> None:
        path.write_bytes(bytes(mmap.PAGESIZE))

    def tell(self, count: int) -> None:
        self._NUMBER.pack_into(self._page, 0, count)

    def heard(self) -> int:
        count: int = self._NUMBER.unpack_from(self._page)[0]
        return count

    def close(self) -> None:
        self._page.close()
