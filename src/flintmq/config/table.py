"""The settings of a broker: one table, from which flags, environment variables, files and docs are
made.

Pure: no file and no environment is read here. A setting has the same name everywhere:
`max_connections` in a file, `FLINTMQ_MAX_CONNECTIONS` in the environment, `--max-connections` as a
flag. Defaults are those of `Config`; everything else about a setting is in its row of `SETTINGS`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import msgspec

from ..fsync_policy import ALWAYS, POLICIES, FsyncPolicy
from ..model import Overflow
from .kinds import (
    LEVELS,
    Address,
    AdvertisedAddress,
    Boolean,
    Bytes,
    Choice,
    Count,
    FilePath,
    Fsync,
    HostNames,
    HostPort,
    HostPorts,
    Kind,
    LogLevels,
    Networks,
    NodeAddresses,
    NodeName,
    Origins,
    Seconds,
    Share,
    TopicDefaults,
    Words,
)

PORT = 7600
HTTP_PORT = 7601
PEER_PORT = 7602
BLIP_PORT = 5555
DEFAULT = "default"
"""The source of a setting that was not set."""
KIB, MIB, GIB = 2**10, 2**20, 2**30
DAY = 86_400.0

Level = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["console", "json", "auto"]
Auth = Literal["auto", "required", "off"]
SyncOnLoop = Literal["auto", "never"]
Group = Literal[
    "General",
    "Security",
    "Disk",
    "Topics",
    "Connections",
    "Cluster",
    "HTTP for operations",
    "Webhooks",
    "BlipMQ clients",
    "Logs and traces",
]


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """A checked configuration; `sources` says where each value came from."""

    data_dir: Path = Path("flint-data")
    listen: Address = ("127.0.0.1", PORT)
    http: Address | None = None
    hermes: Address | None = None
    hermes_node_id: int = 1
    drain_seconds: float = 10.0

    auth: Auth = "auto"
    keys_file: Path | None = None
    login_failures_max: int = 10
    login_delay: float = 0.5
    tls_cert: Path | None = None
    tls_key: Path | None = None
    tls_client_ca: Path | None = None
    insecure: bool = False
    backup_dir: Path | None = None
    hermes_key_file: Path | None = None

    fsync: FsyncPolicy = ALWAYS
    checkpoint_bytes: int = 32 * MIB
    journal_file_bytes: int = 64 * MIB
    max_queue_bytes: int = 64 * MIB
    sync_on_loop: SyncOnLoop = "auto"
    slow_disk_seconds: float = 1.0
    scrub_bytes: int = 8 * MIB
    tiers: tuple[str, ...] = ("s3://", "gs://", "abfs://", "abfss://", "az://")

    auto_create: bool = True
    topic_defaults: dict[str, Any] = {}
    staged_seconds: float = 3600.0
    producer_seconds: float = 7 * DAY
    max_producer_bytes: int = 64 * MIB
    max_staged_bytes: int | None = None
    max_staged_writer_bytes: int | None = None
    max_decoded_bytes: int = MIB

    max_connections: int = 10_000
    max_frame_bytes: int = 64 * MIB
    max_in_flight_bytes: int = 16 * MIB
    max_delivery_bytes: int = MIB
    max_unacknowledged_bytes: int = 64 * MIB
    max_requests: int = 12_000
    max_streams: int = 10_000
    handshake_timeout: float = 10.0
    idle_timeout: float = 300.0
    ping_seconds: float = 120.0
    grace_seconds: float = 5.0
    max_away: int = 1000
    max_away_bytes: int = 256 * MIB

    node_name: str | None = None
    peer_listen: Address | None = None
    initial_cluster: tuple[str, ...] = ()
    join: tuple[str, ...] = ()
    peer_address: Address | None = None
    cluster_key_file: Path | None = None
    peer_ca: Path | None = None

    metrics: bool = True
    metrics_max_series: int = 10_000
    http_max_body_bytes: int = MIB
    http_timeout: float = 10.0
    http_max_connections: int = 100
    http_cpu_share: float = 0.1
    http_hosts: tuple[str, ...] = ()
    http_cors_origins: tuple[str, ...] = ()
    http_max_wait: float = 60.0
    http_heartbeat_seconds: float = 15.0
    http_max_stream_seconds: float = 86_400.0
    webhook_networks: tuple[str, ...] = ()
    webhook_ca: Path | None = None

    blip: Address | None = None
    blip_api_keys: tuple[str, ...] = ()
    blip_retry_backoff: float = 0.1
    blip_subscription_seconds: float = 3600.0
    blip_adopt: bool = True
    blip_queue_capacity: int = 16_384
    blip_overflow: Overflow = "drop_oldest"
    blip_max_command_bytes: int = MIB

    log_level: Level = "info"
    log_levels: dict[str, Level] = {}
    log_format: LogFormat = "auto"
    profile: Path | None = None

    sources: dict[str, str] = {}
    """For values that are not defaults: the file with its line, the variable, or the flag."""

    def described(self) -> dict[str, dict[str, Any]]:
        """Every setting with value and source, for JSON; without secrets."""
        return described(msgspec.structs.asdict(self), self.sources)

    def addresses(self) -> dict[str, Address]:
        """Where the broker listens, by the name of the setting: every one that is an address."""
        places = {one.name: getattr(self, one.name) for one in SETTINGS if one.is_address}
        return {name: place for name, place in places.items() if place is not None}

    @property
    def keys_path(self) -> Path:
        return self.keys_file or self.data_dir / "keys.json"


@dataclass(frozen=True, slots=True)
class Setting:
    """One row of the table."""

    name: str
    kind: Kind
    help: str
    group: Group = "General"
    reload: bool = False
    """Whether it can be changed while the broker runs."""
    secret: bool = False
    """Whether its value is never shown."""
    default_text: str = ""
    """The default in words, if its value does not say it."""

    @property
    def is_address(self) -> bool:
        """Whether it says where the broker listens."""
        return type(self.kind) is HostPort

    @property
    def flag(self) -> str:
        return f"--{self.name.replace('_', '-')}"

    @property
    def metavar(self) -> str:
        return "|".join(self.kind.choices) if isinstance(self.kind, Choice) else self.kind.metavar

    @property
    def variable(self) -> str:
        return variable_of(self.name)

    @property
    def default(self) -> Any:
        return _DEFAULTS.get(self.name)

    @property
    def default_shown(self) -> str:
        """For people."""
        if self.default_text:
            return self.default_text
        if isinstance(self.kind, Bytes):
            return self.kind.show(self.default)
        return self.kind.to_text(self.default) or "empty"

    def from_text(self, text: str) -> Any:
        return self.kind.from_text(text)

    def from_value(self, value: Any) -> Any:
        return self.kind.from_value(value)

    def shown(self, value: Any) -> Any:
        """The value for JSON; never a secret."""
        if value is None and self.default_text:
            return self.default_text
        return "(secret)" if self.secret else self.kind.to_plain(value)

    def shown_text(self, value: Any) -> str:
        """The value for people; never a secret."""
        if self.secret or value is None:
            return str(self.shown(value))
        return self.kind.to_text(value)


reloadable = partial(Setting, reload=True)


def variable_of(name: str) -> str:
    return f"FLINTMQ_{name.upper()}"


_FIELDS = msgspec.structs.fields(Config)
_DEFAULTS: dict[str, Any] = {
    field.name: field.default_factory() if field.default is msgspec.NODEFAULT else field.default
    for field in _FIELDS
}

GROUPS: Mapping[Group, Sequence[Setting]] = {
    "General": (
        Setting("data_dir", FilePath(), "Data directory. Created if it does not exist."),
        Setting("listen", HostPort(PORT), "Address for clients. Port 0 picks any free port."),
        Setting(
            "http", HostPort(HTTP_PORT, can_be_off=True),
            "Address for HTTP: metrics, health checks and administration; the usual port is "
            f"{HTTP_PORT}.",
        ),
        Setting(
            "hermes", HostPort(PORT, can_be_off=True),
            "Address for HermesMQ clients. FlintMQ clients can connect there too.",
        ),
        Setting("hermes_node_id", Count(1, 2**63 - 1), "Node id that HermesMQ clients see."),
        reloadable(
            "drain_seconds", Seconds(0, DAY),
            "How long shutdown waits for pending requests and for messages that consumers are "
            "processing.",
        ),
    ),
    "Security": (
        Setting(
            "auth", Choice(("auto", "required", "off")),
            "Whether clients need an API key. auto: as soon as the keys file exists.",
        ),
        Setting(
            "keys_file", FilePath(),
            "File with the hashed API keys.", default_text="keys.json in data_dir",
        ),
        reloadable(
            "login_failures_max", Count(1, 1_000_000),
            "How many failed logins of one client address may wait for their delayed reply "
            "(login_delay). Further ones are disconnected without a reply.",
        ),
        reloadable(
            "login_delay", Seconds(0, 5),
            "Delay before the reply to a failed login; it grows with each further failure from "
            "that address.",
        ),
        reloadable(
            "tls_cert", FilePath(can_be_off=True),
            "Certificate chain of the broker, as PEM. If set, all ports use TLS.",
        ),
        reloadable("tls_key", FilePath(can_be_off=True), "Private key of the certificate, as PEM."),
        reloadable(
            "tls_client_ca", FilePath(can_be_off=True),
            "CA that signs client certificates, as PEM. If set, clients need a certificate.",
        ),
        Setting(
            "backup_dir", FilePath(can_be_off=True),
            "Directory below which clients may write backups; off: anywhere the broker's user "
            "may write.",
        ),
        Setting(
            "hermes_key_file", FilePath(can_be_off=True),
            "File with the API key that HermesMQ clients act under, because they cannot send "
            "one.",
        ),
        Setting(
            "insecure", Boolean(),
            "Allow listening beyond this machine without keys or without TLS.",
        ),
    ),
    "Disk": (
        Setting(
            "fsync", Fsync(),
            f"When to sync to disk: {POLICIES}.",
        ),
        reloadable(
            "checkpoint_bytes", Bytes(64 * KIB, 64 * GIB),
            "Journal bytes between two checkpoints. The same amount is kept in memory, and is "
            "replayed after a crash.",
        ),
        Setting(
            "journal_file_bytes", Bytes(64 * KIB, 4 * GIB),
            "Size of a journal file; the first ones are smaller.",
        ),
        reloadable(
            "max_queue_bytes", Bytes(KIB),
            "Maximum bytes of all clients that wait to be written. Beyond it, publishers wait.",
        ),
        Setting(
            "sync_on_loop", Choice(("auto", "never")),
            "Whether the event loop may sync a single waiting message itself: auto (on a disk "
            "that syncs quickly) or never.",
        ),
        reloadable(
            "slow_disk_seconds", Seconds(0.001, DAY),
            "Log a write or sync that takes longer as a slow disk.",
        ),
        reloadable(
            "scrub_bytes", Bytes(0, 16 * GIB),
            "Bytes of stored messages read per second, in the background, to find damage. All "
            "messages are read at most once every six hours. 0: off.",
        ),
        Setting(
            "tiers", Words(),
            "What the `tier` of a topic may begin with.",
        ),
    ),
    "Topics": (
        reloadable(
            "auto_create", Boolean(),
            "Create a missing topic on the first publish or read.",
        ),
        reloadable(
            "topic_defaults", TopicDefaults(),
            "Default options of new topics. Existing topics keep theirs.",
        ),
        reloadable(
            "staged_seconds", Seconds(1, 365 * DAY),
            "Discard staged messages (from Spark) that are not committed within this time.",
        ),
        reloadable(
            "producer_seconds", Seconds(60, 365 * DAY),
            "How long duplicate publishes are detected, by producer and sequence. Counted from "
            "the producer's last publish to the topic.",
        ),
        reloadable(
            "max_producer_bytes", Bytes(8 * MIB),
            "Maximum memory for detecting duplicates, over all topics. Beyond it, the "
            "producers that published longest ago are forgotten.",
        ),
        Setting(
            "max_staged_bytes", Bytes(KIB, can_be_off=True),
            "Maximum bytes staged and not committed, over all writers. `off`: as much as the "
            "disk has room for.",
        ),
        Setting(
            "max_staged_writer_bytes", Bytes(KIB, can_be_off=True),
            "Maximum bytes staged and not committed by one writer. `off`: as much as the "
            "disk has room for.",
        ),
        Setting(
            "max_decoded_bytes", Bytes(KIB, GIB),
            "Maximum uncompressed size of a value that filters decode. A filter treats a "
            "larger value as missing.",
        ),
    ),
    "Connections": (
        reloadable(
            "max_connections", Count(1, 1_000_000),
            "Maximum clients of all protocols, not counting HTTP. Further clients are rejected.",
        ),
        reloadable(
            "max_frame_bytes", Bytes(64 * KIB, 64 * MIB),
            "Maximum size of a published batch.",
        ),
        reloadable(
            "max_in_flight_bytes", Bytes(1),
            "Maximum bytes that one client has published and that are not on disk yet. Beyond "
            "it, the broker reads nothing more from this client.",
        ),
        reloadable(
            "max_delivery_bytes", Bytes(1, 64 * MIB),
            "Maximum bytes per delivery; a single message may be larger.",
        ),
        reloadable(
            "max_unacknowledged_bytes", Bytes(64 * KIB),
            "Maximum bytes of replies that a client has not acknowledged. Beyond it, the "
            "client is disconnected.",
        ),
        reloadable(
            "max_requests", Count(1, 10_000_000),
            "Maximum pending requests per connection, not counting publishes.",
        ),
        reloadable(
            "max_streams", Count(1, 10_000_000),
            "Maximum readers, live feeds and group memberships per connection.",
        ),
        reloadable("handshake_timeout", Seconds(0.1, DAY), "How long a client may take to log in."),
        reloadable(
            "idle_timeout", Seconds(1, DAY),
            "Disconnect a client that sends nothing for this long. Clients ping automatically.",
        ),
        reloadable(
            "ping_seconds", Seconds(0.1, DAY),
            "How often idle clients are asked to ping; at least twice per idle_timeout.",
        ),
        reloadable(
            "grace_seconds", Seconds(0, DAY),
            "How long a disconnected client keeps its leases, so that it can reconnect.",
        ),
        reloadable(
            "max_away", Count(0, 1_000_000),
            "Maximum sessions kept for clients that lost their connection (grace_seconds). "
            "Beyond it, the oldest session is dropped.",
        ),
        reloadable(
            "max_away_bytes", Bytes(0),
            "Maximum bytes of unacknowledged replies kept for disconnected clients, over all "
            "sessions.",
        ),
    ),
    "Cluster": (
        Setting("node_name", NodeName(),
                "Name of this node in its cluster. Off: this broker runs alone."),
        Setting("peer_listen", HostPort(PEER_PORT, can_be_off=True),
                f"Address for the other nodes of the cluster; the usual port is {PEER_PORT}."),
        Setting(
            "initial_cluster", NodeAddresses(PEER_PORT),
            "All nodes that found the cluster, this one too, with the addresses at which nodes "
            "reach each other. Give all nodes the same list. Not used after the first start.",
        ),
        Setting("join", HostPorts(PEER_PORT),
                "Peer addresses of nodes of a running cluster. This node joins it with an empty "
                "data directory. Not used after that."),
        Setting("peer_address", AdvertisedAddress(PEER_PORT, can_be_off=True),
                "Address at which the other nodes reach this one, if it joins. Off: peer_listen, "
                "with the name of this host where that listens on all addresses."),
        Setting(
            "cluster_key_file", FilePath(can_be_off=True),
            "File with the secret by which the nodes of a cluster know each other. The "
            "connections between nodes are not encrypted then: for one machine only.",
        ),
        Setting(
            "peer_ca", FilePath(can_be_off=True),
            "CA that signs the certificates of the nodes, as PEM. If set, the connections between "
            "nodes use TLS with tls_cert and tls_key, and each certificate must contain its "
            "node_name as a DNS name.",
        ),
    ),
    "HTTP for operations": (
        reloadable("metrics", Boolean(), "Serve /metrics."),
        reloadable(
            "metrics_max_series", Count(1, 10_000_000),
            "Maximum series in /metrics. Further topics and groups are summed up as one.",
        ),
        reloadable("http_max_body_bytes", Bytes(KIB, GIB), "Maximum size of a request body."),
        reloadable("http_timeout", Seconds(0.1, 3600), "Maximum time for a request."),
        reloadable(
            "http_max_connections", Count(1, 100_000),
            "Maximum HTTP connections. Beyond it, the connection that was idle for longest is "
            "closed.",
        ),
        reloadable(
            "http_cpu_share", Share(0.01, 1),
            "Maximum share of the broker's time for HTTP. Further requests wait; messages do "
            "not.",
        ),
        reloadable(
            "http_max_wait", Seconds(0, 3600),
            "Maximum time that a long poll waits for messages.",
        ),
        reloadable(
            "http_heartbeat_seconds", Seconds(0.1, 3600),
            "Interval of heartbeats on idle streams, and how long a stream may take to read what "
            "was sent, times 4, before it is closed.",
        ),
        reloadable(
            "http_max_stream_seconds", Seconds(0.1, 30 * 86_400),
            "Maximum age of a stream. Then it ends, and its client reconnects.",
        ),
        reloadable(
            "http_cors_origins", Origins(),
            "Origins of web pages on other sites that may use HTTP, such as "
            "https://shop.example. `*` allows every page: use it with keys only.",
        ),
        reloadable(
            "http_hosts", HostNames(),
            "Additional host names that HTTP requests may be sent to. Checked only while the "
            "broker has neither keys nor TLS.",
        ),
    ),
    "Webhooks": (
        Setting(
            "webhook_networks", Networks(),
            "Networks that webhooks may reach besides public addresses, for example "
            "10.0.0.0/8 or 127.0.0.1.",
        ),
        Setting(
            "webhook_ca", FilePath(can_be_off=True),
            "CA file used to verify the targets of webhooks, in addition to the system's.",
        ),
    ),
    "BlipMQ clients": (
        Setting(
            "blip", HostPort(BLIP_PORT, can_be_off=True),
            "Address for BlipMQ clients, for all three protocols; BlipMQ's usual port is "
            f"{BLIP_PORT}.",
        ),
        Setting(
            "blip_api_keys", Words(),
            "Keys with all permissions, in addition to the keys file: BlipMQ's "
            "allowed_api_keys.", secret=True, default_text="none",
        ),
        Setting(
            "blip_retry_backoff", Seconds(0.001, DAY),
            "How long a client may take to acknowledge a polled message before it is delivered "
            "again. Doubles with each delivery.",
        ),
        Setting(
            "blip_subscription_seconds", Seconds(1, 365 * DAY),
            "Delete a polled subscription that has not been polled for this long.",
        ),
        Setting(
            "blip_adopt", Boolean(),
            "Whether a new polled subscription at QoS 1 takes over one of the same topic whose "
            "client is gone, with its unacknowledged messages.",
        ),
        Setting(
            "blip_queue_capacity", Count(1, 10_000_000),
            "Maximum QoS 0 messages waiting for one subscription.",
        ),
        Setting(
            "blip_overflow", Choice(("drop_oldest", "drop_new", "block", "reject")),
            "What to do with a QoS 0 message when that many are waiting.",
        ),
        Setting(
            "blip_max_command_bytes", Bytes(64, 64 * MIB),
            "Maximum size of a command in BlipMQ's first protocol.",
        ),
    ),
    "Logs and traces": (
        reloadable("log_level", Choice(LEVELS), "Minimum level of log lines on stderr."),
        reloadable(
            "log_levels", LogLevels(),
            "Log levels of modules, for example flintmq.net.server=debug.",
        ),
        Setting(
            "log_format", Choice(("console", "json", "auto")),
            "Format of log lines. auto: console on a terminal, else JSON.",
        ),
        Setting(
            "profile", FilePath(can_be_off=True),
            "Profile the broker's CPU time and write it to this file on shutdown and on "
            "SIGUSR2: a flame graph if it ends in .svg, else text for other tools.",
        ),
    ),
}  # fmt: skip
SETTINGS = tuple(replace(row, group=group) for group, rows in GROUPS.items() for row in rows)
BY_NAME = {setting.name: setting for setting in SETTINGS}


def described(values: Mapping[str, Any], sources: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Every setting with its value, its source, and whether it can be changed while the broker
    runs; for JSON, without secrets."""
    return {
        setting.name: {
            "value": setting.shown(values.get(setting.name)),
            "source": sources.get(setting.name, DEFAULT),
            "reload": setting.reload,
        }
        for setting in SETTINGS
    }
