"""Three nodes of the Raft core, driven by hand: what a driver does, without disk and network.

Run it: python examples/raft_by_hand.py
"""

from __future__ import annotations

from collections import deque
from random import Random

from flintmq.raft import Membership, MemoryStorage, RaftMessage, RaftNode, RaftSettings


def main() -> None:
    members = Membership(voters=(1, 2, 3))
    disks = {node: MemoryStorage.bootstrapped(members) for node in members.voters}
    nodes = {
        node: RaftNode(RaftSettings(node=node), disks[node], Random(node), applied=1)
        for node in members.voters
    }
    network: deque[RaftMessage] = deque()

    def work_off(node: int) -> None:
        while nodes[node].has_ready():
            ready = nodes[node].ready()
            network.extend(ready.messages)
            if ready.persisted is not None:
                if ready.hard_state is not None:
                    disks[node].set_hard_state(ready.hard_state)
                disks[node].append(ready.entries)
                # Here a real driver waits for the sync; only then:
                network.extend(ready.messages_after_sync)
                nodes[node].persisted(ready.persisted)
            for entry in ready.committed:
                print(f"node {node} applies entry {entry.index}: {bytes(entry.data)!r}")
                nodes[node].applied(entry.index)

    def settle() -> None:
        for node in nodes:
            work_off(node)
        while network:
            message = network.popleft()
            nodes[message.receiver].step(message)
            work_off(message.receiver)

    nodes[1].campaign()
    settle()
    print(f"node {nodes[2].leader} leads term {nodes[2].term}")
    nodes[1].propose(b"hello")
    settle()


if __name__ == "__main__":
    main()
