"""HermesMQ's metric names for its dashboards, beside ours on the same page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..http.collectors import add_connections
from ..http.exposition import Family, Page, label

if TYPE_CHECKING:
    from .server import HermesServer


def _gauge(name: str, help: str) -> Family:
    return Family(f"hermesmq_{name}", "gauge", help, ("node",))


class HermesCollector:
    term = _gauge("raft_term", "The term; 1 of a single node.")
    is_leader = _gauge("raft_is_leader", "1 if this node is the leader, else 0.")
    leader = _gauge("raft_current_leader", "Node id of the leader, 0 if there is none.")
    last_index = _gauge("raft_last_log_index", "Index of the last proposed command.")
    applied = _gauge("raft_last_applied", "Index of the last applied command.")
    quorum = _gauge("raft_millis_since_quorum_ack", "0: a single node is its own quorum.")
    topics = _gauge("topics", "Number of topics.")
    messages = _gauge("messages", "Messages that some group of their topic has not settled.")
    in_flight = _gauge("in_flight", "Messages leased to consumers.")
    families = (term, is_leader, leader, last_index, applied, quorum, topics, messages, in_flight)

    def __init__(self, server: HermesServer) -> None:
        self._server = server

    def collect(self, page: Page) -> Iterator[None]:
        server = self._server
        figures, node = server.figures(), label("node", str(server.node_id))
        yield
        for family, value in (
            (self.term, figures.current_term),
            (self.is_leader, int(figures.is_leader)),
            (self.leader, figures.current_leader),
            (self.last_index, figures.last_log_index),
            (self.applied, figures.last_applied),
            (self.quorum, 0),
            (self.topics, figures.topics),
            (self.messages, figures.messages),
            (self.in_flight, figures.in_flight),
        ):
            page.add(family, value, node)
        add_connections(page, "hermes", server)
        yield


FAMILIES = HermesCollector.families
