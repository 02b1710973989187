"""Who is measured, at which durability, with which settings: a table.

- synced: acknowledged after fsync; a power cut takes nothing that was acknowledged
- cached: acknowledged from the cache of the operating system, synced later; a power cut takes the
  last of it, a killed process nothing
- none: in memory; both take everything
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from .job import Shape

Durability = Literal["synced", "cached", "none"]
DURABILITIES: tuple[Durability, ...] = ("synced", "cached", "none")
IN_WORDS: Mapping[Durability, str] = {
    "synced": "fsync before the acknowledgement",
    "cached": "operating system's cache",
    "none": "memory",
}
US = "flintmq"
BARE = "bare"
TITLES = {
    US: "FlintMQ",
    "nats": "NATS",
    "redis": "Redis",
    "rabbitmq": "RabbitMQ",
    "mosquitto": "Mosquitto",
    "kafka": "Kafka",
    BARE: "bare loop",
}


@dataclass(frozen=True, slots=True)
class Mode:
    """A peer at one durability. `server` names the process it needs; modes may share one."""

    peer: str
    name: str
    durability: Durability
    settings: str
    server: str
    shape: Shape = "calls"
    backlog: int = 100_000
    """How many messages it consumes: about a second's work, for the slow ones too."""
    remark: str = ""
    leaves_out: Mapping[str, str] = field(default_factory=dict)
    """Kinds of scenarios that it does not take part in, and why."""
    replicas: int = 1
    site: str = ""
    """Where another build of FlintMQ is, of server and client; empty: the one that is installed."""
    is_live: bool = False
    """The one mode of a peer that stands for its path at most once."""

    @property
    def key(self) -> str:
        return f"{self.peer}:{self.name}"

    @property
    def title(self) -> str:
        return TITLES[self.peer]


NO_LIVE = "every path of it stores"

MODES: tuple[Mode, ...] = (
    Mode(US, "always", "synced", "`fsync=always` (default)", "flintmq-always", is_live=True),
    Mode(US, "interval", "cached", "`fsync=interval:1000`", "flintmq-interval"),
    Mode(US, "memory", "none", "topics with `storage=memory`", "flintmq-memory"),
    Mode(
        "nats", "fsync", "synced", "JetStream file store, `sync_interval: always`", "nats-fsync",
        backlog=20_000,
    ),
    Mode(
        "nats", "default", "cached", "JetStream file store, synced each 2 minutes (default)",
        "nats-default", backlog=20_000, is_live=True,
    ),
    Mode(
        "nats", "memory", "none", "JetStream memory store", "nats-default", backlog=20_000,
    ),
    Mode(
        "redis", "always", "synced", "stream, AOF, `appendfsync always`", "redis-always",
        shape="pipeline",
    ),
    Mode(
        "redis", "everysec", "cached", "stream, AOF, `appendfsync everysec`", "redis-everysec",
        shape="pipeline",
    ),
    Mode(
        "redis", "default", "none", "stream, no AOF, snapshots (default)", "redis-default",
        shape="pipeline", is_live=True,
    ),
    Mode(
        "rabbitmq", "quorum", "synced", "quorum queue of one, persistent, confirms", "rabbitmq",
        backlog=8_000,
    ),
    Mode(
        "rabbitmq", "classic", "synced", "durable classic queue, persistent, confirms", "rabbitmq",
        backlog=8_000,
    ),
    Mode(
        "rabbitmq", "transient", "none", "transient classic queue (default), confirms", "rabbitmq",
        backlog=8_000, is_live=True,
    ),
    Mode(
        "mosquitto", "saved", "cached", "QoS 1, whole store saved after each change",
        "mosquitto-saved", shape="pipeline", backlog=15_000,
        remark="acknowledges first and syncs then: less than fsync before, so beside our cached",
        leaves_out={"consume": "writes its whole store anew for each message"},
    ),
    Mode(
        "mosquitto", "default", "none", "QoS 1, not persistent (default)", "mosquitto-default",
        shape="pipeline", backlog=15_000, is_live=True,
    ),
    Mode(
        "kafka", "fsync", "synced", "acks=all, `flush.messages=1`", "kafka", shape="pipeline",
        leaves_out={"live": NO_LIVE},
    ),
    Mode(
        "kafka", "default", "cached", "acks=all, no flush (default)", "kafka", shape="pipeline",
        leaves_out={"live": NO_LIVE},
    ),
    Mode(
        BARE, "synced", "synced", "socket echo, write and fdatasync", "bare",
        leaves_out={"consume": "keeps nothing"},
    ),
    Mode(
        BARE, "echo", "none", "socket echo", "bare", leaves_out={"consume": "keeps nothing"},
        is_live=True,
    ),
)  # fmt: skip

CLUSTER_MODES: tuple[Mode, ...] = (
    Mode(
        US, "always", "synced", "three nodes, `fsync=always` (default)", "flintmq-always",
        replicas=3,
    ),
    Mode(
        US, "interval", "cached", "three nodes, `fsync=interval:1000`", "flintmq-interval",
        replicas=3,
    ),
    Mode(
        "nats", "fsync", "synced", "JetStream R3, file store, `sync_interval: always`",
        "nats-fsync", replicas=3, backlog=20_000,
    ),
    Mode(
        "nats", "default", "cached", "JetStream R3, file store, synced each 2 minutes (default)",
        "nats-default", replicas=3, backlog=20_000,
    ),
    Mode(
        "rabbitmq", "quorum", "synced", "quorum queue of three, persistent, confirms (default)",
        "rabbitmq-fsync", replicas=3, backlog=8_000,
    ),
    Mode(
        "rabbitmq", "quorum-never", "cached", "quorum queue of three, `wal_sync_method` none",
        "rabbitmq-never", replicas=3, backlog=8_000,
    ),
)  # fmt: skip
"""Clusters of three. Synced: on a majority of nodes before the acknowledgement. Cached: nobody
syncs before it, on any node."""

PEERS: tuple[str, ...] = ("nats", "redis", "rabbitmq", "mosquitto", "kafka")
OPTIONAL = ("kafka",)
