"""`flintmq cluster`: several nodes as one broker."""

from __future__ import annotations

from .command_group import LazyGroup

COMMANDS = {
    "run": "Run a cluster on this machine.",
    "status": "Show the nodes of a cluster, and who leads.",
}

command = LazyGroup(
    {"Commands": COMMANDS},
    prefix="cluster_",
    name="cluster",
    help="""Several brokers as one: each message is stored by a majority of them.

\b
Examples:
  flintmq cluster run --nodes 3 --data-dir cluster-data
  flintmq cluster status
""",
)
