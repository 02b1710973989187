"""All commands by name, and how they end: exit codes, Ctrl-C, broken pipes."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import click

from .. import __version__
from ..compiled import BUILD
from ..errors import FlintError
from .command_group import LazyGroup
from .exit_codes import FAILED, INTERRUPTED, MISUSED, TERMINATED, Terminated, code_of
from .look import said
from .streams import patient

SECTIONS = {
    "Common commands": {
        "serve": "Run a broker.",
        "pub": "Publish messages.",
        "sub": "Read or follow the messages of a topic.",
        "request": "Send a request and print the reply.",
        "reply": "Reply to requests with a command.",
        "table": "Last value of every key of a topic: print, set, delete, watch.",
        "topic": "List, inspect, create, change and delete topics.",
        "group": "List, inspect, pause, reset and delete groups.",
        "dlq": "List, redrive and discard dead letters.",
        "webhook": "Send the messages of a group to a URL.",
        "worker": "Run the consumers, tasks and schedules of an app.",
        "schedule": "Publish messages on a schedule.",
        "schema": "Store the schemas of values, and check new versions.",
        "top": "Live view of topics and groups in the terminal.",
        "console": "Open the broker's page in the browser.",
        "copy": "Copy topics to topics, brokers and files, and back.",
    },
    "Operations": {
        "cluster": "Run, inspect and change a cluster.",
        "check": "Health check with exit codes for monitoring.",
        "backup": "Back up a running broker, or copy a data directory.",
        "restore": "Restore a data directory from a backup.",
        "config": "Check, show and create configuration files.",
        "key": "Manage API keys and their permissions.",
        "log": "Inspect, verify and repair a data directory.",
        "doctor": "Find problems, and collect what a bug report needs.",
        "bench": "Measure throughput and latency of a broker.",
    },
    "Spark": {
        "pipeline": "Process topics with Spark: run, check and draw pipelines.",
    },
    "Command line setup": {
        "context": "Save brokers under names.",
        "completion": "Completion for bash, zsh and fish.",
    },
    "Compatibility": {
        "hermesd": "Run a broker like HermesMQ's daemon.",
        "blipd": "Run a broker with BlipMQ's configuration.",
        "blip": "BlipMQ's commands: pub, pubfile, sub, unsub, connect.",
    },
}


root = LazyGroup(
    SECTIONS,
    name="flintmq",
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
click.version_option(f"{__version__} ({BUILD})", message="flintmq %(version)s")(root)


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
