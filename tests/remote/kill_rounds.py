"""Kills a broker on the network again and again while clients publish, subscribe and settle.

    .venv/bin/python -m tests.remote.kill_rounds --rounds 100

Runs the test of that story with more rounds than a test run has time for; prints its figures.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import time
from pathlib import Path


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=7)
    arguments = parser.parse_args()
    os.environ["FLINTMQ_KILLS"] = str(arguments.rounds)
    os.environ["FLINTMQ_KILLS_SEED"] = str(arguments.seed)
    from . import test_killed_brokers as story

    started = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="flintmq-kills-") as directory:
        asyncio.run(
            story.test_a_broker_that_is_killed_again_and_again_loses_and_doubles_nothing(
                Path(directory)
            )
        )
    print(f"seed {arguments.seed}, {time.perf_counter() - started:.0f} s: every promise was kept")
    return 0


if __name__ == "__main__":
    sys.exit(main())
