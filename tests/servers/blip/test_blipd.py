"""`flintmq blipd` and `flintmq blip` as processes: started, asked, killed."""

from __future__ import annotations

import asyncio
import signal
import ssl
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.tls.throw_away import Authority

from . import kill_rounds
from .raw import RawBlip, RawFlat, nack_of, text
from .served import ServedBlip

pytestmark = pytest.mark.slow


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[ServedBlip]:
    made = ServedBlip(tmp_path / "data")
    yield made
    await made.leave()


async def command(*arguments: str, stdin: bytes = b"") -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "flintmq.cli", *arguments),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await asyncio.wait_for(process.communicate(stdin), 60)
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


async def test_its_commands_publish_and_subscribe(served: ServedBlip, tmp_path: Path) -> None:
    await served.start()
    address = f"{served.blip[0]}:{served.blip[1]}"
    (tmp_path / "binary").write_bytes(b"in a file")
    async with RawFlat(served.blip) as there:
        await there.subscribe(b"chat")
        reading = asyncio.ensure_future(command("blip", "-a", address, "sub", "chat", "-n", "4"))
        # It has subscribed once it gets what is sent until then.
        while not reading.done():
            there.send(0, b"chat", b"are you there")
            await asyncio.sleep(0.05)
        code, out, _ = await reading
        assert code == 0
        first, *lines = out.splitlines()
        assert first == "> subscribed"
        assert len(lines) == 4
        assert all(" are you there @" in line for line in lines)

    async with RawFlat(served.blip) as there:
        await there.subscribe(b"chat")
        blip = ("blip", "--addr", address)
        assert (await command(*blip, "pub", "chat", "hello", "-t", "60000"))[0] == 0
        assert (await command(*blip, "pub", "chat", "-", stdin=b"piped"))[0] == 0
        for name in ("pubfile", "pub-file"):
            assert (await command(*blip, name, "chat", str(tmp_path / "binary")))[0] == 0
        assert (await command(*blip, "unsub", "chat"))[0] == 0
        got = [await there.message() for _ in range(4)]
        assert [one.payload for one in got] == [b"hello", b"piped", b"in a file", b"in a file"]
        assert 0 < got[0].ttl <= 60_000  # what is left of it
        code, _, err = await command(*blip, "pub", "a/b", "x")
        assert code == 2
        assert "1 to 256 bytes" in err


async def test_sigterm_ends_it_in_good_order(tmp_path: Path) -> None:
    """BlipMQ knows SIGINT alone (its B26)."""
    served = ServedBlip(tmp_path / "data")
    try:
        await served.start({"BLIPMQ_ALLOWED_API_KEYS": "dev-key"})
        async with RawBlip(served.blip) as client:
            await client.ask(1, b"\0\1")
            assert nack_of(await client.ask(2, text("other")))[0] == 401
            assert (await client.ask(2, text("dev-key"))).payload == bytes(8)
            client.publish("demo", b"kept", 1)
            await client.ping()
            assert await served.end(signal.SIGTERM) == 0
            assert await client.is_closed()
        (complaint,) = await served.complaints()
        assert complaint.startswith("login from 127.0.0.1 failed")

        await served.start({"BLIPMQ_ALLOWED_API_KEYS": "dev-key"})
        async with RawBlip(served.blip) as client:
            await client.login(2, "dev-key")
            await client.subscribe("demo", 1, offset=0)
            assert (await client.delivery()).message == b"kept"
    finally:
        await served.leave()


async def test_what_is_wrong_ends_it_with_a_word_and_a_code(tmp_path: Path) -> None:
    """BlipMQ ends with 0 and silence (its B27), or goes on without its port (its B31)."""
    (tmp_path / "blip.toml").write_text('port = "many"\nfsync_policy = "now and then"\n')
    code, _, err = await command("blipd", "--config", str(tmp_path / "blip.toml"))
    assert code == 2
    assert "blip.toml:1" in err
    assert "blip.toml:2" in err

    taken = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
    async with taken:
        port = taken.sockets[0].getsockname()[1]
        for places in (
            ("--http", "off", "--blip", f"127.0.0.1:{port}"),
            ("--blip", "127.0.0.1:0", "--http", f"127.0.0.1:{port}"),
        ):
            code, _, err = await command(
                *("blipd", "--data-dir", str(tmp_path / "data"), "--listen", "127.0.0.1:0"),
                *places,
            )
            assert code == 1
            assert f"127.0.0.1:{port}" in err


async def test_an_address_of_others_needs_keys_and_tls(tmp_path: Path) -> None:
    code, _, err = await command(
        *("blipd", "--data-dir", str(tmp_path / "data"), "--blip", "0.0.0.0:0"),
    )
    assert code == 2
    assert "blip 0.0.0.0:0 can be reached from other machines" in err


async def test_all_of_it_goes_over_tls(tmp_path: Path) -> None:
    """There everything is readable on the way (B24)."""
    authority = Authority(tmp_path)
    pair = authority.pair()
    served = ServedBlip(tmp_path / "data", "--tls-cert", str(pair.cert), "--tls-key", str(pair.key))
    try:
        await served.start()
        context = ssl.create_default_context(cafile=str(authority.file))
        client = RawBlip(served.blip)
        client.reader, client.writer = await asyncio.open_connection(
            *served.blip, ssl=context, server_hostname="localhost"
        )
        await client.login(2)
        await client.subscribe("demo", 1)
        client.publish("demo", b"secret", 1)
        assert (await client.delivery()).message == b"secret"
        await client.__aexit__()
    finally:
        await served.leave()


async def test_a_thousand_connections(served: ServedBlip) -> None:
    """A third of them by each protocol; every message reaches every one."""
    await served.start()
    polling = [RawBlip(served.blip) for _ in range(333)]
    pushed = [RawBlip(served.blip) for _ in range(334)]
    flat = [RawFlat(served.blip) for _ in range(333)]
    numbers: list[int] = []
    everybody: list[RawBlip | RawFlat] = [*polling, *pushed, *flat]
    try:
        for start in range(0, 1000, 100):
            await asyncio.gather(*(one.__aenter__() for one in everybody[start : start + 100]))
        await asyncio.gather(*(one.login(1) for one in polling))
        await asyncio.gather(*(one.login(2) for one in pushed))
        numbers = await asyncio.gather(*(one.subscribe("demo") for one in polling))
        await asyncio.gather(*(one.subscribe("demo") for one in pushed))
        await asyncio.gather(*(one.subscribe(b"demo") for one in flat))

        polling[0].publish("demo", b"to all")
        await polling[0].ping()
        assert {(await one.delivery()).message for one in pushed} == {b"to all"}
        assert {(await one.message()).payload for one in flat} == {b"to all"}
        for one, number in zip(polling, numbers, strict=True):
            got = await one.poll(number)
            assert got is not None
            assert got.message == b"to all"

        for one in pushed:
            one.publish("demo", b"from each", 1)
        await asyncio.gather(*(_until(one, 334) for one in pushed[:10]))
    finally:
        await asyncio.gather(*(one.__aexit__() for one in everybody))


async def _until(client: RawBlip, count: int) -> None:
    for _ in range(count):
        assert (await client.delivery()).message == b"from each"


async def test_what_a_pong_stood_for_survives_kill_9(tmp_path: Path) -> None:
    result = await kill_rounds.rounds(tmp_path / "data", 2)

    assert result.lost == set()
    assert result.safe > 100
    assert result.polled == 50
