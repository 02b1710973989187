"""Names of readers are applied state: a name that is deleted is gone, also at the leader."""

from __future__ import annotations

from flintmq.client.client import Client
from flintmq.engine.broker import Broker
from flintmq.serde.codec import Codec


async def test_a_deleted_name_is_gone_from_the_state_of_the_leader() -> None:
    broker = Broker(decoder=Codec())
    async with Client(broker, Codec(), auto_create=True, timeout=None) as mq:
        await mq.publish("orders", b"x")
        async with mq.reader("orders", name="billing") as reader:
            await reader.read()
            await reader.commit()
        (topic,) = broker.shard.state.topics.values()
        assert list(topic.names) == ["billing"]

        await mq.delete_group("orders", "billing")

        assert list(topic.names) == []
