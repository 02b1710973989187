"""`flintmq blip`: BlipMQ's own command line, over its first protocol."""

from __future__ import annotations

import base64
import contextlib
import json
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

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
WHY_CLOSED = (
    "a message may be too large for it (server.max_message_size_bytes, --blip-max-command-bytes), "
    "or it asks for keys, which this protocol cannot show"
)


class _Group(click.Group):
    """With the short names that its last release has."""

    short: ClassVar = {"p": "pub", "s": "sub", "u": "unsub"}

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        return super().get_command(context, self.short.get(name, name))


@click.group("blip", cls=_Group)
@click.option(
    "-a", "--addr", default=f"127.0.0.1:{BLIP_PORT}", metavar="HOST:PORT", show_default=True,
    help="Where the broker listens for BlipMQ's clients.",
)  # fmt: skip
@click.pass_context
def command(context: click.Context, addr: str) -> None:
    """Publish and subscribe as BlipMQ's own command line does.

    p, s and u are short for pub, sub and unsub; connect is a shell.

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
        raise click.UsageError(f"an address is HOST:PORT, not {text!r}")
    return host.strip("[]"), int(port)


def _ttl(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option(
        "-t", "--ttl", type=click.IntRange(0, 2**63), default=0, metavar="MS",
        help="After how many milliseconds nobody gets it any more; 0: never.",
    )(command)  # fmt: skip


@command.command("pub")
@click.argument("topic")
@click.argument("message", required=False)
@click.option(
    "-f", "--file", "path", metavar="FILE", help="Publish what is in it, instead of a MESSAGE.",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
)  # fmt: skip
@_ttl
@click.pass_obj
def pub(
    address: tuple[str, int], topic: str, message: str | None, path: Path | None, ttl: int
) -> int:
    """Publish MESSAGE, or what is on stdin if it is `-`.

    It ends with 0 once the broker has taken it.

    \b
    Examples:
      flintmq blip pub chat hello
      flintmq blip pub chat - --ttl 5000 < message.txt
    """
    if (message is None) == (path is None):
        raise click.UsageError("one of MESSAGE, `-` and --file FILE says what to publish")
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
@click.option(
    "-f", "--format", "form", type=click.Choice(["text", "json"]), default="text",
    help="A line of text, or of JSON (payload_base64 where it is no UTF-8), for each message.",
)  # fmt: skip
@click.pass_obj
def sub(address: tuple[str, int], topic: str, count: int | None, form: str) -> int:
    """Print messages as they come: id, payload, @time in milliseconds.

    \b
    Examples:
      flintmq blip sub chat
      flintmq blip sub chat --format json
      flintmq blip --addr 127.0.0.1:7878 sub chat --count 10
    """
    with _connected(address) as connection:
        connection.sendall(_command(Action.SUB, topic))
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
    raise Disconnected(_shown(address), f"the broker has closed the connection: {WHY_CLOSED}")


def _as_text(message: FlatMessage) -> str:
    shown = message.payload.decode(errors="replace")
    return f"{message.id} {shown} @{message.timestamp_ms}"


def _as_json(message: FlatMessage) -> str:
    try:
        payload = {"payload": message.payload.decode()}
    except UnicodeDecodeError:
        payload = {"payload_base64": base64.b64encode(message.payload).decode()}
    times = {"timestamp": message.timestamp_ms, "ttl_ms": message.ttl_ms}
    return json.dumps({"id": message.id, **payload, **times})


@command.command("unsub")
@click.argument("topic")
@click.pass_obj
def unsub(address: tuple[str, int], topic: str) -> int:
    """Send UNSUB. It is about a new connection, and so ends no other's subscription; as there.

    \b
    Examples:
      flintmq blip unsub chat
    """
    return _carried_out(address, topic, _command(Action.UNSUB, topic))


@command.command("connect")
@click.argument("addr", required=False, metavar="[HOST:PORT]")
@click.pass_obj
def connect(address: tuple[str, int], addr: str | None) -> int:
    """A shell over one connection: a command on each line, messages as they come.

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
                connection.sendall(_command(Action.SUB, last))
            connection.shutdown(socket.SHUT_WR)
        except OSError:
            last = "-"  # it is gone
        shown.join(CONNECT_SECONDS)
    if shown.subscribed < shown.asked + bool(last):
        raise Disconnected(_shown(address), f"the broker has closed the connection: {WHY_CLOSED}")
    return 0


SHELL = "pub TOPIC [TTL_MS] MESSAGE, sub TOPIC, unsub TOPIC, help, exit"


def _asked(line: str) -> bytes:
    """What a line of the shell asks the broker for."""
    verb, _, rest = line.strip().partition(" ")
    topic, _, said = rest.strip().partition(" ")
    said = said.strip()
    if verb == "pub" and said:
        ttl, _, message = said.partition(" ")
        if ttl.isdigit() and message.strip() and int(ttl) < 2**63:
            return _command(Action.PUB, topic, _bytes(message.strip()), int(ttl))
        return _command(Action.PUB, topic, _bytes(said))
    if verb in ("sub", "unsub") and topic and not said:
        return _command(Action.SUB if verb == "sub" else Action.UNSUB, topic)
    if verb in ("", "help"):
        click.echo(SHELL)
        return b""
    raise click.UsageError(f"{line.strip()!r} is none of: {SHELL}")


def _ask_by_lines(connection: socket.socket, shown: _Shown) -> str:
    """Send what the lines of stdin say; the topic of the last."""
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
    """Prints what comes while the shell waits for the next line."""

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
    return _carried_out(address, topic, _command(Action.PUB, topic, payload, ttl))


def _command(action: Action, topic: str, payload: bytes = b"", ttl: int = 0) -> bytes:
    name = _bytes(topic)
    try:
        name.decode()
    except UnicodeDecodeError:
        raise click.UsageError(f"a topic is UTF-8, not {name!r}") from None
    if not 1 <= len(name) <= TOPIC_BYTES_MAX or not FORBIDDEN.isdisjoint(name):
        raise click.UsageError(
            f"a topic of BlipMQ has 1 to {TOPIC_BYTES_MAX} bytes, no '/', no line breaks; "
            f"not {topic!r}"
        )
    return encode_command(Command(action, name, payload, ttl))


def _bytes(text: str) -> bytes:
    """As it was typed, also where that was no UTF-8."""
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
    """The protocol answers a SUB alone, and what comes before it is carried out before it: so one
    is sent behind the command."""
    with _connected(address) as connection:
        try:
            connection.sendall(command + _command(Action.SUB, topic))
            if next(_answers(connection), None) is not None:
                return 0
        except (ConnectionResetError, BrokenPipeError):
            pass
    raise FlintError(f"the broker has not taken it: {WHY_CLOSED}")


def _answers(connection: socket.socket) -> Iterator[FlatMessage | SubAck]:
    decoder = LengthDecoder(ANSWER_BYTES_MAX)
    while data := connection.recv(READ_BYTES):
        bodies: list[bytes] = []
        decoder.feed(data, bodies)
        for body in bodies:
            if not body:
                raise MalformedFrame("an answer without a kind")
            yield decode_answer(body)
