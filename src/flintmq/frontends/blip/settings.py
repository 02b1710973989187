"""BlipMQ's configuration as FlintMQ settings: its files (both sets of keys), variables and
defaults.

BlipMQ settings without a counterpart here cause a warning, not an error; so do unknown ones.
FLINTMQ_ variables and flags take precedence.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ...config.files import TOML, YAML, ConfigEntry, FileUnreadable, read_entries, toml_entries
from ...config.kinds import UnfitValue, flat
from ...config.mistakes import why_not
from ...config.settings import Resolved, resolve
from ...config.table import BY_NAME
from ...errors import InvalidRequest, MissingExtra
from ...fsync_policy import FsyncPolicy

DEFAULTS: dict[str, Any] = {
    "data_dir": Path("blipmq.wal.flintmq"),
    "blip": ("127.0.0.1", 5555),
    "http": ("127.0.0.1", 9100),
}
TOPIC_DEFAULTS: dict[str, Any] = {
    "max_deliveries": 3,
    # What no subscription waits for any more goes after a day; what one does, stays.
    "retention_age": 86_400.0,
    "keep_until_settled": True,
}
VARIABLES = (
    "BIND_ADDR", "PORT", "METRICS_ADDR", "METRICS_PORT", "WAL_PATH", "FSYNC_POLICY", "MAX_RETRIES",
    "RETRY_BACKOFF_MS", "ALLOWED_API_KEYS", "ENABLE_TOKIO_CONSOLE", "TLS_CERT_PATH", "TLS_KEY_PATH",
)  # fmt: skip
"""With the prefix BLIPMQ_, as in its code; or without, as in its readme."""

OURS = {
    "allowed_api_keys": "blip_api_keys",
    "tls_cert_path": "tls_cert",
    "tls_key_path": "tls_key",
    "server.bind_addr": "blip",
    "server.max_connections": "max_connections",
    "server.max_message_size_bytes": "blip_max_command_bytes",
    "queues.subscriber_capacity": "blip_queue_capacity",
    "queues.overflow_policy": "blip_overflow",
    "metrics.bind_addr": "http",
}
"""BlipMQ's names and ours, where the values are the same."""
HOSTS = {"bind_addr": "blip", "metrics_addr": "http"}
PORTS = {"port": "blip", "metrics_port": "http"}
"""Parts of an address here."""

LEVELS = {"error": "error", "warn": "warning", "info": "info", "debug": "debug", "trace": "debug"}
"""Levels of RUST_LOG."""

USELESS = {
    "enable_tokio_console", "queues.topic_capacity", "queues.max_queue_depth", "wal.enabled",
    "wal.segment_size_bytes", "wal.segment_size_mb", "wal.max_segments", "wal.flush_interval_ms",
    "wal.fsync_interval_ms", "delivery.max_batch", "delivery.max_batch_bytes",
    "delivery.flush_interval_ms", "delivery.fanout_shards", "delivery.default_ttl_ms",
    "server.auth_enabled", "server.api_key", "metrics.enabled", "wal.wal_dir",
}  # fmt: skip
"""BlipMQ settings without effect here; all of `performance` and `logging` too."""


def resolve_blip(
    *,
    file: Path | None = None,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, str | bool] | None = None,
) -> Resolved:
    """Merge BlipMQ's configuration with FlintMQ's variables and flags."""
    environment = environment or {}
    theirs = _Theirs()
    named = environment.get("BLIPMQ_CONFIG") or environment.get("CONFIG")
    if file is None and named:
        file = Path(named)
    if file is not None:
        theirs.take_file(file)
    for variable in VARIABLES:
        for name in (variable, f"BLIPMQ_{variable}"):  # the second counts before the first
            if text := environment.get(name, "").strip():
                theirs.take(variable.lower(), text, name)
    if wanted := environment.get("RUST_LOG", "").strip():
        theirs.take_log_level(wanted)
    ours = resolve(environment=_without_file(environment), flags=flags)
    return theirs.with_ours(ours)


def _without_file(environment: Mapping[str, str]) -> dict[str, str]:
    """A FlintMQ configuration file belongs to `flintmq serve`."""
    return {name: value for name, value in environment.items() if name != "FLINTMQ_CONFIG"}


class _Theirs:
    def __init__(self) -> None:
        self.resolved = Resolved()
        self._hosts: dict[str, tuple[str, str]] = {}
        self._ports: dict[str, tuple[int, str]] = {}
        self._topics = dict(TOPIC_DEFAULTS)
        self._topics_source = "BlipMQ's default"
        self._takers: dict[str, Callable[[Any, str], None]] = {
            "wal_path": lambda value, source: self._set("data_dir", f"{value}.flintmq", source),
            "wal.directory": lambda value, source: self._set(
                "data_dir", str(Path(str(value)) / "flintmq"), source
            ),
            "fsync_policy": self._fsync,
            "max_retries": self._retries,
            "retry_backoff_ms": self._backoff,
            "auth.api_keys": self._first_keys,
        }

    def take_file(self, path: Path) -> None:
        try:
            entries = _entries(path)
        except (FileUnreadable, MissingExtra) as error:
            self.resolved.problems.append(str(error))
            return
        for entry in entries:
            if isinstance(entry.value, Mapping):
                for name, value in flat(entry.value).items():
                    line = entry.inner_lines.get(name, entry.line)
                    self.take(f"{entry.key}.{name}", value, f"{path}:{line}")
            else:
                self.take(entry.key, entry.value, f"{path}:{entry.line}")

    def take(self, key: str, value: Any, source: str) -> None:
        if key in OURS:
            self._set(OURS[key], value, source)
        elif key in HOSTS:
            self._hosts[HOSTS[key]] = str(value), source
        elif key in PORTS:
            port = self._number(value, source, 65_535)
            if port is not None:
                self._ports[PORTS[key]] = port, source
        elif key in self._takers:
            self._takers[key](value, source)
        elif key in USELESS or key.startswith(("performance.", "logging.")):
            self.resolved.doubts.append(f"{source}: {key} has no effect in FlintMQ and is ignored")
        else:
            self.resolved.doubts.append(f"{source}: {key} is not a BlipMQ setting and is ignored")

    def take_log_level(self, wanted: str) -> None:
        level = LEVELS.get(wanted.lower())
        if level is None:
            self.resolved.doubts.append(
                f"RUST_LOG: {wanted!r} is ignored; use one of {', '.join(LEVELS)}, or --log-level"
            )
        else:
            self.resolved.take("log_level", level, "RUST_LOG")

    def _set(self, name: str, value: Any, source: str) -> None:
        setting = BY_NAME[name]
        try:
            checked = (
                setting.from_text(value) if isinstance(value, str) else setting.from_value(value)
            )
        except UnfitValue as unfit:
            self.resolved.problems.append(f"{source}: {why_not(setting, value, unfit)}")
        else:
            self.resolved.take(name, checked, source)

    def _number(self, value: Any, source: str, most: int) -> int | None:
        try:
            number = int(value)
            if isinstance(value, bool | float) or not 0 <= number <= most:
                raise ValueError
        except (TypeError, ValueError):
            self.resolved.problems.append(
                f"{source}: must be a whole number from 0 to {most:,}, not {value!r}"
            )
            return None
        return number

    def _fsync(self, value: Any, source: str) -> None:
        word = str(value).strip().lower()
        kind, _, number = word.partition(":")
        if word == "none":
            word = "never"
        elif word == "every_n:0":
            word = "always"
        elif kind == "interval_ms":
            word = f"interval:{number}"
        try:
            self.resolved.take("fsync", FsyncPolicy.parse(word), source)
        except InvalidRequest:
            self.resolved.problems.append(
                f"{source}: fsync_policy must be always, none, every_n:<n> or "
                f"interval_ms:<ms>, not {value!r}"
            )

    def _retries(self, value: Any, source: str) -> None:
        number = self._number(value, source, 2**32 - 1)
        if number is not None:
            self._topics["max_deliveries"] = max(1, number)  # as there
            self._topics_source = source

    def _backoff(self, value: Any, source: str) -> None:
        number = self._number(value, source, 86_400_000)
        if number is not None:
            self.resolved.take("blip_retry_backoff", max(1, number) / 1000, source)

    def _first_keys(self, value: Any, source: str) -> None:
        self._set("blip_api_keys", value, source)
        if value:
            self.resolved.doubts.append(
                f"{source}: with auth.api_keys, clients of BlipMQ's first protocol are "
                "rejected, because they cannot send a key; leave the list empty to allow "
                "them"
            )

    def with_ours(self, ours: Resolved) -> Resolved:
        resolved = self.resolved
        for name, value in DEFAULTS.items():
            if name not in resolved.values:
                resolved.take(name, value, "BlipMQ's default")
        for name in ("blip", "http"):
            host, port = self._hosts.get(name), self._ports.get(name)
            if host is not None or port is not None:
                was_host, was_port = resolved.values[name] or DEFAULTS[name]
                address = (
                    was_host if host is None else host[0],
                    was_port if port is None else port[0],
                )
                sources = [one[1] for one in (host, port) if one is not None]
                resolved.take(name, address, ", ".join(sources))
        resolved.take("topic_defaults", self._topics, self._topics_source)
        for name, value in ours.values.items():
            if name == "topic_defaults":
                value = {**self._topics, **value}
            resolved.take(name, value, ours.sources[name])
        resolved.problems += ours.problems
        resolved.doubts += ours.doubts
        return resolved


def _entries(path: Path) -> list[ConfigEntry]:
    """YAML or TOML, by the extension, as in BlipMQ."""
    if path.suffix.lower() in TOML + YAML:
        return read_entries(path)
    try:
        return toml_entries(path.read_text(encoding="utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise FileUnreadable(f"{path}: cannot read the file: {error}") from None
