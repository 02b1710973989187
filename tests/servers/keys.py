"""A broker that asks for keys, in the test's own loop: keys are made and taken away as by hand."""

from __future__ import annotations

from pathlib import Path

import flintmq
from flintmq.access import TopicGrant
from flintmq.engine.broker import Broker
from flintmq.net.server.gate import ApiKeyGate
from flintmq.net.server.key_ring import KeyRing
from flintmq.net.server.limits import Limits
from flintmq.net.server.native import NativeServer
from flintmq.net.server.slowing import Slowing
from flintmq.serde.codec import Codec
from flintmq.storage.key_file import ApiKey, KeyFile, make_key
from flintmq.testing import ManualClock


class KeyedServer:
    def __init__(self, directory: Path, *, slowing: Slowing | None = None) -> None:
        self.clock = ManualClock()
        self.file = KeyFile(directory / "keys.json")
        self.ring = KeyRing(self.file, clock=self.clock)
        self.gate = ApiKeyGate(self.ring, slowing=slowing or Slowing(first_seconds=0.0))
        self.broker = Broker(None, Codec())
        self.server = NativeServer(self.broker, limits=Limits(), gate=self.gate)
        self.url = ""
        self.address = ("", 0)
        self.admin = ""

    async def start(self) -> None:
        self.address = await self.server.start("127.0.0.1", 0)
        self.url = "flint://{}:{}".format(*self.address)

    async def stop(self) -> None:
        await self.server.close()
        await self.broker.close()

    # --- keys

    def add(self, name: str, **grants: str) -> str:
        """`add("billing", consume="orders.>")`: the key."""
        by_pattern: dict[str, list[str]] = {}
        for permission, patterns in grants.items():
            for pattern in patterns.split(","):
                by_pattern.setdefault(pattern, []).append(permission)
        return self.add_grants(name, by_pattern)

    def add_grants(
        self, name: str, grants: dict[str, list[str]], expires_at_ms: int | None = None
    ) -> str:
        entry, key = make_key(
            name,
            [TopicGrant.of(pattern, permissions) for pattern, permissions in grants.items()],
            now_ms=self.clock.now_ms(),
            expires_at_ms=expires_at_ms,
        )
        self.file.add(entry)
        self.look()
        return key

    def regrant(self, name: str, **grants: str) -> None:
        """Other grants for a key, which stays the same otherwise."""
        with self.file._change() as keys:
            number = next(n for n, known in enumerate(keys) if known.name == name)
            entry, _ = make_key(
                name,
                [TopicGrant.of(pattern, [permission]) for permission, pattern in grants.items()],
                now_ms=0,
                expires_at_ms=None,
            )
            old = keys[number]
            keys[number] = ApiKey(
                id=old.id,
                name=name,
                salt=old.salt,
                hash=old.hash,
                grants=entry.grants,
                made_at_ms=old.made_at_ms,
            )
        self.look()

    def remove(self, name: str) -> None:
        self.file.remove(name)
        self.look()

    def look(self) -> None:
        self.gate.refresh(at_once=True)

    def connect(self, key: str | None, timeout: float = 5.0) -> flintmq.Client:
        return flintmq.connect(self.url, api_key=key, timeout=timeout)
