"""Request and reply without an event loop."""

from __future__ import annotations

import pytest

import flintmq
from flintmq.client.blocking import BlockingClient

from .conftest import Worker


def test_a_message_replies_without_await(mq: BlockingClient) -> None:
    with mq.live("shout") as feed:

        def respond() -> bool:
            message = feed.read()
            replied: bool = message.reply(message.decode().upper())
            return replied

        responding = Worker(respond)
        assert mq.request("shout", "hello", timeout=30).decode() == "HELLO"
        assert responding.result() is True


def test_a_delivery_replies_without_await(mq: BlockingClient) -> None:
    with mq.subscribe("shout", group="g") as deliveries:

        def respond() -> None:
            with deliveries.read().process() as message:
                assert message.reply(b"HELLO")

        responding = Worker(respond)
        assert mq.request("shout", b"hello", timeout=30).value == b"HELLO"
        responding.result()
    assert mq.group_stats("shout", "g").lag == 0


def test_nobody_there_is_said_at_once(mq: BlockingClient) -> None:
    with pytest.raises(flintmq.NoResponders):
        mq.request("shout", b"hello")
