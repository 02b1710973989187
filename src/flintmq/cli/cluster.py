"""`flintmq cluster`: several nodes as one broker."""

from __future__ import annotations

from .command_group import LazyGroup

COMMANDS = {
    "run": "Run a cluster on this machine.",
    "init": "Convert a single broker to a cluster of one node.",
    "status": "Show the nodes of a cluster and its leader.",
    "add": "Reserve name and address for a node that will join.",
    "remove": "Remove a node from the cluster.",
    "replace": "Replace a lost node with an empty one.",
    "transfer": "Make another node the leader.",
    "doctor": "Check a cluster, and suggest remedies.",
    "restart-plan": "Restart the nodes in a safe order.",
    "recover": "Continue with one node after a majority is lost forever.",
    "set": "Change a setting for all nodes of a cluster.",
    "unset": "Return to each node's own configuration.",
    "settings": "Show the settings that a cluster keeps.",
    "finalize": "Use new features after an upgrade.",
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
