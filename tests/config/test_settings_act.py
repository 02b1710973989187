"""Every setting arrives where it acts; and those that say so can be changed while running."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

import flintmq
from flintmq.config.settings import ConfigInvalid
from flintmq.config.table import SETTINGS, Config
from flintmq.daemon.assembly import http_limits_of, limits_of, slowness_of
from flintmq.daemon.process import Daemon
from flintmq.engine.proposer import QUEUE_BYTES_MAX
from flintmq.engine.state.producers import PRODUCER_BYTES, PRODUCER_SECONDS
from flintmq.engine.state.staging import STAGED_SECONDS
from flintmq.errors import NotAuthenticated
from flintmq.frontends.blip.assembly import blip_options_of
from flintmq.frontends.blip.keys import LISTED
from flintmq.frontends.blip.options import BlipOptions
from flintmq.frontends.blip.server import BlipServer
from flintmq.frontends.http.limits import HttpLimits
from flintmq.net.server import slowing
from flintmq.net.server.connection import ServerConnection
from flintmq.net.server.gate import ApiKeyGate
from flintmq.net.server.limits import Limits
from flintmq.serde.codec import FILTERED_BYTES_MAX
from flintmq.storage.journal import FILE_BYTES
from tests.config.test_settings_table import CASES
from tests.tls.throw_away import Authority


def _gate(daemon: Daemon) -> ApiKeyGate:
    assert daemon.gate.ring is not None, "authentication is off"
    return daemon.gate


def _keys_file(daemon: Daemon) -> Path | None:
    ring = _gate(daemon).ring
    assert ring is not None
    path = Path(ring.path)
    return None if path == daemon.config.data_dir / "keys.json" else path


def _blip(daemon: Daemon) -> BlipOptions:
    if "blip" not in daemon.front_ends:
        return BlipOptions()
    server = daemon.front_ends["blip"][1]
    assert isinstance(server, BlipServer)
    return server.options


def _shown_to(daemon: Daemon, keys: tuple[str, ...]) -> tuple[str, ...]:
    """Those of the keys that let somebody in."""
    found = []
    for key in keys:
        with suppress(NotAuthenticated):
            if daemon.gate.judge(key, "127.0.0.1").key == LISTED:
                found.append(key)
    return tuple(found)


def _limits(daemon: Daemon) -> tuple[int, int]:
    limits = daemon._broker.host.producer_limits
    assert limits is not None
    return limits


OWN_HOSTS = {"127.0.0.1", "::1", socket.gethostname().lower()}

ACTS: dict[str, Callable[[Daemon], Any]] = {
    "data_dir": lambda d: d._broker.host.filesystem.root,  # type: ignore[attr-defined]
    "fsync": lambda d: d._broker.host._policy,
    "checkpoint_bytes": lambda d: d._broker.host.checkpoint_bytes,
    "journal_file_bytes": lambda d: d._broker.host._journal_file_bytes,
    "max_queue_bytes": lambda d: d._broker.host._queue_bytes_max,
    "auto_create": lambda d: d._broker.auto_create,
    "topic_defaults": lambda d: d._broker._topic_verbs._defaults,
    "staged_seconds": lambda d: d._broker._staged._rest_ms / 1000,
    "producer_seconds": lambda d: _limits(d)[0] / 1000,
    "max_producer_bytes": lambda d: _limits(d)[1],
    "max_staged_bytes": lambda d: d._broker.shard.state.staging._staged_bytes_max,
    "max_staged_writer_bytes": lambda d: d._broker.shard.state.staging._writer_bytes_max,
    "max_decoded_bytes": lambda d: d._broker.shard.around.decoder._filtered_bytes_max,  # type: ignore[union-attr]
    "max_connections": lambda d: d._server.limits.connections,
    "max_frame_bytes": lambda d: d._server.limits.frame_bytes,
    "max_in_flight_bytes": lambda d: d._server.limits.in_flight_bytes,
    "max_delivery_bytes": lambda d: d._server.limits.delivery_bytes,
    "max_unacknowledged_bytes": lambda d: d._server.limits.unacknowledged_bytes,
    "max_requests": lambda d: d._server.limits.requests,
    "max_streams": lambda d: d._server.limits.streams,
    "handshake_timeout": lambda d: d._server.limits.handshake_seconds,
    "idle_timeout": lambda d: d._server.limits.idle_seconds,
    "ping_seconds": lambda d: d._server.limits.ping_seconds,
    "grace_seconds": lambda d: d._server.limits.grace_seconds,
    "sync_on_loop": lambda d: "auto" if d._broker.host._sync_on_loop else "never",
    "slow_disk_seconds": lambda d: d._broker.host.slow_disk_seconds,
    "scrub_bytes": lambda d: d._broker.host.damages.scrubber.bytes_per_second,
    "tiers": lambda d: d._broker.host.objects._allowed,  # type: ignore[attr-defined]
    "max_away": lambda d: d._server.limits.away,
    "max_away_bytes": lambda d: d._server.limits.away_bytes,
    "auth": lambda d: _gate(d)._mode,
    "keys_file": _keys_file,
    "login_failures_max": lambda d: _gate(d).slowing.kept_per_address_max,
    "backup_dir": lambda d: d._server.backup_dir,
    "login_delay": lambda d: _gate(d).slowing.first_seconds,
    "metrics": lambda d: d._http.limits.metrics,  # type: ignore[union-attr]
    "metrics_max_series": lambda d: d._http.limits.metrics_max_series,  # type: ignore[union-attr]
    "http_max_body_bytes": lambda d: d._http.limits.body_bytes,  # type: ignore[union-attr]
    "http_timeout": lambda d: d._http.limits.handler_seconds,  # type: ignore[union-attr]
    "http_max_connections": lambda d: d._http.limits.connections,  # type: ignore[union-attr]
    "http_cpu_share": lambda d: d._http.limits.cpu_share,  # type: ignore[union-attr]
    "http_max_wait": lambda d: d._http.limits.wait_seconds,  # type: ignore[union-attr]
    "http_heartbeat_seconds": lambda d: d._http.limits.heartbeat_seconds,  # type: ignore
    "http_max_stream_seconds": lambda d: d._http.limits.stream_seconds,  # type: ignore
    "http_cors_origins": lambda d: d._http.state.origins,  # type: ignore[union-attr]
    "blip": lambda d: d.front_ends["blip"][0] if "blip" in d.front_ends else None,
    "blip_api_keys": lambda d: _shown_to(d, ("one", "two")),
    "blip_adopt": lambda d: _blip(d).adopt,
    "blip_retry_backoff": lambda d: _blip(d).retry_backoff,
    "blip_subscription_seconds": lambda d: _blip(d).subscription_seconds,
    "blip_queue_capacity": lambda d: _blip(d).queue_capacity,
    "blip_overflow": lambda d: _blip(d).overflow,
    "blip_max_command_bytes": lambda d: _blip(d).max_command_bytes,
    "webhook_networks": lambda d: tuple(map(str, d._webhooks.allowed)),
    "http_hosts": lambda d: tuple(sorted(d._http.state.hosts - OWN_HOSTS)),  # type: ignore
}
BY_EFFECT = {
    "http", "listen", "drain_seconds", "log_level", "log_levels", "log_format", "profile",
    "tls_cert", "tls_key", "tls_client_ca", "insecure", "hermes", "hermes_node_id",
    "hermes_key_file", "node_name", "peer_listen", "initial_cluster", "join", "peer_address",
    "cluster_key_file", "peer_ca", "webhook_ca",
}  # fmt: skip
"""Shown by what they do: below, and by the tests of `serve`, HTTP, TLS, HermesMQ's clients and the
cluster."""


def everything_changed(directory: Path) -> Config:
    values = {name: case.value for name, case in CASES.items()}
    files = dict.fromkeys(
        ("webhook_ca", "tls_cert", "tls_key", "tls_client_ca", "profile", "hermes_key_file")
    )
    return Config(**{**values, **files, "data_dir": directory, "http": ("127.0.0.1", 0)})


def test_no_setting_is_forgotten() -> None:
    names = {setting.name for setting in SETTINGS}

    assert set(ACTS) | BY_EFFECT == names


async def test_each_setting_arrives_where_it_acts(tmp_path: Path) -> None:
    config = everything_changed(tmp_path)
    daemon = Daemon(config)

    found = {name: look(daemon) for name, look in ACTS.items()}
    assert found == {name: getattr(config, name) for name in ACTS}


async def test_defaults_are_those_of_the_parts_that_heed_them(tmp_path: Path) -> None:
    config = Config(data_dir=tmp_path)

    assert limits_of(config) == Limits()
    assert blip_options_of(config) == BlipOptions()
    assert http_limits_of(config) == HttpLimits()
    assert config.journal_file_bytes == FILE_BYTES
    assert config.max_queue_bytes == QUEUE_BYTES_MAX
    assert config.staged_seconds == STAGED_SECONDS
    assert config.producer_seconds == PRODUCER_SECONDS
    assert config.max_producer_bytes == PRODUCER_BYTES
    assert (config.max_staged_bytes, config.max_staged_writer_bytes) == (None, None)
    assert config.max_decoded_bytes == FILTERED_BYTES_MAX
    assert slowness_of(config) == {
        "first_seconds": slowing.FIRST_SECONDS,
        "most_seconds": slowing.MOST_SECONDS,
        "kept_per_address_max": slowing.KEPT_PER_ADDRESS_MAX,
    }


def test_clients_ping_in_time_whatever_the_idle_timeout(tmp_path: Path) -> None:
    assert limits_of(Config(data_dir=tmp_path, idle_timeout=10)).ping_seconds == 4
    assert limits_of(Config(data_dir=tmp_path, ping_seconds=3)).ping_seconds == 3


# --- while running


@pytest.fixture
def ca(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


class Told:
    """A broker in this process, and the configuration it finds at SIGHUP."""

    def __init__(self, directory: Path, **values: Any) -> None:
        self.config = Config(
            data_dir=directory / "data", listen=("127.0.0.1", 0), drain_seconds=1, **values
        )
        self.fault: flintmq.FlintError | None = None
        self.daemon = Daemon(self.config, self._reread)
        self.url = ""

    def _reread(self) -> Config:
        if self.fault is not None:
            raise self.fault
        return self.config

    def change(self, **values: Any) -> None:
        self.config = msgspec.structs.replace(self.config, **values)
        self.daemon.reload()


@asynccontextmanager
async def running(directory: Path, **values: Any) -> AsyncIterator[Told]:
    told = Told(directory, **values)
    ready: asyncio.Future[tuple[str, int]] = asyncio.get_running_loop().create_future()
    task = asyncio.ensure_future(told.daemon.run(ready.set_result))
    await asyncio.wait((ready, task), return_when=asyncio.FIRST_COMPLETED)
    told.url = "flint://{}:{}".format(*ready.result())
    try:
        yield told
    finally:
        told.daemon.stop()
        await task


async def test_what_can_be_changed_while_running_is_and_the_rest_stays(tmp_path: Path) -> None:
    async with running(tmp_path, http=("127.0.0.1", 0)) as told:
        before = told.daemon.config
        told.config = msgspec.structs.replace(
            everything_changed(tmp_path / "data"), listen=("127.0.0.1", 0)
        )
        told.daemon.reload()

        for setting in SETTINGS:
            source = told.config if setting.reload else before
            wanted = getattr(source, setting.name)
            assert getattr(told.daemon.config, setting.name) == wanted, setting.name
            if setting.name in ACTS:
                assert ACTS[setting.name](told.daemon) == wanted, setting.name
        assert told.daemon._broker.shard.proposer.queue_bytes_max == told.config.max_queue_bytes


async def test_what_changed_is_logged_and_what_needs_a_restart_is_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "flintmq.daemon")
    async with running(tmp_path) as told:
        told.change(max_away=3, fsync=CASES["fsync"].value, journal_file_bytes=65536)
        told.daemon.reload()

    told_of = [(r.levelname, r.getMessage()) for r in caplog.records if "SIGHUP" in r.getMessage()]
    assert told_of[:2] == [
        ("WARNING", "SIGHUP: restart the broker to apply: fsync, journal_file_bytes"),
        ("INFO", "SIGHUP: max_away changed from 1000 to 3"),
    ]


async def test_a_configuration_with_faults_changes_nothing_and_they_are_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(tmp_path) as told:
        told.fault = ConfigInvalid(["x.toml:1: one is wrong", "x.toml:2: so is two"])
        told.change(max_away=3)

        assert told.daemon.config.max_away == 1000
        assert told.daemon._server.limits.away == 1000
    assert [record.getMessage() for record in caplog.records] == [
        "SIGHUP: nothing was changed: x.toml:1: one is wrong",
        "SIGHUP: nothing was changed: x.toml:2: so is two",
    ]


async def test_sighup_before_it_is_ready_waits_for_that(tmp_path: Path) -> None:
    told = Told(tmp_path)
    told.change(max_away=7)
    assert told.daemon.config.max_away == 1000

    running = asyncio.ensure_future(told.daemon.run(lambda address: None))
    while told.daemon.config.max_away != 7:  # noqa: ASYNC110
        await asyncio.sleep(0.001)
    told.daemon.stop()
    await running


async def test_other_parts_hear_of_it(tmp_path: Path) -> None:
    heard: list[tuple[int, int]] = []
    async with running(tmp_path) as told:
        told.daemon.on_reload.append(lambda a, b: heard.append((a.max_away, b.max_away)))
        told.change(max_away=7)
        told.change()

    assert heard == [(1000, 7), (7, 7)]


async def test_where_one_part_cannot_take_it_up_none_does(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(before: Config, after: Config) -> None:
        raise flintmq.FlintError("the certificate cannot be read")

    async with running(tmp_path, http=("127.0.0.1", 0)) as told:
        told.daemon.on_reload.append(fail)
        told.change(max_away=7, http_hosts=("x.example",))

        assert told.daemon.config.max_away == 1000
        assert told.daemon._server.limits.away == 1000
        assert ACTS["http_hosts"](told.daemon) == ()
    assert "SIGHUP: nothing was changed: the certificate cannot be read" in caplog.text


async def test_a_reload_opens_no_broker_to_other_machines(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, ca: Authority
) -> None:
    pair = ca.pair()
    secured = {"tls_cert": pair.cert, "tls_key": pair.key, "tls_client_ca": ca.file}
    async with running(tmp_path, **secured) as told:
        elsewhere = msgspec.structs.replace(told.config, listen=("0.0.0.0", 0))
        reloading = told.daemon._reloading
        told.config = reloading.config = reloading._own = elsewhere
        told.change(tls_client_ca=None, max_away=7)

        assert told.daemon.config == elsewhere
    assert "SIGHUP: nothing was changed: listen 0.0.0.0:0 can be reached" in caplog.text


async def test_certificates_that_cannot_be_used_change_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, ca: Authority
) -> None:
    pair, other = ca.pair(), ca.pair()
    async with running(tmp_path, tls_cert=pair.cert, tls_key=pair.key) as told:
        told.change(tls_key=other.key, max_away=7)

        assert told.daemon.config.tls_key == pair.key
        assert told.daemon.config.max_away == 1000
        assert told.daemon.tls is not None
        assert told.daemon.tls.reload()
    assert "does not belong to the certificate" in caplog.text


async def test_tls_is_switched_by_a_restart_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, ca: Authority
) -> None:
    pair = ca.pair()
    async with running(tmp_path, tls_cert=pair.cert, tls_key=pair.key) as told:
        told.change(tls_cert=None, tls_key=None, max_away=7)

        assert told.daemon.config.tls_cert == pair.cert
        assert told.daemon.config.max_away == 7
    assert "restart the broker to apply: tls_cert, tls_key" in caplog.text


async def test_limits_hold_at_once_for_those_who_are_connected(tmp_path: Path) -> None:
    async with running(tmp_path) as told, flintmq.connect(told.url) as mq:
        first = await mq.reader("orders")
        told.change(max_streams=1, max_connections=1)
        with pytest.raises(flintmq.QueueFull, match="streams"):
            await mq.reader("bills")
        with pytest.raises(flintmq.Disconnected, match="connection table is full"):
            await flintmq.connect(told.url)

        told.change(max_streams=2, max_connections=2)
        await (await mq.reader("bills")).close()
        await (await flintmq.connect(told.url)).close()
        await first.close()


def is_let_go(connection: ServerConnection) -> bool:
    return connection._transport is None or connection._transport.is_closing()


async def test_who_was_told_when_to_ping_is_not_let_go_of_for_it(tmp_path: Path) -> None:
    async with running(tmp_path) as told, flintmq.connect(told.url) as mq:
        await mq.publish("orders", b"x")
        told.change(idle_timeout=0.001)
        (connection,) = told.daemon._server.connections
        connection.heard_at -= 100
        told.daemon._server._sweep()
        assert not is_let_go(connection)

        connection.heard_at -= 300
        told.daemon._server._sweep()
        assert is_let_go(connection)


async def test_a_broker_told_so_makes_no_topics_on_the_fly(tmp_path: Path) -> None:
    async with running(tmp_path) as told, flintmq.connect(told.url) as mq:
        await mq.publish("before", b"x")
        told.change(auto_create=False)
        await mq.publish("before", b"x")
        for use in (mq.publish("orders", b"x"), mq.poll("orders", "group", max=1, wait=0)):
            with pytest.raises(flintmq.TopicNotFound):
                await use
        with pytest.raises(flintmq.TopicNotFound):
            await mq.reader("orders")
        await mq.create_topic("orders", max_deliveries=1)
        await mq.publish("orders", b"x")
        # Dead letters are the broker's own doing.
        (message,) = await mq.poll("orders", "group", max=1, wait=60)
        await mq.nack([message])
        letters = await mq.dead_letters("orders", "group")
        assert [letter.message.value for letter in letters] == [b"x"]


async def test_topics_have_the_options_that_were_configured_unless_told_otherwise(
    tmp_path: Path,
) -> None:
    defaults = {"retention_count": 2, "ttl": 60.0, "dead_letter_topic": "dead"}
    async with running(tmp_path, topic_defaults=defaults) as told:
        async with flintmq.connect(told.url) as mq:
            await mq.publish("orders", b"x")
            await mq.create_topic("bills", ttl=5)
            await mq.publish("dead", b"x")
            told.change(topic_defaults={"storage": "memory"})
            await mq.publish("later", b"x")
            await mq.create_topic("kept", storage="durable")

        topics = {name: topic.options for name, topic in told.daemon._broker.shard.topics.items()}
        said = ("retention_count", "ttl", "dead_letter_topic", "storage", "retention_bytes")
        assert {n: tuple(getattr(o, s) for s in said) for n, o in topics.items()} == {
            "orders": (2, 60.0, "dead", "durable", None),
            "bills": (2, 5.0, "dead", "durable", None),
            "dead": (2, 60.0, None, "durable", None),
            "later": (None, None, None, "memory", 256 * 2**20),
            "kept": (None, None, None, "durable", None),
        }
