"""Certificates and keys from files, into a context. Every error names the file and the cause."""

from __future__ import annotations

import os
import ssl
from pathlib import Path

from ...errors import InvalidRequest

Stamp = tuple[tuple[int, int, int], ...]


def load_pair(context: ssl.SSLContext, certificate: Path, key: Path, *, names: str) -> None:
    """A certificate with its key. `names` is what the two are called where they were given."""
    for path in {certificate, key}:
        read_text(path, names)

    def ask() -> str:  # else OpenSSL would ask on the terminal, and wait
        raise InvalidRequest(
            f"{key} ({names}): the private key has a password; store it without one, "
            "readable by this user only"
        )

    try:
        context.load_cert_chain(certificate, key, password=ask)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            why = f"the private key {key} does not belong to the certificate {certificate}"
        else:
            why = (
                f"{certificate} and {key} are not a certificate and private key in PEM "
                f"format ({error.reason or error})"
            )
        raise InvalidRequest(f"{why} ({names})") from None
    except OSError as error:
        raise unreadable(certificate, names, error) from None


def load_authorities(context: ssl.SSLContext, path: Path, *, name: str) -> None:
    """The certificates of those who may sign, from a file or a directory of hashed names."""
    try:
        if path.is_dir():
            context.load_verify_locations(capath=path)
            return
        read_text(path, name)
        context.load_verify_locations(cafile=path)
    except ssl.SSLError as error:
        raise InvalidRequest(
            f"{path} ({name}) contains no certificates in PEM format ({error.reason or error})"
        ) from None
    except OSError as error:
        raise unreadable(path, name, error) from None


def read_text(path: Path, name: str) -> str:
    try:
        return path.read_text("ascii", "replace")
    except OSError as error:
        raise unreadable(path, name, error) from None


def unreadable(path: Path, name: str, error: OSError) -> InvalidRequest:
    return InvalidRequest(f"cannot read {path} ({name}): {error.strerror or error}")


def stamp_of(paths: list[Path]) -> Stamp:
    """Differs once any of the files was written to or replaced. A missing one has a stamp too."""
    return tuple(_stamp(path) for path in paths)


def _stamp(path: Path) -> tuple[int, int, int]:
    try:
        found = os.stat(path)
    except OSError:
        return 0, 0, 0
    return found.st_ino, found.st_size, found.st_mtime_ns
