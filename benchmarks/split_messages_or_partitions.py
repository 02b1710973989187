"""Readers of one name over a partitioned topic: split messages, or split partitions?

    python -m benchmarks.split_messages_or_partitions [--quick]

Three members work off a backlog in simulated steps: in each step a member reads up to as many
messages as its speed. Splitting messages is what readers of one name do. Splitting partitions is
emulated by giving each member a list of its own, evenly by count, as group protocols do that know
nothing of load; who gets which list is up to chance there, so every order of the members is run.
Steps and shares are counts: the same on every machine.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from itertools import permutations
from statistics import mean

import flintmq

PARTITIONS = 8
MEMBERS = 3
KEYS = 200

Keys = list[str | bytes | None]


@dataclass(frozen=True, slots=True)
class Run:
    """One way through the backlog."""

    steps: int
    load: float  # the most any member had to do, beside what its speed was worth
    shared_keys: int  # keys that came to more than one member: without order among them


@dataclass(frozen=True, slots=True)
class Outcome:
    """All runs of one case, in steps beside the fewest possible."""

    keys: str
    speeds: tuple[int, ...]
    split: str
    runs: int
    best: float
    average: float
    worst: float
    largest_load: float
    shared_keys: int


def some_keys(skew: float, count: int) -> Keys:
    """Keys by a power law: the n-th is n**skew times rarer than the first; 0 is no skew."""
    chance = random.Random(42)
    weights = [1 / rank**skew for rank in range(1, KEYS + 1)]
    names = [f"key-{number}" for number in range(KEYS)]
    return [*chance.choices(names, weights, k=count)]


async def work_off(keys: Keys, speeds: Sequence[int], lists: Sequence[list[int] | None]) -> Run:
    async with flintmq.connect("memory://") as mq, AsyncExitStack() as stack:
        await mq.create_topic("work", partitions=PARTITIONS)
        await mq.publish_batch("work", [b"x"] * len(keys), key=keys)
        members = [
            await stack.enter_async_context(mq.reader("work", name="team", partitions=wanted))
            for wanted in lists
        ]
        done = [0] * MEMBERS
        seen: dict[object, set[int]] = {}
        steps = 0
        while sum(done) < len(keys):
            steps += 1
            for number, (member, speed) in enumerate(zip(members, speeds, strict=True)):
                rows = member.read_batch_nowait(speed)
                done[number] += len(rows)
                for key in rows.keys:
                    seen.setdefault(key, set()).add(number)
        fair = [len(keys) * speed / sum(speeds) for speed in speeds]
        return Run(
            steps,
            load=max(mine / worth for mine, worth in zip(done, fair, strict=True)),
            shared_keys=sum(len(numbers) > 1 for numbers in seen.values()),
        )


async def compare(count: int) -> list[Outcome]:
    own = [list(range(number, PARTITIONS, MEMBERS)) for number in range(MEMBERS)]
    outcomes = []
    for label, skew in (("even", 0.0), ("skewed", 1.1)):
        keys = some_keys(skew, count)
        for speeds in ((1, 1, 1), (1, 2, 4)):
            at_best = -(-count // sum(speeds))
            for split, lists in (("messages", [None] * MEMBERS), ("partitions", own)):
                runs = [
                    await work_off(keys, order, lists) for order in sorted(permutations(speeds))
                ]
                steps = [run.steps / at_best for run in runs]
                outcomes.append(
                    Outcome(
                        label,
                        speeds,
                        split,
                        len(runs),
                        best=min(steps),
                        average=mean(steps),
                        worst=max(steps),
                        largest_load=max(run.load for run in runs),
                        shared_keys=max(run.shared_keys for run in runs),
                    )
                )
    return outcomes


def main(arguments: Sequence[str]) -> None:
    outcomes = asyncio.run(compare(2_100 if "--quick" in arguments else 21_000))
    heads = ("keys", "speeds", "split", "best", "average", "worst", "largest load", "shared keys")
    print(("{:>12} " * len(heads)).format(*heads))
    for o in outcomes:
        print(
            f"{o.keys:>12} {'/'.join(map(str, o.speeds)):>12} {o.split:>12} {o.best:>12.2f} "
            f"{o.average:>12.2f} {o.worst:>12.2f} {o.largest_load:>12.2f} {o.shared_keys:>12}"
        )
    print(json.dumps([asdict(outcome) for outcome in outcomes]))


if __name__ == "__main__":
    main(sys.argv[1:])
