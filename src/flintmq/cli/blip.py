"""`flintmq blip`: BlipMQ's own command line, over its first protocol."""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click

from ..config import BLIP_PORT
from ..errors import Disconnected, FlintError, MalformedFrame
from ..wire.blip_flat import (
    FORBIDDEN,
    TOPIC_BYTES_MAX,
    Action,
    Command,
    FlatMessage,
    LengthDecoder,
    SubAck,
    decode_answer,
    encode_command,
)

CONNECT_SECONDS = 10.0
ANSWER_BYTES_MAX = 64 * 1024 * 1024
READ_BYTES = 256 * 1024


@click.group("blip")
@click.option(
    "-a", "--addr", default=f"127.0.0.1:{BLIP_PORT}", metavar="HOST:PORT", show_default=True,
    help="Where the broker listens for BlipMQ's clients.",
)  # fmt: skip
@click.pass_context
def command(context: click.Context, addr: str) -> None:
    """Publish and subscribe as BlipMQ's own command line does.

    \b
    Examples:
      flintmq blip pub chat hello
      flintmq blip pub chat - --ttl 5000 < message.txt
      flintmq blip sub chat --count 10
    """
    host, _, port = addr.rpartition(":")
    if not host or not port.isdigit():
        raise click.UsageError(f"--addr is HOST:PORT, not {addr!r}")
    context.obj = (host.strip("[]"), int(port))


def _ttl(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option(
        "-t", "--ttl", type=click.IntRange(0, 2**63), default=0, metavar="MS",
        help="After how many milliseconds nobody gets it any more; 0: never.",
    )(command)  # fmt: skip


@command.command("pub")
@click.argument("topic")
@click.argument("message")
@_ttl
@click.pass_obj
def pub(address: tuple[str, int], topic: str, message: str, ttl: int) -> int:
    """Publish MESSAGE, or what is on stdin if it is `-`.

    \b
    Examples:
      flintmq blip pub chat hello
      flintmq blip pub chat - --ttl 5000 < message.txt
    """
    payload = sys.stdin.buffer.read() if message == "-" else message.encode()
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
        help=f"""Publish what is in a file, whatever its bytes.

\b
Examples:
  flintmq blip {_name} pictures cat.png
""",
    )(_made)


@command.command("sub")
@click.argument("topic")
@click.option(
    "-n", "--count", type=click.IntRange(1), metavar="N", help="End after so many messages."
)
@click.pass_obj
def sub(address: tuple[str, int], topic: str, count: int | None) -> int:
    """Print messages as they come: id, payload, @time in milliseconds.

    \b
    Examples:
      flintmq blip sub chat
      flintmq blip --addr 127.0.0.1:7878 sub chat --count 10
    """
    with _connected(address) as connection:
        connection.sendall(_command(Action.SUB, topic))
        for answer in _answers(connection):
            if isinstance(answer, SubAck):
                click.echo(f"> {answer.info.decode()}")
                continue
            shown = answer.payload.decode(errors="replace")
            click.echo(f"{answer.id} {shown} @{answer.timestamp_ms}")
            if count is not None:
                count -= 1
                if not count:
                    return 0
    raise Disconnected(_shown(address), "the broker has closed the connection")


@command.command("unsub")
@click.argument("topic")
@click.pass_obj
def unsub(address: tuple[str, int], topic: str) -> int:
    """Send UNSUB. It is about a new connection, and so ends no other's subscription; as there.

    \b
    Examples:
      flintmq blip unsub chat
    """
    with _connected(address) as connection:
        connection.sendall(_command(Action.UNSUB, topic))
        _finish(connection)
    return 0


def _publish(address: tuple[str, int], topic: str, payload: bytes, ttl: int) -> int:
    with _connected(address) as connection:
        connection.sendall(_command(Action.PUB, topic, payload, ttl))
        _finish(connection)
    return 0


def _command(action: Action, topic: str, payload: bytes = b"", ttl: int = 0) -> bytes:
    name = topic.encode()
    if not 1 <= len(name) <= TOPIC_BYTES_MAX or not FORBIDDEN.isdisjoint(name):
        raise click.UsageError(
            f"a topic of BlipMQ has 1 to {TOPIC_BYTES_MAX} bytes, no '/', no line breaks; "
            f"not {topic!r}"
        )
    return encode_command(Command(action, name, payload, ttl))


def _connected(address: tuple[str, int]) -> socket.socket:
    try:
        connection = socket.create_connection(address, CONNECT_SECONDS)
    except OSError as error:
        raise Disconnected(_shown(address), str(error.strerror or error)) from None
    connection.settimeout(None)
    return connection


def _shown(address: tuple[str, int]) -> str:
    return f"{address[0]}:{address[1]}"


def _finish(connection: socket.socket) -> None:
    """The protocol answers nothing; that the broker ends the connection in good order once it has
    carried out what came before is all there is to know."""
    connection.shutdown(socket.SHUT_WR)
    try:
        while connection.recv(READ_BYTES):
            pass
    except ConnectionResetError:
        raise FlintError(
            "the broker has not taken it: the message is too large, or it asks for keys, which "
            "this protocol cannot show"
        ) from None


def _answers(connection: socket.socket) -> Iterator[FlatMessage | SubAck]:
    decoder = LengthDecoder(ANSWER_BYTES_MAX)
    while data := connection.recv(READ_BYTES):
        bodies: list[bytes] = []
        decoder.feed(data, bodies)
        for body in bodies:
            if not body:
                raise MalformedFrame("an answer without a kind")
            yield decode_answer(body)
