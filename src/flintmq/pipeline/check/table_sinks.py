"""Checks sinks that are tables of a lake: their names, addresses and options. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from ..define.definition import FilePlace, Sink
from ..define.durations import seconds_of
from ..define.problems import Defect, meant
from .parts import no_duration, place_in

DELTA_SCHEMES = ("s3", "s3a", "gs", "az", "abfs", "abfss", "adl", "file")
DELTA_OPTIONS = (
    "aws_access_key_id", "aws_secret_access_key", "aws_session_token", "aws_region",
    "aws_default_region", "aws_endpoint_url", "aws_allow_http", "aws_virtual_hosted_style_request",
    "aws_conditional_put", "aws_skip_signature", "aws_s3_allow_unsafe_rename",
    "aws_s3_locking_provider", "google_service_account", "google_service_account_key",
    "google_application_credentials", "azure_storage_account_name", "azure_storage_account_key",
    "azure_storage_sas_key", "azure_storage_client_id", "azure_storage_client_secret",
    "azure_storage_tenant_id", "azure_storage_token", "azure_storage_endpoint", "allow_http",
    "timeout", "connect_timeout", "proxy_url",
)  # fmt: skip
"""Of the file systems of `deltalake`, which says nothing about names that it does not know."""
OF_DELTA_TABLE = "delta."
"""Properties of a table, for when it is made."""
ICEBERG_OPTIONS = (
    "catalog", "type", "uri", "warehouse", "location", "token", "credential", "scope",
    "oauth2-server-uri", "py-io-impl", "py-catalog-impl", "format-version", "init_catalog_tables",
)  # fmt: skip
ICEBERG_PREFIXES = (
    "s3.", "gcs.", "adls.", "hdfs.", "rest.", "glue.", "client.", "header.", "dynamodb.", "hive.",
    "auth.", "write.", "commit.", "history.", "read.",
)  # fmt: skip
ICEBERG_NAME = re.compile(r"[^\s./]+(\.[^\s./]+)+")
KEEP_SECONDS_MIN = 3600.0


def table_problems(sink: Sink) -> Iterator[Defect]:
    if sink.delta is not None:
        yield from _delta(sink, sink.delta)
    if sink.iceberg is not None:
        yield from _iceberg(sink, sink.iceberg)
    if sink.keep_versions is not None:
        yield from _keeping(place_in(sink, "keep_versions"), sink.keep_versions)


def _delta(sink: Sink, table: str) -> Iterator[Defect]:
    scheme = re.match(r"([A-Za-z][A-Za-z0-9+.-]+):", table)
    place = place_in(sink, "delta")
    if not table.strip():
        yield Defect(place, "delta is empty", "set it to a directory, or to s3://bucket/table")
    elif scheme is not None and scheme[1].lower() not in DELTA_SCHEMES:
        yield Defect(
            place,
            f"Delta tables cannot be at {scheme[1]}:",
            f"use a directory, or one of {', '.join(f'{one}://' for one in DELTA_SCHEMES)}",
        )
    yield from _options(sink, DELTA_OPTIONS, (OF_DELTA_TABLE,))


def _iceberg(sink: Sink, table: str) -> Iterator[Defect]:
    if not ICEBERG_NAME.fullmatch(table):
        yield Defect(
            place_in(sink, "iceberg"),
            f"{table!r} is not the name of an Iceberg table",
            "write namespace.table; its place comes from the catalog in options",
        )
    yield from _options(sink, ICEBERG_OPTIONS, ICEBERG_PREFIXES)


def _options(sink: Sink, names: Iterable[str], prefixes: tuple[str, ...]) -> Iterator[Defect]:
    for name in sink.options:
        if name.lower() not in names and not name.startswith(prefixes):
            yield Defect(
                sink.places.get(f"options.{name}", place_in(sink, "options")),
                f"options: unknown option {name!r}",
                meant(name.lower(), [*names, *(f"{one}*" for one in prefixes)], "there are"),
            )


def _keeping(place: FilePlace, text: str) -> Iterator[Defect]:
    seconds = seconds_of(text)
    if seconds is None:
        yield no_duration(place, "keep_versions", text)
    elif seconds < KEEP_SECONDS_MIN:
        yield Defect(
            place,
            "keep_versions must be at least 1 hour: readers and other writers use files so young",
            "use for example '7 days'",
        )
