"""What a front end is told of the cluster that its node belongs to, or will."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol


class LogStanding(NamedTuple):
    """Of the replicated group, as this node knows it."""

    term: int = 0
    last_index: int = 0
    applied: int = 0


class ClusterView(Protocol):
    """Nodes are known by name."""

    @property
    def name(self) -> str:
        """Of this node."""
        ...

    def addresses(self) -> dict[str, str]:
        """Of all members for other nodes, by name, as they were given when the cluster was founded.
        Nothing while the node is blank."""
        ...

    def leader(self) -> str | None:
        """Who leads, as far as is known here."""
        ...

    def is_leading(self) -> bool:
        """Whether verbs are decided here, now."""
        ...

    def standing(self) -> LogStanding: ...

    def on_leader_changed(self, callback: Callable[[], None]) -> None:
        """Call back when somebody else leads, or nobody."""
        ...

    async def found(self, members: Sequence[tuple[str, str]], seconds: float) -> None:
        """Found a cluster of these, by name and address; return when somebody leads it. The same
        members again change nothing. Raises InvalidRequest where that is refused, or not done in
        time."""
        ...
