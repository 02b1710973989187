"""The cluster this node belongs to, over HTTP."""

from __future__ import annotations

from ...cluster_model import ClusterApi, ClusterStatus
from .desk import ApiCall, Desk
from .faults import HttpRefusal


def _cluster(desk: Desk) -> ClusterApi:
    if desk.state.cluster is None:
        raise HttpRefusal(404, "NotACluster", "this broker is not a node of a cluster")
    return desk.state.cluster


async def cluster_status(desk: Desk, call: ApiCall) -> ClusterStatus:
    return await _cluster(desk).ask("status")
