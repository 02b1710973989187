"""One publisher, one consumer, 1 KiB, message by message, in this process: prints one JSON object.

Run with PYTHONPATH set to the build that is measured.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping

import uvloop

from ..scenario import Settings
from ..scenarios.perf_runner import SCENARIO

NAME = "baseline 1P/1C 1 KiB"


def main() -> None:
    async def run() -> Mapping[str, float]:
        return await SCENARIO.cases[NAME].run(Settings(quick=False, seconds=1.0))

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        before = time.process_time()
        figures = runner.run(run())
        spent = time.process_time() - before
    print(json.dumps({"msgs/s": figures["delivered"], "server us": spent * 10}))


if __name__ == "__main__":
    main()
