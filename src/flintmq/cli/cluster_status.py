"""`flintmq cluster status`: the nodes of a cluster, and who leads."""

from __future__ import annotations

import asyncio

import click

from ..cluster_model import ClusterStatus, GroupStatus, NodeRole, NodeStatus
from ..errors import Disconnected, FlintError, InvalidRequest
from ..net.wire.operations import ClusterMap, MapGroup
from .cluster_change import remote
from .connecting import Target, run_async, server_options
from .look import print_table
from .shared import output_option, show

SECONDS = 3.0


@click.command("status")
@output_option
@server_options
def command(target: Target, output: str) -> int:
    """Show the nodes of a cluster: which one leads, which are down or behind.

    --server can be any node. Exit code 1 if there is no leader or a node is down.

    \b
    Examples:
      flintmq cluster status
      flintmq cluster status --server flint://127.0.0.1:7610 --output json
    """
    status = run_async(_status(target))
    show(output, status, lambda: _print(status))
    is_well = status.leader is not None and all(node.role != "down" for node in status.nodes)
    return 0 if is_well else 1


async def _status(target: Target) -> ClusterStatus:
    seen = await _seen(target, target.url)
    if seen is None:
        raise InvalidRequest(f"{target.url} is not a node of a cluster: it runs alone")
    scheme = target.url.partition("://")[0]

    async def ask(address: str) -> ClusterMap | FlintError:
        try:
            found = await _seen(target, f"{scheme}://{address}")
        except FlintError as error:
            return error
        return found if found is not None else InvalidRequest("it is not a node of a cluster")

    addresses = [node.addresses[0] if node.addresses else "" for node in seen.nodes]
    answers = await asyncio.gather(*(ask(at) if at else _unknown() for at in addresses))
    return _shown(seen, addresses, answers)


async def _unknown() -> FlintError:
    return Disconnected("it", "it is not connected to the node that was asked")


def _shown(
    seen: ClusterMap, addresses: list[str], answers: list[ClusterMap | FlintError]
) -> ClusterStatus:
    groups = [answer.groups[0] for answer in answers if isinstance(answer, ClusterMap)]
    newest = max(groups, key=lambda group: (group.term, bool(group.leader)), default=None)
    leader = 0 if newest is None else newest.leader
    committed = max((group.committed for group in groups), default=0)
    nodes = []
    for node, address, answer in zip(seen.nodes, addresses, answers, strict=True):
        if isinstance(answer, ClusterMap):
            group = answer.groups[0]
            nodes.append(
                NodeStatus(
                    id=node.id,
                    name=node.name,
                    role=_role(node.id, leader, newest),
                    address=address,
                    term=group.term,
                    committed=group.committed,
                    applied=group.applied,
                    behind=max(0, committed - group.applied),
                )
            )
        else:
            why = str(getattr(answer, "cause", answer))
            nodes.append(
                NodeStatus(id=node.id, name=node.name, role="down", address=address, why=why)
            )
    up = {node.id for node in nodes if node.role != "down"}
    names = {node.id: node.name for node in seen.nodes}
    shown = [
        GroupStatus(
            id=group.id,
            leader=names.get(group.leader) if group.leader in up else None,
            term=group.term,
            members=[names.get(node, str(node)) for node in group.members],
        )
        for group in ([newest] if newest is not None else seen.groups)
    ]
    voters = set(_voters(newest or seen.groups[0]))
    return ClusterStatus(
        cluster=seen.cluster.hex(),
        leader=shown[0].leader,
        has_quorum=2 * len(up & voters) > len(voters),
        nodes=nodes,
        groups=shown,
    )


def _role(node: int, leader: int, group: MapGroup | None) -> NodeRole:
    if node == leader:
        return "leader"
    return "learner" if group is not None and node in group.learners else "follower"


def _voters(group: MapGroup) -> list[int]:
    return [node for node in group.members if node not in group.learners]


async def _seen(target: Target, url: str) -> ClusterMap | None:
    """The cluster as one of these servers knows it, whoever leads."""
    broker = remote(target, url, timeout=SECONDS)
    broker.link.dialer.follows = False
    try:
        await broker.open()
        return broker.link.dialer.map
    finally:
        await broker.close()


def _print(status: ClusterStatus) -> None:
    down = sum(node.role == "down" for node in status.nodes)
    who = f"{status.leader} leads" if status.leader else "no leader"
    quorum = "" if status.has_quorum else ", no majority: nothing can be published"
    click.echo(
        f"Cluster {status.cluster[:8]}: {len(status.nodes)} nodes, {down} down, {who}{quorum}"
    )
    print_table(
        ["NODE", "ADDRESS", "ROLE", "TERM", "COMMITTED", "APPLIED", "BEHIND"],
        [
            [
                node.name,
                node.address or "-",
                node.role if not node.why else f"{node.role}: {node.why}",
                *("-" if value is None else f"{value:,}" for value in _numbers(node)),
            ]
            for node in status.nodes
        ],
    )


def _numbers(node: NodeStatus) -> list[int | None]:
    return [node.term, node.committed, node.applied, node.behind]
