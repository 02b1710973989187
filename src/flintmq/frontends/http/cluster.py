"""The cluster this node belongs to, over HTTP."""

from __future__ import annotations

from ...cluster_advice import Examination, RestartPlan, examine, restart_steps
from ...cluster_model import ClusterApi, ClusterStatus
from ...config.shared import KIND, parsed
from .desk import ApiCall, Desk
from .faults import HttpRefusal
from .models import Done
from .shown import Model


def _cluster(desk: Desk) -> ClusterApi:
    if desk.state.cluster is None:
        raise HttpRefusal(404, "NotACluster", "this broker is not a node of a cluster")
    return desk.state.cluster


class NamedNode(Model):
    name: str


class PlacedNode(Model):
    name: str
    peer: str
    """Where the other nodes reach it: host:port."""


async def cluster_add(desk: Desk, call: ApiCall) -> ClusterStatus:
    return await _cluster(desk).ask("add", call.body.name, call.body.peer)


async def cluster_remove(desk: Desk, call: ApiCall) -> ClusterStatus:
    return await _cluster(desk).ask("remove", call.body.name)


async def cluster_replace(desk: Desk, call: ApiCall) -> ClusterStatus:
    return await _cluster(desk).ask("replace", call.body.name, call.body.peer)


async def cluster_transfer(desk: Desk, call: ApiCall) -> ClusterStatus:
    return await _cluster(desk).ask("transfer", call.body.name)


async def cluster_status(desk: Desk, call: ApiCall) -> ClusterStatus:
    return await _cluster(desk).ask("status")


async def cluster_finalize(desk: Desk, call: ApiCall) -> ClusterStatus:
    return await _cluster(desk).ask("finalize")


async def cluster_doctor(desk: Desk, call: ApiCall) -> Examination:
    return examine(await _cluster(desk).ask("status"))


async def cluster_restart_plan(desk: Desk, call: ApiCall) -> RestartPlan:
    status = await _cluster(desk).ask("status")
    return RestartPlan(status.cluster, restart_steps(status))


class KeptSettings(Model):
    settings: dict[str, str]
    """Those that the cluster keeps. Others are as each node was started."""


class SettingValue(Model):
    value: str
    """As in an environment variable."""


async def cluster_settings(desk: Desk, call: ApiCall) -> KeptSettings:
    _cluster(desk)
    return await _settings(desk)


async def cluster_set(desk: Desk, call: ApiCall) -> KeptSettings:
    _cluster(desk)
    name, value = call.path["setting"], call.body.value
    parsed(name, value)
    await desk.broker.define(KIND, "", name, value.encode())
    return await _settings(desk)


async def cluster_unset(desk: Desk, call: ApiCall) -> Done:
    _cluster(desk)
    await desk.broker.define(KIND, "", call.path["setting"], None)
    return Done()


async def _settings(desk: Desk) -> KeptSettings:
    found = await desk.broker.definitions(KIND, "")
    return KeptSettings(settings={one.name: one.value.decode() for one in found})
