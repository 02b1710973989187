"""File systems by URL: `s3://`, `gs://`, `abfss://`, and every other one that fsspec knows.

Options have the names of Delta's (`aws_access_key_id` ...), so one set of them serves for both;
without them, the environment of the process does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from ..errors import InvalidRequest, extra_module

OF_STORAGE = ("aws_", "google_", "azure_", "allow_http")


def storage_options(options: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): v for name, v in options.items() if name.lower().startswith(OF_STORAGE)}


def filesystem_of(url: str, options: Mapping[str, str], extra: str) -> Any:
    """A file system of PyArrow's. `extra` is what has to be installed for it."""
    scheme = urlsplit(url).scheme
    fs = extra_module(f"storage at {scheme}://", extra, "pyarrow.fs")
    made = SYSTEMS.get(scheme)
    if made is not None:
        return made(fs, options)
    core = extra_module(f"storage at {scheme}://", extra, "fsspec.core")
    try:
        found, _ = core.url_to_fs(url)
    except (ImportError, ValueError) as error:
        raise InvalidRequest(f"{url}: {error}") from error
    return fs.PyFileSystem(fs.FSSpecHandler(found))


def _s3(fs: Any, options: Mapping[str, str]) -> Any:
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


def _google(fs: Any, options: Mapping[str, str]) -> Any:
    return fs.GcsFileSystem()


def _azure(fs: Any, options: Mapping[str, str]) -> Any:
    return fs.AzureFileSystem(
        account_name=options["azure_storage_account_name"],
        account_key=options.get("azure_storage_account_key"),
    )


SYSTEMS: dict[str, Callable[[Any, Mapping[str, str]], Any]] = {
    "s3": _s3, "s3a": _s3, "gs": _google, "abfs": _azure, "abfss": _azure, "az": _azure,
}  # fmt: skip
