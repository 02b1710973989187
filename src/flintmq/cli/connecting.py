"""The options of every command that connects to a broker: its address and our credentials."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from functools import partial, wraps
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import click

from ..api import connect
from ..client.client import Client
from ..errors import GroupNotFound, InvalidRequest, TopicNotFound
from ..group_model import GroupStats
from ..loop.event_loop import loop_factory
from .contexts import Context, chosen, path_of_contexts, read_contexts
from .exit_codes import Terminated
from .shared import Command, file_option, with_options

HERE = "flint://127.0.0.1:7600"
AT_ONCE = 32

T = TypeVar("T")


class Target(NamedTuple):
    """The broker a command connects to."""

    url: str
    keywords: dict[str, Any]

    def connect(self, *, makes: bool = False, **more: Any) -> Client:
        """A client. Commands that write create a missing directory."""
        path = Path(self.url.removeprefix("file://"))
        if not makes and self.url.startswith("file://") and not path.is_dir():
            raise InvalidRequest(f"directory {path} does not exist; `flintmq pub` creates one")
        return connect(self.url, **self.keywords, **more)

    def ask(self, work: Callable[[Client], Awaitable[T]], **more: Any) -> T:
        """Connect, and return what `work` does with the client."""

        async def connected() -> T:
            async with self.connect(**more) as mq:
                return await work(mq)

        return run_async(connected())


def access_options(
    *, key_variable: str | None = "FLINTMQ_API_KEY_FILE", resolve_path: bool = False
) -> Callable[[Command], Command]:
    """The API key and the certificates, as options."""
    option = partial(file_option, resolve_path=resolve_path)
    key = "File with the API key. Or set FLINTMQ_API_KEY."
    return with_options(
        option("--api-key-file", key, envvar=key_variable),
        option("--tls-ca", "CA file used to verify the broker."),
        option("--tls-cert", "Client certificate, if the broker requires one."),
        option("--tls-key", "Private key of the client certificate."),
    )


def server_options(command: Command) -> Command:
    """`--server`, `--context` and the rest; the command gets them as one `target`."""

    @click.option(
        "--server",
        envvar="FLINTMQ_SERVER",
        metavar="URL",
        help=f"Broker URL: flint://host:port, flints:// with TLS, or file:///path.  [{HERE}]",
    )
    @click.option(
        "--context",
        "context",
        envvar="FLINTMQ_CONTEXT",
        help="Use the broker saved under this name.",
    )
    @access_options()
    @wraps(command)
    def with_target(**given: Any) -> int:
        where = {name: given.pop(name) for name in WHERE}
        return command(target=target_of(**where), **given)

    return with_target


ACCESS = ("api_key_file", "tls_ca", "tls_cert", "tls_key")
WHERE = ("server", "context", *ACCESS)
"""The parameters of a command with `server_options`, as `target_of` takes them."""


def target_of(server: str | None, context: str | None = None, **access: Path | None) -> Target:
    """The broker that options name, and how to log in there: `access` is by the names in `ACCESS`.

    Options take precedence over the context.
    """
    found = None
    if context is not None or server is None:
        found = chosen(read_contexts(path_of_contexts()), context)
    known = found or Context(HERE)
    files = {one: access.get(one) or getattr(known, one) for one in ACCESS}
    keywords: dict[str, Any] = {one: str(file) for one, file in files.items() if file is not None}
    if (file := keywords.pop("api_key_file", None)) is not None:
        keywords["api_key"] = _secret(Path(file))
    url = server or known.server
    return Target(url if "://" in url else f"flint://{url}", keywords)


def _secret(path: Path) -> str:
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"cannot read the API key in {path}: {error}") from None


def run_async(work: Coroutine[Any, Any, T]) -> T:
    """Run to the end. Ctrl-C cancels the work, which cleans up, and then counts as Ctrl-C. So does
    SIGTERM, as sent by `timeout` or a supervisor."""
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(_until_terminated(work))


async def stats_of_groups(mq: Client, topics: Sequence[str]) -> list[GroupStats]:
    """The statistics of every group of these topics, in their order; a few topics at a time."""
    room = asyncio.Semaphore(AT_ONCE)

    async def of_topic(name: str) -> list[GroupStats]:
        async with room:
            with suppress(TopicNotFound, GroupNotFound):  # deleted meanwhile
                return [await mq.group_stats(name, group.name) for group in await mq.groups(name)]
        return []

    return [one for found in await asyncio.gather(*map(of_topic, topics)) for one in found]


async def _until_terminated(work: Coroutine[Any, Any, T]) -> T:
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    is_terminated = False

    def terminate() -> None:
        nonlocal is_terminated
        is_terminated = True
        task.cancel()

    with suppress(NotImplementedError, ValueError, RuntimeError):  # Windows; not the main thread
        loop.add_signal_handler(signal.SIGTERM, terminate)
    try:
        return await work
    except asyncio.CancelledError:
        if is_terminated:
            raise Terminated from None
        raise
    finally:
        with suppress(NotImplementedError, ValueError, RuntimeError):
            loop.remove_signal_handler(signal.SIGTERM)
