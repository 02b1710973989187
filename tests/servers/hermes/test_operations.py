"""Every operation of HermesMQ's protocol, with its defaults, limits and errors."""

from __future__ import annotations

import asyncio

import pytest

from flintmq.engine.broker import Broker
from flintmq.frontends.hermes.server import HermesServer
from flintmq.testing import ManualClock

from .client import HermesClient, Refused
from .conftest import Connect

# --- produce


async def test_offsets_of_a_topic_count_up_from_0(client: HermesClient) -> None:
    assert [await client.produce("t", b"%d" % n) for n in range(3)] == [0, 1, 2]
    assert await client.produce("other", b"x") == 0


async def test_a_message_comes_as_it_was_sent(client: HermesClient, clock: ManualClock) -> None:
    await client.produce("t", b"hello", priority=3, content_type=2)

    (item,) = await client.poll("t")

    assert (item.payload, item.priority, item.content_type) == (b"hello", 3, 2)
    assert (item.offset, item.ts_ms) == (0, clock.now_ms())


@pytest.mark.parametrize(("sent", "told"), [(0, 0), (1, 1), (2, 2), (3, 3), (4, 0), (2**32 - 1, 0)])
async def test_an_unknown_content_type_is_raw(client: HermesClient, sent: int, told: int) -> None:
    await client.produce("t", b"x", content_type=sent)

    assert (await client.poll("t"))[0].content_type == told


async def test_a_priority_beyond_7_is_7(client: HermesClient) -> None:
    await client.produce("t", b"x", priority=4_000_000_000)

    assert (await client.poll("t"))[0].priority == 7


async def test_a_payload_has_one_mebibyte_at_most(client: HermesClient) -> None:
    await client.produce("t", bytes(2**20))
    for size in (2**20 + 1, 3 * 2**20):
        with pytest.raises(Refused) as caught:
            await client.produce("t", bytes(size))
        assert caught.value.code == "payload_too_large"
        assert caught.value.message == f"payload is {size} bytes; max is 1048576"

    assert len(await client.poll("t")) == 1


async def test_a_producer_that_repeats_itself_gets_the_first_offset(client: HermesClient) -> None:
    first = await client.produce("t", b"a", producer_id="p", seq=0)
    others = [
        await client.produce("t", b"another", producer_id="p", seq=0),
        await client.produce("t", b"b", producer_id="p", seq=9),
        await client.produce("t", b"c", producer_id="q", seq=0),
        await client.produce("t", b"d", producer_id="p", seq=2**64 - 1),
        await client.produce("t", b"e", seq=0),
        await client.produce("u", b"f", producer_id="p", seq=0),
    ]

    assert [first, *others] == [0, 0, 1, 2, 3, 4, 0]
    assert await client.payloads("t") == [b"a", b"b", b"c", b"d", b"e"]


async def test_sequences_may_come_in_any_order(client: HermesClient) -> None:
    numbers = (9, 5, 200_000, 0, 9, 5, 2**64 - 1, 0)
    offsets = [await client.produce("t", b"x", producer_id="p", seq=one) for one in numbers]

    assert offsets == [0, 1, 2, 3, 0, 1, 4, 3]


async def test_a_producer_may_have_a_long_name(client: HermesClient, broker: Broker) -> None:
    long = "p" * 500_000
    offsets = [
        await client.produce("t", b"x", producer_id=name, seq=1)
        for name in (long, long, long + "q", "p" * 256, "p" * 256)
    ]

    assert offsets == [0, 0, 1, 2, 2]
    assert all(
        len(name) <= 256 for name in broker.shard.topics["t"].state.producers.snapshot().names
    )


async def test_repeats_in_one_go_are_found_too(client: HermesClient) -> None:
    for _ in range(3):
        client.send("produce", topic="t", payload=b"x", producer_id="p", seq=5)

    assert [(await client.read_ok()).offset for _ in range(3)] == [0, 0, 0]


# --- poll, ack, nack


@pytest.mark.slow
async def test_a_poll_takes_16_unless_told_otherwise_and_1024_at_most(client: HermesClient) -> None:
    for number in range(1100):
        client.send("produce", topic="t", payload=b"%d" % number)
    for _ in range(1100):
        await client.read_ok()

    assert len(await client.poll("t", "a")) == 16
    assert len(await client.poll("t", "b", max=4000)) == 1024
    assert len(await client.poll("t", "b", max=4000)) == 76
    assert await client.payloads("t", "c", max=2) == [b"0", b"1"]


@pytest.mark.slow
async def test_a_lease_lasts_30_seconds_unless_told_otherwise(
    client: HermesClient, clock: ManualClock
) -> None:
    await client.produce("t", b"x")
    (first,) = await client.poll("t")
    await clock.advance(29.9)
    assert await client.poll("t") == []
    await clock.advance(0.2)
    (second,) = await client.poll("t", visibility_timeout_ms=1000)
    await clock.advance(1)
    (third,) = await client.poll("t", visibility_timeout_ms=2**64 - 1)
    await clock.advance(20_000)

    assert await client.poll("t") == []
    assert len({first.lease_id, second.lease_id, third.lease_id}) == 3


async def test_what_is_acked_does_not_come_again_and_what_is_nacked_does(
    client: HermesClient, clock: ManualClock
) -> None:
    for payload in (b"a", b"b", b"c"):
        await client.produce("t", payload)
    a, b, _ = await client.poll("t")
    await client.ack("t", a.lease_id)
    await client.nack("t", b.lease_id)

    (again,) = await client.poll("t")
    assert (again.payload, again.lease_id != b.lease_id) == (b"b", True)
    await clock.advance(31)
    assert await client.payloads("t") == [b"b", b"c"]


async def test_an_ack_by_another_connection_counts(client: HermesClient, connect: Connect) -> None:
    await client.produce("t", b"x")
    (item,) = await client.poll("t")
    await (await connect()).ack("t", item.lease_id)

    stats = await client.call("stats")
    assert (stats.messages, stats.in_flight) == (0, 0)


async def test_a_late_ack_counts_until_another_has_the_message(
    client: HermesClient, connect: Connect, clock: ManualClock
) -> None:
    await client.produce("t", b"late")
    await client.produce("t", b"too late")
    late, too_late = await client.poll("t")
    await clock.advance(31)
    await client.ack("t", late.lease_id)
    (theirs,) = await (await connect()).poll("t")
    await client.ack("t", too_late.lease_id)

    assert theirs.payload == b"too late"
    assert (await client.call("stats")).in_flight == 1


@pytest.mark.parametrize("kind", ["ack", "nack"])
async def test_settling_what_is_not_out_is_ok_and_does_nothing(
    client: HermesClient, kind: str
) -> None:
    await client.call(kind, topic="missing", group="g", lease_id=7)
    await client.produce("t", b"x")
    await client.call(kind, topic="t", group="missing", lease_id=7)
    (item,) = await client.poll("t")
    await client.call(kind, topic="t", group="other", lease_id=item.lease_id)
    await client.call(kind, topic="t", group="g", lease_id=item.lease_id + 1)

    assert (await client.call("stats")).in_flight == 1


async def test_a_nack_brings_a_message_back_however_often(client: HermesClient) -> None:
    """HermesMQ knows no dead letters: the default of five deliveries is not theirs."""
    await client.produce("t", b"x")
    for _ in range(12):
        (item,) = await client.poll("t")
        await client.nack("t", item.lease_id)

    assert await client.payloads("t") == [b"x"]


async def test_in_auto_mode_what_is_told_is_done(client: HermesClient, clock: ManualClock) -> None:
    await client.produce("t", b"x")

    assert await client.payloads("t", ack_mode="auto") == [b"x"]
    await clock.advance(60)
    assert await client.poll("t") == []
    assert (await client.call("stats")).messages == 0


@pytest.mark.parametrize("mode", ["", "manual", "AUTO", "whatever"])
async def test_every_other_mode_is_manual(
    client: HermesClient, clock: ManualClock, mode: str
) -> None:
    await client.produce("t", b"x")
    await client.poll("t", ack_mode=mode)
    await clock.advance(31)

    assert await client.payloads("t") == [b"x"]


async def test_polling_a_missing_topic_is_empty_and_makes_nothing(client: HermesClient) -> None:
    assert await client.poll("missing") == []
    assert (await client.call("stats")).topics == 0


async def test_a_long_poll_gets_what_comes_and_ends_when_its_time_is_up(
    client: HermesClient, connect: Connect, clock: ManualClock, server: HermesServer
) -> None:
    other = await connect()
    for topic in ("missing", "there"):
        if topic == "there":
            await client.call("create_topic", topic=topic)
        other.send("poll", topic=topic, group="g", wait_ms=60_000, visibility_timeout_ms=10**9)
        assert await other.is_silent()
        await client.produce(topic, b"x")
        assert [item.payload for item in (await other.read_ok()).items] == [b"x"]
    other.send("poll", topic="there", group="g", wait_ms=10**9)
    assert await other.is_silent()
    await clock.advance(300)
    assert list((await other.read_ok()).items) == []


async def test_a_nack_wakes_who_waits(client: HermesClient, connect: Connect) -> None:
    await client.produce("t", b"x")
    (item,) = await client.poll("t")
    other = await connect()
    other.send("poll", topic="t", group="g", wait_ms=60_000)
    assert await other.is_silent()
    await client.nack("t", item.lease_id)

    assert [again.payload for again in (await other.read_ok()).items] == [b"x"]


async def test_what_retention_takes_can_be_settled_and_does_not_come_again(
    client: HermesClient, clock: ManualClock
) -> None:
    await client.produce("t", b"old")
    (old,) = await client.poll("t")
    await client.call("set_retention", topic="t", max_messages=1)
    await client.produce("t", b"new")
    await client.nack("t", old.lease_id)
    await client.ack("t", old.lease_id)

    assert await client.payloads("t") == [b"new"]
    await clock.advance(31)
    assert await client.payloads("t") == [b"new"]


@pytest.mark.parametrize("then", ["poll", "ack", "nack", "commit"])
async def test_a_group_that_an_operator_deletes_begins_anew(
    client: HermesClient, broker: Broker, then: str
) -> None:
    for payload in (b"a", b"b"):
        await client.produce("t", payload)
    a, _ = await client.poll("t")
    await broker.delete_group("t", "g")
    if then in ("ack", "nack"):
        await client.call(then, topic="t", group="g", lease_id=a.lease_id)
    elif then == "commit":
        await client.commit("t", 1)

    assert await client.payloads("t") == ([b"b"] if then == "commit" else [b"a", b"b"])


# --- priorities


async def test_priorities_come_first_and_a_share_is_the_oldest(client: HermesClient) -> None:
    """Their example: one low at offset 0, five of priority 7 at 1 to 5, polled one by one."""
    await client.produce("t", b"low")
    for _ in range(5):
        await client.produce("t", b"high", priority=7)

    assert [(await client.poll("t", max=1))[0].offset for _ in range(6)] == [1, 2, 3, 0, 4, 5]


async def test_a_poll_is_sorted_by_priority_then_by_age(client: HermesClient) -> None:
    for number in range(8):
        await client.produce("t", priority=number % 4)

    items = [(item.priority, item.offset) for item in await client.poll("t", max=8)]

    assert items == [(3, 3), (3, 7), (2, 2), (2, 6), (1, 1), (1, 5), (0, 0), (0, 4)]


async def test_what_is_nacked_goes_before_newer_ones(client: HermesClient) -> None:
    for payload in (b"a", b"b", b"c"):
        await client.produce("t", payload)
    (a,) = await client.poll("t", max=1)
    await client.nack("t", a.lease_id)

    assert await client.payloads("t") == [b"a", b"b", b"c"]


# --- commit


async def test_a_commit_ends_everything_before_it_and_nothing_else(
    client: HermesClient, clock: ManualClock
) -> None:
    for number in range(6):
        await client.produce("t", b"%d" % number)
    items = await client.poll("t", max=5)
    await client.ack("t", items[4].lease_id)
    await client.commit("t", 3)
    await client.commit("t", 1)
    await client.ack("t", items[0].lease_id)
    assert (await client.call("stats")).in_flight == 1
    await clock.advance(31)

    assert await client.payloads("t") == [b"3", b"5"]


async def test_w16_a_commit_makes_the_group_and_goes_no_further_than_the_end(
    client: HermesClient, broker: Broker
) -> None:
    await client.commit("missing", 5)
    await client.produce("t", b"a")
    await client.commit("t", 2**63, group="new")
    await client.produce("t", b"b")

    assert [info.name for info in await broker.groups("t")] == ["new"]
    assert await client.payloads("t", "new") == [b"b"]
    assert (await client.call("stats")).topics == 1


# --- topics


async def test_topics_are_made_and_deleted_as_often_as_one_likes(client: HermesClient) -> None:
    for _ in range(2):
        await client.call("create_topic", topic="t")
    assert (await client.call("stats")).topics == 1
    await client.produce("t", b"x")
    await client.poll("t")
    for _ in range(2):
        await client.call("delete_topic", topic="t")
    assert (await client.call("stats")).topics == 0
    assert await client.produce("t", b"y") == 0
    assert await client.payloads("t") == [b"y"]


async def test_names_may_be_any_text(client: HermesClient, broker: Broker) -> None:
    names = ["", "%", "a/b", "orders.*", ">", "t\n", "größe"]
    for number, name in enumerate(names):
        await client.produce(name, b"%d" % number)
        (item,) = await client.poll(name, name)
        assert item.payload == b"%d" % number
        await client.ack(name, item.lease_id, name)

    assert sorted(await broker.topics(">")) == sorted(
        ["%", "%25", "a%2Fb", "orders.%2A", "%3E", "t%0A", "größe"]
    )
    assert (await client.call("stats")).in_flight == 0


async def test_retention_by_count_and_age(
    client: HermesClient, broker: Broker, clock: ManualClock
) -> None:
    async def kept() -> tuple[int | None, float | None]:
        options = (await broker.topic_info("t")).options
        return options.retention_count, options.retention_age

    await client.produce("t", b"0")
    assert await kept() == (1_000_000, None)
    await client.call("set_retention", topic="t", max_messages=2)
    for number in (1, 2, 3):
        await client.produce("t", b"%d" % number)
    assert await client.payloads("t", "a") == [b"2", b"3"]
    await client.call("set_retention", topic="t", max_age_ms=60_000)
    assert await kept() == (None, 60.0)
    await clock.advance(61)
    assert await client.payloads("t", "b") == []
    await client.call("set_retention", topic="t")
    assert await kept() == (1_000_000, None)
    await client.call("set_retention", topic="made", max_messages=2**64 - 1, max_age_ms=2**64 - 1)
    assert (await client.call("stats")).topics == 2


# --- rates


async def test_a_rate_limit_is_told_with_the_time_to_wait(
    client: HermesClient, clock: ManualClock
) -> None:
    await client.call("set_rate_limit", topic="t", rate_per_sec=0.5, burst=1)
    assert await client.poll("t") == []
    await client.produce("t", b"a")
    await client.produce("t", b"b")
    assert await client.payloads("t", wait_ms=1000) == [b"a"]
    await clock.advance(0.5)

    for wait_ms in (0, 60_000):
        with pytest.raises(Refused) as caught:
            await client.poll("t", wait_ms=wait_ms)
        assert (caught.value.code, caught.value.message) == ("rate_limited", "rate limit exceeded")
        assert caught.value.retry_after_ms == 1500
    await clock.advance(1.5)
    assert await client.payloads("t") == [b"b"]


async def test_w13_a_poll_that_waits_already_gets_its_token_when_it_is_due(
    client: HermesClient, connect: Connect, clock: ManualClock
) -> None:
    await client.call("set_rate_limit", topic="t", rate_per_sec=0.5, burst=1)
    await client.produce("t", b"a")
    assert await client.payloads("t") == [b"a"]
    client.send("poll", topic="t", group="g", wait_ms=10_000)
    client.send("poll", topic="t", group="g", wait_ms=500)
    assert await client.is_silent()
    await (await connect()).produce("t", b"b")
    await clock.advance(2)

    assert [item.payload for item in (await client.read_ok()).items] == [b"b"]
    with pytest.raises(Refused, match="rate_limited"):  # its time was up before
        await client.read_ok()


async def test_a_poll_takes_what_there_are_tokens_for_and_groups_share_them(
    client: HermesClient,
) -> None:
    await client.call("set_rate_limit", topic="t", rate_per_sec=1.0, burst=3)
    for _ in range(5):
        await client.produce("t", b"x")

    assert [len(await client.poll("t", group, max=2)) for group in ("a", "b")] == [2, 1]
    with pytest.raises(Refused, match="rate_limited"):
        await client.poll("t", "c")


async def test_a_topic_made_anew_has_no_limits_from_before(client: HermesClient) -> None:
    await client.call("set_rate_limit", topic="t", rate_per_sec=1.0, burst=1)
    await client.call("set_retention", topic="t", max_messages=1)
    await client.call("delete_topic", topic="t")
    for _ in range(3):
        await client.produce("t", b"x")

    assert len(await client.poll("t")) == 3


@pytest.mark.parametrize("rate", [0.0, -1.0, float("nan"), 0.0004, float("-inf")])
async def test_no_rate_is_no_limit(client: HermesClient, rate: float) -> None:
    await client.call("set_rate_limit", topic="t", rate_per_sec=1.0, burst=1)
    await client.call("set_rate_limit", topic="t", rate_per_sec=rate, burst=1)
    for _ in range(20):
        await client.produce("t")

    assert len(await client.poll("t", max=20)) == 20


async def test_a_rate_is_kept_in_thousandths(client: HermesClient, broker: Broker) -> None:
    for said, kept in ((0.0005, 0.001), (2.0004, 2.0), (float("inf"), 1e9)):
        await client.call("set_rate_limit", topic="t", rate_per_sec=said, burst=0)
        options = (await broker.topic_info("t")).options
        assert (options.rate_limit, options.rate_burst) == (kept, 1)


# --- the node


async def test_a_node_leads_at_once_and_bootstraps_as_often_as_one_likes(
    client: HermesClient,
) -> None:
    await client.produce("t", b"before")
    for _ in range(2):
        await client.call("bootstrap", nodes=[(1, "127.0.0.1:9"), (1, "elsewhere:1")])
    await client.call("bootstrap", nodes=[])

    stats = await client.call("stats")
    assert (stats.is_leader, stats.current_leader, stats.current_term) == (True, 1, 1)


@pytest.mark.parametrize(
    ("nodes", "why"),
    [([], "not in the list"), ([(2, "a")], "not in the list"), ([(1, "a"), (2, "b")], "alone")],
)
async def test_a_bootstrap_that_is_not_of_this_node_fails(
    client: HermesClient, nodes: list[tuple[int, str]], why: str
) -> None:
    with pytest.raises(Refused, match=why) as caught:
        await client.call("bootstrap", nodes=nodes)

    assert caught.value.code == "bootstrap_failed"


async def test_stats_count_topics_messages_and_leases(client: HermesClient) -> None:
    for number in range(3):
        await client.produce("t", b"%d" % number)
    await client.produce("u", b"x")
    (item,) = await client.poll("t", max=1)
    stats = await client.call("stats")
    assert (stats.topics, stats.messages, stats.in_flight) == (2, 4, 1)
    await client.ack("t", item.lease_id)

    stats = await client.call("stats")
    assert (stats.messages, stats.in_flight) == (3, 0)


async def test_stats_of_very_many_topics_are_kept_for_a_second(
    client: HermesClient, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flintmq.frontends.hermes.node.TOPICS_SUMMED", 1)
    await client.produce("a", b"x")
    await client.produce("b", b"x")
    assert (await client.call("stats")).messages == 2
    await client.produce("a", b"x")
    assert (await client.call("stats")).messages == 2
    await clock.advance(1)

    assert (await client.call("stats")).messages == 3


async def test_stats_of_very_many_topics_are_summed_up_in_many_turns_of_the_loop(
    client: HermesClient, server: HermesServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flintmq.frontends.hermes.node.TOPICS_SUMMED", 1)
    monkeypatch.setattr("flintmq.frontends.hermes.node.STEP_TOPICS", 1)
    for number in range(20):
        await client.produce(f"topic-{number}", b"x")

    asked = [server.node.stats(), server.node.stats()]
    turns = 0
    while not all(isinstance(one, asyncio.Future) and one.done() for one in asked):
        turns += 1
        await asyncio.sleep(0)

    assert turns >= 20
    assert server.node.figures.messages == 20


async def test_a_draining_node_sends_its_clients_elsewhere(
    client: HermesClient, connect: Connect, server: HermesServer
) -> None:
    other = await connect()
    other.send("poll", topic="t", group="g", wait_ms=60_000)
    subscriber = await connect()
    subscriber.send("subscribe", topic="t", group="g", prefetch=1)
    assert await other.is_silent()
    await server.drain(5)

    assert list((await other.read_ok()).items) == []
    assert await subscriber.is_closed()
    with pytest.raises(Refused) as caught:
        await client.produce("t", b"x")
    assert (caught.value.code, caught.value.leader_addr) == ("not_leader", "")
    assert caught.value.message == "not the leader; retry against leader_addr"
    for kind in ("poll", "commit", "create_topic", "delete_topic", "bootstrap", "set_retention"):
        with pytest.raises(Refused, match="not_leader"):
            await client.call(kind)
    with pytest.raises(Refused, match="payload_too_large"):  # whoever leads
        await client.produce("t", bytes(2**20 + 1))
    assert not (await client.call("stats")).is_leader


# --- what HermesMQ has no word for


async def test_what_only_this_broker_refuses_is_internal_and_says_why(
    client: HermesClient, broker: Broker
) -> None:
    await broker.create_topic("parts", {"partitions": 2})
    await broker.create_topic("small", {"retention_count": 1, "overflow": "reject"})
    await broker.create_topic("dropping", {"retention_count": 1, "overflow": "drop_new"})
    for topic in ("small", "dropping"):
        await client.poll(topic)
        await client.produce(topic, b"first")
    long = "x" * 65_536
    for kind, topic, group, why in (
        ("produce", "parts", "", "partitioned"),
        ("poll", "parts", "g", "partitioned"),
        ("produce", "small", "", "is full"),
        ("produce", "dropping", "", "drops new messages"),
        ("produce", long, "", "65,535 bytes"),
        ("create_topic", long, "", "65,535 bytes"),
        ("poll", "small", long, "65,535 bytes"),
    ):
        with pytest.raises(Refused, match=why) as caught:
            await client.call(kind, topic=topic, **({"group": group} if group else {}))
        assert caught.value.code == "internal"

    assert await client.payloads("small") == [b"first"]
