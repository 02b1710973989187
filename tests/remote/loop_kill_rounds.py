"""Kills a broker again and again under `async for message in subscription: await message.ack()`.

    .venv/bin/python -m tests.remote.loop_kill_rounds --rounds 10

No loop may end, nothing may be lost, and nothing that was settled may come again.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from pathlib import Path

from .test_leases_over_restarts import loops_over_kills


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seed", type=int, default=7)
    arguments = parser.parse_args()
    started = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="flintmq-loops-") as directory:
        found = asyncio.run(loops_over_kills(Path(directory), arguments.rounds, arguments.seed))
    print(f"{found}; seed {arguments.seed}, {time.perf_counter() - started:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
