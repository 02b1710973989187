"""What a round of consensus costs: three nodes of the Raft core in one process, disks that are done
at once, no network. `python -m benchmarks.raft_rounds`

A round is one proposal of n entries on the leader until all three nodes have applied it. With the
codec every message also goes through bytes and back. Instructions are counted by `perf stat` where
the machine lets it, else by callgrind, as the difference between two runs of different length: a
count does not depend on who else uses the machine.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections import deque
from pathlib import Path
from random import Random

from flintmq.net.wire.raft_messages import decode_message, encode_message
from flintmq.raft import Membership, MemoryStorage, RaftMessage, RaftNode, RaftSettings

PAYLOAD = b"x" * 100


class Trio:
    """The leanest driver there is: everything is carried out at once, in order."""

    def __init__(self, *, through_codec: bool = False) -> None:
        self._through_codec = through_codec
        members = Membership(voters=(1, 2, 3))
        self._storages = {node: MemoryStorage(members) for node in members.voters}
        self.nodes = {
            node: RaftNode(RaftSettings(node=node), self._storages[node], Random(node))
            for node in members.voters
        }
        self._queue: deque[RaftMessage] = deque()
        self.messages = 0
        self.nodes[1].campaign()
        self.settle()
        assert self.nodes[1].leader == 1

    def settle(self) -> None:
        for node in self.nodes:
            self._work_off(node)
        while self._queue:
            message = self._queue.popleft()
            self.messages += 1
            if self._through_codec:
                message = decode_message(b"".join(encode_message(message)))
            self.nodes[message.receiver].step(message)
            self._work_off(message.receiver)

    def _work_off(self, node: int) -> None:
        raft, storage = self.nodes[node], self._storages[node]
        while raft.has_ready():
            ready = raft.ready()
            self._queue.extend(ready.messages)
            if ready.persisted is not None:
                if ready.hard_state is not None:
                    storage.set_hard_state(ready.hard_state)
                if ready.entries:
                    storage.append(ready.entries)
                self._queue.extend(ready.messages_after_sync)
                raft.persisted(ready.persisted)
            if ready.committed:
                raft.applied(ready.committed[-1].index)

    def round(self, payloads: list[bytes]) -> None:
        self.nodes[1].propose(*payloads)
        self.settle()

    def compact(self) -> None:
        for node, storage in self._storages.items():
            storage.compact(self.nodes[node].log.applied)


def run_rounds(rounds: int, entries: int, *, through_codec: bool) -> Trio:
    trio, payloads = Trio(through_codec=through_codec), [PAYLOAD] * entries
    for number in range(rounds):
        trio.round(payloads)
        if number % 200 == 199:
            trio.compact()  # as a real log is, so that memory does not tell the time
    assert all(raft.log.applied == rounds * entries + 1 for raft in trio.nodes.values())
    return trio


def measure(entries: int, *, through_codec: bool, seconds: float) -> dict[str, float]:
    """The best of five: others use this machine too."""
    rounds = 50
    best = float("inf")
    messages = 0.0
    run_rounds(rounds, entries, through_codec=through_codec)
    began = time.perf_counter()
    runs = 0
    while runs < 5 or time.perf_counter() - began < seconds:
        start = time.perf_counter()
        trio = run_rounds(rounds * 4, entries, through_codec=through_codec)
        best = min(best, (time.perf_counter() - start) / (rounds * 4))
        messages = trio.messages / (rounds * 4)
        runs += 1
    return {"rounds_per_s": 1 / best, "us_per_round": best * 1e6, "messages_per_round": messages}


def instructions_per_round(entries: int) -> tuple[float | None, str]:
    """By the difference of a long and a short run."""
    short, long = 100, 500
    for name, count in (("perf stat", _count_by_perf), ("callgrind", _count_by_callgrind)):
        one, other = count(short, entries), count(long, entries)
        if one is not None and other is not None:
            return (other - one) / (long - short), name
    return None, "not available"


def _inner(rounds: int, entries: int) -> list[str]:
    return [sys.executable, "-m", "benchmarks.raft_rounds", "--inner", f"{rounds},{entries}"]


def _count_by_perf(rounds: int, entries: int) -> int | None:
    if shutil.which("perf") is None:
        return None
    command = ["perf", "stat", "-x", ",", "-e", "instructions:u", *_inner(rounds, entries)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    for line in done.stderr.splitlines():
        value, *rest = line.split(",")
        if any("instructions" in word for word in rest) and value.isdigit():
            return int(value)
    return None


def _count_by_callgrind(rounds: int, entries: int) -> int | None:
    if shutil.which("valgrind") is None:
        return None
    with tempfile.TemporaryDirectory() as place:
        out = Path(place) / "callgrind.out"
        command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}"]
        done = subprocess.run(
            [*command, *_inner(rounds, entries)], capture_output=True, text=True, check=False
        )
        if done.returncode or not out.exists():
            return None
        for line in out.read_text().splitlines():
            if line.startswith(("summary:", "totals:")):
                return int(line.split()[1])
    return None


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.raft_rounds")
    parser.add_argument("--seconds", type=float, default=2.0, help="per line of the table")
    parser.add_argument("--inner", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inner:
        rounds, entries = (int(part) for part in options.inner.split(","))
        run_rounds(rounds, entries, through_codec=False)
        return
    result: dict[str, object] = {"benchmark": "raft_rounds", "payload_bytes": len(PAYLOAD)}
    print("entries  codec  rounds/s   entries/s  us/round  messages/round  instructions/round")
    for entries in (1, 100):
        instructions, source = instructions_per_round(entries)
        for through_codec in (False, True):
            line = measure(entries, through_codec=through_codec, seconds=options.seconds)
            counted = instructions if not through_codec else None
            shown = f"{counted:,.0f} ({source})" if counted else "" if through_codec else source
            print(
                f"{entries:>7}  {'yes' if through_codec else 'no':>5}"
                f"  {line['rounds_per_s']:>8,.0f}  {line['rounds_per_s'] * entries:>10,.0f}"
                f"  {line['us_per_round']:>8,.1f}  {line['messages_per_round']:>14.1f}  {shown}"
            )
            name = f"entries_{entries}" + "_codec" * through_codec
            result[name] = {key: round(value, 1) for key, value in line.items()}
        result[f"instructions_per_round_{entries}"] = instructions and round(instructions)
        result["instructions_by"] = source
    print(json.dumps(result))


if __name__ == "__main__":
    main()
