"""/metrics tells what happened, the way Prometheus wants to hear it, within bounds."""

from __future__ import annotations

import asyncio
import gzip
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from flintmq.access import TopicGrant
from flintmq.batch import BatchBuilder
from flintmq.broker_api import Joining, ReaderOpening
from flintmq.client.client import Client
from flintmq.engine.broker import Broker
from flintmq.engine.host import durable_broker
from flintmq.frontends.blip.server import BlipServer
from flintmq.frontends.hermes.server import HermesServer
from flintmq.frontends.http.exposition import OPEN_METRICS, TEXT, Family, Page
from flintmq.frontends.http.limits import HttpLimits
from flintmq.frontends.http.metrics_docs import GROUPS, PAGE, with_metrics
from flintmq.frontends.http.state import HttpState
from flintmq.net.server.gate import ApiKeyGate, gate_of
from flintmq.net.server.slowing import Slowing
from flintmq.serde.codec import Codec
from flintmq.storage.filesystem import LocalFileSystem
from flintmq.storage.key_file import KeyFile, make_key

from .promtool import Labels, Read, read_page
from .running import Running, Start

ODD = ["plain", "with.dots", "ünïcode.☃", 'quo"ted', "back\\slash", 'both\\"', "x" * 1000]


async def scraped(running: Running, **headers: str) -> dict[str, Read]:
    answer = await running.ask("/metrics", **headers)
    assert answer.status == 200, answer.body
    return read_page(answer.body.decode())


def sample(page: dict[str, Read], name: str, /, **labels: str) -> float:
    wanted: Labels = tuple(labels.items())
    return page[name].samples[name, wanted]


def publish(broker: Broker, topic: str, count: int = 1) -> None:
    rows = BatchBuilder()
    for _ in range(count):
        rows.append(b"value")
    broker.publish_nowait(topic, rows, qos=1, auto_create=True)


async def test_the_page_of_a_busy_broker_is_as_prometheus_wants_it(start: Start) -> None:
    running = await start()
    for topic in ODD:
        publish(running.broker, topic, 3)
        for group in ("workers", 'odd "\\ one'):
            member = await running.broker.join_group(
                Joining(
                    topic, group, order=None, filter=None, start=None, holder="me", auto_create=True
                )
            )
            grant = await member.take(2, 30, 0)
            assert grant is not None
        reader = await running.broker.open_reader(
            ReaderOpening(topic, name="cursor", start=None, filter=None, auto_create=True)
        )
        reader.take(10)

    page = await scraped(running)

    shown = {dict(labels)["topic"] for _, labels in page["flintmq_topic_messages"].samples}
    assert set(ODD[:-1]) < shown
    assert len(shown) == len(ODD)
    assert sample(page, "flintmq_topic_published_messages_total", topic='both\\"') == 3
    odd = {"topic": "back\\slash", "group": 'odd "\\ one'}
    assert sample(page, "flintmq_group_in_flight_messages", **odd) == 2
    assert sample(page, "flintmq_group_pending_messages", **odd) == 1
    assert sample(page, "flintmq_group_lag_messages", topic="plain", group="cursor") == 0
    assert sample(page, "flintmq_topics") == len(ODD)


async def test_what_happens_in_a_queue_is_counted(start: Start) -> None:
    running = await start()
    client = Client(running.broker, Codec(), auto_create=True, timeout=None)
    await client.create_topic("jobs", max_deliveries=2)
    await client.publish_batch("jobs", [b"a", b"b", b"c", b"d"])
    messages = await client.poll("jobs", "workers", max=3, wait=0)
    await client.ack(messages[:1])
    await client.nack(messages[1:])
    again = await client.poll("jobs", "workers", max=1, wait=0)
    await client.nack(again)

    page = await scraped(running)

    def of_group(name: str) -> float:
        return sample(page, f"flintmq_group_{name}", topic="jobs", group="workers")

    assert of_group("acked_messages_total") == 1
    assert of_group("nacked_messages_total") == 3
    assert of_group("delivered_messages_total") == 4
    assert of_group("redelivered_messages_total") == 1
    assert of_group("dead_letters_total") == 1
    assert of_group("lag_messages") == 2
    assert of_group("oldest_age_seconds") >= 0
    assert sample(page, "flintmq_topic_delivered_messages_total", topic="jobs") == 4
    await client.close()


async def test_drops_are_told_by_their_reason(start: Start) -> None:
    running = await start()
    await running.broker.create_topic("short", {"retention_count": 2})
    publish(running.broker, "short", 5)

    page = await scraped(running)

    assert sample(page, "flintmq_topic_dropped_messages_total", topic="short", reason="count") == 3
    assert sample(page, "flintmq_topic_first_offset", topic="short") == 3
    assert sample(page, "flintmq_topic_next_offset", topic="short") == 5


async def test_partitions_are_shown_as_one_topic(start: Start) -> None:
    running = await start()
    await running.broker.create_topic("row", {"partitions": 3})
    for number in range(3):
        publish(running.broker, f"row/{number}", number + 1)
        await running.broker.join_group(
            Joining(
                f"row/{number}",
                "workers",
                order=None,
                filter=None,
                start=None,
                holder="me",
                auto_create=True,
            )
        )

    page = await scraped(running)

    assert sample(page, "flintmq_topic_messages", topic="row") == 6
    assert sample(page, "flintmq_group_lag_messages", topic="row", group="workers") == 6
    assert sample(page, "flintmq_group_members", topic="row", group="workers") == 1
    assert sample(page, "flintmq_topics") == 1


@pytest.mark.slow
async def test_series_are_bounded_and_the_rest_is_summed_up(start: Start) -> None:
    running = await start(metrics_max_series=1000)
    for number in range(1000):
        publish(running.broker, f"topic.{number}", 2)

    page = await scraped(running)

    shown = page["flintmq_topic_messages"].samples
    assert len(shown) < 130
    assert sum(shown.values()) == 2000
    left_out = sample(page, "flintmq_metrics_topics_left_out")
    assert left_out == 1000 - (len(shown) - 1)
    assert sample(page, "flintmq_topic_messages", topic="*") == 2 * left_out
    assert sample(page, "flintmq_topics") == 1000
    assert sample(page, "flintmq_metrics_series") == sum(len(one.samples) for one in page.values())
    assert sample(page, "flintmq_metrics_series") < 1050


async def test_many_groups_are_bounded_too(start: Start) -> None:
    running = await start(metrics_max_series=500)
    publish(running.broker, "one", 3)
    for number in range(200):
        await running.broker.join_group(
            Joining(
                "one",
                f"group.{number}",
                order=None,
                filter=None,
                start=None,
                holder="me",
                auto_create=True,
            )
        )

    page = await scraped(running)

    lags = page["flintmq_group_lag_messages"].samples
    assert len(lags) < 45
    assert sum(lags.values()) == 600
    assert sample(page, "flintmq_metrics_groups_left_out") == 200 - (len(lags) - 1)


async def test_a_durable_broker_tells_of_its_disk(start: Start, tmp_path: Path) -> None:
    broker = durable_broker(LocalFileSystem(tmp_path))
    await broker.open()
    running = await start(state=HttpState(broker, ApiKeyGate(), None, "0.1"))
    client = Client(broker, Codec(), auto_create=True, timeout=None)
    await client.publish_batch("orders", [b"a", b"b"])
    await broker.host.checkpoint()

    page = await scraped(running)

    assert page["flintmq_journal_sync_seconds"].samples["flintmq_journal_sync_seconds_count", ()]
    assert sample(page, "flintmq_journal_written_bytes_total") > 0
    took = page["flintmq_topic_publish_seconds"].samples
    assert took["flintmq_topic_publish_seconds_count", (("topic", "orders"),)] == 1
    assert page["flintmq_checkpoint_seconds"].samples["flintmq_checkpoint_seconds_count", ()] == 1
    assert sample(page, "flintmq_disk_full") == 0
    await client.close()


async def test_who_asks_within_a_second_gets_the_same_page(start: Start) -> None:
    running = await start()

    answers = await asyncio.gather(*(running.ask("/metrics") for _ in range(8)))

    assert running.server.metrics.rendered == 1
    assert len({answer.body for answer in answers}) == 1


async def test_openmetrics_and_gzip_for_who_asks(start: Start) -> None:
    running = await start()
    publish(running.broker, "orders")

    plain = await running.ask("/metrics")
    other = await running.ask("/metrics", accept="application/openmetrics-text;version=1.0.0")
    packed = await running.ask("/metrics", accept_encoding="gzip, deflate")
    headed = await running.ask("/metrics", "HEAD")

    assert plain.headers["content-type"] == TEXT
    assert other.headers["content-type"] == OPEN_METRICS
    read_page(other.body.decode(), is_open=True)
    assert packed.headers["content-encoding"] == "gzip"
    assert gzip.decompress(packed.body) == plain.body
    assert (headed.status, headed.body) == (200, b"")


async def test_metrics_are_for_who_may_see_everything(start: Start, tmp_path: Path) -> None:
    file = KeyFile(tmp_path / "keys.json")
    shown = {}
    for name, pattern, may in (
        ("all", ">", "administer"),
        ("reads", ">", "consume"),
        ("writes", ">", "publish"),
        ("some", "orders.>", "administer"),
    ):
        key, shown[name] = make_key(
            name, [TopicGrant.of(pattern, [may])], now_ms=0, expires_at_ms=None
        )
        file.add(key)
    gate = gate_of("required", tmp_path / "keys.json", Slowing(first_seconds=0))
    running = await start(state=HttpState(Broker(), gate, None, "0.1"))

    without = await running.ask("/metrics")
    wrong = await running.ask("/metrics", authorization="Bearer nonsense")
    basic = await running.ask("/metrics", authorization="Basic abc")
    some = await running.ask("/metrics", authorization=f"Bearer {shown['some']}")
    writes = await running.ask("/metrics", authorization=f"Bearer {shown['writes']}")
    page = await scraped(running, authorization=f"Bearer {shown['all']}")
    reads = await running.ask("/metrics", authorization=f"Bearer {shown['reads']}")

    for refused in (without, wrong, basic):
        assert (refused.status, refused.kind) == (401, "NotAuthenticated")
        assert refused.headers["www-authenticate"].startswith("Bearer")
    for refused in (some, writes):
        assert (refused.status, refused.kind) == (403, "PermissionDenied")
    assert reads.status == 200
    assert sample(page, "flintmq_logins_total") == 3
    assert sample(page, "flintmq_failed_logins_total", reason="missing") == 1
    assert sample(page, "flintmq_failed_logins_total", reason="malformed") == 2
    assert sample(page, "flintmq_failed_logins_total", reason="expired") == 0
    assert (await running.ask("/health")).status == 200


async def test_a_key_that_is_removed_is_refused_also_on_a_connection_it_opened(
    start: Start, tmp_path: Path
) -> None:
    file = KeyFile(tmp_path / "keys.json")
    key, shown = make_key("all", [TopicGrant.of(">", ["administer"])], now_ms=0, expires_at_ms=None)
    file.add(key)
    gate = gate_of("required", tmp_path / "keys.json", Slowing(first_seconds=0))
    running = await start(state=HttpState(Broker(), gate, None, "0.1"))
    async with running.line() as line:
        assert (await line.ask("/metrics", authorization=f"Bearer {shown}")).status == 200
        file.remove("all")
        gate.refresh(at_once=True)
        assert (await line.ask("/metrics", authorization=f"Bearer {shown}")).status == 401


async def test_metrics_can_be_switched_off(start: Start) -> None:
    running = await start(metrics=False)
    answer = await running.ask("/metrics")
    assert answer.status == 404
    assert answer.body == b"metrics disabled\n"  # as HermesMQ says it


async def test_nothing_is_asked_of_a_broker_that_recovers(start: Start) -> None:
    running = await start()
    running.state.can_be_asked = lambda: False
    running.state.why_not_ready = lambda: "recovering"

    answer = await running.ask("/metrics")

    assert (answer.status, answer.kind) == (503, "NotReady")
    assert "recovering" in answer.json["error"]["message"]


async def test_families_can_be_added(start: Start) -> None:
    class Extra:
        ours = Family("flintmq_extra_total", "counter", "More.")
        families = (ours,)

        def collect(self, page: Page) -> Iterator[None]:
            page.add(self.ours, 7)
            yield

    running = await start()
    running.server.metrics.collectors.append(Extra())

    assert sample(await scraped(running), "flintmq_extra_total") == 7


async def test_requests_are_counted_by_page_and_status(start: Start) -> None:
    running = await start()
    for path in ("/health", "/health", "/nothing", "/made/up", "/metrics"):
        await running.ask(path)
    running.server.metrics._kept.clear()

    page = await scraped(running)

    assert sample(page, "flintmq_http_requests_total", page="health", code="200") == 2
    assert sample(page, "flintmq_http_requests_total", page="other", code="404") == 2
    assert sample(page, "flintmq_http_cpu_seconds_total") > 0
    assert sample(page, "flintmq_connections_accepted_total", protocol="http") == 6


async def test_limits_change_while_it_runs(start: Start) -> None:
    running = await start()
    assert (await running.ask("/metrics")).status == 200

    running.server.set_limits(HttpLimits(metrics=False))

    answer = await running.ask("/metrics")
    assert (answer.status, answer.body) == (404, b"metrics disabled\n")  # as HermesMQ says it


def test_every_metric_is_documented() -> None:
    page = (Path(__file__).parents[3] / PAGE).read_text()

    assert with_metrics(page) == page, "run scripts/make-docs"


def test_alerts_of_the_docs_are_about_metrics_there_are() -> None:
    page = (Path(__file__).parents[3] / PAGE).read_text()
    known = {family.name for families in GROUPS.values() for family in families}
    known |= {f"{name}_bucket" for name in known}

    named = set(re.findall(r"\bflintmq_[a-z_]+", page))

    assert named - known == set()


async def test_every_documented_family_is_served(start: Start) -> None:
    running = await start()
    for front_end in (HermesServer(running.broker), BlipServer(running.broker)):
        running.server.metrics.collectors += front_end.collectors()

    served = {
        family for collector in running.server.metrics.collectors for family in collector.families
    }

    assert served == {family for families in GROUPS.values() for family in families}
