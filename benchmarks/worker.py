"""One part of one case, in this process: `python -m benchmarks.worker` with a Job as JSON.

The harness starts it anew for every run, so that no memory and no garbage is left from before.
"""

from __future__ import annotations

import asyncio
import gc
import json
import mmap
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Literal, cast

from .scenario import Figures, Settings, load

LoopName = Literal["asyncio", "uvloop"]
PartName = Literal["run", "bare", "peer"]


@dataclass(frozen=True, slots=True)
class Job:
    scenario: str
    case: str
    part: PartName
    loop: LoopName
    settings: Settings

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Job:
        fields = json.loads(text)
        return cls(**{**fields, "settings": Settings(**fields["settings"])})


def has_uvloop() -> bool:
    try:
        import uvloop  # noqa: F401
    except ImportError:
        return False
    return True


def loop_factory(name: LoopName) -> Callable[[], asyncio.AbstractEventLoop]:
    if name == "uvloop":
        import uvloop

        return cast("Callable[[], asyncio.AbstractEventLoop]", uvloop.new_event_loop)
    return asyncio.new_event_loop


def touch(size: int) -> None:
    """Have the machine back `size` bytes with memory, and give them back to it."""
    with mmap.mmap(-1, size) as memory:
        for page in range(0, size, mmap.PAGESIZE):
            memory[page] = 1


def execute(job: Job) -> Figures:
    case = load(job.scenario).cases[job.case]
    part = {"run": case.run, "bare": case.bare, "peer": case.peer}[job.part]
    assert part is not None, "the harness asks for parts that are there"

    if case.memory_bytes and not job.settings.quick:
        touch(case.memory_bytes)

    async def main() -> Figures:
        gc.collect()
        return await part(job.settings)

    with asyncio.Runner(loop_factory=loop_factory(job.loop)) as runner:
        return runner.run(main())


if __name__ == "__main__":
    print(json.dumps(dict(execute(Job.from_json(sys.argv[1])))))
