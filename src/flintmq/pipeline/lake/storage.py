"""A directory in object storage, for tables and archives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from ...storage.object_systems import filesystem_of
from ...storage.object_systems import storage_options as storage_options


def is_object_url(text: str) -> bool:
    return "://" in text and urlsplit(text).scheme != "file"


@dataclass(frozen=True, slots=True)
class ObjectPlaces:
    """A directory in object storage; may be sent to tasks."""

    url: str
    options: Mapping[str, str]

    @property
    def directory(self) -> str:
        """As the file system names it: bucket and path."""
        parts = urlsplit(self.url)
        return f"{parts.netloc}{parts.path}".rstrip("/")

    def filesystem(self) -> Any:
        return filesystem_of(self.url, self.options, "iceberg")
