"""The API keys of a cluster: every node asks for them, whichever node they were made at.

They are definitions of no topic (`storage/key_file.py` has their form), replicated with everything
else, and stand beside the keys file of a node, whose keys are good at that node alone. A node that
has not applied them yet, since it has just joined or was away, is told by the others that there are
some: until it has them, it lets nobody in.
"""

from __future__ import annotations

import logging

from ..cluster.catalog import ClusterCatalog
from ..cluster.peer_frames import AboutNode
from ..cluster.peers import Peers
from ..engine.broker import Broker
from ..errors import InvalidRequest
from ..net.server.gate import ApiKeyGate
from ..observe.logs import event
from ..storage.key_file import SHARED_KIND, shared_keys

_log = logging.getLogger(__name__)

NEEDS_LEVEL = 2
"""Of the cluster: before it, a node would not know of keys and settings of the cluster."""


def check_level(catalog: ClusterCatalog) -> None:
    if catalog.level < NEEDS_LEVEL:
        raise InvalidRequest(
            "the cluster cannot keep keys and settings yet: some nodes may run an earlier version. "
            "When all of them have been updated, run `flintmq cluster finalize`"
        )


class SharedKeys:
    def __init__(
        self, broker: Broker, gate: ApiKeyGate, catalog: ClusterCatalog, peers: Peers
    ) -> None:
        self._definitions, self._gate = broker.shard.state.definitions, gate
        self._catalog, self._peers = catalog, peers
        broker.defining.shared[SHARED_KIND] = self._check
        peers.on_about = self._heard
        for state in peers.states.values():
            self._heard(0, state.about)
        self._definitions.on_change.append(self._changed)
        self._changed(SHARED_KIND)

    def _check(self, name: str, value: bytes | None) -> None:
        check_level(self._catalog)
        if self._gate.ring is None:
            raise InvalidRequest("this broker runs with auth=off: it does not check keys")

    @property
    def are_there(self) -> bool:
        """Whether there are any, or were: from then on a key is asked for."""
        return bool(self._definitions.of(SHARED_KIND, ""))

    def _changed(self, kind: str) -> None:
        if kind != SHARED_KIND or not self.are_there:
            return
        keys = shared_keys(self._definitions.of(SHARED_KIND, ""))
        self._gate.share(keys)
        event(
            _log, logging.INFO, "cluster_keys", f"the cluster has {len(keys)} keys", keys=len(keys)
        )
        self._peers.tell_about()

    def _heard(self, node: int, about: AboutNode) -> None:
        if about.has_keys and not self.are_there:
            self._gate.share([])
