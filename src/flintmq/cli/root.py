"""The commands by name, and what all of them do at their end: exit codes, Ctrl-C, broken pipes."""

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
    "ls": ("log_ls", "What a data directory holds."),
    "dump": ("log_dump", "Messages of a topic, or records of the journal."),
    "verify": ("log_verify", "Check every checksum."),
    "repair": ("log_repair", "Save what can be saved of a damaged directory."),
}
KEY_COMMANDS = {
    "add": ("key_add", "Make a key, and show it once."),
    "ls": ("key_ls", "The keys there are, without their secrets."),
    "rm": ("key_rm", "Take a key away; who uses it is disconnected."),
}
CONFIG_COMMANDS = {
    "check": ("config_check", "Everything that is wrong with a file."),
    "show": ("config_show", "Every setting in force, and where it comes from."),
    "init": ("config_init", "Write a file with every setting in it."),
}
PIPELINE_COMMANDS = {
    "run": ("pipeline_run", "Run a pipeline, once or until it is stopped."),
    "check": ("pipeline_check", "Everything that is wrong with a pipeline."),
    "plan": ("pipeline_plan", "A drawing of a pipeline."),
    "ls": ("pipeline_ls", "The pipelines of a directory, and how far they are."),
    "new": ("pipeline_new", "Write a pipeline to begin with."),
    "export": ("pipeline_export", "Make a project of Spark's own pipelines of one."),
}
SECTIONS = {
    "Every day": {
        "serve": ("serve", "Run a broker."),
        "pub": ("pub", "Publish messages."),
        "sub": ("sub", "Print messages, to their end or as they come."),
        "topic": ("topic", "List, look at, make, change and delete topics."),
        "group": ("group", "List, look at, pause, reset and delete groups."),
        "dlq": ("dlq", "Dead letters: show, put back, discard."),
        "top": ("top", "Topics and groups as they move, in a terminal."),
        "copy": ("copy", "Copy topics: to topics, brokers and files, and back."),
    },
    "Running a broker": {
        "check": ("check", "Whether a broker, a topic, a group is well, by exit code."),
        "backup": ("backup", "Back up a running broker, or copy a data directory."),
        "restore": ("restore", "Make a data directory from a backup."),
        "config": ("config", "Check, show and begin a configuration."),
        "key": ("key", "Who may publish, consume and administer: API keys."),
        "log": ("log", "Look at a data directory, check and mend it."),
        "doctor": ("doctor", "What looks wrong, and what a bug report needs."),
        "bench": ("bench", "Measure a broker: messages a second, latencies."),
    },
    "Spark": {
        "pipeline": ("pipeline", "Topics through Spark: run, check, draw, begin a pipeline."),
    },
    "This command line": {
        "context": ("context", "Give brokers names."),
        "completion": ("completion", "Completion for bash, zsh and fish."),
    },
    "Coming from other brokers": {
        "hermesd": ("hermesd", "Run a broker as HermesMQ's daemon is run."),
        "blipd": ("blipd", "Run a broker with BlipMQ's configuration."),
        "blip": ("blip", "BlipMQ's own commands: pub, pubfile, sub, unsub, connect."),
    },
}
COMMANDS = {name: entry for table in SECTIONS.values() for name, entry in table.items()}


class LazyGroup(CommandGroup):
    """Commands whose modules are imported when they are called: help stays fast."""

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
    help="""Look at a data directory that no broker uses, check it and mend it.

\b
Examples:
  flintmq log ls /var/lib/flint
  flintmq log verify /var/lib/flint
""",
)

key = LazyGroup(
    KEY_COMMANDS,
    name="key",
    help="""Make, list and take away API keys, while the broker runs or not.

The first key closes a broker that asked nobody before: from then on everybody needs one.

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
    help="""What a broker can be told, and what it is told.

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
    help="""From a short file to running queries of Spark over topics.

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

Exit codes: 0 done, 1 a problem, 2 the command was used wrongly, 3 the broker cannot be reached,
4 it does not allow that, 130 Ctrl-C, 143 SIGTERM.
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
    """What is left of our output goes nowhere: Python would try to write it once more."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
