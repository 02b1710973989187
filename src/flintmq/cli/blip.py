"""`flintmq blip`: BlipMQ's command line, over its first protocol."""

from __future__ import annotations

import contextlib
import json
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import click

from ..config.table import BLIP_PORT
from ..errors import Disconnected, FlintError, MalformedFrame
from ..frontends.blip.flat_codec import (
    FORBIDDEN,
    TOPIC_BYTES_MAX,
    Command,
    FlatAction,
    FlatMessage,
    LengthDecoder,
    SubAck,
    decode_answer,
    encode_command,
)
from .envelope import readable

CONNECT_SECONDS = 10.0
ANSWER_BYTES_MAX = 64 * 1024 * 1024
READ_BYTES = 256 * 1024
WHY_CLOSED = (
    "the message may be too large (server.max_message_size_bytes, "
    "--blip-max-command-bytes), or the broker requires API keys, which this protocol "
    "cannot send"
)


class _Group(click.Group):
    """Accepts the short command names of BlipMQ's last release."""

    short: ClassVar = {"p": "pub", "s": "sub", "u": "unsub"}

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return super().get_command(ctx, self.short.get(cmd_name, cmd_name))


@click.group("blip", cls=_Group)
@click.option(
    "-a", "--addr", default=f"127.0.0.1:{BLIP_PORT}", metavar="HOST:PORT", show_default=True,
    help="Address where the broker listens for BlipMQ clients.",
)  # fmt: skip
@click.pass_context
def command(context: click.Context, addr: str) -> None:
    """Publish and subscribe like BlipMQ's own command line.

    p, s and u are short for pub, sub and unsub. connect opens a shell.

    \b
    Examples:
      flintmq blip pub chat hello
      flintmq blip pub chat - --ttl 5000 < message.txt
      flintmq blip sub chat --count 10
    """
    context.obj = _address(addr)


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit():
        raise click.UsageError(f"an address must be HOST:PORT, not {text!r}")
    return host.strip("[]"), int(port)


def _ttl(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option(
        "-t", "--ttl", type=click.IntRange(0, 2**63), default=0, metavar="MS",
        help="Message expires after this many milliseconds; 0: never.",
    )(command)  # fmt: skip


@command.command("pub")
@click.argument("topic")
@click.argument("message", required=False)
@click.option(
    "-f", "--file", "path", metavar="FILE", help="Publish the content of FILE instead of MESSAGE.",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
)  # fmt: skip
@_ttl
@click.pass_obj
def pub(
    address: tuple[str, int], topic: str, message: str | None, path: Path | None, ttl: int
) -> int:
    """Publish MESSAGE, or standard input if it is `-`.

    Exits with 0 once the broker has accepted it.

    \b
    Examples:
      flintmq blip pub chat hello
      flintmq blip pub chat - --ttl 5000 < message.txt
    """
    if (message is None) == (path is None):
        raise click.UsageError("pass one of MESSAGE, `-` and --file FILE")
    if path is not None:
        return _publish_file(address, topic, path, ttl)
    assert message is not None
    payload = sys.stdin.buffer.read() if message == "-" else _bytes(message)
    return _publish(address, topic, payload, ttl)


def _publish_file(address: tuple[str, int], topic: str, path: Path, ttl: int) -> int:
    return _publish(address, topic, path.read_bytes(), ttl)


for _name in ("pub-file", "pubfile"):  # as it is spelled, and as its readme spells it
    _made = click.pass_obj(_publish_file)
    _made = _ttl(_made)
    _made = click.argument("path", type=click.Path(exists=True, dir_okay=False, path_type=Path))(
        _made
    )
    _made = click.argument("topic")(_made)
    command.command(
        _name,
        help=f"""Publish the content of a file, as it is.

\b
Examples:
  flintmq blip {_name} pictures cat.png
""",
    )(_made)


@command.command("sub")
@click.argument("topic")
@click.option("-n", "--count", type=click.IntRange(1), metavar="N", help="Stop after N messages.")
@click.option(
    "-f", "--format", "form", type=click.Choice(["text", "json"]), default="text",
    help="Print each message as a line of text or JSON (payload_base64 if it is not UTF-8).",
)  # fmt: skip
@click.pass_obj
def sub(address: tuple[str, int], topic: str, count: int | None, form: str) -> int:
    """Print messages as they arrive: id, payload, @time in milliseconds.

    \b
    Examples:
      flintmq blip sub chat
      flintmq blip sub chat --format json
      flintmq blip --addr 127.0.0.1:7878 sub chat --count 10
    """
    with _connected(address) as connection:
        connection.sendall(_command(FlatAction.SUB, topic))
        for answer in _answers(connection):
            if isinstance(answer, SubAck):
                # As JSON, nothing else is on stdout.
                click.echo(f"> {answer.info.decode()}", err=form == "json")
                continue
            click.echo(_as_json(answer) if form == "json" else _as_text(answer))
            if count is not None:
                count -= 1
                if not count:
                    return 0
    raise Disconnected(_shown(address), f"the broker closed the connection: {WHY_CLOSED}")


def _as_text(message: FlatMessage) -> str:
    shown = message.payload.decode(errors="replace")
    return f"{message.id} {shown} @{message.timestamp_ms}"


def _as_json(message: FlatMessage) -> str:
    payload = readable("payload", message.payload)
    times = {"timestamp": message.timestamp_ms, "ttl_ms": message.ttl_ms}
    return json.dumps({"id": message.id, **payload, **times})


@command.command("unsub")
@click.argument("topic")
@click.pass_obj
def unsub(address: tuple[str, int], topic: str) -> int:
    """Send UNSUB on a new connection. As in BlipMQ, this ends no other connection's subscription.

    \b
    Examples:
      flintmq blip unsub chat
    """
    return _carried_out(address, topic, _command(FlatAction.UNSUB, topic))


@command.command("connect")
@click.argument("addr", required=False, metavar="[HOST:PORT]")
@click.pass_obj
def connect(address: tuple[str, int], addr: str | None) -> int:
    """Open a shell on one connection: one command per line; messages are printed as they arrive.

    \b
      pub TOPIC [TTL_MS] MESSAGE...
      sub TOPIC
      unsub TOPIC
      help, exit

    \b
    Examples:
      flintmq blip connect 127.0.0.1:7878
      echo 'pub chat 5000 hello all' | flintmq blip connect
    """
    if addr is not None:
        address = _address(addr)
    with _connected(address) as connection:
        shown = _Shown(connection)
        shown.start()
        try:
            last = _ask_by_lines(connection, shown)
            if last:  # an answer to this one shows that all before it was carried out
                connection.sendall(_command(FlatAction.SUB, last))
            connection.shutdown(socket.SHUT_WR)
        except OSError:
            last = "-"  # it is gone
        shown.join(CONNECT_SECONDS)
    if shown.subscribed < shown.asked + bool(last):
        raise Disconnected(_shown(address), f"the broker closed the connection: {WHY_CLOSED}")
    return 0


SHELL = "pub TOPIC [TTL_MS] MESSAGE, sub TOPIC, unsub TOPIC, help, exit"


def _asked(line: str) -> bytes:
    """The request for a line of the shell."""
    verb, _, rest = line.strip().partition(" ")
    topic, _, said = rest.strip().partition(" ")
    said = said.strip()
    if verb == "pub" and said:
        ttl, _, message = said.partition(" ")
        if ttl.isdigit() and message.strip() and int(ttl) < 2**63:
            return _command(FlatAction.PUB, topic, _bytes(message.strip()), int(ttl))
        return _command(FlatAction.PUB, topic, _bytes(said))
    if verb in ("sub", "unsub") and topic and not said:
        return _command(FlatAction.SUB if verb == "sub" else FlatAction.UNSUB, topic)
    if verb in ("", "help"):
        click.echo(SHELL)
        return b""
    raise click.UsageError(f"unknown command {line.strip()!r}; use {SHELL}")


def _ask_by_lines(connection: socket.socket, shown: _Shown) -> str:
    """Send the requests on stdin; returns the topic of the last one."""
    last = ""
    for line in sys.stdin:
        words = line.split()
        if words[:1] in (["exit"], ["quit"]):
            break
        try:
            asked = _asked(line)
        except click.UsageError as error:
            click.echo(f"flintmq: {error.message}", err=True)
            continue
        if asked:
            last = words[1]
            shown.asked += words[0] == "sub"
            connection.sendall(asked)
    return last


class _Shown(threading.Thread):
    """Prints incoming messages while the shell waits for the next line."""

    def __init__(self, connection: socket.socket) -> None:
        super().__init__(daemon=True)
        self._connection = connection
        self.asked = self.subscribed = 0

    def run(self) -> None:
        with contextlib.suppress(OSError):  # then it has ended, which is told by who waits for this
            for answer in _answers(self._connection):
                if isinstance(answer, FlatMessage):
                    click.echo(_as_text(answer))
                    continue
                self.subscribed += 1
                if self.subscribed <= self.asked:
                    click.echo(f"> {answer.info.decode()}")


def _publish(address: tuple[str, int], topic: str, payload: bytes, ttl: int) -> int:
    return _carried_out(address, topic, _command(FlatAction.PUB, topic, payload, ttl))


def _command(action: FlatAction, topic: str, payload: bytes = b"", ttl: int = 0) -> bytes:
    name = _bytes(topic)
    try:
        name.decode()
    except UnicodeDecodeError:
        raise click.UsageError(f"a topic must be UTF-8, not {name!r}") from None
    if not 1 <= len(name) <= TOPIC_BYTES_MAX or not FORBIDDEN.isdisjoint(name):
        raise click.UsageError(
            f"a BlipMQ topic has 1 to {TOPIC_BYTES_MAX} bytes, no '/' and no line breaks; "
            f"{topic!r} does not fit"
        )
    return encode_command(Command(action, name, payload, ttl))


def _bytes(text: str) -> bytes:
    """The bytes that were typed, even if they are not UTF-8."""
    return text.encode(errors="surrogateescape")


def _connected(address: tuple[str, int]) -> socket.socket:
    try:
        connection = socket.create_connection(address, CONNECT_SECONDS)
    except OSError as error:
        raise Disconnected(_shown(address), str(error.strerror or error)) from None
    connection.settimeout(None)
    return connection


def _shown(address: tuple[str, int]) -> str:
    return f"{address[0]}:{address[1]}"


def _carried_out(address: tuple[str, int], topic: str, command: bytes) -> int:
    """The protocol acknowledges only SUB, and executes commands in order. So a SUB is sent after
    the command, and its answer confirms both."""
    with _connected(address) as connection:
        try:
            connection.sendall(command + _command(FlatAction.SUB, topic))
            if next(_answers(connection), None) is not None:
                return 0
        except (ConnectionResetError, BrokenPipeError):
            pass
    raise FlintError(f"the broker did not accept it: {WHY_CLOSED}")


def _answers(connection: socket.socket) -> Iterator[FlatMessage | SubAck]:
    decoder = LengthDecoder(ANSWER_BYTES_MAX)
    while data := connection.recv(READ_BYTES):
        bodies: list[bytes] = []
        decoder.feed(data, bodies)
        for body in bodies:
            if not body:
                raise MalformedFrame("an answer without a kind")
            yield decode_answer(body)
