"""Request and reply over connections that break: every reply comes to who asked for it, or to
nobody."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

import flintmq
from flintmq.net.server.native import NativeServer

from .proxy import Proxy, Way
from .request_rounds import RequestRounds


async def _squares(url: str) -> None:
    """Answers requests until it is cancelled."""
    async with flintmq.connect(url) as mq, mq.live("square", capacity=100_000) as feed:
        async for message in feed:
            n = message.decode()["n"]
            await message.reply({"n": n, "square": n * n})


async def _until_there(mq: flintmq.Client) -> None:
    while True:
        try:
            await mq.request("square", {"n": 0})
            return
        except flintmq.NoResponders:
            await asyncio.sleep(0.01)


async def _asked(mq: flintmq.Client, count: int, rng: random.Random, proxy: Proxy) -> None:
    async def ask(n: int) -> None:
        reply = await mq.request("square", {"n": n}, timeout=60)
        assert reply.decode() == {"n": n, "square": n * n}

    left = list(range(count))
    while left:
        some, left = left[:20], left[20:]
        asking = asyncio.gather(*map(ask, some))
        way: Way = "up" if rng.random() < 0.5 else "down"
        proxy.cut_at = (way, proxy.passed[way] + rng.randrange(1, 3000))
        await asking


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
async def test_a_reply_finds_who_asked_over_a_connection_that_comes_back(
    server: NativeServer, proxy: Proxy, url: str, seed: int
) -> None:
    host, port = proxy._target
    responding = asyncio.ensure_future(_squares(f"flint://{host}:{port}"))
    try:
        async with flintmq.connect(url, timeout=60) as one, flintmq.connect(url) as other:
            await _until_there(one)
            rng = random.Random(seed)
            await asyncio.gather(_asked(one, 200, rng, proxy), _asked(other, 200, rng, proxy))
        assert proxy.cuts > 3
    finally:
        responding.cancel()
        await asyncio.wait([responding])


@pytest.mark.slow
async def test_a_responder_whose_connection_comes_back_answers_what_it_was_handed(
    server: NativeServer, proxy: Proxy, url: str
) -> None:
    host, port = proxy._target
    responding = asyncio.ensure_future(_squares(url))
    try:
        async with flintmq.connect(f"flint://{host}:{port}", timeout=60) as mq:
            await _until_there(mq)
            await _asked(mq, 200, random.Random(7), proxy)
        assert proxy.cuts > 3
    finally:
        responding.cancel()
        await asyncio.wait([responding])


async def test_a_session_that_is_gone_leaves_the_outcome_unknown(
    server: NativeServer, url: str
) -> None:
    async with flintmq.connect(url, timeout=60) as mq, mq.live("square") as feed:
        asking = asyncio.ensure_future(mq.request("square", {"n": 1}, timeout=60))
        await feed.read()
        for session in list(server.sessions.values()):
            session.end()
        for connection in list(server.connections):
            connection.abort()
        with pytest.raises(flintmq.OutcomeUnknown):
            await asking


@pytest.mark.slow
async def test_links_that_are_cut_and_a_broker_that_is_killed_mix_up_no_replies(
    tmp_path: Path,
) -> None:
    """Some of the rounds of `scripts/state-runs --requests`."""
    result = await RequestRounds(tmp_path, seed=11).run(4, kill_every=4)
    assert not result.faults, str(result)
    assert (result.kills, result.replies > 400) == (1, True)
