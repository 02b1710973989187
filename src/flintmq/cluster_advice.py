"""What is wrong with a cluster, and in which order its nodes are started anew. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median
from typing import Literal

import msgspec

from .cluster_model import ClusterStatus, NodeStatus

SKEW_MS = 500
"""Clocks that differ more than this are worth a warning."""
SKEW_MS_MAX = 10_000
"""A node whose clock differs more than this does not lead."""
BEHIND_MAX = 10_000
"""Entries that a node may be behind while others publish."""

FindingLevel = Literal["ok", "warning", "error"]


class ClusterFinding(msgspec.Struct, frozen=True):
    level: FindingLevel
    about: str
    """quorum, spare, nodes, disks, clocks, lag, versions, level or copies."""
    text: str
    remedy: str = ""


class RestartStep(msgspec.Struct, frozen=True):
    """One step of a rolling restart."""

    do: Literal["transfer", "restart"]
    node: str
    to: str = ""
    """Who leads from then on."""


class Examination(msgspec.Struct):
    """What `cluster doctor` finds."""

    cluster: str
    is_well: bool
    """Whether there is no error; warnings may be there."""
    findings: list[ClusterFinding]


class RestartPlan(msgspec.Struct):
    cluster: str
    steps: list[RestartStep]


# --- what is wrong


def examine(status: ClusterStatus) -> Examination:
    """By what the leader knows. Without one, by what the node knows that was asked."""
    findings = [
        *_quorum(status),
        *_nodes(status),
        *_disks(status.nodes),
        *_copies(status.nodes),
        *_clocks(status.nodes),
        *_lag(status),
        *_versions(status),
    ]
    is_well = all(finding.level != "error" for finding in findings)
    return Examination(status.cluster, is_well, findings)


def voters(status: ClusterStatus) -> list[NodeStatus]:
    members = set(status.groups[0].members) if status.groups else set()
    return [node for node in status.nodes if node.role != "learner" and node.name in members]


def spare(status: ClusterStatus) -> int:
    """How many more voters may fail before nothing can be published; below 0: it cannot now."""
    known = voters(status)
    up = sum(node.role != "down" for node in known)
    return up - (len(known) // 2 + 1)


def _quorum(status: ClusterStatus) -> Iterable[ClusterFinding]:
    known, left = voters(status), spare(status)
    up = sum(node.role != "down" for node in known)
    text = f"{up} of {len(known)} voters are up"
    if left < 0:
        remedy = (
            "start the nodes that are down; if a majority is lost forever: run `flintmq cluster "
            "recover --unsafe`"
        )
        yield ClusterFinding("error", "quorum", f"{text}: nothing can be published", remedy)
    elif status.leader is None:
        remedy = "an election takes about two seconds: check again, then read the logs"
        yield ClusterFinding("error", "quorum", f"{text}, but there is no leader", remedy)
    elif left == 0:
        is_meant = len(known) < 3
        remedy = "add nodes up to three" if is_meant else "start or replace the nodes that are down"
        text += ": if one more fails, nothing can be published"
        yield ClusterFinding("warning", "spare", text, remedy)
    else:
        nodes = "node" if left == 1 else "nodes"
        yield ClusterFinding("ok", "quorum", f"{text}; {left} more {nodes} may fail")
    if len(known) % 2 == 0 and known:
        yield ClusterFinding(
            "warning",
            "spare",
            f"with {len(known)} voters, no more nodes may fail than with {len(known) - 1}",
            "have 3 or 5 nodes",
        )


def _nodes(status: ClusterStatus) -> Iterable[ClusterFinding]:
    for node in status.nodes:
        if node.role == "down":
            yield ClusterFinding(
                "error",
                "nodes",
                f"node {node.name} is down: {node.why or 'no connection'}",
                f"start it; if its disk is lost: `flintmq cluster replace {node.name} HOST:PORT`",
            )


def _disks(nodes: Iterable[NodeStatus]) -> Iterable[ClusterFinding]:
    for node in nodes:
        if node.disk == "full":
            text, remedy = "is full: it cannot store messages", "free space, or use a larger disk"
        elif node.disk == "stalled":
            text, remedy = "hangs while writing", "check the machine, or replace the disk"
        else:
            continue
        yield ClusterFinding("error", "disks", f"the disk of node {node.name} {text}", remedy)


def _copies(nodes: Iterable[NodeStatus]) -> Iterable[ClusterFinding]:
    for name in [node.name for node in nodes if node.copy == "differs"]:
        yield ClusterFinding(
            "error",
            "copies",
            f"the data of node {name} differs from that of most nodes",
            "it fetches a copy automatically; if this happens again, test the memory and the disk "
            f"of the machine, or replace it: `flintmq cluster replace {name} HOST:PORT`",
        )


def skews(nodes: Iterable[NodeStatus]) -> dict[str, int]:
    """How far each known clock is from the median of all, in milliseconds."""
    known = {node.name: node.clock_ms for node in nodes if node.clock_ms is not None}
    middle = int(median(known.values())) if known else 0
    return {name: ms - middle for name, ms in known.items()}


def _clocks(nodes: Iterable[NodeStatus]) -> Iterable[ClusterFinding]:
    for name, ms in skews(nodes).items():
        if abs(ms) > SKEW_MS:
            ahead = "ahead of" if ms > 0 else "behind"
            leads = "; it cannot become leader" if abs(ms) > SKEW_MS_MAX else ""
            yield ClusterFinding(
                "error" if abs(ms) > SKEW_MS_MAX else "warning",
                "clocks",
                f"the clock of node {name} is {abs(ms) / 1000:.1f} s {ahead} the others{leads}",
                "synchronise the clocks (chrony, systemd-timesyncd)",
            )


def _lag(status: ClusterStatus) -> Iterable[ClusterFinding]:
    for node in status.nodes:
        if node.role == "learner":
            yield ClusterFinding(
                "warning",
                "lag",
                f"node {node.name} is copying the data and does not vote yet"
                + (f" ({node.behind:,} entries to come)" if node.behind else ""),
            )
        elif node.behind is not None and node.behind > BEHIND_MAX:
            yield ClusterFinding(
                "warning",
                "lag",
                f"node {node.name} is {node.behind:,} entries behind",
                "it catches up automatically; if it does not, check its disk and network",
            )


def _versions(status: ClusterStatus) -> Iterable[ClusterFinding]:
    found = {node.version for node in status.nodes if node.version}
    levels = [node.level for node in status.nodes]
    if len(found) > 1 or len({level for level in levels if level is not None}) > 1:
        each = ", ".join(f"{node.name} {node.version or '?'}" for node in status.nodes)
        yield ClusterFinding(
            "warning", "versions", f"nodes run different versions: {each}", "update the older ones"
        )
    least = min((level for level in levels if level is not None), default=status.level)
    if None not in levels and least > status.level:
        yield ClusterFinding(
            "warning",
            "level",
            f"the cluster is at level {status.level}, and all nodes support {least}",
            "to use new features, run `flintmq cluster finalize`; there is no downgrade after that",
        )


# --- restarting


def restart_steps(status: ClusterStatus) -> list[RestartStep]:
    """Who follows first, who leads last, after it has handed over to a voter that was restarted
    already; so the lead moves once."""
    followers = [node for node in status.nodes if node.role not in ("leader", "down")]
    followers.sort(key=lambda node: (node.role != "learner", node.behind or 0, node.id))
    steps = [RestartStep("restart", node.name) for node in followers]
    leaders = [node for node in status.nodes if node.role == "leader"]
    able = [
        node for node in followers if node.role == "follower" and node.disk == node.copy == "ok"
    ]
    for node in leaders:
        if able:
            steps.append(RestartStep("transfer", node.name, able[0].name))
        steps.append(RestartStep("restart", node.name))
    return steps


def why_not_restart(status: ClusterStatus) -> str:
    """Why a node must not be stopped now; empty: it may be."""
    if status.leader is None:
        return "the cluster has no leader"
    down = [node.name for node in status.nodes if node.role == "down"]
    if down:
        return f"node {down[0]} is down"
    if len(voters(status)) < 3:
        return (
            f"with {len(voters(status))} voters, nothing can be published while one is stopped; "
            "add nodes up to three"
        )
    late = [node for node in voters(status) if (node.behind or 0) > BEHIND_MAX]
    if late:
        return f"node {late[0].name} is {late[0].behind:,} entries behind"
    return ""
