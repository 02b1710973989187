"""`flintmq cluster`: several nodes as one broker."""

from __future__ import annotations

from .command_group import LazyGroup

COMMANDS = {
    "run": "Run a cluster on this machine.",
    "init": "Make a broker that ran alone a cluster of one.",
    "status": "Show the nodes of a cluster, and who leads.",
    "add": "Keep a place for a node that will join.",
    "remove": "Take a node out of the cluster.",
    "replace": "Have a blank node take the place of a lost one.",
    "transfer": "Have another node lead.",
    "doctor": "Check a cluster, and say what to do.",
    "restart-plan": "Restart the nodes in a safe order.",
    "recover": "Go on with one node, where a majority is lost for good.",
    "finalize": "After an upgrade: use what is new.",
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
