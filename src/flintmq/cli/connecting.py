"""The options of every command that connects to a broker: its address and our credentials."""

from __future__ import annotations

import asyncio
import functools
import signal
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import click

from ..api import connect
from ..client.client import Client
from ..errors import InvalidRequest
from ..loop.event_loop import loop_factory
from .contexts import Context, chosen, path_of_contexts, read_contexts
from .exit_codes import Terminated

HERE = "flint://127.0.0.1:7600"

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


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


def server_options(command: F) -> F:
    """`--server`, `--context` and the rest; the command gets them as one `target`."""

    @click.option(
        "--server",
        envvar="FLINTMQ_SERVER",
        metavar="URL",
        help=f"Broker URL: flint://host:port, flints:// with TLS, or file:///path.  [{HERE}]",
    )
    @click.option(
        "--context", "name", envvar="FLINTMQ_CONTEXT", help="Use the broker saved under this name."
    )
    @click.option(
        "--api-key-file",
        type=click.Path(dir_okay=False),
        envvar="FLINTMQ_API_KEY_FILE",
        metavar="FILE",
        help="File with the API key. Or set FLINTMQ_API_KEY.",
    )
    @click.option(
        "--tls-ca",
        type=click.Path(dir_okay=False),
        metavar="FILE",
        help="CA file used to verify the broker.",
    )
    @click.option(
        "--tls-cert",
        type=click.Path(dir_okay=False),
        metavar="FILE",
        help="Client certificate, if the broker requires one.",
    )
    @click.option(
        "--tls-key",
        type=click.Path(dir_okay=False),
        metavar="FILE",
        help="Private key of the client certificate.",
    )
    @functools.wraps(command)
    def with_target(
        *,
        server: str | None,
        name: str | None,
        api_key_file: str | None,
        tls_ca: str | None,
        tls_cert: str | None,
        tls_key: str | None,
        **rest: Any,
    ) -> Any:
        target = target_of(server, name, api_key_file, tls_ca, tls_cert, tls_key)
        return command(target=target, **rest)

    return with_target  # type: ignore[return-value]


def target_of(
    server: str | None,
    name: str | None,
    api_key_file: str | None = None,
    tls_ca: str | None = None,
    tls_cert: str | None = None,
    tls_key: str | None = None,
) -> Target:
    """Command-line options take precedence over the context."""
    known = None
    if name is not None or server is None:
        known = chosen(read_contexts(path_of_contexts()), name)
    context = known or Context(HERE)
    keywords: dict[str, Any] = {}
    if (file := api_key_file or context.api_key_file) is not None:
        keywords["api_key"] = _secret(Path(file))
    for option, value in (
        ("tls_ca", tls_ca or context.tls_ca),
        ("tls_cert", tls_cert or context.tls_cert),
        ("tls_key", tls_key or context.tls_key),
    ):
        if value is not None:
            keywords[option] = value
    url = server or context.server
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
