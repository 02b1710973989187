"""The engine in the simulator. A seed that fails is printed; once fixed it stays here by name."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections import Counter
from random import Random

import pytest

from flintmq.cluster.shard_host import ShardHost
from flintmq.cluster.writes import ReadyWrites
from flintmq.raft import RaftEntry, Ready
from tests.simulation.__main__ import main
from tests.simulation.engine_judges import Judges
from tests.simulation.engine_world import simulate_engine
from tests.simulation.invariants import Violation
from tests.simulation.simulated_loop import LoopStuck, SimulatedLoop
from tests.simulation.world import SimulationFailed


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 6, 3))
def test_the_engine_keeps_every_promise(first: int) -> None:
    for seed in range(first, first + 3):
        simulate_engine(seed)


@pytest.mark.slow
def test_the_same_seed_tells_the_same_story_of_the_engine() -> None:
    one, other = simulate_engine(3, trace=True), simulate_engine(3, trace=True)

    assert one.trace == other.trace
    assert one.digest == other.digest
    assert one.counts == other.counts
    assert simulate_engine(1).digest != one.digest


@pytest.mark.slow
def test_the_story_of_the_engine_does_not_depend_on_the_process_that_tells_it() -> None:
    told = []
    for hash_seed in ("1", "2"):
        command = [
            sys.executable, "-m", "tests.simulation", "--engine", "--seeds", "1:3", "--trace",
        ]  # fmt: skip
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        done = subprocess.run(command, env=environment, capture_output=True, check=True)
        told.append(done.stdout[: done.stdout.rindex(b"seconds")])

    assert told[0] == told[1]
    assert b"loses its power" in told[0]


# What seeds have found is kept by tests of its own: a seed tells another story whenever the plan or
# the engine changes. A checkpoint that was offered in vain: tests/cluster/test_shipping.py. One
# that was due without end: tests/engine/test_durable_faults.py. A delay that outlived the next
# grant: a break of scripts/mutate-cluster. A lead that was lost while messages were handed out, and
# a lease that stayed behind: tests/engine/test_queue_groups.py.


def first_failure(seeds: range) -> str:
    for seed in seeds:
        try:
            simulate_engine(seed)
        except SimulationFailed as failure:
            return str(failure)
    return ""


def written_is_durable(
    writes: ReadyWrites, ready: Ready, *, tell_when_written: bool = False
) -> bool:
    """Says so before anything is on the disk."""
    if records := writes._records(ready):
        writes._commit.submit(records)
    return True


@pytest.mark.slow
def test_a_node_that_promises_what_is_not_on_its_disk_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ReadyWrites, "write", written_is_durable)

    assert "--engine --seeds" in first_failure(range(20))


@pytest.mark.slow
def test_a_follower_that_passes_over_an_entry_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    apply_one = ShardHost._apply_one

    def passes_over(host: ShardHost, entry: RaftEntry) -> None:
        is_passed = host.raft.core.id == 2 and entry.index % 40 == 0
        apply_one(host, RaftEntry(entry.index, entry.term) if is_passed else entry)

    monkeypatch.setattr(ShardHost, "_apply_one", passes_over)

    assert "differ once index" in first_failure(range(5))


def test_the_command_has_no_other_number_of_nodes_for_the_engine() -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--engine", "--nodes", "5"])
    assert ended.value.code == 2


# -- the loop ---------------------------------------------------------------------------------


def test_time_leaps_to_the_next_timer() -> None:
    loop = SimulatedLoop(Random(1))

    async def sleep() -> float:
        await asyncio.sleep(3600)
        return loop.time()

    assert loop.run_until_complete(sleep()) == pytest.approx(3600)
    loop.end()


def test_what_would_go_to_a_thread_is_done_at_once() -> None:
    loop = SimulatedLoop(Random(1))

    thread = loop.run_until_complete(asyncio.to_thread(threading.get_ident))

    assert thread == threading.get_ident()
    loop.end()


def test_a_loop_that_waits_for_nothing_says_so() -> None:
    loop = SimulatedLoop(Random(1))

    with pytest.raises(LoopStuck):
        loop.run_until_complete(loop.create_future())
    loop.end()


# -- the judges -------------------------------------------------------------------------------


def judges() -> Judges:
    return Judges(Counter())


def test_an_acknowledged_message_that_is_gone_is_noticed() -> None:
    judge = judges()
    judge.acknowledged("a", 0, [b"x", b"y"], known=0)

    with pytest.raises(Violation, match="offset 1 of a was acknowledged, and is lost"):
        judge.judge({"a": [(0, b"x")]})


def test_an_offset_with_another_value_is_noticed() -> None:
    judge = judges()
    judge.saw("a", 0, b"x")

    with pytest.raises(Violation, match="was b'x', and is b'y'"):
        judge.judge({"a": [(0, b"y")]})


def test_a_message_that_is_there_twice_is_noticed() -> None:
    with pytest.raises(Violation, match="2 times"):
        judges().judge({"a": [(0, b"x"), (1, b"x")]})


def test_a_settled_message_that_comes_again_is_noticed() -> None:
    judge = judges()
    judge.granted("a", "one", 1 << 40, [0], asked=0, now=1, ends=5)
    judge.given_up("a", 1 << 40, [0])
    judge.settled("a", [0], 2)
    judge.granted("a", "two", (1 << 40) + 1, [0], asked=1.5, now=2, ends=6)

    with pytest.raises(Violation, match="was settled"):
        judge.granted("a", "two", (1 << 40) + 2, [0], asked=2.5, now=3, ends=7)


def test_two_leases_of_one_message_in_one_term_are_noticed() -> None:
    judge = judges()
    judge.granted("a", "one", 1 << 40, [0], asked=0, now=1, ends=5)
    judge.granted("a", "two", 2 << 40, [0], asked=0, now=2, ends=6)  # another term: not judged

    with pytest.raises(Violation, match="is leased to two"):
        judge.granted("a", "one", (2 << 40) + 1, [0], asked=0, now=4, ends=9)


def test_a_publish_before_the_end_that_was_known_is_noticed() -> None:
    judge = judges()
    judge.acknowledged("a", 0, [b"x", b"y"], known=0)

    with pytest.raises(Violation, match="ended at 2 or later, and then 1 was appended"):
        judge.placed("a", 1, 1, known=2)


def test_a_look_that_is_older_than_what_was_known_is_noticed() -> None:
    judge = judges()
    judge.looked("a", 5, known=0)
    judge.looked("a", 4, known=0)  # asked before the other was answered

    with pytest.raises(Violation, match="ended at 5 or later, and then at 4"):
        judge.looked("a", 4, known=judge.end_of("a"))


def test_a_message_whose_key_is_in_work_is_noticed() -> None:
    judge = judges()
    judge.in_turn("a", 0, b"key")
    judge.in_turn("a", 1, b"other key")
    judge.acks("a", [0])
    judge.in_turn("a", 2, b"key")
    judge.acks("a", [2])
    judge.refused("a", [2])

    with pytest.raises(Violation, match="offset 3 of a was handed out, and 2 of the same key"):
        judge.in_turn("a", 3, b"key")


def test_a_message_that_a_group_forgets_is_noticed() -> None:
    judge = judges()
    judge.acknowledged("a", 0, [b"x", b"y"], known=0)
    judge.granted("a", "one", 1 << 40, [0], asked=0, now=1, ends=5)

    with pytest.raises(Violation, match="offset 1 of a was never delivered"):
        judge.drained("a", 2, 0)
    with pytest.raises(Violation, match="1 messages of a are not settled"):
        judge.drained("a", 1, 1)


def test_half_of_what_was_staged_is_noticed() -> None:
    judge = judges()
    judge.stages("w 1", [b"x", b"y"])

    with pytest.raises(Violation, match="1 of 2 rows"):
        judge.judge({"a": [(0, b"x")]})
