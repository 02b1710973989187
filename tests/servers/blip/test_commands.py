"""`flintmq blip`, in this process: what it prints, and how it ends."""

from __future__ import annotations

import asyncio
import inspect
import json
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from flintmq.cli.blip import command
from flintmq.cli.blipd import command as blipd
from flintmq.errors import Disconnected, FlintError
from flintmq.frontends.blip.keys import listed_keys_gate
from flintmq.frontends.blip.options import BlipOptions
from flintmq.frontends.blip.server import BlipServer
from flintmq.net.server.slowing import Slowing

from .raw import RawFlat

Address = tuple[str, int]


async def run(address: Address, *arguments: str, stdin: bytes = b"") -> Result:
    asked = ["--addr", f"{address[0]}:{address[1]}", *arguments]
    return await asyncio.to_thread(CliRunner().invoke, command, asked, input=stdin)


async def test_what_is_published_has_been_taken_when_it_ends(
    address: Address, tmp_path: Path
) -> None:
    (tmp_path / "file").write_bytes(b"\xff\0")
    file = str(tmp_path / "file")
    async with RawFlat(address) as reading:
        await reading.subscribe(b"chat")
        for arguments in (
            ["pub", "chat", "hello", "-t", "60000"],
            ["p", "chat", "-"],
            ["pub", "-t", "5", "chat", "--file", file],
            ["pubfile", "chat", file],
            ["pub-file", "chat", file, "--ttl", "7"],
            ["unsub", "chat"],
            ["u", "chat"],
        ):
            result = await run(address, *arguments, stdin=b"piped\xff")
            assert result.exit_code == 0, result.output
        got = [await reading.message() for _ in range(5)]
    assert [(one.payload, one.ttl) for one in got] == [
        (b"hello", 60_000),
        (b"piped\xff", 0),
        (b"\xff\0", 5),
        (b"\xff\0", 0),
        (b"\xff\0", 7),
    ]


@pytest.mark.parametrize("arguments", [["pub", "chat"], ["pub", "chat", "x", "-f", __file__]])
async def test_one_thing_is_published(address: Address, arguments: list[str]) -> None:
    assert (await run(address, *arguments)).exit_code == 2


@pytest.mark.parametrize("topic", ["a/b", "", "x" * 257, "a\nb"])
async def test_what_is_no_topic_there_is_said_before_it_is_sent(
    address: Address, topic: str
) -> None:
    result = await run(address, "pub", topic, "x")
    assert result.exit_code == 2
    assert "1 to 256 bytes" in result.output


@pytest.mark.parametrize("options", [BlipOptions(max_command_bytes=500)])
async def test_a_message_that_is_too_large_is_an_error(address: Address) -> None:
    """The protocol has no word for it: the connection ends, and so it did for a success."""
    result = await run(address, "pub", "chat", "x" * 500)
    assert isinstance(result.exception, FlintError)
    assert "too large" in str(result.exception)


async def test_where_keys_are_asked_for_it_says_so(server: BlipServer, tmp_path: Path) -> None:
    server.gate = listed_keys_gate(["secret"], tmp_path / "keys.json", Slowing())
    address = await server.start("127.0.0.1", 0)
    for arguments in (["pub", "chat", "x"], ["sub", "chat"]):
        result = await run(address, *arguments)
        assert isinstance(result.exception, FlintError)
        assert "requires API keys" in str(result.exception)


@pytest.mark.parametrize("form", ["text", "json"])
async def test_messages_are_lines(address: Address, form: str) -> None:
    reading = asyncio.ensure_future(run(address, "s", "chat", "-n", "2", "-f", form))
    async with RawFlat(address) as client:
        await client.subscribe(b"chat")
        while not reading.done():
            client.send(0, b"chat", b"hi\xff")
            await asyncio.sleep(0.005)
    result = await reading
    assert result.exit_code == 0
    first, second = result.stdout.splitlines()[-2:]
    if form == "text":
        assert result.stdout.splitlines()[0] == "> subscribed"
        assert first.split()[1] == "hi\N{REPLACEMENT CHARACTER}"
        assert first.split()[2].startswith("@")
    else:
        assert json.loads(first)["payload_base64"] == "aGn/"
        assert json.loads(second)["id"] > json.loads(first)["id"]


async def test_bytes_that_are_no_utf_8_are_sent_as_they_were_typed(address: Address) -> None:
    async with RawFlat(address) as reading:
        await reading.subscribe(b"chat")
        assert (await run(address, "pub", "chat", "\udcff")).exit_code == 0
        assert (await reading.message()).payload == b"\xff"
    result = await run(address, "pub", "\udcff", "x")
    assert result.exit_code == 2
    assert "UTF-8" in result.output


def examples() -> list[str]:
    found = [command, *command.commands.values()]
    texts = [inspect.cleandoc(one.help or "").partition("Examples:")[2] for one in found]
    return sorted({line.strip() for text in texts for line in text.splitlines() if line.strip()})


@pytest.mark.parametrize("line", examples())
async def test_every_example_works(
    address: Address, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("cat.png", "message.txt"):
        (tmp_path / name).write_bytes(b"in a file")
    said, _, typed = line.rpartition(" | ")
    words = shlex.split(typed.partition(" < ")[0])
    assert words[:2] == ["flintmq", "blip"]
    here = [word for word in words[2:] if word not in ("--addr", "127.0.0.1:7878")]
    if "sub" in here and "--count" not in here:
        here += ["--count", "1"]
    stdin = b"in a file" if " < " in typed else " ".join(shlex.split(said)[1:]).encode()
    async with RawFlat(address) as client:
        running = asyncio.ensure_future(run(address, *here, stdin=stdin))
        while not running.done():
            client.send(0, b"chat", b"")
            await asyncio.sleep(0.002)
    assert (await running).exit_code == 0, (await running).output


async def test_the_shell_does_what_its_lines_say(address: Address, server: BlipServer) -> None:
    lines = [
        *("sub chat", "pub chat 5000 hi  there", "pub chat 42", "pub chat 42 ", "", "help"),
        *("pub chat", "sub a/b", "nonsense", "unsub chat", "exit", "pub chat never"),
    ]
    async with RawFlat(address) as reading:
        await reading.subscribe(b"chat")
        place = f"{address[0]}:{address[1]}"
        runner = CliRunner()
        result = await asyncio.to_thread(
            runner.invoke, command, ["connect", place], input="\n".join(lines)
        )
        assert result.exit_code == 0, result.output
        got = [await reading.message() for _ in range(3)]
    assert [(one.payload, one.ttl) for one in got] == [(b"hi  there", 5000), (b"42", 0), (b"42", 0)]
    assert "> subscribed" in result.stdout
    assert result.stdout.count("unsub TOPIC") == 2
    assert result.stderr.count("flintmq: ") == 3
    assert server.counters.published == 3


@pytest.mark.parametrize("more", [0, 20_000])
@pytest.mark.parametrize("options", [BlipOptions(max_command_bytes=100)])
async def test_a_shell_whose_broker_ends_says_so(address: Address, more: int) -> None:
    lines = "sub chat\npub chat " + "x" * 200 + "\n" + "sub chat\n" * more
    result = await run(address, "connect", stdin=lines.encode())
    assert isinstance(result.exception, Disconnected), result.output
    assert "too large" in str(result.exception)


async def test_a_broker_that_ends_is_no_end_of_the_messages(
    address: Address, server: BlipServer
) -> None:
    reading = asyncio.ensure_future(run(address, "sub", "chat"))
    while not server.flat_feeds:  # noqa: ASYNC110
        await asyncio.sleep(0.001)
    await server.close()
    assert isinstance((await reading).exception, Disconnected)


def test_the_help_of_blipd_has_its_own_defaults() -> None:
    shown = " ".join(CliRunner().invoke(blipd, ["--help"]).output.split())
    assert "[default: blipmq.wal.flintmq]" in shown
    assert "[default: 127.0.0.1:9100]" in shown
    assert "[default: 127.0.0.1:5555]" in shown
    assert "[BLIPMQ_CONFIG]" in shown
