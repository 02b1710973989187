"""A bundle for a bug report: the findings and related files as a zip file."""

from __future__ import annotations

import os
import re
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from .findings import Report

_IP4 = re.compile(r"\b(?:\d{1,3}\.){3}\d{1,3}\b")
_IP6 = re.compile(r"(?<![\w:])(?:[0-9a-fA-F]{1,4}:){3,7}[0-9a-fA-F]{1,4}(?![\w:])")
_PATH = re.compile(r"(?<![\w.:/<])/(?:[^\s/\"',;:()\[\]{}<>]+/?)+")
_USERINFO = re.compile(r"(?<=://)[^/\s@\"']+@")
_SYSTEM = ("/proc", "/sys", "/dev")
_LOOPBACK = {"127.0.0.1", "0.0.0.0"}


def without_userinfo(text: str) -> str:
    """URLs without user name and password."""
    return _USERINFO.sub("(secret)@", text)


class Redactor:
    """Replaces each host, address or path by the same placeholder everywhere.

    `hosts` are host names that could not be recognised otherwise.
    """

    def __init__(self, hosts: Iterable[str] = ()) -> None:
        self._hosts = sorted({host for host in hosts if len(host) > 2}, key=len, reverse=True)
        self._known: dict[str, str] = {}
        self._counts: dict[str, int] = {}

    def text(self, text: str) -> str:
        text = without_userinfo(text)
        for host in self._hosts:
            if host in text and host not in ("localhost", *_LOOPBACK):
                text = text.replace(host, self._stand_in("host", host))
        text = _PATH.sub(self._path, text)
        text = _IP4.sub(self._address, text)
        return _IP6.sub(self._address, text)

    def value(self, value: Any) -> Any:
        """The same for all strings inside a JSON value."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.text(str(name)): self.value(one) for name, one in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.value(one) for one in value]
        return value

    def _path(self, match: re.Match[str]) -> str:
        path = match.group()
        return path if path.startswith(_SYSTEM) else self._stand_in("path", path.rstrip("/."))

    def _address(self, match: re.Match[str]) -> str:
        address = match.group()
        return address if address in _LOOPBACK else self._stand_in("address", address)

    def _stand_in(self, kind: str, what: str) -> str:
        if what not in self._known:
            self._counts[kind] = self._counts.get(kind, 0) + 1
            self._known[what] = f"<{kind}-{self._counts[kind]}>"
        return self._known[what]


def write_bundle(path: Path, report: Report, log_lines: list[str] | None = None) -> None:
    """Write the zip file, readable by its owner only: it reveals a lot about a machine."""
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with (
        os.fdopen(descriptor, "wb") as file,
        zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as bundle,
    ):
        bundle.writestr("report.txt", report.text() + "\n")
        found = msgspec.json.format(msgspec.json.encode(report), indent=2)
        bundle.writestr("report.json", found + b"\n")
        if log_lines is not None:
            bundle.writestr("log.txt", "".join(f"{line}\n" for line in log_lines))
