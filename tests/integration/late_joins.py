"""Late joiners of a compacted topic under load: `python -m tests.integration.late_joins [JOINS]`.

A broker in a process of its own; one client publishes updates of random keys all the time, and
another joins at random moments by `start="last_per_key"`. Every joiner gets the newest message of
every key as of some moment, then every message that follows (but for what a compaction has dropped
before it was read, as there was a newer one), in order, none twice.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import flintmq
from tests.serving import serving

KEYS = 50
FOLLOWED = 30
"""How many messages behind the state a joiner looks at."""


class Load:
    """What was published, by offset: known before anybody can read it."""

    def __init__(self, mq: flintmq.Client, random: Random) -> None:
        self._mq, self._random = mq, random
        self.rows: list[tuple[str, bytes]] = []

    async def run(self) -> None:
        while True:
            count = self._random.choice([1, 5, 20])
            rows = [
                (f"k{self._random.randrange(KEYS)}", b"%d" % (len(self.rows) + n))
                for n in range(count)
            ]
            self.rows += rows
            keys: list[str | bytes | None] = [key for key, _ in rows]
            await self._mq.publish_batch("prices", [value for _, value in rows], key=keys)


async def join(mq: flintmq.Client, load: Load) -> int:
    """How many messages of the state there were."""
    async with mq.reader("prices", start="last_per_key") as reader:
        (end,) = reader._api.state_ends.values()
        seen: list[int] = []
        while not seen or seen[-1] < end + FOLLOWED:
            for message in await reader.read_batch(100, timeout=60):
                offset = message.offset
                assert offset is not None
                assert (message.key, message.value) == load.rows[offset]
                seen.append(offset)
    assert seen == sorted(set(seen)), "in order, none twice"
    newest = {load.rows[offset][0]: offset for offset in range(end)}
    state = [offset for offset in seen if offset < end]
    assert set(state) <= set(newest.values()), "nothing that was superseded when it joined"
    followed = [offset for offset in seen if offset >= end]
    by_now = {key: offset for offset, (key, _) in enumerate(load.rows)}
    for offset in set(range(end, followed[-1] + 1)) - set(followed):
        assert by_now[load.rows[offset][0]] > offset, "all that follows and is not superseded yet"
    later = {load.rows[offset][0] for offset in followed}
    missing = {key for key, offset in newest.items() if offset not in state} - later
    assert not missing, f"keys without a value: {missing}"
    return len(state)


async def run(url: str, joins: int, seed: int = 1) -> int:
    random = Random(seed)
    async with flintmq.connect(url) as publishing, flintmq.connect(url) as joining:
        await publishing.create_topic("prices", compact="key")
        load = Load(publishing, random)
        task = asyncio.ensure_future(load.run())
        total = 0
        try:
            for _ in range(joins):
                await asyncio.sleep(random.random() * 0.01)
                total += await join(joining, load)
                if task.done():
                    task.result()
        finally:
            task.cancel()
            await asyncio.wait([task])
        print(f"{joins:,} joins, {len(load.rows):,} updates, {total:,} messages of states: as said")
    return total


def main(joins: int = 1000) -> int:
    with TemporaryDirectory() as place, serving(Path(place) / "data") as url:
        asyncio.run(run(url, joins))
    return 0


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
