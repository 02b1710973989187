"""The gate of a broker: who comes in, and what they may do. Every front end asks it.

A front end takes a credential from its client in its own way (the OPEN frame, an Authorization
header) and hands it in here; what comes back is asked before every verb. What fails is slowed down,
counted and logged.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable
from hmac import compare_digest
from pathlib import Path
from typing import Any, Literal

from ...access import EVERYTHING, Access
from ...errors import NotAuthenticated
from ...observe.logs import limited
from ...storage.key_file import ApiKey, KeyFile
from .key_ring import LOOK_SECONDS, CredentialFault, KeyRing
from .slowing import Slowing, address_of

_log = logging.getLogger(__name__)

Mode = Literal["auto", "required"]

OPEN_LOOK_SECONDS = 10.0
"""How often to look for a first key while clients are connected and none log in: most
brokers without keys never get one, and should sleep."""

REFUSED = "the API key is missing or not valid for this broker"
"""The same text for every reason: it does not reveal whether the key exists or existed."""


NODE = Access("another node of the cluster", EVERYTHING.grants)

REASONS = ("missing", "malformed", "unknown", "wrong", "expired")


def gate_of(
    auth: Literal["auto", "required", "off"], keys_file: Path, slowing: Slowing | None = None
) -> ApiKeyGate:
    """The gate as it is configured. Raises Corrupt for keys that cannot be read: a broker does not
    start with another idea of who may come in than it was given."""
    if auth == "off":
        return ApiKeyGate()
    ring = KeyRing(KeyFile(keys_file))
    ring.load()
    return ApiKeyGate(ring, mode=auth, slowing=slowing)


class LoginCounters:
    """What metrics read. They only grow, but for `kept_back`."""

    def __init__(self) -> None:
        self.ok = 0
        self.failed: Counter[str] = Counter()
        """By reason."""
        self.dropped = 0
        """Of the failed, those that got no answer as too many waited for one."""
        self.ended = 0
        """Sessions and requests whose key was removed or expired."""


class ApiKeyGate:
    """`auto`: without a keys file no key is asked for; the first key closes it, also for clients
    that are connected. `required`: a key is always asked for. Without a ring, no key is ever asked
    for, and a client that brings one is let in too: the same settings work everywhere."""

    def __init__(
        self,
        ring: KeyRing | None = None,
        *,
        mode: Mode = "auto",
        slowing: Slowing | None = None,
    ) -> None:
        self.ring = ring
        self.counters = LoginCounters()
        self.slowing = slowing or Slowing()
        self._mode = mode
        self.node_token = ""
        """By which other nodes of a cluster come in: they have asked their clients for a key."""
        self._callbacks: list[Callable[[], None]] = []

    @property
    def is_closed(self) -> bool:
        """Whether a key is asked for."""
        return self.ring is not None and (self._mode == "required" or self.ring.is_there)

    @property
    def watch_seconds(self) -> float | None:
        """How often to call `refresh` while clients are connected; None: never."""
        if self.ring is None:
            return None
        return LOOK_SECONDS if self.is_closed else OPEN_LOOK_SECONDS

    # --- coming in

    async def enter(self, credential: str | None, peer: str) -> Access:
        """What this credential allows. Raises NotAuthenticated, but not at once: repeated failures
        from the address of this peer are slowed down."""
        try:
            return self.judge(credential, peer)
        except NotAuthenticated:
            seconds = self.hold_back(peer)
            if seconds is not None:
                try:
                    await asyncio.sleep(seconds)
                finally:
                    self.let_go(peer)
            raise

    def judge(self, credential: str | None, peer: str) -> Access:
        """The same at once, for a front end that waits by itself: see `hold_back`."""
        self.refresh()
        if credential and self._is_node(credential):
            return NODE
        if self.ring is None or not self.is_closed:
            return EVERYTHING
        found = CredentialFault("missing") if not credential else self.ring.find(credential)
        if isinstance(found, Access):
            self.counters.ok += 1
            return found
        self.counters.failed[found.reason] += 1
        address = address_of(peer)
        now = time.monotonic()
        self.slowing.failed(address, now)
        limited(
            _log,
            logging.WARNING,
            "login_refused",
            address,
            f"login from {address} failed: {found.reason} key {found.id}".rstrip(),
            reason=found.reason,
            address=address,
            key_id=found.id,
        )
        raise NotAuthenticated(REFUSED)

    def _is_node(self, credential: str) -> bool:
        token = self.node_token
        return bool(token) and compare_digest(credential.encode(), token.encode())

    def hold_back(self, peer: str) -> float | None:
        """For how many seconds to keep the answer to a failed login; None: too many are kept
        already, and this one is dropped without an answer. `let_go` ends it."""
        seconds = self.slowing.keep(address_of(peer), time.monotonic())
        if seconds is None:
            self.counters.dropped += 1
        return seconds

    def let_go(self, peer: str) -> None:
        self.slowing.let_go(address_of(peer))

    # --- being in

    def still(self, access: Access) -> Access:
        """The same key as it is now: keys may change while they are in use. Raises NotAuthenticated
        where it is gone. Cheap: asked for every request over HTTP."""
        self.refresh()
        if access is NODE:
            return access
        if self.ring is None or not access.key:
            if self.is_closed:
                self.counters.ended += 1
                raise NotAuthenticated("this broker now requires an API key")
            return access
        now = self.ring.now(access.key)
        if isinstance(now, CredentialFault):
            self.counters.ended += 1
            what = "has expired" if now.reason == "expired" else "was revoked"
            raise NotAuthenticated(f"the API key {what}")
        return now

    def refresh(self, *, at_once: bool = False) -> None:
        """Look whether keys have changed, `at_once` or if the last look is a while ago."""
        if self.ring is not None and self.ring.refresh(at_once=at_once):
            self._tell_changed()

    def share(self, keys: list[ApiKey]) -> None:
        """Also these keys come in: those of the cluster. From now on a key is required. Who is in
        without one has a second more, as where a file has changed: one of them made the key, and is
        to hear of it."""
        if self.ring is not None:
            self.ring.share(keys)
            asyncio.get_running_loop().call_later(LOOK_SECONDS, self._tell_changed)

    def _tell_changed(self) -> None:
        for callback in self._callbacks:
            callback()

    def keys_shown(self) -> list[dict[str, Any]]:
        """The keys as an administrator of everything may see them: no secret, no hash."""
        entries = [] if self.ring is None else self.ring.entries()
        return [
            {
                "id": key.id,
                "name": key.name,
                "grants": {grant.topics: grant.may for grant in key.grants},
                "made_at_ms": key.made_at_ms,
                "expires_at_ms": key.expires_at_ms,
                "last_used_at_ms": used_at_ms,
                "note": key.note,
            }
            for key, used_at_ms in entries
        ]

    def on_changed(self, callback: Callable[[], None]) -> None:
        """Call back when `still` may say something else than before."""
        self._callbacks.append(callback)
