"""HermesMQ's metric names for its dashboards, beside ours on the same page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..http.collectors import Collector, connections_of
from ..http.exposition import Page, families, label

if TYPE_CHECKING:
    from .server import HermesServer

# fmt: off
FAMILIES = families(
    ("node",),
    ("hermesmq_raft_term", "The term; 1 of a broker that runs alone.", "current_term"),
    ("hermesmq_raft_is_leader", "1 if this node is the leader, else 0.", "is_leader"),
    ("hermesmq_raft_current_leader", "Node id of the leader, 0 if there is none.",
     "current_leader"),
    ("hermesmq_raft_last_log_index", "Index of the last proposed command.", "last_log_index"),
    ("hermesmq_raft_last_applied", "Index of the last applied command.", "last_applied"),
    ("hermesmq_raft_millis_since_quorum_ack", "0: a leader without a quorum steps down.",
     lambda figures: 0),
    ("hermesmq_topics", "Number of topics.", "topics"),
    ("hermesmq_messages", "Messages that some group of their topic has not settled.", "messages"),
    ("hermesmq_in_flight", "Messages leased to consumers.", "in_flight"),
)
# fmt: on


class HermesCollector:
    families = FAMILIES

    def __init__(self, server: HermesServer) -> None:
        self._server = server

    def collect(self, page: Page) -> Iterator[None]:
        node = self._server.node
        yield from node.sum_up()
        page.add_table(FAMILIES, node.figures, label("node", str(node.id)))


def collectors(server: HermesServer) -> list[Collector]:
    return [connections_of("hermes", server), HermesCollector(server)]
