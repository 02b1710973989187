"""The gate of a broker: who comes in, and what they may do. Every front end asks it.

A front end takes a credential from its client in its own way (the OPEN frame, an Authorization
header) and hands it in here; what comes back is asked before every verb.
"""

from __future__ import annotations

from typing import Protocol

from ..access import EVERYTHING, Access


class Gate(Protocol):
    """What front ends know of it."""

    async def enter(self, credential: str | None, peer: str) -> Access:
        """What whoever brings this may do. Raises NotAuthenticated, and takes its time over it.

        `peer` is the address the client comes from: repeated failures from there are slowed.
        """
        ...

    def still(self, access: Access) -> Access:
        """The same key as it is now: keys may be changed and removed while they are in use.
        Raises NotAuthenticated where it is gone. Cheap: asked for every request over HTTP."""
        ...


class OpenGate:
    """Asks nobody. What a broker has that listens on this machine alone and has no keys."""

    async def enter(self, credential: str | None, peer: str) -> Access:
        return EVERYTHING

    def still(self, access: Access) -> Access:
        return access
