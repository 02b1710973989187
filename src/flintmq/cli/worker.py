"""`flintmq worker`: run the functions of an app in processes of their own."""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from ..app.child import ChildOrder
from ..app.consuming import GRACE_SECONDS
from ..app.health import HealthServer
from ..app.supervising import WorkerPlan, WorkerSupervisor
from ..errors import InvalidRequest
from ..observe.logs import Format
from .connecting import access_options, target_of
from .exit_codes import Misused, NotStarted

PROGRESS_SECONDS = 1.0


@click.command("worker")
@click.argument("app", metavar="MODULE:APP")
@click.option(
    "--processes",
    type=click.IntRange(1, 256),
    default=1,
    show_default=True,
    help="Number of processes.",
)
@click.option("--reload", is_flag=True, help="Restart when a file of the program changes.")
@click.option(
    "--health",
    metavar="HOST:PORT",
    help="Serve /health, /ready and /metrics there.",
)
@click.option(
    "--grace",
    type=click.FloatRange(0, 86_400),
    default=GRACE_SECONDS,
    show_default=True,
    metavar="SECONDS",
    help="Time to finish what is being processed when stopping.",
)
@click.option(
    "--server",
    envvar="FLINTMQ_SERVER",
    metavar="URL",
    help="Broker URL. Overrides that of the app.",
)
@click.option(
    "--context", "name", envvar="FLINTMQ_CONTEXT", help="Use the broker saved under this name."
)
@access_options()
@click.option(
    "--log-format",
    type=click.Choice(["console", "json", "auto"]),
    default="auto",
    show_default=True,
    help="Format of log lines. auto: console on a terminal, JSON elsewhere.",
)
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
    help="Minimum level of log lines.",
)
def command(
    app: str,
    processes: int,
    reload: bool,
    health: str | None,
    grace: float,
    server: str | None,
    name: str | None,
    log_format: Format,
    log_level: str,
    **access: Path | None,
) -> int:
    """Run the consumers, tasks and schedules of an app until SIGTERM or Ctrl-C.

    MODULE:APP names a flintmq.App, as in orders:app. On SIGTERM or Ctrl-C, workers take no new
    messages and finish those they are processing. A process that exits is restarted. A line on
    stdout says when all processes are running.

    \b
    Examples:
      flintmq worker orders:app
      flintmq worker orders:app --processes 4 --health 127.0.0.1:9100
      flintmq worker orders:app --reload
    """
    url, connecting = _where(server, name, access)
    order = ChildOrder(
        place=app, report_to=-1, url=url, connecting=connecting, grace=grace,
        log_format=log_format, log_level=log_level,
    )  # fmt: skip
    plan = WorkerPlan(order=order, processes=processes, reload=reload)
    try:
        with asyncio.Runner() as runner:
            return runner.run(_run(plan, None if health is None else _address(health)))
    except InvalidRequest as error:
        raise Misused(str(error)) from None


def _where(
    server: str | None, name: str | None, access: dict[str, Path | None]
) -> tuple[str | None, dict[str, Any]]:
    """What goes before what the app says of its connection."""
    if server is None and name is None and not any(access.values()):
        return None, {}
    target = target_of(server, name, **access)
    return (None if server is None and name is None else target.url), target.keywords


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not port.isdigit() or int(port) > 65535:
        raise InvalidRequest(f"--health takes HOST:PORT, for example 127.0.0.1:9100; not {text!r}")
    return host.strip("[]") or "127.0.0.1", int(port)


async def _run(plan: WorkerPlan, health: tuple[str, int] | None) -> int:
    supervisor = WorkerSupervisor(plan, _tell)
    server = None
    if health is not None:
        serving = HealthServer(supervisor.troubles, supervisor.metrics)
        try:
            server = await serving.start(*health)
        except OSError as error:
            raise NotStarted(
                f"cannot listen on {health[0]}:{health[1]} ({error.strerror}); choose another "
                "--health address"
            ) from None
        _tell(f"health at http://{health[0]}:{server.sockets[0].getsockname()[1]}/health")
    showing = asyncio.create_task(_keep_showing(supervisor)) if sys.stderr.isatty() else None
    try:
        return await supervisor.run()
    finally:
        if showing is not None:
            showing.cancel()
            click.echo("\r\033[K", nl=False, err=True)
        if server is not None:
            server.close()


def _tell(text: str) -> None:
    with suppress(OSError):  # whoever read it is gone: the workers go on, and can be stopped
        click.echo(f"flintmq: {text}")


async def _keep_showing(supervisor: WorkerSupervisor) -> None:
    while True:
        await asyncio.sleep(PROGRESS_SECONDS)
        click.echo(f"\r\033[K{supervisor.progress()}", nl=False, err=True)
