"""`flintmq doctor`: find problems, and collect what a bug report needs."""

from __future__ import annotations

import os
import socket
from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

import click
import msgspec

from ..config.settings import FILE_VARIABLE, resolve
from ..daemon.doctor import (
    DoctorFinding,
    Redactor,
    Report,
    look_at_certificate,
    look_at_configuration,
    look_at_directory,
    look_at_machine,
    look_at_server,
    write_bundle,
)
from ..daemon.doctor.bundle import without_userinfo
from .connecting import access_options, run_async, target_of
from .shared import file_option, output_option, show

LOG_LINES = 200


@click.command("doctor")
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Data directory to check; default: the one of the configuration.",
)
@file_option("--config", f"The broker's configuration file.  [{FILE_VARIABLE}]")
@click.option(
    "--server", envvar="FLINTMQ_SERVER", metavar="URL", help="URL of a running broker to check."
)
@access_options()
@file_option(
    "--log-file",
    f"The broker's log file; its last {LOG_LINES} lines are added to the bundle.",
    exists=True,
)
@file_option("--bundle", "Write everything to a zip file for a bug report.", metavar="FILE.zip")
@click.option("--redact", is_flag=True, help="Mask hosts, addresses and paths.")
@output_option
def command(
    data_dir: Path | None,
    config: Path | None,
    server: str | None,
    log_file: Path | None,
    bundle: Path | None,
    redact: bool,
    output: str,
    **access: Path | None,
) -> int:
    """Check installation, machine, data directory, configuration and server.

    Each finding is ok, warn or bad, with a remedy. Nothing is changed and a running broker is
    not disturbed, except for 20 small writes to a temporary file in the data directory, to
    measure the disk. Secrets are never shown: no keys, no message contents.

    Exit codes: 0 no problems, 1 warnings, 2 errors.

    \b
    Examples:
      flintmq doctor
      flintmq doctor --config /etc/flintmq.toml
      flintmq doctor --data-dir /var/lib/flint --server flint://127.0.0.1:7600
      flintmq doctor --config /etc/flintmq.toml --bundle report.zip --redact
    """
    now = datetime.now(UTC).isoformat(timespec="seconds")
    found = [*look_at_machine(), *_configured(config, data_dir)]
    if server is not None:
        target = target_of(server, None, **access)
        found.append(run_async(look_at_server(target.url, target.connect)))
        if server.startswith("flints://"):
            found.append(run_async(look_at_certificate(server)))
    report = Report(found, now)
    lines = _last_lines(log_file) if log_file is not None else None
    if redact:
        redactor = Redactor(_hosts(server))
        report = msgspec.convert(redactor.value(msgspec.to_builtins(report)), Report)
        lines = None if lines is None else [redactor.text(line) for line in lines]
    if bundle is not None:
        write_bundle(bundle, report, lines)
    text = report.text()
    if bundle is not None:
        text += f"\n\n{bundle} contains all of this; review it before you send it"
    show(output, report, text)
    return report.exit_code


def _configured(file: Path | None, data_dir: Path | None) -> Iterator[DoctorFinding]:
    resolved = resolve(file=file, environment=os.environ)
    if resolved.sources or resolved.problems or resolved.doubts:
        yield from look_at_configuration(resolved)
    directory = data_dir or resolved.values.get("data_dir")
    if directory is not None:
        yield from look_at_directory(directory)


def _last_lines(file: Path) -> list[str]:
    with file.open(errors="replace") as lines:
        return [without_userinfo(line.rstrip("\n")) for line in deque(lines, LOG_LINES)]


def _hosts(server: str | None) -> list[str]:
    name = socket.gethostname()
    hosts = [name, name.partition(".")[0]]
    for part in (server or "").partition("://")[2].split(","):
        hosts.append(urlsplit(f"//{part}").hostname or "")
    return hosts
