"""The keys a running broker knows: those of its file, looked at again when it has changed, and of
its cluster."""

from __future__ import annotations

import logging
from typing import NamedTuple

from ...access import Access
from ...clock import Clock, SystemClock
from ...errors import FlintError
from ...observe.logs import event
from ...storage.key_file import ApiKey, KeyFile, Stamp, is_secret_of, parse_key

_log = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
"""Minimum interval between two checks of the file."""

CREDENTIAL_MAX = 256


class CheckedKey(NamedTuple):
    key: ApiKey
    access: Access


class CredentialFault(NamedTuple):
    """Why a credential is none. For counters and logs; a client hears the same of all."""

    reason: str
    id: str = ""


class KeyRing:
    """A file that cannot be read changes nothing: the keys stay as they were, and it is logged. The
    first one closes the broker all the same."""

    def __init__(self, file: KeyFile, *, clock: Clock | None = None) -> None:
        self.file = file
        self._clock = clock or SystemClock()
        self._held: dict[str, CheckedKey] = {}
        self._in_file: list[ApiKey] = []
        self._shared: list[ApiKey] = []
        self._stamp: Stamp | None = None
        self._look_at = float("-inf")
        self._expires_at_ms: int | None = None
        self._complained_of: object = None
        self._used_at_ms: dict[str, int] = {}
        self.is_there = False
        """Whether there is, or was, a keys file: without one, no key is required."""

    @property
    def path(self) -> str:
        return self.file.path

    def entries(self) -> list[tuple[ApiKey, int | None]]:
        """Every key, and when it was last used since the broker was started, in milliseconds."""
        return [(held.key, self._used_at_ms.get(id)) for id, held in self._held.items()]

    # --- the file

    def load(self) -> None:
        """Read the file for the first time: what cannot be read is an error here."""
        self._stamp = self.file.stamp()
        if self._stamp is not None:
            self._take(self.file.read())
            if self.file.is_read_by_others():
                event(
                    _log,
                    logging.WARNING,
                    "keys_readable_by_others",
                    f"{self.path} can be read by other users of this machine; run chmod 600 on it",
                    file=self.path,
                )

    def refresh(self, *, at_once: bool = False) -> bool:
        """Look whether the keys are others than they were: by the file, or because one expired."""
        now = self._clock.monotonic()
        if now < self._look_at and not at_once:
            return False
        self._look_at = now + LOOK_SECONDS
        return self._read_changes() or self._has_expired()

    def _read_changes(self) -> bool:
        stamp: Stamp | None = None
        try:
            stamp = self.file.stamp()
            if stamp == self._stamp:
                return False
            if stamp is None:
                self._complain("was deleted", stamp)
                return False
            keys = self.file.read()
        except FlintError as error:
            self._complain(f"cannot be read: {error}", stamp)
            return self._is_closed_by(stamp)
        self._stamp = stamp
        self._complained_of = None
        self._take(keys)
        event(
            _log,
            logging.INFO,
            "keys_read",
            f"{self.path}: {len(keys)} keys",
            file=self.path,
            keys=len(keys),
        )
        return True

    def _is_closed_by(self, stamp: Stamp | None) -> bool:
        """Somebody has made a first key, and we cannot read it (it may be another user's): they
        rely on a key being required."""
        if stamp is None or self.is_there:
            return False
        self.is_there = True
        return True

    def _complain(self, what: str, stamp: Stamp | None) -> None:
        if self._complained_of != (what, stamp):  # once for each state of the file
            self._complained_of = (what, stamp)
            event(
                _log,
                logging.ERROR,
                "keys_not_read",
                f"{self.path} {what}; "
                + (
                    "the previous keys stay valid"
                    if self.is_there
                    else "all clients are rejected until it can be read"
                ),
                file=self.path,
            )

    def share(self, keys: list[ApiKey]) -> None:
        """The keys of the cluster, from now on. None of them: a key is required all the same."""
        self._shared = keys
        self._take_all()

    def _take(self, keys: list[ApiKey]) -> None:
        self._in_file = keys
        self._take_all()

    def _take_all(self) -> None:
        self.is_there = True
        before, self._held = self._held, {}
        for key in (*self._in_file, *self._shared):
            known = before.get(key.id)
            if known is not None and known.key == key:
                self._held[key.id] = known  # and all that was decided for it
            else:
                self._held[key.id] = CheckedKey(key, Access(key.name, key.granted(), key.id))
        self._used_at_ms = {id: at for id, at in self._used_at_ms.items() if id in self._held}
        self._next_expiry()

    def _next_expiry(self) -> None:
        now_ms = self._clock.now_ms()
        ahead = [
            at
            for held in self._held.values()
            if (at := held.key.expires_at_ms) is not None and at > now_ms
        ]
        self._expires_at_ms = min(ahead, default=None)

    def _has_expired(self) -> bool:
        if self._expires_at_ms is None or self._clock.now_ms() < self._expires_at_ms:
            return False
        self._next_expiry()
        return True

    # --- asking

    def find(self, credential: str) -> Access | CredentialFault:
        parsed = parse_key(credential) if len(credential) <= CREDENTIAL_MAX else None
        if parsed is None:
            return CredentialFault("malformed")
        id, secret = parsed
        held = self._held.get(id)
        if not is_secret_of(None if held is None else held.key, secret):
            return CredentialFault("unknown" if held is None else "wrong", id)
        assert held is not None
        now_ms = self._clock.now_ms()
        if held.key.is_expired(now_ms):
            return CredentialFault("expired", id)
        self._used_at_ms[id] = now_ms
        return held.access

    def now(self, id: str) -> Access | CredentialFault:
        """What a key that came in before may do now."""
        held = self._held.get(id)
        if held is None:
            return CredentialFault("removed", id)
        if held.key.is_expired(self._clock.now_ms()):
            return CredentialFault("expired", id)
        return held.access
