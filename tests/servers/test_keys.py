"""Keys over the native protocol: who comes in, what they may do, and keys that change."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import flintmq
from flintmq.access import TopicGrant
from flintmq.net.server.gate import ApiKeyGate, gate_of
from flintmq.observe.logs import forget_limits
from flintmq.storage.key_file import KeyFile, make_key, parse_key

from .keys import KeyedServer


def wrong(key: str) -> str:
    """The same id with another secret."""
    return key[:-4] + ("AAAA" if not key.endswith("AAAA") else "BBBB")


# --- coming in


async def test_a_right_key_comes_in_and_everything_else_does_not(keyed: KeyedServer) -> None:
    async with keyed.connect(keyed.admin) as mq:
        await mq.publish("orders", b"x")
    stranger = "flint_" + "0" * 16 + "_" + "A" * 43
    for key in (None, "", "nonsense", wrong(keyed.admin), stranger, keyed.admin + "x", "flint__"):
        with pytest.raises(flintmq.NotAuthenticated) as caught:
            await keyed.connect(key)
        assert str(caught.value) == (
            "the API key is missing or not valid for this broker; "
            "pass it as api_key= or in FLINTMQ_API_KEY, or create one with `flintmq key add`"
        )
    assert keyed.gate.counters.ok == 1
    assert dict(keyed.gate.counters.failed) == {
        "missing": 2, "malformed": 3, "wrong": 1, "unknown": 1
    }  # fmt: skip


async def test_the_environment_may_bring_the_key_and_only_to_brokers_far_away(
    keyed: KeyedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLINTMQ_API_KEY", keyed.admin + "\n")
    async with flintmq.connect(keyed.url) as mq:
        await mq.publish("orders", b"x")
    monkeypatch.setenv("FLINTMQ_API_KEY", "\u2603")
    async with flintmq.connect("memory://") as mq:
        await mq.publish("orders", b"x")
    with pytest.raises(flintmq.InvalidRequest, match="api_key is not a valid key") as caught:
        flintmq.connect(keyed.url)
    assert "\u2603" not in str(caught.value)


async def test_a_key_in_the_url_is_refused_without_repeating_it(keyed: KeyedServer) -> None:
    host = keyed.url.removeprefix("flint://")
    with pytest.raises(flintmq.InvalidRequest, match="process lists") as caught:
        flintmq.connect(f"flint://{keyed.admin}@{host}")
    assert keyed.admin not in str(caught.value)


async def test_without_keys_everybody_comes_in_also_with_one(tmp_path: Path) -> None:
    open_server = KeyedServer(tmp_path)
    await open_server.start()
    try:
        for key in (None, "flint_whatever"):
            async with open_server.connect(key) as mq:
                await mq.publish("orders", b"x")
    finally:
        await open_server.stop()


async def test_the_first_key_closes_the_gate_also_for_those_who_are_in(tmp_path: Path) -> None:
    server = KeyedServer(tmp_path)
    await server.start()
    mq = await server.connect(None)
    try:
        key = server.add("admin", publish=">")
        with pytest.raises(flintmq.NotAuthenticated):
            await mq.publish("orders", b"x")
        async with server.connect(key) as allowed:
            await allowed.publish("orders", b"x")
    finally:
        await mq.close()
        await server.stop()


async def test_a_first_key_that_cannot_be_read_closes_the_gate_all_the_same(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server = KeyedServer(tmp_path)
    await server.start()
    mq = await server.connect(None)
    try:
        _write(server, b"{")
        server.look()
        with pytest.raises(flintmq.NotAuthenticated):
            await mq.publish("orders", b"x")
        assert "all clients are rejected" in caplog.text

        os.unlink(server.ring.path)
        key = server.add("admin", publish=">")
        async with server.connect(key) as allowed:
            await allowed.publish("orders", b"x")
    finally:
        await mq.close()
        await server.stop()


async def test_who_brought_the_key_before_it_was_asked_for_goes_on(tmp_path: Path) -> None:
    server = KeyedServer(tmp_path)
    await server.start()
    entry, key = make_key(
        "early", [TopicGrant.of(">", ["publish", "consume"])], now_ms=0, expires_at_ms=None
    )
    mq = await server.connect(key)
    try:
        async with mq.reader("orders") as reader:
            reading = asyncio.ensure_future(reader.read(timeout=60))
            await asyncio.sleep(0)
            server.file.add(entry)
            server.look()
            await mq.publish("orders", b"x")
            message = await reading
            assert message is not None
            assert message.value == b"x"
    finally:
        await mq.close()
        await server.stop()


async def test_a_session_is_not_resumed_by_another_key(keyed: KeyedServer) -> None:
    other = keyed.add("other", publish="orders")
    async with keyed.connect(keyed.admin) as mq:
        await mq.publish("orders", b"x")
        link = mq._broker.link  # type: ignore[attr-defined]
        sessions = set(keyed.server.sessions)
        async with keyed.connect(other) as thief:
            thief_link = thief._broker.link  # type: ignore[attr-defined]
            thief_link._session = link._session
            thief_link._connection.abort(ConnectionError("as the test wants it"))
            await thief.publish("orders", b"y")
            assert thief_link._session not in sessions
        assert sessions <= set(keyed.server.sessions), "the first one is left alone"
        await mq.publish("orders", b"z")


# --- what is refused


CALLS: list[Callable[[flintmq.Client, str], Any]] = [
    lambda mq, topic: mq.publish(topic, b"x"),
    lambda mq, topic: mq.publish(topic, b"x", auto_create=False),
    lambda mq, topic: mq.create_topic(topic),
    lambda mq, topic: mq.configure_topic(topic, retention_count=1),
    lambda mq, topic: mq.delete_topic(topic),
    lambda mq, topic: mq.topic_info(topic),
    lambda mq, topic: mq.topic_stats(topic),
    lambda mq, topic: mq.reader(topic),
    lambda mq, topic: mq.live(topic),
    lambda mq, topic: mq.subscribe(topic, "g"),
    lambda mq, topic: mq.groups(topic),
    lambda mq, topic: mq.group_stats(topic, "g"),
    lambda mq, topic: mq.pause_group(topic, "g"),
    lambda mq, topic: mq.delete_group(topic, "g"),
    lambda mq, topic: mq.dead_letters(topic, "g"),
    lambda mq, topic: mq.redrive(topic, "g"),
    lambda mq, topic: mq.create_topic("mine", dead_letter_topic=topic),
]


async def test_what_is_refused_sounds_the_same_whether_the_topic_is_there_or_not(
    keyed: KeyedServer,
) -> None:
    async with keyed.connect(keyed.admin) as mq:
        await mq.create_topic("secret", retention_count=5, overflow="reject")
        await mq.publish("secret", b"x")
        async with mq.subscribe("secret", "g"):
            pass
    key = keyed.add("nosy", publish="mine", consume="mine", administer="mine")
    async with keyed.connect(key) as nosy:
        texts = {}
        for topic in ("secret", "absent"):
            heard = []
            for call in CALLS:
                with pytest.raises(flintmq.PermissionDenied) as caught:
                    await call(nosy, topic)
                heard.append(str(caught.value).replace(topic, "?"))
            texts[topic] = heard
        assert texts["secret"] == texts["absent"]
        assert await nosy.topics() == []


async def test_topics_and_what_changes_about_them_are_told_to_those_who_see_them(
    keyed: KeyedServer,
) -> None:
    key = keyed.add("half", publish="mine.>")
    async with keyed.connect(keyed.admin) as admin, keyed.connect(key) as half:
        await admin.create_topic("other.a", partitions=3)
        await admin.create_topic("mine.a", partitions=3)
        await half.publish("mine.a", b"x")
        assert await half.topics() == ["mine.a"]
        known = half._broker._topics.by_name  # type: ignore[attr-defined]
        assert set(known) == {"mine.a"}

        keyed.regrant("half", publish="other.>")
        assert await half.topics() == ["other.a"]
        await half.publish("other.a", b"x")
        assert set(known) == {"other.a"}
    async with keyed.connect(key) as half:
        assert set(half._broker._topics.by_name) == {"other.a"}  # type: ignore[attr-defined]


async def test_who_may_only_consume_makes_no_topics(keyed: KeyedServer) -> None:
    key = keyed.add("reader", consume="orders")
    async with keyed.connect(key) as mq:
        with pytest.raises(flintmq.TopicNotFound):
            await mq.reader("orders")
        with pytest.raises(flintmq.TopicNotFound):
            await mq.subscribe("orders", "g")
        assert await mq.topics() == []


async def test_a_live_feed_needs_all_that_its_pattern_could_match(keyed: KeyedServer) -> None:
    key = keyed.add("half", consume="orders.*")
    async with keyed.connect(key) as mq:
        for pattern in (">", "orders.>", "*.eu", "orders.eu.late"):
            with pytest.raises(flintmq.PermissionDenied):
                await mq.live(pattern)
        for pattern in ("orders.*", "orders.eu"):
            async with mq.live(pattern):
                pass


async def test_dead_letters_are_seen_through_their_verb_alone(keyed: KeyedServer) -> None:
    key = keyed.add("billing", consume="orders", publish="orders")
    async with keyed.connect(key) as mq:
        await mq.publish("orders", b"x")
        async with mq.subscribe("orders", "billing") as deliveries:
            delivery = await deliveries.read(timeout=60)
            assert delivery is not None
            await delivery.reject("as the test wants it")
        letters = await mq.dead_letters("orders", "billing")
        assert [letter.message.value for letter in letters] == [b"x"]
        with pytest.raises(flintmq.PermissionDenied):
            await mq.reader("dead.orders.billing")
        assert await mq.topics() == ["orders"]


async def test_a_writer_belongs_to_those_who_may_publish_where_it_has_written(
    keyed: KeyedServer,
) -> None:
    ours, theirs = keyed.add("ours", publish="a,b"), keyed.add("theirs", publish="b")
    async with keyed.connect(ours) as mq, keyed.connect(theirs) as others:
        await mq.stage("job", 1, "p", [("a", [b"1"]), ("b", [b"2"])])
        for number in (1, 99):
            with pytest.raises(flintmq.PermissionDenied, match="as writer 'job'"):
                await others.stage("job", number, "p", [("b", [b"3"])])
            with pytest.raises(flintmq.PermissionDenied):
                await others.commit("job", number, ["p"])
            with pytest.raises(flintmq.PermissionDenied):
                await others.abort("job", number)
        assert len(await mq.commit("job", 1, ["p"])) == 2
        with pytest.raises(flintmq.PermissionDenied):
            await others.stage("job", 99, "p", [("b", [b"3"])])
        await others.stage("own", 1, "p", [("b", [b"3"])])
        await others.commit("own", 1, ["p"])


# --- keys that change


async def test_a_key_that_is_removed_is_heard_of_by_everything_that_is_open(
    keyed: KeyedServer,
) -> None:
    key = keyed.add("worker", publish="orders", consume="orders")
    async with keyed.connect(keyed.admin) as admin:
        await admin.create_topic("orders")
        mq = await keyed.connect(key)
        reader = await mq.reader("orders")
        named = await mq.reader("orders", name="n")
        feed = await mq.live("orders")
        deliveries = await mq.subscribe("orders", "g")
        waiting = [
            asyncio.ensure_future(call)
            for call in (reader.read(), named.read(), feed.read(), deliveries.read())
        ]
        await mq.topic_info("orders")
        keyed.remove("worker")
        for outcome in await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), 60):
            assert isinstance(outcome, flintmq.NotAuthenticated), outcome
        for call in (
            lambda: mq.publish("orders", b"x"),
            lambda: mq.topic_info("orders"),
            lambda: reader.read(timeout=60),
            lambda: feed.read(timeout=60),
            lambda: deliveries.read(timeout=60),
            lambda: mq.poll("orders", "g", wait=0),
            lambda: keyed.connect(key).__aenter__(),
        ):
            with pytest.raises(flintmq.NotAuthenticated):
                await call()
        await mq.close()
        assert len(keyed.server.sessions) == 1, "only the admin's"
        await admin.publish("orders", b"x")


async def test_what_a_key_may_not_do_any_more_ends_and_the_rest_goes_on(
    keyed: KeyedServer,
) -> None:
    key = keyed.add("worker", consume="*")
    async with keyed.connect(keyed.admin) as admin, keyed.connect(key) as mq:
        for topic in ("lost", "kept"):
            await admin.create_topic(topic)
        for verb in ("reader", "live", "subscribe"):
            more = ("g",) if verb == "subscribe" else ()
            lost = await getattr(mq, verb)("lost", *more)
            kept = await getattr(mq, verb)("kept", *more)
            waiting = [asyncio.ensure_future(one.read(timeout=60)) for one in (lost, kept)]
            await mq.topic_info("lost")
            keyed.regrant("worker", consume="kept")
            with pytest.raises(flintmq.PermissionDenied):
                await waiting[0]
            with pytest.raises(flintmq.PermissionDenied):
                await lost.read(timeout=60)
            await admin.publish("lost", b"not for you")
            await admin.publish("kept", b"for you")
            message = await waiting[1]
            assert message.value == b"for you"
            if verb == "subscribe":
                await message.ack()
            await lost.close()
            await kept.close()
            for topic in ("lost", "kept"):
                await admin.delete_topic(topic)
                await admin.create_topic(topic)
            keyed.regrant("worker", consume="*")


async def test_leases_of_who_may_not_consume_any_more_go_to_others(keyed: KeyedServer) -> None:
    key = keyed.add("worker", consume="orders")
    async with keyed.connect(keyed.admin) as admin, keyed.connect(key) as mq:
        await admin.publish("orders", b"x")
        [message] = await mq.poll("orders", "g", lease=600, wait=60)
        keyed.regrant("worker", consume="other")
        with pytest.raises(flintmq.PermissionDenied):
            await mq.ack([message])
        [again] = await admin.poll("orders", "g", wait=60)
        assert (again.value, again.delivery_count) == (b"x", 2)


async def test_a_key_that_expires_ends_its_sessions(keyed: KeyedServer) -> None:
    key = keyed.add_grants("brief", {">": ["publish"]}, keyed.clock.now_ms() + 60_000)
    mq = await keyed.connect(key)
    await mq.publish("orders", b"x")
    await keyed.clock.advance(59)
    keyed.gate.refresh()
    await mq.publish("orders", b"x")
    await keyed.clock.advance(2)
    keyed.gate.refresh()
    with pytest.raises(flintmq.NotAuthenticated):
        await mq.publish("orders", b"x")
    await mq.close()
    with pytest.raises(flintmq.NotAuthenticated):
        await keyed.connect(key)
    assert keyed.gate.counters.failed["expired"] == 2


def _bytes_of(keyed: KeyedServer) -> bytes:
    return Path(keyed.ring.path).read_bytes()


def _write(keyed: KeyedServer, data: bytes) -> None:
    Path(keyed.ring.path).write_bytes(data)


async def test_a_damaged_or_missing_file_changes_nothing_and_is_logged_once(
    keyed: KeyedServer, caplog: pytest.LogCaptureFixture
) -> None:
    whole = _bytes_of(keyed)
    async with keyed.connect(keyed.admin) as mq:
        for damage in (b"", b"{", whole[:-20], b'{"version": 9}', whole.replace(b'">"', b'"a>"')):
            caplog.clear()
            _write(keyed, damage)
            for _ in range(3):
                keyed.look()
            assert [record.levelno for record in caplog.records] == [logging.ERROR], damage
            await mq.publish("orders", b"x")
            async with keyed.connect(keyed.admin):
                pass
        os.unlink(keyed.ring.path)
        keyed.look()
        with pytest.raises(flintmq.NotAuthenticated):
            await keyed.connect(None)
        _write(keyed, whole)
        keyed.look()
        await mq.publish("orders", b"x")


async def test_the_last_key_that_is_removed_does_not_open_the_gate(keyed: KeyedServer) -> None:
    keyed.remove("admin")
    for key in (None, keyed.admin):
        with pytest.raises(flintmq.NotAuthenticated):
            await keyed.connect(key)


async def test_partitions_and_threads_hear_of_it_too(keyed: KeyedServer) -> None:
    key = keyed.add("worker", publish="*", consume="*")
    async with keyed.connect(keyed.admin) as admin, keyed.connect(key) as mq:
        await admin.create_topic("parted", partitions=3)
        sync = await asyncio.to_thread(flintmq.connect_sync, keyed.url, api_key=key)
        reader = await mq.reader("parted")
        deliveries = await mq.subscribe("parted", "g")
        waiting = [
            asyncio.ensure_future(reader.read()),
            asyncio.ensure_future(deliveries.read()),
            asyncio.ensure_future(asyncio.to_thread(sync.poll, "parted", "h", wait=60)),
        ]
        while len(keyed.broker._topic_verbs.existing_row("parted")[2].queues) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        keyed.regrant("worker", publish="other", consume="other")
        for outcome in await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), 60):
            assert isinstance(outcome, flintmq.PermissionDenied), outcome
        keyed.remove("worker")
        with pytest.raises(flintmq.NotAuthenticated):
            await asyncio.to_thread(sync.publish, "other", b"x")
        await asyncio.to_thread(sync.close)
        await reader.close()
        await deliveries.close()


async def test_what_a_publisher_holds_fails_with_the_key(keyed: KeyedServer) -> None:
    key = keyed.add("worker", publish="orders")
    mq = await keyed.connect(key)
    publisher = mq.publisher("orders", linger=60)
    publisher.send(b"x")
    keyed.remove("worker")
    with pytest.raises(flintmq.NotAuthenticated):
        await publisher.flush()
    with pytest.raises(flintmq.NotAuthenticated):
        await mq.publish("orders", b"x")
    with contextlib.suppress(flintmq.NotAuthenticated):
        await publisher.close()
    await mq.close()


async def test_auth_says_whether_keys_are_asked_for(tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    for auth, is_asked in (("auto", False), ("off", False), ("required", True)):
        assert _asks(gate_of(auth, file)) is is_asked  # type: ignore[arg-type]
    KeyFile(file).add(
        make_key("a", [TopicGrant.of(">", ["publish"])], now_ms=0, expires_at_ms=None)[0]
    )
    for auth, is_asked in (("auto", True), ("off", False), ("required", True)):
        assert _asks(gate_of(auth, file)) is is_asked  # type: ignore[arg-type]


def _asks(gate: ApiKeyGate) -> bool:
    try:
        gate.judge(None, "10.0.0.1")
    except flintmq.NotAuthenticated:
        return True
    return False


async def test_keys_are_shown_without_anything_secret(keyed: KeyedServer) -> None:
    await keyed.gate.enter(keyed.admin, "10.0.0.1")
    [shown] = keyed.gate.keys_shown()
    assert shown["name"] == "admin"
    assert shown["grants"] == {">": ["administer", "consume", "publish"]}
    assert shown["last_used_at_ms"] == keyed.clock.now_ms()
    stored = _bytes_of(keyed).decode()
    for secret in re.findall(r'"(?:salt|hash)": "(\w+)"', stored):
        assert secret not in repr(shown)


# --- secrets


async def test_no_secret_is_in_any_log_text_or_repr(
    keyed: KeyedServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    forget_limits()
    key = keyed.add("worker", publish="orders")
    parsed = parse_key(key)
    assert parsed is not None
    id, secret = parsed
    texts = []
    mq = await keyed.connect(key)
    link = mq._broker.link  # type: ignore[attr-defined]
    texts += [repr(mq), repr(mq._broker), repr(link)]
    texts += [repr(keyed.ring.entries()), repr(keyed.server.sessions), repr(keyed.gate.__dict__)]
    for bad in (wrong(key), key + "x", key[:-1], f"flint_{id}_" + secret.swapcase()):
        with pytest.raises(flintmq.NotAuthenticated) as caught:
            await keyed.connect(bad)
        texts.append(repr(caught.value))
    with pytest.raises(flintmq.PermissionDenied) as denied:
        await mq.publish("other", b"x")
    texts.append(repr(denied.value))
    keyed.remove("worker")
    with pytest.raises(flintmq.NotAuthenticated) as gone:
        await mq.publish("orders", b"x")
    texts.append(repr(gone.value))
    await mq.close()
    everything = "\n".join([*texts, caplog.text])
    assert id in caplog.text, "which key it was is told"
    for start in range(len(secret) - 6):
        assert secret[start : start + 6] not in everything
    assert secret.encode() not in _bytes_of(keyed)
