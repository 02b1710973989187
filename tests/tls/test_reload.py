"""Certificates that change while the broker runs, and those it cannot start with."""

from __future__ import annotations

import asyncio
import logging
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import flintmq
from flintmq.net.remote.broker import RemoteBroker
from flintmq.net.server import tls as server_tls
from flintmq.net.server.tls import ServerTls
from flintmq.net.tls.certificate import Certificate
from flintmq.net.tls.files import Stamp

from .conftest import Run
from .test_handshakes import tls
from .throw_away import Authority, Pair, eventually, failure, served


def serial_seen_by(mq: flintmq.Client) -> int:
    """Of the certificate that the broker showed when this connection was made."""
    assert isinstance(mq._broker, RemoteBroker)
    connection = mq._broker.link._connection
    assert connection is not None
    assert connection._tls is not None
    assert connection._tls.peer_certificate is not None
    return Certificate.of_der(connection._tls.peer_certificate).serial


def reconnects_of(mq: flintmq.Client) -> int:
    assert isinstance(mq._broker, RemoteBroker)
    return mq._broker.link.reconnects


@pytest.mark.slow
@pytest.mark.parametrize("is_told", [True, False], ids=["told", "noticed"])
def test_certificates_are_swapped_under_traffic_without_a_dropped_connection(
    run: Run, ca: Authority, is_told: bool
) -> None:
    async def story() -> None:
        pair = ca.pair()
        secured = tls(pair, look_seconds=3600 if is_told else 0)
        async with served(secured) as (_, port):
            url = f"flints://127.0.0.1:{port}"
            receipts: list[flintmq.Receipt] = []
            done = asyncio.Event()

            async def publish(mq: flintmq.Client) -> None:
                while not done.is_set():
                    receipts.append(await mq.publish("orders", b"x" * 1000))

            async with flintmq.connect(url, tls_ca=ca.file) as before:
                first = serial_seen_by(before)
                publishing = asyncio.ensure_future(publish(before))
                seen = [first]
                for _ in range(10):
                    count = len(receipts)
                    ca.pair(over=pair)
                    if is_told:
                        assert secured.reload()
                    async with flintmq.connect(url, tls_ca=ca.file) as after:
                        seen.append(serial_seen_by(after))
                        await after.publish("others", b"x")
                    assert seen[-1] == pair.serial == secured.certificate.serial
                    await eventually(lambda count=count: len(receipts) > count + 20)  # type: ignore[misc]
                done.set()
                await publishing

                assert len(set(seen)) == 11
                assert (serial_seen_by(before), reconnects_of(before)) == (first, 0)
                offsets = [receipt.offset for receipt in receipts]
                assert offsets == list(range(len(receipts)))

    run(story())


async def test_other_servers_that_share_the_context_get_the_new_certificate_too(
    ca: Authority,
) -> None:
    pair = ca.pair()
    secured = tls(pair)

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()
        await writer.wait_closed()

    async def serial_at(port: int) -> int:
        trusting = ssl.create_default_context(cafile=ca.file)
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusting)
        der = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        await reader.read()
        writer.close()
        await writer.wait_closed()
        return Certificate.of_der(der).serial

    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=secured.context)
    port = server.sockets[0].getsockname()[1]
    async with server:
        assert await serial_at(port) == pair.serial
        before = pair.serial
        ca.pair(over=pair)
        assert secured.reload()
        assert await serial_at(port) == pair.serial != before


async def test_a_pair_that_does_not_fit_keeps_the_one_before_and_is_named(
    ca: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    pair, other = ca.pair(), ca.pair()
    before = pair.serial
    secured = tls(pair)
    pair.cert.write_bytes(other.cert.read_bytes())

    assert not secured.reload()

    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert (
        f"private key {pair.key} does not belong to the certificate {pair.cert}" in record.message
    )
    async with served(secured) as (_, port):
        url = f"flints://127.0.0.1:{port}"
        async with flintmq.connect(url, tls_ca=ca.file) as mq:
            assert serial_seen_by(mq) == before
        pair.key.write_bytes(other.key.read_bytes())
        assert secured.reload()
        async with flintmq.connect(url, tls_ca=ca.file) as mq:
            assert serial_seen_by(mq) == other.serial


def test_a_pair_that_is_half_written_is_looked_at_again_before_anybody_is_woken(
    ca: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    pair, other = ca.pair(), ca.pair()
    before = pair.serial
    secured = tls(pair, look_seconds=0)

    pair.cert.write_bytes(other.cert.read_bytes())
    assert secured.certificate.serial == before
    assert caplog.records == []
    pair.key.write_bytes(other.key.read_bytes())
    assert secured.certificate.serial == other.serial

    pair.cert.unlink()
    assert secured.certificate.serial == secured.certificate.serial == other.serial
    assert [record.levelno for record in caplog.records] == [logging.ERROR], "said once"
    assert "cannot read " in caplog.text
    assert "No such file" in caplog.text
    ca.pair(over=pair)
    assert secured.certificate.serial == pair.serial


def test_files_are_looked_at_no_more_often_than_every_few_seconds(
    ca: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    secured = tls(ca.pair())
    looks: list[list[Path]] = []

    def look(files: list[Path]) -> Stamp:
        looks.append(files)
        return ()

    monkeypatch.setattr(server_tls, "stamp_of", look)

    for _ in range(1000):
        assert secured.certificate_expires_at > 0

    assert looks == []


async def test_a_client_ca_is_taken_up_again_too(ca: Authority, tmp_path: Path) -> None:
    first, second = Authority(tmp_path, "first"), Authority(tmp_path, "second")
    trusted = tmp_path / "trusted.pem"
    trusted.write_bytes(first.file.read_bytes())
    secured = tls(ca.pair(), trusted)
    one, two = first.pair("one"), second.pair("two")
    async with served(secured) as (_, port):
        url = f"flints://127.0.0.1:{port}"

        async def is_let_in(pair: Pair) -> bool:
            mq = flintmq.connect(url, tls_ca=ca.file, tls_cert=pair.cert, tls_key=pair.key)
            try:
                await mq.__aenter__()
            except flintmq.TlsFailed:
                return False
            finally:
                await mq.close()
            return True

        assert (await is_let_in(one), await is_let_in(two)) == (True, False)
        trusted.write_bytes(second.file.read_bytes())
        assert secured.reload()
        assert (await is_let_in(one), await is_let_in(two)) == (False, True)

        pair = ca.pair()
        assert secured.reload(pair.cert, pair.key)
        assert (await is_let_in(one), secured.certificate.serial) == (True, pair.serial)
        assert secured.reload(pair.cert, pair.key, first.file)
        assert (await is_let_in(one), await is_let_in(two)) == (True, False)


async def test_a_clients_own_certificate_is_read_again_when_it_has_changed(ca: Authority) -> None:
    mine = ca.expired()
    async with served(tls(ca.pair(), ca.file)) as (_, port):
        mq = flintmq.connect(
            f"flints://127.0.0.1:{port}", tls_ca=ca.file, tls_cert=mine.cert, tls_key=mine.key
        )
        ca.pair("me", over=mine)
        async with mq:
            await mq.publish("orders", b"x")


def test_what_a_broker_cannot_start_with_is_named(ca: Authority, tmp_path: Path) -> None:
    pair, other = ca.pair(), ca.pair()
    nowhere = tmp_path / "nowhere"
    with pytest.raises(flintmq.InvalidRequest, match=r"cannot read .*nowhere .*: No such file"):
        ServerTls(nowhere, pair.key)
    with pytest.raises(flintmq.InvalidRequest, match=r"cannot read .*nowhere .*: No such file"):
        ServerTls(pair.cert, nowhere)
    with pytest.raises(flintmq.InvalidRequest, match="does not belong to the certificate"):
        ServerTls(pair.cert, other.key)
    with pytest.raises(
        flintmq.InvalidRequest, match="not a certificate and private key in PEM format"
    ):
        ServerTls(pair.key, pair.key)
    with pytest.raises(flintmq.InvalidRequest, match=r"nowhere \(tls_client_ca\)"):
        ServerTls(pair.cert, pair.key, nowhere)


def test_a_key_with_a_password_is_an_error_and_nobody_is_asked(ca: Authority) -> None:
    from cryptography.hazmat.primitives import serialization

    pair = ca.pair()
    key = serialization.load_pem_private_key(pair.key.read_bytes(), None)
    pair.key.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )

    with pytest.raises(flintmq.InvalidRequest, match="the private key has a password"):
        ServerTls(pair.cert, pair.key)


def test_an_operator_is_warned_of_dates_and_of_keys_that_others_can_read(
    ca: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    good = ca.pair()
    tls(good)
    assert caplog.records == []

    good.key.chmod(0o640)
    tls(good)
    assert f"{good.key} can be read by other users (mode 640); run chmod 600 on it" in caplog.text
    tls(ca.expired())
    assert "expired on 2021-03-04 00:00 UTC" in caplog.text
    now = datetime.now(UTC)
    secured = tls(ca.pair(until=now + timedelta(days=3.05)), look_seconds=0)
    assert "in 3.0 days" in caplog.text
    assert secured.certificate_expires_at == pytest.approx(now.timestamp() + 3.05 * 86400, abs=2)
    count = len(caplog.records)
    assert secured.certificate_expires_at > 0
    assert len(caplog.records) == count, "once a day"


async def test_an_expired_certificate_is_served_all_the_same(ca: Authority) -> None:
    async with served(tls(ca.expired())) as (_, port):
        url = f"flints://127.0.0.1:{port}"
        assert "expired" in str(await failure(url, tls_ca=ca.file))
        async with flintmq.connect(url, tls_verify=False) as mq:
            await mq.publish("orders", b"x")
