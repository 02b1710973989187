"""File systems by URL: `s3://`, `gs://`, `abfss://`, and every other one that fsspec knows.

Options have the names of Delta's (`aws_access_key_id` ...), so one set of them serves for both;
without them, the environment of the process does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from ...errors import InvalidRequest, extra_module

OF_STORAGE = ("aws_", "google_", "azure_", "allow_http")


def is_object_url(text: str) -> bool:
    return "://" in text and urlsplit(text).scheme != "file"


def storage_options(options: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): v for name, v in options.items() if name.lower().startswith(OF_STORAGE)}


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
        scheme = urlsplit(self.url).scheme
        made = SYSTEMS.get(scheme)
        if made is not None:
            return made(self.options)
        from pyarrow import fs

        core = extra_module(f"storage at {scheme}://", "iceberg", "fsspec.core")
        try:
            found, _ = core.url_to_fs(self.url)
        except (ImportError, ValueError) as error:
            raise InvalidRequest(f"{self.url}: {error}") from error
        return fs.PyFileSystem(fs.FSSpecHandler(found))


def _s3(options: Mapping[str, str]) -> Any:
    from pyarrow import fs

    endpoint = options.get("aws_endpoint_url")
    parts = urlsplit(endpoint) if endpoint else None
    given = {
        "access_key": options.get("aws_access_key_id"),
        "secret_key": options.get("aws_secret_access_key"),
        "session_token": options.get("aws_session_token"),
        "region": options.get("aws_region") or options.get("aws_default_region"),
        "endpoint_override": parts.netloc if parts is not None else None,
        "scheme": parts.scheme if parts is not None else None,
    }
    return fs.S3FileSystem(**{name: value for name, value in given.items() if value is not None})


def _google(options: Mapping[str, str]) -> Any:
    from pyarrow import fs

    return fs.GcsFileSystem()


def _azure(options: Mapping[str, str]) -> Any:
    from pyarrow import fs

    return fs.AzureFileSystem(
        account_name=options["azure_storage_account_name"],
        account_key=options.get("azure_storage_account_key"),
    )


SYSTEMS: dict[str, Callable[[Mapping[str, str]], Any]] = {
    "s3": _s3, "s3a": _s3, "gs": _google, "abfs": _azure, "abfss": _azure, "az": _azure,
}  # fmt: skip
