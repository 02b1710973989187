"""The keys of a broker at rest: one JSON file. `flintmq key` writes it, brokers read it.

    {"version": 1, "keys": [
      {"id": "4f1c22d09ab37e55", "name": "billing", "salt": "...", "hash": "...",
       "grants": [{"topics": "orders.>", "may": ["publish", "consume"]}],
       "made_at_ms": 1790000000000, "expires_at_ms": null, "note": ""}]}

A key is `flint_<id>_<secret>`. The id is public and says which entry is meant. Of the secret, which
is 256 random bits, only a salted SHA-256 is kept. A slow hash would add nothing: those exist for
secrets that can be guessed, and 2**256 are too many to try, while every login would cost us what
it costs an attacker.

A cluster keeps keys too, as definitions: each by its id, as JSON of the same form. One that was
taken away leaves its id behind: so nobody brings it back from a file, and a cluster without keys
asks for one all the same.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import msgspec

from ..access import TopicGrant
from ..errors import Corrupt, InvalidRequest, UnsupportedFormat
from ..model import Definition
from ..patterns import check_name
from .filesystem import LocalFileSystem, read_file

VERSION = 1
KEYS_FILE = "keys.json"
PREFIX = "flint"
ID_BYTES = 8
SECRET_BYTES = 32
SALT_BYTES = 16
NAME_MAX = 200
SHOWN_EXPIRED_MS = 24 * 3600 * 1000
"""How long a key that has expired is still listed."""
FILE_BYTES_MAX = 64 * 1024 * 1024
_ID = re.compile(rf"[0-9a-f]{{{2 * ID_BYTES}}}\Z")
_SECRET = re.compile(r"[A-Za-z0-9_-]{43}\Z")

Stamp = tuple[int, int, int]


class StoredGrant(msgspec.Struct, frozen=True):
    topics: str
    may: list[str]


class ApiKey(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a key. Not the key itself: that is shown once, when it is made."""

    id: str
    name: str
    salt: str
    hash: str
    grants: list[StoredGrant]
    made_at_ms: int
    expires_at_ms: int | None = None
    note: str = ""

    def __repr__(self) -> str:
        return f"Key({self.id}, {self.name!r})"

    def is_expired(self, now_ms: int) -> bool:
        return self.expires_at_ms is not None and self.expires_at_ms <= now_ms

    def granted(self) -> tuple[TopicGrant, ...]:
        return tuple(TopicGrant.of(one.topics, one.may) for one in self.grants)


class _StoredKeys(msgspec.Struct):
    version: int
    keys: list[ApiKey] = []


class RemovedKey(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is left of a key of a cluster."""

    id: str
    removed: bool = True


SHARED_KIND = "api-key"
"""Of the definitions of a cluster that are its keys. They belong to no topic."""

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(_StoredKeys)


# --- keys


def make_key(
    name: str,
    grants: Sequence[TopicGrant],
    *,
    now_ms: int,
    expires_at_ms: int | None,
    note: str = "",
) -> tuple[ApiKey, str]:
    """A new key: what is kept of it, and the key itself, which cannot be had a second time."""
    check_name(name, "key")
    if len(name) > NAME_MAX:
        raise InvalidRequest(f"the name of a key has at most {NAME_MAX} characters")
    if not grants:
        raise InvalidRequest("a key without a grant may do nothing: name at least one")
    id = secrets.token_hex(ID_BYTES)
    secret = secrets.token_urlsafe(SECRET_BYTES)
    salt = secrets.token_hex(SALT_BYTES)
    key = ApiKey(
        id=id,
        name=name,
        salt=salt,
        hash=hash_of(secret, salt),
        grants=[StoredGrant(grant.pattern, sorted(grant.permissions)) for grant in grants],
        made_at_ms=now_ms,
        expires_at_ms=expires_at_ms,
        note=note,
    )
    return key, f"{PREFIX}_{id}_{secret}"


def hash_of(secret: str, salt: str) -> str:
    return hashlib.sha256(bytes.fromhex(salt) + secret.encode()).hexdigest()


def parse_key(text: str) -> tuple[str, str] | None:
    """Id and secret, or None where that is no key. Log the id alone."""
    prefix, _, rest = text.partition("_")
    id, _, secret = rest.partition("_")
    if prefix != PREFIX or not _ID.match(id) or not _SECRET.match(secret):
        return None
    return id, secret


_NOBODY = ApiKey(id="", name="", salt="00" * SALT_BYTES, hash="00" * 32, grants=[], made_at_ms=0)


def is_secret_of(key: ApiKey | None, secret: str) -> bool:
    """Takes as long for a key that is not there, so that the time tells nothing of it."""
    held = _NOBODY if key is None else key
    is_right = hmac.compare_digest(hash_of(secret, held.salt), held.hash)
    return is_right and key is not None


# --- those of a cluster


def shared_value(key: ApiKey | RemovedKey) -> bytes:
    return _encoder.encode(key)


def shared_keys(definitions: Iterable[Definition]) -> list[ApiKey]:
    """The keys that a cluster has. What is none of ours lets nobody in."""
    found = (shared_key(one) for one in definitions)
    return [key for key in found if key is not None]


def shared_key(definition: Definition) -> ApiKey | None:
    """None: it was removed."""
    try:
        key = msgspec.json.decode(definition.value, type=ApiKey)
        key.granted()
        bytes.fromhex(key.salt)
    except (msgspec.DecodeError, InvalidRequest, ValueError):
        return None
    return key if key.id == definition.name and _ID.match(key.id) else None


# --- the file


class KeyFile:
    """Reading never locks: a change puts a whole new file in place of the old one."""

    def __init__(self, path: Path) -> None:
        self._filesystem = LocalFileSystem(path.parent)
        self._name = path.name

    @property
    def path(self) -> str:
        return self._filesystem.describe(self._name)

    def stamp(self) -> Stamp | None:
        """Differs whenever the file was changed; None where it is not there."""
        return self._filesystem.stamp(self._name)

    def is_read_by_others(self) -> bool:
        return self._filesystem.is_read_by_others(self._name)

    def read(self) -> list[ApiKey]:
        """Raises Corrupt for a file that is not whole: nothing of it is used."""
        if self._filesystem.size_of(self._name) > FILE_BYTES_MAX:
            raise Corrupt(f"{self.path} is larger than {FILE_BYTES_MAX:,} bytes: no file of keys")
        data = read_file(self._filesystem, self._name)
        try:
            stored = _decoder.decode(data)
            if stored.version != VERSION:
                raise UnsupportedFormat(
                    f"{self.path} is of version {stored.version}, this FlintMQ knows {VERSION}; "
                    "update FlintMQ"
                )
            for key in stored.keys:
                key.granted()
                bytes.fromhex(key.salt)
                if not _ID.match(key.id) or not key.hash.isascii():
                    raise ValueError("an id or a hash is not valid")
        except (msgspec.DecodeError, InvalidRequest, ValueError) as error:
            raise Corrupt(
                f"{self.path} is not a valid key file ({error}); fix it, or restore a copy"
            ) from None
        if len({key.id for key in stored.keys}) < len(stored.keys):
            raise Corrupt(f"{self.path} has two keys with the same id; remove one of them")
        return stored.keys

    def add(self, key: ApiKey) -> None:
        """Add a key. Those that expired long ago go: a site may make one for each visit."""
        now_ms = key.made_at_ms
        with self._change() as keys:
            keys[:] = [known for known in keys if not known.is_expired(now_ms - SHOWN_EXPIRED_MS)]
            keys[:] = [one for one in keys if one.name != key.name or not one.is_expired(now_ms)]
            if any(known.name == key.name for known in keys):
                raise InvalidRequest(
                    f"there is a key {key.name!r} already: choose another name, or revoke that one "
                    "first with `flintmq key rm`"
                )
            keys.append(key)

    def remove(self, name_or_id: str) -> ApiKey:
        """Take a key away, by its id or else by its name."""
        with self._change() as keys:
            found = [key for key in keys if key.id == name_or_id]
            found = found or [key for key in keys if key.name == name_or_id]
            if not found:
                raise InvalidRequest(
                    f"there is no key {name_or_id!r} in {self.path}; `flintmq key ls` shows them"
                )
            keys.remove(found[0])
        return found[0]

    @contextmanager
    def _change(self) -> Iterator[list[ApiKey]]:
        """Read, let change, and write anew, under a lock: two at once lose nothing."""
        with self._filesystem.alone(f"{self._name}.lock"):
            keys = [] if self.stamp() is None else self.read()
            yield keys
            self._write(keys)

    def _write(self, keys: list[ApiKey]) -> None:
        data = msgspec.json.format(_encoder.encode(_StoredKeys(VERSION, keys)), indent=2)
        filesystem, beside = self._filesystem, f"{self._name}.tmp"
        if filesystem.exists(beside):
            filesystem.remove(beside)  # of one that was killed
        with closing(filesystem.create_private(beside)) as file:
            file.pwritev([data + b"\n"], 0)
            file.sync_all()
        filesystem.rename(beside, self._name)
        filesystem.sync_directory()
