"""Topics that a framework uses as queues."""

from __future__ import annotations

import contextlib

from ..client.client import Client
from ..client.membership import GroupMembership, JoinOptions
from ..errors import TopicExists


async def make_queue(mq: Client, topic: str, group: str) -> None:
    """Make a topic that drops nothing before `group` has done it, and that group, unless they are
    there. A topic that somebody made with other options is left as it is."""
    with contextlib.suppress(TopicExists):
        await mq.create_topic(topic, keep_until_settled=True)
    membership = GroupMembership(mq._broker, topic, group, JoinOptions())
    for number in range(membership.partitions() or 1):
        member = await membership.join(number)
        await member.close()
