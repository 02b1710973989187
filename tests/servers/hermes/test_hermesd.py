"""`flintmq hermesd`: HermesMQ's flags and environment, its pages and metric names, one port for
both protocols; and the settings of `flintmq serve` that concern HermesMQ's clients."""

from __future__ import annotations

import asyncio
import os
import signal
import ssl
import sys
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import msgspec
import pytest
from click.testing import CliRunner

import flintmq
from flintmq import __version__
from flintmq.access import TopicGrant
from flintmq.cli import hermesd
from flintmq.config.table import Config
from flintmq.daemon.clustering import runs_alone
from flintmq.daemon.exposure import Exposed, check_exposure
from flintmq.daemon.process import Daemon
from flintmq.engine.host import Host
from flintmq.errors import InvalidRequest
from flintmq.frontends.hermes.server import HermesLimits, HermesServer
from flintmq.frontends.hermes.settings import resolve_hermes
from flintmq.storage.key_file import KeyFile, make_key
from tests.patience import free_port
from tests.tls.throw_away import Authority

from .client import HermesClient, Refused


@pytest.fixture(autouse=True)
def small_journal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Host, "first_file_bytes", 16 * 1024)


# --- flags and environment


def resolved(
    environment: dict[str, str] | None = None,
    flags: dict[str, str | bool] | None = None,
    file: Path | None = None,
    **theirs: str,
) -> Config:
    return resolve_hermes(
        file=file, environment=environment or {}, flags=flags or {}, theirs=theirs
    ).config()


def test_what_nobody_says_is_as_hermesmqd_has_it() -> None:
    config = resolved()

    assert (config.hermes_node_id, config.data_dir) == (1, Path("data"))
    assert (config.hermes, config.http) == (("127.0.0.1", 7600), ("127.0.0.1", 9600))
    assert (config.metrics, config.log_level) == (True, "info")
    assert config.listen == ("127.0.0.1", 0)
    assert (config.node_name, config.peer_listen) == (None, None)  # alone


def test_w18_a_flag_counts_before_its_variable_and_an_empty_variable_says_nothing() -> None:
    """Their image sets HERMESMQ_METRICS_ENABLED to nothing, which their daemon refuses."""
    environment = {
        "HERMESMQ_NODE_ID": "3",
        "HERMESMQ_DATA_DIR": "/data",
        "HERMESMQ_CLIENT_ADDR": "127.0.0.2:1",
        "HERMESMQ_PEER_ADDR": "127.0.0.2:2",
        "HERMESMQ_METRICS_ADDR": "127.0.0.2:3",
        "HERMESMQ_METRICS_ENABLED": "",
        "FLINTMQ_LISTEN": "127.0.0.1:4",
        "RUST_LOG": "warn",
    }
    config = resolved(environment, node_id="2", peer_addr="127.0.0.1:7700")

    assert (config.hermes_node_id, config.data_dir) == (2, Path("/data"))
    assert (config.hermes, config.http) == (("127.0.0.2", 1), ("127.0.0.2", 3))
    assert (config.metrics, config.log_level) == (True, "warning")
    assert config.listen == ("127.0.0.1", 4)
    assert (config.node_name, config.peer_listen) == ("node-2", ("127.0.0.1", 7700))
    assert not resolved({**environment, "HERMESMQ_METRICS_ENABLED": "false"}).metrics


def test_our_own_words_count_before_their_variables_and_a_file_after_them(tmp_path: Path) -> None:
    """Who sets FLINTMQ_DATA_DIR must not find everything in "data"."""
    file = tmp_path / "flintmq.toml"
    file.write_text('data_dir = "/file"\nhermes = "127.0.0.1:1"\nfsync = "never"\n')
    ours, theirs = {"FLINTMQ_DATA_DIR": "/ours"}, {"HERMESMQ_DATA_DIR": "/theirs"}

    assert resolved(ours).data_dir == Path("/ours")
    assert resolved({**ours, **theirs}).data_dir == Path("/ours")
    assert resolved({**ours, **theirs}, data_dir="/flag").data_dir == Path("/flag")
    assert resolved({**ours, **theirs}, flags={"data_dir": "/flag"}).data_dir == Path("/flag")
    assert resolved(theirs, file=file).data_dir == Path("/theirs")
    config = resolved(file=file)
    assert (config.data_dir, config.hermes) == (Path("/file"), ("127.0.0.1", 1))
    assert str(config.fsync) == "never"


def test_help_shows_what_counts_for_this_command() -> None:
    text = CliRunner().invoke(hermesd.command, ["--help"]).output

    for flag in ("node-id", "client-addr", "peer-addr", "metrics-addr", "metrics-enabled"):
        assert text.count(f"--{flag} ") >= 1
    assert "HERMESMQ_DATA_DIR, default: data" in " ".join(text.split())
    for other in ("--hermes ", "--http ", "--hermes-node-id", "--no-metrics"):
        assert other not in text
    assert __version__ in CliRunner().invoke(hermesd.command, ["-V"]).output


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--node-id", "none"], "--node-id: hermes_node_id"),
        (["--client-addr", "no address:x"], "--client-addr: hermes must be an address"),
        (["--metrics-enabled", "perhaps"], "--metrics-enabled: metrics must be"),
        (["--client-addr", "0.0.0.0:7600"], "hermes 0.0.0.0:7600 can be reached"),
        (["--peer-addr", "0.0.0.0:7700"], "peer_listen 0.0.0.0:7700 can be reached"),
        (["--peer-addr", "no address:x"], "--peer-addr: peer_listen must be an address"),
    ],
)
def test_what_is_wrong_is_told(arguments: list[str], why: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(
        hermesd.command, ["--data-dir", str(tmp_path), *arguments], standalone_mode=False
    )

    assert why in result.output
    assert result.return_value == 2 or result.exit_code == 2


def test_a_key_of_the_front_end_does_not_make_an_open_port_safe(tmp_path: Path) -> None:
    config = Config(data_dir=tmp_path, auth="required", hermes=("0.0.0.0", 7600))

    with pytest.raises(Exposed, match=r"hermes .* without keys"):
        check_exposure(config, has_keys=True)


# --- the broker itself


@asynccontextmanager
async def running(directory: Path, **values: Any) -> AsyncIterator[Daemon]:
    config = Config(
        data_dir=directory / "data", listen=("127.0.0.1", 0), hermes=("127.0.0.1", 0),
        drain_seconds=1, **values,
    )  # fmt: skip
    daemon = Daemon(config)
    ready: asyncio.Future[tuple[str, int]] = asyncio.get_running_loop().create_future()
    task = asyncio.ensure_future(daemon.run(ready.set_result))
    await asyncio.wait((ready, task), return_when=asyncio.FIRST_COMPLETED)
    try:
        yield daemon
    finally:
        daemon.stop()
        await task


def _key_file(directory: Path, **grants: str) -> Path:
    (directory / "data").mkdir()
    wanted = [TopicGrant.of(pattern, [permission]) for permission, pattern in grants.items()]
    entry, key = make_key("hermes", wanted, now_ms=0, expires_at_ms=None)
    KeyFile(directory / "data" / "keys.json").add(entry)
    file = directory / "hermes.key"
    file.write_text(key + "\n")
    return file


async def test_both_protocols_are_served_at_one_port_and_share_topics(tmp_path: Path) -> None:
    async with running(tmp_path, hermes_node_id=7) as daemon:
        assert "hermes" in daemon.addresses
        host, port = daemon.addresses["hermes"]
        async with (
            await HermesClient.connect((host, port)) as client,
            flintmq.connect(f"flint://{host}:{port}") as mq,
        ):
            await client.produce("a/b", b'{"id": 1}', content_type=2, priority=4)
            (message,) = await mq.poll("a%2Fb", "g", max=1, wait=60)
            assert (message.decode(), message.priority) == ({"id": 1}, 4)
            await mq.publish("orders", {"id": 2}, priority=5)
            (item,) = await client.poll("orders")
            assert (item.payload, item.content_type, item.priority) == (b'{"id":2}', 2, 5)
            assert (await client.call("stats")).current_leader == 7


async def test_a_node_that_has_data_goes_on_alone_whatever_its_peer_addr(tmp_path: Path) -> None:
    blank = resolved(data_dir=str(tmp_path / "data"), peer_addr="127.0.0.1:7700")
    assert not runs_alone(blank)
    async with (
        running(tmp_path) as daemon,
        await HermesClient.connect(daemon.addresses["hermes"]) as client,
    ):
        await client.produce("t", b"x")
        with pytest.raises(Refused, match="node 1 runs alone"):
            await client.call("bootstrap", nodes=[(1, "a:1"), (2, "b:1")])

    assert runs_alone(blank)


async def test_a_broker_told_so_makes_no_topics_for_produces(tmp_path: Path) -> None:
    async with running(tmp_path, auto_create=False) as daemon:
        assert "hermes" in daemon.addresses
        async with await HermesClient.connect(daemon.addresses["hermes"]) as client:
            with pytest.raises(Refused, match=r"internal: .*orders"):
                await client.produce("orders", b"x")
            await client.call("create_topic", topic="orders")
            assert await client.produce("orders", b"x") == 0


async def test_the_key_in_the_file_counts(tmp_path: Path) -> None:
    file = _key_file(tmp_path, publish="orders")
    async with running(tmp_path, hermes_key_file=file) as daemon:
        assert "hermes" in daemon.addresses
        async with await HermesClient.connect(daemon.addresses["hermes"]) as client:
            assert await client.produce("orders", b"x") == 0
            with pytest.raises(Refused, match="consume"):
                await client.poll("orders")


async def test_limits_that_are_read_again_count_for_their_clients_too(tmp_path: Path) -> None:
    async with running(tmp_path) as daemon:
        before = daemon.config
        server = daemon.front_ends["hermes"][1]
        assert isinstance(server, HermesServer)
        daemon._reload_limits(
            before, msgspec.structs.replace(before, max_connections=7, grace_seconds=9.0)
        )

        assert (server.limits.connections, server.limits.grace_seconds) == (7, 9.0)
        assert server.limits.reply_bytes == HermesLimits().reply_bytes


async def test_with_a_certificate_the_port_speaks_tls(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pair = authority.pair()
    async with running(tmp_path, tls_cert=pair.cert, tls_key=pair.key) as daemon:
        assert "hermes" in daemon.addresses
        trusting = ssl.create_default_context(cafile=authority.file)
        async with await HermesClient.connect(daemon.addresses["hermes"], ssl=trusting) as client:
            assert await client.produce("orders", bytes(100_000)) == 0
            assert [len(payload) for payload in await client.payloads("orders")] == [100_000]


def test_a_key_file_that_is_not_there_stops_the_start(tmp_path: Path) -> None:
    config = Config(
        data_dir=tmp_path, hermes=("127.0.0.1", 0), hermes_key_file=tmp_path / "missing"
    )
    with pytest.raises(InvalidRequest, match=r"cannot read hermes_key_file .*"):
        Daemon(config)


# --- as a process


def _page(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as error:
        with error:
            return error.code, error.read().decode()


@pytest.mark.slow
@pytest.mark.parametrize("metrics", [True, False])
async def test_w18_hermesd_as_their_client_library_starts_and_stops_it(
    tmp_path: Path, metrics: bool
) -> None:
    """With its four flags, and SIGTERM at the end, which their own daemon does not heed (W18)."""
    peer_addr = f"127.0.0.1:{free_port()}"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "flintmq.cli", "hermesd", "--node-id", "4"),
        *("--data-dir", str(tmp_path / "data"), "--client-addr", "127.0.0.1:0"),
        *("--peer-addr", peer_addr),
        stdout=asyncio.subprocess.PIPE,
        env={
            **os.environ,
            "HERMESMQ_METRICS_ADDR": "127.0.0.1:0",
            "HERMESMQ_METRICS_ENABLED": str(metrics).lower(),
        },
    )
    try:
        assert process.stdout is not None
        line = (await asyncio.wait_for(process.stdout.readline(), 60)).decode()
        http = "http://" + line.split("http://")[1].split(",")[0]
        host, _, port = line.split("hermes://")[1].split(",")[0].rpartition(":")
        async with await HermesClient.connect((host, int(port))) as client:
            await client.call("bootstrap", nodes=[(4, peer_addr)])
            await client.produce("t", b"x")
            await client.poll("t")
            pages = {
                name: await asyncio.to_thread(_page, f"{http}/{name}")
                for name in ("health", "ready", "metrics")
            }
            assert (pages["health"][0], pages["ready"][0]) == (200, 200)
            if metrics:
                assert {
                    line.rpartition(" ")[0]: float(line.rpartition(" ")[2])
                    for line in pages["metrics"][1].splitlines()
                    if line.startswith("hermesmq_")
                    and "raft_last" not in line
                    and "raft_term" not in line
                } == {
                    'hermesmq_raft_is_leader{node="4"}': 1,
                    'hermesmq_raft_current_leader{node="4"}': 4,
                    'hermesmq_raft_millis_since_quorum_ack{node="4"}': 0,
                    'hermesmq_topics{node="4"}': 1,
                    'hermesmq_messages{node="4"}': 1,
                    'hermesmq_in_flight{node="4"}': 1,
                }
                for name in ("last_log_index", "last_applied", "term"):
                    assert f'hermesmq_raft_{name}{{node="4"}}' in pages["metrics"][1]
            else:
                assert pages["metrics"][0] == 404
            process.send_signal(signal.SIGTERM)
            assert await asyncio.wait_for(process.wait(), 60) == 0
            assert await client.is_closed()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
