"""What a broker can be told: one table, from which flags, environment, files and docs are made.

Pure: no file and no environment is read here. The same word names a setting everywhere:
`max_connections` in a file, `FLINTMQ_MAX_CONNECTIONS` in the environment, `--max-connections` as
a flag. Defaults are those of `Config`; everything else about a setting is in its row of `SETTINGS`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec

from .config_kinds import (
    LEVELS,
    Address,
    Boolean,
    Bytes,
    Choice,
    Count,
    FilePath,
    Fsync,
    HostNames,
    HostPort,
    Kind,
    LogLevels,
    Seconds,
    Share,
    TopicDefaults,
    Unfit,
    Words,
)
from .fsync_policy import ALWAYS, FsyncPolicy
from .model import Overflow

PORT = 7600
HTTP_PORT = 7601
BLIP_PORT = 5555
DEFAULT = "default"
"""The source of what nobody has said."""
KIB, MIB, GIB = 2**10, 2**20, 2**30
DAY = 86_400.0

Level = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["console", "json", "auto"]
Auth = Literal["auto", "required", "off"]
Group = Literal[
    "Where",
    "Security",
    "Disk",
    "Topics",
    "Connections",
    "HTTP for operations",
    "BlipMQ clients",
    "Logs and traces",
]


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """What a broker was told, checked; with where each value came from in `sources`."""

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
    slow_disk_seconds: float = 1.0
    scrub_bytes: int = 8 * MIB

    auto_create: bool = True
    topic_defaults: dict[str, Any] = {}
    staged_seconds: float = 3600.0
    producer_seconds: float = 7 * DAY
    max_producer_bytes: int = 64 * MIB
    max_staged_bytes: int = GIB
    max_staged_writer_bytes: int = 768 * MIB
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

    metrics: bool = True
    metrics_max_series: int = 10_000
    http_max_body_bytes: int = MIB
    http_timeout: float = 10.0
    http_max_connections: int = 100
    http_cpu_share: float = 0.1
    http_hosts: tuple[str, ...] = ()

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
    """Of values that are no defaults: the file with its line, the variable, or the flag."""

    def described(self) -> dict[str, dict[str, Any]]:
        """Every setting with value and source, for JSON; without secrets."""
        return described(msgspec.structs.asdict(self), self.sources)

    @property
    def keys_path(self) -> Path:
        return self.keys_file or self.data_dir / "keys.json"


@dataclass(frozen=True, slots=True)
class Setting:
    """One row of the table."""

    name: str
    kind: Kind
    help: str
    group: Group
    reload: bool = False
    """Whether it can be changed while the broker runs."""
    secret: bool = False
    """Whether its value is kept out of everything that is shown."""
    default_text: str = ""
    """What the default is, where its value does not say it."""

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
        """The value as JSON can have it; never a secret."""
        if value is None and self.default_text:
            return self.default_text
        return "(secret)" if self.secret else self.kind.to_plain(value)

    def shown_text(self, value: Any) -> str:
        """The value for people; never a secret."""
        if self.secret or value is None:
            return str(self.shown(value))
        return self.kind.to_text(value)


def variable_of(name: str) -> str:
    return f"FLINTMQ_{name.upper()}"


_FIELDS = msgspec.structs.fields(Config)
_DEFAULTS: dict[str, Any] = {
    field.name: field.default_factory() if field.default is msgspec.NODEFAULT else field.default
    for field in _FIELDS
}

SETTINGS: Sequence[Setting] = (
    Setting(
        "data_dir", FilePath(), "Where everything is kept. Made if it is not there.", "Where",
    ),
    Setting(
        "listen", HostPort(PORT),
        "Where clients connect. Port 0 takes any that is free.", "Where",
    ),
    Setting(
        "http", HostPort(HTTP_PORT, can_be_off=True),
        f"Where operators and their tools connect by HTTP; the usual port is {HTTP_PORT}.", "Where",
    ),
    Setting(
        "hermes", HostPort(PORT, can_be_off=True),
        "Where HermesMQ's clients connect; those of FlintMQ may do so there, too.", "Where",
    ),
    Setting(
        "hermes_node_id", Count(1, 2**63 - 1),
        "The number that HermesMQ's clients know this broker by.", "Where",
    ),
    Setting(
        "drain_seconds", Seconds(0, DAY),
        "How long a stop waits for what is under way and for messages that consumers have in work.",
        "Where", reload=True,
    ),
    # --- security
    Setting(
        "auth", Choice(("auto", "required", "off")),
        "Whether clients have to show a key: auto asks as soon as there is a keys file.",
        "Security",
    ),
    Setting(
        "keys_file", FilePath(), "The keys that clients may show, hashed.",
        "Security", default_text="keys.json in data_dir",
    ),
    Setting(
        "login_failures_max", Count(1, 1_000_000),
        "Wrong keys of one address that wait for their answer; others are dropped without one.",
        "Security", reload=True,
    ),
    Setting(
        "login_delay", Seconds(0, 5),
        "How long a first wrong key waits for its answer; each more from there waits longer.",
        "Security", reload=True,
    ),
    Setting(
        "tls_cert", FilePath(can_be_off=True),
        "The certificate to serve with, and those above it, as PEM. With it, all ports speak TLS.",
        "Security", reload=True,
    ),
    Setting(
        "tls_key", FilePath(can_be_off=True), "The private key of the certificate, as PEM.",
        "Security", reload=True,
    ),
    Setting(
        "tls_client_ca", FilePath(can_be_off=True),
        "Who signs the certificates that clients then have to show, as PEM.",
        "Security", reload=True,
    ),
    Setting(
        "backup_dir", FilePath(can_be_off=True),
        "Below which clients may have backups made; off: wherever the broker's user may write.",
        "Security",
    ),
    Setting(
        "hermes_key_file", FilePath(can_be_off=True),
        "A file with the key whose grants HermesMQ's clients have, as they can show none.",
        "Security",
    ),
    Setting(
        "insecure", Boolean(),
        "Allow an address that other machines can reach without keys or without TLS.", "Security",
    ),
    # --- disk
    Setting(
        "fsync", Fsync(),
        "When the disk is waited for: always, every_n:<n>, interval:<ms> or never.", "Disk",
    ),
    Setting(
        "checkpoint_bytes", Bytes(64 * KIB, 64 * GIB),
        "How much the journal grows between two checkpoints. That much is kept in memory, too, and "
        "replayed after a crash.", "Disk", reload=True,
    ),
    Setting(
        "journal_file_bytes", Bytes(64 * KIB, 4 * GIB),
        "The size of a file of the journal; smaller ones are made at first.", "Disk",
    ),
    Setting(
        "max_queue_bytes", Bytes(KIB),
        "What all clients together may have on its way to the disk before publishers wait.",
        "Disk", reload=True,
    ),
    Setting(
        "slow_disk_seconds", Seconds(0.001, DAY),
        "A write or sync that takes longer is logged as a slow disk.", "Disk", reload=True,
    ),
    Setting(
        "scrub_bytes", Bytes(0, 16 * GIB),
        "How many bytes of stored messages are read each second to look for damage, in the "
        "background; all of them once every six hours at most. 0 looks for none.",
        "Disk", reload=True,
    ),
    # --- topics
    Setting(
        "auto_create", Boolean(),
        "Whether publishing to a topic that is not there, or reading it, makes it.", "Topics",
        reload=True,
    ),
    Setting(
        "topic_defaults", TopicDefaults(),
        "Options of topics that are made without naming them. Topics that exist keep theirs.",
        "Topics", reload=True,
    ),
    Setting(
        "staged_seconds", Seconds(1, 365 * DAY),
        "What was staged (by Spark) and is not committed for so long is dropped.", "Topics",
        reload=True,
    ),
    Setting(
        "producer_seconds", Seconds(60, 365 * DAY),
        "How long a repeated publish is found by its producer and sequence: so long after the "
        "producer's last publish to that topic.", "Topics",
        reload=True,
    ),
    Setting(
        "max_producer_bytes", Bytes(8 * MIB),
        "Memory for what is known of producers, in all topics together. Beyond it, those that "
        "published longest ago are forgotten.", "Topics",
        reload=True,
    ),
    Setting(
        "max_staged_bytes", Bytes(KIB), "What may be staged and not committed, all together.",
        "Topics",
    ),
    Setting(
        "max_staged_writer_bytes", Bytes(KIB),
        "What one writer may have staged and not committed.", "Topics",
    ),
    Setting(
        "max_decoded_bytes", Bytes(KIB, GIB),
        "How large a value may be, uncompressed, for a filter to look into it. A larger value is "
        "treated as missing.", "Topics",
    ),
    # --- connections
    Setting(
        "max_connections", Count(1, 1_000_000),
        "Clients of all protocols together, HTTP left aside; those beyond that are turned away.",
        "Connections", reload=True,
    ),
    Setting(
        "max_frame_bytes", Bytes(64 * KIB, 64 * MIB), "The largest batch that can be published.",
        "Connections", reload=True,
    ),
    Setting(
        "max_in_flight_bytes", Bytes(1),
        "What a client may have on its way to the disk before it is held back.", "Connections",
        reload=True,
    ),
    Setting(
        "max_delivery_bytes", Bytes(1, 64 * MIB),
        "What one delivery carries at most; a single message may be larger.", "Connections",
        reload=True,
    ),
    Setting(
        "max_unacknowledged_bytes", Bytes(64 * KIB),
        "Replies that a client has not acknowledged before it is disconnected.", "Connections",
        reload=True,
    ),
    Setting(
        "max_requests", Count(1, 10_000_000),
        "Requests of one connection that are under way, publishes left aside.", "Connections",
        reload=True,
    ),
    Setting(
        "max_streams", Count(1, 10_000_000),
        "Readers, feeds and memberships that one connection may hold open.", "Connections",
        reload=True,
    ),
    Setting(
        "handshake_timeout", Seconds(0.1, DAY), "How long a client may take to say who it is.",
        "Connections", reload=True,
    ),
    Setting(
        "idle_timeout", Seconds(1, DAY),
        "Who says nothing for so long is disconnected. Clients ping by themselves.", "Connections",
        reload=True,
    ),
    Setting(
        "ping_seconds", Seconds(0.1, DAY),
        "How often silent clients are asked to ping; never less than twice in idle_timeout.",
        "Connections", reload=True,
    ),
    Setting(
        "grace_seconds", Seconds(0, DAY),
        "How long a session that lost its connection keeps its leases for it to come back.",
        "Connections", reload=True,
    ),
    Setting(
        "max_away", Count(0, 1_000_000),
        "Sessions that wait for their client; the one that has waited longest goes.",
        "Connections", reload=True,
    ),
    Setting(
        "max_away_bytes", Bytes(0), "What those may keep of unacknowledged replies, all together.",
        "Connections", reload=True,
    ),
    # --- HTTP
    Setting(
        "metrics", Boolean(), "Whether /metrics is served.", "HTTP for operations", reload=True,
    ),
    Setting(
        "metrics_max_series", Count(1, 10_000_000),
        "Series that /metrics shows at most; topics and groups beyond are summed up as one.",
        "HTTP for operations", reload=True,
    ),
    Setting(
        "http_max_body_bytes", Bytes(KIB, GIB), "The largest body of a request.",
        "HTTP for operations", reload=True,
    ),
    Setting(
        "http_timeout", Seconds(0.1, 3600), "How long a request may take.",
        "HTTP for operations", reload=True,
    ),
    Setting(
        "http_max_connections", Count(1, 100_000),
        "HTTP connections; beyond that the one that was silent for longest makes room.",
        "HTTP for operations", reload=True,
    ),
    Setting(
        "http_cpu_share", Share(0.01, 1),
        "How much of the broker's time HTTP may take; who asks for more waits, messages do not.",
        "HTTP for operations", reload=True,
    ),
    Setting(
        "http_hosts", HostNames(),
        "Further names that this broker may be asked by over HTTP where it has neither keys nor "
        "TLS.", "HTTP for operations", reload=True,
    ),
    # --- BlipMQ
    Setting(
        "blip", HostPort(BLIP_PORT, can_be_off=True),
        f"Where BlipMQ's clients connect, of all three protocols; its usual port is {BLIP_PORT}.",
        "BlipMQ clients",
    ),
    Setting(
        "blip_api_keys", Words(),
        "Keys that allow everything, beside those of the keys file: BlipMQ's allowed_api_keys.",
        "BlipMQ clients", secret=True, default_text="none",
    ),
    Setting(
        "blip_retry_backoff", Seconds(0.001, DAY),
        "How long a polled message may take to be acknowledged before it is handed out again, "
        "doubled each time.", "BlipMQ clients",
    ),
    Setting(
        "blip_subscription_seconds", Seconds(1, 365 * DAY),
        "A polled subscription that nobody has polled for so long is dropped.", "BlipMQ clients",
    ),
    Setting(
        "blip_adopt", Boolean(),
        "Whether the next polled subscription of a topic, at QoS 1, takes over one whose client is "
        "gone, with what that client did not acknowledge.", "BlipMQ clients",
    ),
    Setting(
        "blip_queue_capacity", Count(1, 10_000_000),
        "Messages of QoS 0 that may wait for one subscription.", "BlipMQ clients",
    ),
    Setting(
        "blip_overflow", Choice(("drop_oldest", "drop_new", "block", "reject")),
        "What becomes of a message of QoS 0 where too many wait already.", "BlipMQ clients",
    ),
    Setting(
        "blip_max_command_bytes", Bytes(64, 64 * MIB),
        "The longest command of BlipMQ's first protocol.", "BlipMQ clients",
    ),
    # --- logs
    Setting(
        "log_level", Choice(LEVELS), "What is told on stderr.", "Logs and traces", reload=True,
    ),
    Setting(
        "log_levels", LogLevels(), "Levels of single modules, as flintmq.servers=debug.",
        "Logs and traces", reload=True,
    ),
    Setting(
        "log_format", Choice(("console", "json", "auto")),
        "How log lines are written: auto is console on a terminal, else JSON.", "Logs and traces",
    ),
    Setting(
        "profile", FilePath(can_be_off=True),
        "Where to write what the broker's CPU time went to, at the end and at SIGUSR2: a flame "
        "graph if it is named .svg, else text for other tools.", "Logs and traces",
    ),
)  # fmt: skip
BY_NAME = {setting.name: setting for setting in SETTINGS}


def nearest(name: str, known: Iterable[str] = tuple(BY_NAME), *, cutoff: float = 0.6) -> str | None:
    """The known word that is most like `name`, if one is like it."""
    import difflib  # for those who make mistakes

    wanted = name.strip().lower().replace("-", "_")
    found = difflib.get_close_matches(wanted, list(known), n=1, cutoff=cutoff)
    return found[0] if found else None


def why_not(setting: Setting, value: Any, unfit: Unfit) -> str:
    """What is wrong with a value; one that is secret is not repeated."""
    said = "" if setting.secret else f", not {value!r}"
    return f"{setting.name} is {unfit}{said}"


def problems_between(values: Mapping[str, Any]) -> list[str]:
    """What is wrong with values that are right each by itself."""
    has_cert, has_key = values["tls_cert"] is not None, values["tls_key"] is not None
    if has_cert != has_key:
        given, missing = ("tls_cert", "tls_key") if has_cert else ("tls_key", "tls_cert")
        return [f"{given} needs {missing} beside it"]
    if values["tls_client_ca"] is not None and not has_cert:
        return ["tls_client_ca needs tls_cert and tls_key beside it"]
    return []


def changed(before: Config, after: Config) -> list[Setting]:
    """The settings that differ."""
    return [s for s in SETTINGS if getattr(before, s.name) != getattr(after, s.name)]


def described(values: Mapping[str, Any], sources: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Every setting with its value, where that comes from, and whether it can be changed while
    running; for JSON, and without secrets."""
    return {
        setting.name: {
            "value": setting.shown(values.get(setting.name)),
            "source": sources.get(setting.name, DEFAULT),
            "reload": setting.reload,
        }
        for setting in SETTINGS
    }
