"""`flintmq serve` over TLS as operators meet it: start, new certificates, what is refused."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
from pathlib import Path

import pytest

import flintmq

from ..integration.served import Served
from .test_reload import reconnects_of, serial_seen_by
from .throw_away import Authority, Pair, eventually

pytestmark = pytest.mark.slow


def served(directory: Path, pair: Pair, *arguments: str, listen: str = "127.0.0.1:0") -> Served:
    given = ("--tls-cert", str(pair.cert), "--tls-key", str(pair.key))
    return Served(directory / "data", *given, *arguments, listen=listen)


async def test_sighup_takes_up_a_new_certificate_while_clients_publish(
    ca: Authority, tmp_path: Path
) -> None:
    pair = ca.pair()
    manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    manager.bind(str(tmp_path / "notify"))
    manager.settimeout(60)
    broker = served(tmp_path, pair)
    try:
        await broker.start({"NOTIFY_SOCKET": str(tmp_path / "notify")})
        assert await asyncio.to_thread(manager.recv, 100) == b"READY=1"
        assert broker.url.startswith("flints://127.0.0.1:")
        done = asyncio.Event()
        receipts: list[flintmq.Receipt] = []
        async with flintmq.connect(broker.url, tls_ca=ca.file) as mq:

            async def publish() -> None:
                while not done.is_set():
                    receipts.append(await mq.publish("orders", b"x"))

            publishing = asyncio.ensure_future(publish())
            first = serial_seen_by(mq)
            for _ in range(3):
                count = len(receipts)
                ca.pair(over=pair)
                broker.process.send_signal(signal.SIGHUP)
                told = await asyncio.to_thread(manager.recv, 100)
                assert told.startswith(b"RELOADING=1\nMONOTONIC_USEC=")
                assert await asyncio.to_thread(manager.recv, 100) == b"READY=1"
                async with flintmq.connect(broker.url, tls_ca=ca.file) as other:
                    assert serial_seen_by(other) == pair.serial != first
                await eventually(lambda count=count: len(receipts) > count)  # type: ignore[misc]
            done.set()
            await publishing
            assert reconnects_of(mq) == 0
            assert [receipt.offset for receipt in receipts] == list(range(len(receipts)))
        assert await broker.end(signal.SIGTERM) == 0
        assert await asyncio.to_thread(manager.recv, 100) == b"STOPPING=1"
    finally:
        manager.close()
        await broker.leave()


async def test_a_pair_that_does_not_fit_at_the_start_is_one_line(
    ca: Authority, tmp_path: Path
) -> None:
    broker = served(tmp_path, Pair(ca.pair().cert, ca.pair().key))
    await broker.launch()
    assert await broker.wait() == 1
    said = await broker.said()
    assert "does not belong to the certificate" in said.splitlines()[-1]
    assert "Traceback" not in said


async def test_tls_alone_does_not_open_a_broker_to_others_but_a_client_ca_does(
    ca: Authority, tmp_path: Path
) -> None:
    pair = ca.pair()
    refused = served(tmp_path, pair, listen="0.0.0.0:0")
    await refused.launch()
    assert await refused.wait() == 2
    assert "without keys" in await refused.said()
    mutual = served(tmp_path, pair, "--tls-client-ca", str(ca.file), listen="0.0.0.0:0")
    try:
        await mutual.start()
        assert await mutual.end(signal.SIGTERM) == 0
        assert "can be reached from other machines" not in await mutual.said()
    finally:
        await mutual.leave()


async def test_commands_show_a_certificate_where_the_broker_asks_for_one(
    ca: Authority, tmp_path: Path
) -> None:
    pair, ours = ca.pair(), ca.pair("client.example")
    broker = await served(tmp_path, pair, "--tls-client-ca", str(ca.file)).start()

    async def check(*arguments: str) -> tuple[int | None, str]:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "flintmq.cli", "check", "--server", broker.url),
            *("--tls-ca", str(ca.file), *arguments),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        said, _ = await process.communicate()
        return process.returncode, said.decode()

    try:
        code, said = await check()
        assert code
        assert "requires a client certificate" in said
        code, said = await check("--tls-cert", str(ours.cert), "--tls-key", str(ours.key))
        assert code == 0, said
        assert await broker.end(signal.SIGTERM) == 0
    finally:
        await broker.leave()
