"""BlipMQ's own keys: a list in its configuration, each of which allows everything.

They stand beside the keys file, whose keys have permissions, expire, and can be taken away while
the broker runs. With a list, nobody comes in without a key.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from pathlib import Path

from ...access import EVERYTHING, Access
from ...net.server.gate import ApiKeyGate
from ...net.server.key_ring import KeyRing
from ...net.server.slowing import Slowing
from ...storage.key_file import KeyFile

LISTED = "blip_api_keys"
_ACCESS = Access(LISTED, EVERYTHING.grants, key=LISTED)


def listed_keys_gate(keys: Sequence[str], keys_file: Path, slowing: Slowing) -> ListedKeysGate:
    ring = KeyRing(KeyFile(keys_file))
    ring.load()
    return ListedKeysGate(keys, ring, slowing)


class ListedKeysGate(ApiKeyGate):
    def __init__(self, keys: Sequence[str], ring: KeyRing, slowing: Slowing) -> None:
        super().__init__(ring, mode="required", slowing=slowing)
        self._digests = [_digest(key) for key in keys]

    def judge(self, credential: str | None, peer: str) -> Access:
        if credential:
            shown = _digest(credential)
            # All of them, always: how long it takes says nothing about which is near.
            if sum(hmac.compare_digest(shown, digest) for digest in self._digests):
                self.counters.ok += 1
                return _ACCESS
        return super().judge(credential, peer)

    def still(self, access: Access) -> Access:
        return access if access is _ACCESS else super().still(access)


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()
