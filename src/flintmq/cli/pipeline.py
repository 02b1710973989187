"""`flintmq pipeline`: process topics with Spark SQL queries that are defined in a file."""

from __future__ import annotations

from .command_group import LazyGroup

COMMANDS = {
    "run": "Run a pipeline, once or until stopped.",
    "check": "List all errors in a pipeline.",
    "test": "Run the tests in a pipeline file.",
    "plan": "Draw a pipeline.",
    "ls": "List the pipelines of a directory, with their lag.",
    "new": "Write a sample pipeline.",
    "export": "Export to Spark Declarative Pipelines.",
}

command = LazyGroup(
    {"Commands": COMMANDS},
    prefix="pipeline_",
    name="pipeline",
    help="""Process topics with Spark SQL queries that are defined in a file.

\b
Examples:
  flintmq pipeline new totals
  flintmq pipeline check orders.toml --quick
  flintmq pipeline test orders.toml
  flintmq pipeline run orders.toml --once
""",
)
