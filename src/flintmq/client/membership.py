"""Joining a group: of a plain topic, or of each partition of a row."""

from __future__ import annotations

import itertools
import os
import socket

from ..broker_api import BrokerApi, Filter, Joining, MemberApi
from ..errors import GroupExists, InvalidRequest
from ..group_model import Order
from ..model import Start
from .routing import partition_name
from .sending import partitions_of

_numbers = itertools.count(1)


def holder_label() -> str:
    """Who holds a lease, for people to read: machine, process and a number."""
    return f"{socket.gethostname()}:{os.getpid()}:{next(_numbers)}"


class GroupMembership:
    """How one member joins: `order`, `filter` and `start` are what it says of the group."""

    def __init__(
        self,
        broker: BrokerApi,
        topic: str,
        group: str,
        *,
        order: Order | None,
        filter: Filter | None,
        start: Start | None,
        auto_create: bool,
    ) -> None:
        self.topic, self.group = topic, group
        self._broker = broker
        self._order, self._filter, self._start = order, filter, start
        self._auto_create = auto_create
        self._holder = holder_label()
        self._known = 0
        self.is_late = False
        """Whether what is joined was added after this member joined the others."""

    def partitions(self) -> int | None:
        """How many partitions there are to join; None for a plain topic."""
        count = partitions_of(self.topic, self._broker.known_options(self.topic))
        if count is not None and isinstance(self._start, int):
            raise InvalidRequest(
                f"start={self._start}: each partition has its own offsets; use another "
                "start, then reset_group(topic, group, {partition: offset})"
            )
        self._known = count or 0
        return count

    def partition_count(self) -> int:
        return partitions_of(self.topic, self._broker.known_options(self.topic)) or 0

    async def join(self, partition: int) -> MemberApi:
        """Join the group of one partition, or of the plain topic."""
        if not self._known:
            return await self._join(self.topic, self._start)
        name = partition_name(self.topic, partition)
        if self.is_late or partition >= self._known:  # what it holds was published for us too
            return await self._join(name, None)
        try:
            return await self._join(name, self._start)
        except GroupExists as error:
            # A partition that was added later began at its own start, whatever the group said.
            if partition == 0 or set(error.differing) != {"start"}:
                raise
            return await self._join(name, None)

    async def _join(self, topic: str, start: Start | None) -> MemberApi:
        return await self._broker.join_group(
            Joining(
                topic,
                self.group,
                self._holder,
                self._order,
                self._filter,
                start,
                self._auto_create,
            )
        )
