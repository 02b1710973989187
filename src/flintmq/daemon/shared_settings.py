"""The settings of a cluster are in effect at this node as soon as they are applied here."""

from __future__ import annotations

from ..cluster.catalog import ClusterCatalog
from ..config.shared import KIND, parsed, values_in
from ..engine.broker import Broker
from .reloading import Reloading
from .shared_keys import check_level


class SharedSettings:
    def __init__(self, broker: Broker, reloading: Reloading, catalog: ClusterCatalog) -> None:
        self._definitions, self._reloading = broker.shard.state.definitions, reloading
        self._catalog = catalog
        broker.defining.shared[KIND] = self._check
        self._definitions.on_change.append(self._changed)
        self._changed(KIND)

    def _check(self, name: str, value: bytes | None) -> None:
        check_level(self._catalog)
        if value is not None:
            parsed(name, value.decode(errors="replace"))

    def _changed(self, kind: str) -> None:
        if kind == KIND:
            self._reloading.share(values_in(self._definitions.of(KIND, "")))
