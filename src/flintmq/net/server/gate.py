"""The gate of a broker: who comes in, and what they may do. Every front end asks it.

A front end takes a credential from its client in its own way (the OPEN frame, an Authorization
header) and hands it in here; what comes back is asked before every verb.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from ...access import EVERYTHING, Access


class Gate(Protocol):
    """What front ends know of it."""

    @property
    def is_closed(self) -> bool:
        """Whether a key is asked for."""
        ...

    async def enter(self, credential: str | None, peer: str) -> Access:
        """What whoever brings this may do. Raises NotAuthenticated, and takes its time over it.

        `peer` is the address the client comes from: repeated failures from there are slowed.
        """
        ...

    def still(self, access: Access) -> Access:
        """The same key as it is now: keys may be changed and removed while they are in use.
        Raises NotAuthenticated where it is gone. Cheap: asked for every request over HTTP."""
        ...


class WatchedGate(Gate, Protocol):
    """What a front end knows of it whose clients stay: it waits and watches by itself."""

    def judge(self, credential: str | None, peer: str) -> Access:
        """The same at once, for a front end that waits by itself: see `hold_back`."""
        ...

    def hold_back(self, peer: str) -> float | None:
        """For how many seconds to keep the answer to a failed login; None: too many are kept
        already, and this one is dropped without an answer. `let_go` ends it."""
        ...

    def let_go(self, peer: str) -> None: ...

    @property
    def watch_seconds(self) -> float | None:
        """How often `refresh` is to be called while clients are connected; None: never."""
        ...

    def refresh(self) -> None:
        """Look whether keys have changed; who asked for it by `on_changed` hears of it."""
        ...

    def reload(self) -> None:
        """The same now, however short ago that was: somebody has asked for it (SIGHUP)."""
        ...

    def on_changed(self, callback: Callable[[], None]) -> None:
        """Call back when `still` may say something else than before."""
        ...

    def keys_shown(self) -> list[dict[str, Any]]:
        """The keys as they may be shown to who administers everything: no secret, no hash."""
        ...


class OpenGate:
    """Asks nobody. What a broker has that listens on this machine alone and has no keys.

    Who brings a key is let in too, so that the same settings of a client work everywhere.
    """

    is_closed: bool = False
    watch_seconds: float | None = None

    async def enter(self, credential: str | None, peer: str) -> Access:
        return EVERYTHING

    def judge(self, credential: str | None, peer: str) -> Access:
        return EVERYTHING

    def hold_back(self, peer: str) -> float | None:
        return 0.0

    def let_go(self, peer: str) -> None:
        pass

    def still(self, access: Access) -> Access:
        return access

    def refresh(self) -> None:
        pass

    def reload(self) -> None:
        pass

    def on_changed(self, callback: Callable[[], None]) -> None:
        pass

    def keys_shown(self) -> list[dict[str, Any]]:
        return []
