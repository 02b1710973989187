"""A client says whether it reaches its broker, and tells those who asked when that changes."""

from __future__ import annotations

import logging

import pytest

import flintmq

from ..patience import until
from .proxy import Proxy


async def test_who_asked_hears_that_the_connection_is_lost_and_that_it_is_back(
    url: str, proxy: Proxy
) -> None:
    told: list[str] = []
    mq = flintmq.connect(url)

    @mq.on_disconnect
    def lost(cause: flintmq.Disconnected) -> None:
        assert not mq.is_connected
        told.append("lost")
        assert url in str(cause)

    @mq.on_reconnect
    async def back() -> None:
        assert mq.is_connected
        told.append("back")

    async with mq:
        proxy.cut()
        await until(lambda: told == ["lost", "back"], "both are told")
        proxy.cut()
        await until(lambda: told == ["lost", "back"] * 2, "both are told again")
    assert not mq.is_connected
    assert told == ["lost", "back"] * 2, "closing is no loss"


async def test_a_callback_that_fails_is_logged_and_harms_nobody(
    url: str, proxy: Proxy, caplog: pytest.LogCaptureFixture
) -> None:
    back: list[bool] = []

    async with flintmq.connect(url) as mq:

        @mq.on_disconnect
        def fails(cause: flintmq.Disconnected) -> None:
            raise ValueError("no good")

        @mq.on_reconnect
        async def fails_too() -> None:
            raise ValueError("nor this")

        mq.on_reconnect(lambda: back.append(True))
        proxy.cut()
        await until(lambda: bool(back), "the connection is back")
        await mq.publish("orders", b"1")
        await until(lambda: "nor this" in caplog.text, "it is logged")
    assert "no good" in caplog.text


async def test_a_broker_in_the_process_is_connected_while_it_is_open() -> None:
    async with flintmq.connect("memory://") as mq:
        assert mq.is_connected
    assert not mq.is_connected


async def test_without_a_url_the_environment_says_where_and_the_log_too(
    url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setenv("FLINTMQ_SERVER", url)
    async with flintmq.connect() as mq:
        assert mq.url == url
        assert f"connect() without a URL: {url}, from FLINTMQ_SERVER" in caplog.text

    monkeypatch.delenv("FLINTMQ_SERVER")
    async with flintmq.connect() as mq:
        assert mq.url == "memory://"
        assert "connect() without a URL: memory://, inside this process" in caplog.text


def test_the_blocking_client_knows_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("FLINTMQ_SERVER", raising=False)
    with flintmq.connect_sync() as mq:
        assert (mq.url, mq.is_connected) == ("memory://", True)
    assert not mq.is_connected
