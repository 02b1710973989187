"""Where `flintmq key` keeps keys: in the file of a broker, or in a cluster."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from ..access import Access
from ..errors import InvalidRequest
from ..net.remote.broker import RemoteBroker
from ..storage.key_file import (
    SHARED_KIND,
    ApiKey,
    KeyFile,
    RemovedKey,
    shared_keys,
    shared_value,
)
from .cluster_change import ask_broker
from .connecting import Target

T = TypeVar("T")

FIRST_OF_FILE = "this is the first key: from now on, every client of this broker needs one"
FIRST_OF_CLUSTER = "this is the first key: from now on, every client of this cluster needs one"


class KeyStore(Protocol):
    place: str
    """For people."""
    first: str
    """What they are told of the first key."""

    def keys(self) -> list[ApiKey] | None:
        """None: there never was one, and nobody is asked for a key."""
        ...

    def add(self, key: ApiKey) -> None: ...
    def remove(self, name_or_id: str) -> ApiKey: ...


class FileKeys:
    first = FIRST_OF_FILE

    def __init__(self, file: KeyFile) -> None:
        self._file, self.place = file, file.path
        self.add, self.remove = file.add, file.remove

    def keys(self) -> list[ApiKey] | None:
        return None if self._file.stamp() is None else self._file.read()


class ClusterKeys:
    first = FIRST_OF_CLUSTER

    def __init__(self, target: Target) -> None:
        self._target, self.place = target, f"the cluster at {target.url}"

    def keys(self) -> list[ApiKey] | None:
        async def ask(broker: RemoteBroker) -> list[ApiKey] | None:
            found = await broker.definitions(SHARED_KIND, "")
            return shared_keys(found) if found else None

        return self._ask(ask)

    def add(self, key: ApiKey) -> None:
        if any(known.name == key.name for known in self.keys() or []):
            raise InvalidRequest(
                f"the cluster has a key {key.name!r} already: choose another name, or revoke "
                "that one first with `flintmq key rm`"
            )
        self.put(key)

    def put(self, key: ApiKey) -> None:
        self._ask(lambda broker: broker.define(SHARED_KIND, "", key.id, shared_value(key), 0))

    def copy(self, keys: list[ApiKey]) -> tuple[list[str], list[str]]:
        """The names of those that were new, and of those that are there or were removed."""

        async def ask(broker: RemoteBroker) -> tuple[list[str], list[str]]:
            found = await broker.definitions(SHARED_KIND, "")
            ids = {one.name for one in found}
            names = {key.name for key in shared_keys(found)}
            new = [key for key in keys if key.id not in ids]
            if twice := [key.name for key in new if key.name in names]:
                raise InvalidRequest(
                    f"the cluster has another key {twice[0]!r}: revoke one of the two first"
                )
            # One that may do this goes first: from then on it may be asked for.
            new.sort(key=lambda key: not Access("", key.granted()).may_all_of("administer", ">"))
            for key in new:
                await broker.define(SHARED_KIND, "", key.id, shared_value(key), 0)
            return [key.name for key in new], [key.name for key in keys if key.id in ids]

        return self._ask(ask)

    def remove(self, name_or_id: str) -> ApiKey:
        known = self.keys() or []
        found = [key for key in known if key.id == name_or_id]
        found = found or [key for key in known if key.name == name_or_id]
        if not found:
            raise InvalidRequest(
                f"there is no key {name_or_id!r} in {self.place}; `flintmq key ls` shows them"
            )
        value = shared_value(RemovedKey(id=found[0].id))
        self._ask(lambda broker: broker.define(SHARED_KIND, "", found[0].id, value))
        return found[0]

    def _ask(self, ask: Callable[[RemoteBroker], Awaitable[T]]) -> T:
        return ask_broker(self._target, ask)
