"""What clients are told about TLS, by the call and by the environment."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

import flintmq

from .test_handshakes import tls
from .throw_away import Authority, failure, served


@pytest.mark.parametrize("url", ["flint://a", "memory://", "file:///nowhere"])
def test_an_option_of_tls_needs_the_scheme_that_has_it(url: str) -> None:
    with pytest.raises(flintmq.InvalidRequest, match="tls_ca is for TLS: connect to flints://"):
        flintmq.connect(url, tls_ca="ca.pem")
    with pytest.raises(flintmq.InvalidRequest, match="tls_verify"):
        flintmq.connect_sync(url, tls_verify=False)


def test_files_that_are_of_no_use_are_named_at_once(tmp_path: Path, ca: Authority) -> None:
    missing = tmp_path / "missing.pem"
    with pytest.raises(flintmq.InvalidRequest, match=r"cannot read .*missing\.pem \(tls_ca\)"):
        flintmq.connect("flints://a", tls_ca=missing)
    empty = tmp_path / "empty.pem"
    empty.touch()
    with pytest.raises(
        flintmq.InvalidRequest, match=r"empty\.pem \(tls_ca\) contains no certificates"
    ):
        flintmq.connect("flints://a", tls_ca=empty)
    one, other = ca.pair(), ca.pair()
    with pytest.raises(flintmq.InvalidRequest, match="does not belong to the certificate"):
        flintmq.connect("flints://a", tls_ca=ca.file, tls_cert=one.cert, tls_key=other.key)
    with pytest.raises(flintmq.InvalidRequest, match="needs tls_cert too"):
        flintmq.connect("flints://a", tls_ca=ca.file, tls_key=one.key)
    with pytest.raises(flintmq.InvalidRequest, match="path of a file"):
        flintmq.connect("flints://a", tls_ca=7)  # type: ignore[arg-type]


async def test_the_environment_says_what_the_call_does_not(
    ca: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = ca.pair("me")
    monkeypatch.setenv("FLINTMQ_TLS_CA", str(ca.file))
    async with served(tls(ca.pair(), ca.file)) as (_, port):
        url = f"flints://127.0.0.1:{port}"
        assert "client certificate" in str(await failure(url))
        monkeypatch.setenv("FLINTMQ_TLS_CLIENT_CERT", str(mine.cert))
        monkeypatch.setenv("FLINTMQ_TLS_CLIENT_KEY", str(mine.key))
        async with flintmq.connect(url) as mq:
            await mq.publish("orders", b"x")
        other = Authority(tmp_path, "other")
        assert "not signed by a trusted CA" in str(await failure(url, tls_ca=other.file))

        def blocking() -> int:
            with flintmq.connect_sync(url) as sync:
                return sync.publish("orders", b"y").offset or 0

        assert await asyncio.to_thread(blocking) == 1
    monkeypatch.setenv("FLINTMQ_TLS_VERIFY", "maybe")
    with pytest.raises(flintmq.InvalidRequest, match="FLINTMQ_TLS_VERIFY must be true or false"):
        flintmq.connect("flints://a")


async def test_checking_can_be_turned_off_and_is_warned_of(
    ca: Authority, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with served(tls(ca.pair("elsewhere"))) as (_, port):
        async with flintmq.connect(f"flints://127.0.0.1:{port}", tls_verify=False) as mq:
            await mq.publish("orders", b"x")
        assert [record.levelno for record in caplog.records] == [logging.WARNING]
        monkeypatch.setenv("FLINTMQ_TLS_VERIFY", "false")
        async with flintmq.connect(f"flints://127.0.0.1:{port}") as mq:
            await mq.publish("orders", b"x")


async def test_a_certificate_that_the_system_does_not_know_needs_its_ca(ca: Authority) -> None:
    async with served(tls(ca.pair())) as (_, port):
        assert "tls_ca" in str(await failure(f"flints://127.0.0.1:{port}"))
