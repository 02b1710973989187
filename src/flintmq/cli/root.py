"""All commands by name, and how they end: exit codes, Ctrl-C, broken pipes."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module

import click

from .. import __version__
from ..errors import FlintError
from .command_group import CommandGroup
from .exit_codes import FAILED, INTERRUPTED, MISUSED, TERMINATED, Terminated, code_of
from .look import said
from .streams import patient

LOG_COMMANDS = {
    "ls": ("log_ls", "List the contents of a data directory."),
    "dump": ("log_dump", "Print messages of a topic, or journal records."),
    "verify": ("log_verify", "Check all checksums."),
    "repair": ("log_repair", "Repair a damaged data directory."),
}
KEY_COMMANDS = {
    "add": ("key_add", "Create a key, and show it once."),
    "ls": ("key_ls", "List keys, without their secrets."),
    "rm": ("key_rm", "Revoke a key and disconnect its clients."),
}
CONFIG_COMMANDS = {
    "check": ("config_check", "List all errors in a configuration file."),
    "show": ("config_show", "Show every setting, and where it comes from."),
    "init": ("config_init", "Write a sample file with every setting."),
}
PIPELINE_COMMANDS = {
    "run": ("pipeline_run", "Run a pipeline, once or until stopped."),
    "check": ("pipeline_check", "List all errors in a pipeline."),
    "plan": ("pipeline_plan", "Draw a pipeline."),
    "ls": ("pipeline_ls", "List the pipelines of a directory, with their lag."),
    "new": ("pipeline_new", "Write a sample pipeline."),
    "export": ("pipeline_export", "Export to Spark Declarative Pipelines."),
}
SECTIONS = {
    "Common commands": {
        "serve": ("serve", "Run a broker."),
        "pub": ("pub", "Publish messages."),
        "sub": ("sub", "Read or follow the messages of a topic."),
        "topic": ("topic", "List, inspect, create, change and delete topics."),
        "group": ("group", "List, inspect, pause, reset and delete groups."),
        "dlq": ("dlq", "List, redrive and discard dead letters."),
        "top": ("top", "Live view of topics and groups in the terminal."),
        "copy": ("copy", "Copy topics to topics, brokers and files, and back."),
    },
    "Operations": {
        "check": ("check", "Health check with exit codes for monitoring."),
        "backup": ("backup", "Back up a running broker, or copy a data directory."),
        "restore": ("restore", "Restore a data directory from a backup."),
        "config": ("config", "Check, show and create configuration files."),
        "key": ("key", "Manage API keys and their permissions."),
        "log": ("log", "Inspect, verify and repair a data directory."),
        "doctor": ("doctor", "Find problems, and collect what a bug report needs."),
        "bench": ("bench", "Measure throughput and latency of a broker."),
    },
    "Spark": {
        "pipeline": ("pipeline", "Process topics with Spark: run, check and draw pipelines."),
    },
    "Command line setup": {
        "context": ("context", "Save brokers under names."),
        "completion": ("completion", "Completion for bash, zsh and fish."),
    },
    "Compatibility": {
        "hermesd": ("hermesd", "Run a broker like HermesMQ's daemon."),
        "blipd": ("blipd", "Run a broker with BlipMQ's configuration."),
        "blip": ("blip", "BlipMQ's commands: pub, pubfile, sub, unsub, connect."),
    },
}
COMMANDS = {name: entry for table in SECTIONS.values() for name, entry in table.items()}


class LazyGroup(CommandGroup):
    """Imports a command's module when it is called: help stays fast."""

    def __init__(self, table: dict[str, tuple[str, str]], **keywords: object) -> None:
        super().__init__(**keywords)  # type: ignore[arg-type]
        self.table = table

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.table)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in self.table:
            return None
        if self is root and name in GROUPS:
            return GROUPS[name]
        found: click.Command = import_module(f".{self.table[name][0]}", __package__).command
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections = SECTIONS if self.table is COMMANDS else {"Commands": self.table}
        width = max(map(len, self.table))
        for heading, table in sections.items():
            with formatter.section(heading):
                rows = [(name.ljust(width), text) for name, (_, text) in table.items()]
                formatter.write_dl(rows)


log = LazyGroup(
    LOG_COMMANDS,
    name="log",
    help="""Inspect, verify and repair the data directory of a stopped broker.

\b
Examples:
  flintmq log ls /var/lib/flint
  flintmq log verify /var/lib/flint
""",
)

key = LazyGroup(
    KEY_COMMANDS,
    name="key",
    help="""Create, list and revoke API keys. The broker may be running or stopped.

Creating the first key turns authentication on: from then on, every client needs a key.

\b
Examples:
  flintmq key add billing --grant 'orders.>:consume' --data-dir /var/lib/flint
  flintmq key ls --data-dir /var/lib/flint
  flintmq key rm billing --data-dir /var/lib/flint --yes
""",
)

config = LazyGroup(
    CONFIG_COMMANDS,
    name="config",
    help="""Check, show and create the configuration of a broker.

\b
Examples:
  flintmq config init /etc/flintmq.toml
  flintmq config check /etc/flintmq.toml
  flintmq config show --config /etc/flintmq.toml
""",
)

pipeline = LazyGroup(
    PIPELINE_COMMANDS,
    name="pipeline",
    help="""Process topics with Spark SQL queries that are defined in a file.

\b
Examples:
  flintmq pipeline new totals
  flintmq pipeline check orders.toml --quick
  flintmq pipeline run orders.toml --once
""",
)
GROUPS = {"log": log, "config": config, "key": key, "pipeline": pipeline}


def _tell_version(context: click.Context, option: click.Parameter, wanted: bool) -> None:
    if wanted and not context.resilient_parsing:
        click.echo(f"flintmq {__version__}")
        context.exit()


root = LazyGroup(
    COMMANDS,
    name="flintmq",
    params=[
        click.Option(
            ["--version"],
            is_flag=True,
            expose_value=False,
            is_eager=True,
            callback=_tell_version,
            help="Show the version and exit.",
        )
    ],
    help="""FlintMQ: a message broker.

\b
Examples:
  flintmq serve
  flintmq pub orders '{"id": 42}'
  flintmq sub orders
  flintmq top

Exit codes: 0 done, 1 failed, 2 wrong usage, 3 broker not reachable, 4 not authorized,
130 Ctrl-C, 143 SIGTERM.
""",
)


def run(arguments: Sequence[str] | None = None) -> int:
    try:
        return _run(arguments)
    finally:
        said()  # whatever has ended it: the terminal gets its cursor back


def _run(arguments: Sequence[str] | None) -> int:
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by whoever started us
            setattr(sys, name, open(os.devnull, "r" if name == "stdin" else "w"))  # noqa: SIM115
    sys.stdout, sys.stderr = patient(sys.stdout), patient(sys.stderr)
    try:
        if "_FLINTMQ_COMPLETE" in os.environ:
            root.main(prog_name="flintmq")  # a shell asks for completions
        # Not by `main`: what it makes of a broken pipe differs from version to version.
        given = sys.argv[1:] if arguments is None else list(arguments)
        with root.make_context("flintmq", given) as context:
            code = root.invoke(context)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except click.exceptions.Exit as ended:
        return ended.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return MISUSED
    except click.UsageError as error:
        where = "" if error.ctx is None else f" (see `{error.ctx.command_path} --help`)"
        print(f"flintmq: {error.format_message()}{where}", file=sys.stderr)
        return error.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except Terminated:
        print("flintmq: terminated", file=sys.stderr)
        return TERMINATED
    except (click.Abort, KeyboardInterrupt):
        print("flintmq: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has gone; nothing is wrong. Python's own flush at exit must not
        # complain either.
        _drop_output()
        return 0
    except FlintError as error:
        from .remedies import told

        print(f"flintmq: {told(error)}", file=sys.stderr)
        return code_of(error)
    except OSError as error:
        # A full disk below a pipe, a file that may not be written: of this machine, not of ours.
        _drop_output()
        where = f"{error.filename}: " if error.filename else ""
        print(f"flintmq: {where}{error.strerror or error}", file=sys.stderr)
        return FAILED


def _drop_output() -> None:
    """Discards the rest of our output: Python would try to write it once more."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
