"""`flintmq cluster status`: the nodes of a cluster, and who leads."""

from __future__ import annotations

import asyncio
from typing import Any

import click
import msgspec

from ..errors import Disconnected, FlintError, InvalidRequest
from ..net.remote.broker import RemoteBroker
from ..net.remote.tls import ClientTls
from ..net.wire.operations import ClusterMap
from .connecting import Target, run_async, server_options
from .look import print_table
from .shared import output_option, show

SECONDS = 3.0


class NodeShown(msgspec.Struct):
    node: int
    name: str
    address: str
    state: str
    """leader, follower, or down."""
    term: int | None = None
    committed: int | None = None
    applied: int | None = None
    behind: int | None = None
    why: str = ""


class StatusShown(msgspec.Struct):
    cluster: str
    leader: str | None
    has_quorum: bool
    nodes: list[NodeShown]


@click.command("status")
@output_option
@server_options
def command(target: Target, output: str) -> int:
    """Show the nodes of a cluster: who leads, who is down, and who is behind.

    Any node may be asked. Exit code 1 if there is no leader or a node is down.

    \b
    Examples:
      flintmq cluster status
      flintmq cluster status --server flint://127.0.0.1:7610 --output json
    """
    status = run_async(_status(target))
    show(output, status, lambda: _print(status))
    is_well = status.leader is not None and all(node.state != "down" for node in status.nodes)
    return 0 if is_well else 1


async def _status(target: Target) -> StatusShown:
    seen = await _seen(target, target.url)
    if seen is None:
        raise InvalidRequest(f"{target.url} is not a node of a cluster: it runs alone")
    scheme = target.url.partition("://")[0]

    async def ask(address: str) -> ClusterMap | FlintError:
        try:
            found = await _seen(target, f"{scheme}://{address}")
        except FlintError as error:
            return error
        return found if found is not None else InvalidRequest("it is no node of a cluster")

    addresses = [node.addresses[0] if node.addresses else "" for node in seen.nodes]
    answers = await asyncio.gather(*(ask(at) if at else _unknown() for at in addresses))
    return _shown(seen, addresses, answers)


async def _unknown() -> FlintError:
    return Disconnected("it", "it is not connected to the node that was asked")


def _shown(
    seen: ClusterMap, addresses: list[str], answers: list[ClusterMap | FlintError]
) -> StatusShown:
    groups = [answer.groups[0] for answer in answers if isinstance(answer, ClusterMap)]
    newest = max(groups, key=lambda group: (group.term, bool(group.leader)), default=None)
    leader = 0 if newest is None else newest.leader
    committed = max((group.committed for group in groups), default=0)
    nodes = []
    for node, address, answer in zip(seen.nodes, addresses, answers, strict=True):
        if isinstance(answer, ClusterMap):
            group = answer.groups[0]
            nodes.append(
                NodeShown(
                    node.id,
                    node.name,
                    address,
                    "leader" if node.id == leader else "follower",
                    group.term,
                    group.committed,
                    group.applied,
                    max(0, committed - group.applied),
                )
            )
        else:
            why = str(getattr(answer, "cause", answer))
            nodes.append(NodeShown(node.id, node.name, address, "down", why=why))
    up = {node.node for node in nodes if node.state != "down"}
    names = {node.id: node.name for node in seen.nodes}
    return StatusShown(
        seen.cluster.hex(),
        names.get(leader) if leader in up else None,
        2 * len(up) > len(nodes),
        nodes,
    )


async def _seen(target: Target, url: str) -> ClusterMap | None:
    """The cluster as one of these servers knows it, whoever leads."""
    tls = None
    keywords: dict[str, Any] = target.keywords
    if url.startswith("flints://"):
        tls = ClientTls.given(
            ca=keywords.get("tls_ca"),
            cert=keywords.get("tls_cert"),
            key=keywords.get("tls_key"),
            verify=True,
        )
    broker = RemoteBroker(url, timeout=SECONDS, api_key=keywords.get("api_key"), tls=tls)
    broker.link.dialer.follows = False
    try:
        await broker.open()
        return broker.link.dialer.map
    finally:
        await broker.close()


def _print(status: StatusShown) -> None:
    down = sum(node.state == "down" for node in status.nodes)
    who = f"{status.leader} leads" if status.leader else "nobody leads"
    quorum = "" if status.has_quorum else ", no majority: nothing can be published"
    click.echo(
        f"Cluster {status.cluster[:8]}: {len(status.nodes)} nodes, {down} down, {who}{quorum}"
    )
    print_table(
        ["NODE", "ADDRESS", "STATE", "TERM", "COMMITTED", "APPLIED", "BEHIND"],
        [
            [
                node.name,
                node.address or "-",
                node.state if not node.why else f"{node.state}: {node.why}",
                *("-" if value is None else f"{value:,}" for value in _numbers(node)),
            ]
            for node in status.nodes
        ],
    )


def _numbers(node: NodeShown) -> list[int | None]:
    return [node.term, node.committed, node.applied, node.behind]
