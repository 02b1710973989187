"""What the parts of a broker get of its configuration: limits, authentication, TLS."""

from __future__ import annotations

import logging
import socket
import ssl
from ipaddress import ip_network
from typing import Any, TypedDict

import msgspec

from ..client.client import Client
from ..cluster.identity import check_alone
from ..cluster.node import ClusterNode
from ..config.table import DEFAULT, SETTINGS, Config, Setting
from ..engine.broker import Broker
from ..engine.host import durable_broker
from ..engine.state.staging import Staging
from ..frontends.front_end import configured
from ..frontends.http.limits import HttpLimits
from ..net.server.gate import ApiKeyGate, gate_of
from ..net.server.limits import Limits
from ..net.server.slowing import MOST_SECONDS, Slowing
from ..net.server.tls import ServerTls
from ..net.tls.files import load_authorities
from ..observe.logs import event
from ..schedules.running import ScheduleRunner
from ..serde.codec import Codec
from ..storage.filesystem import LocalFileSystem
from ..storage.objects import ObjectStores
from ..webhooks.running import WebhookRunner

_log = logging.getLogger(__name__)

FILES = 512
"""Open files the broker itself needs: journal, segments, and some spare ones."""


class Slowness(TypedDict):
    first_seconds: float
    most_seconds: float
    kept_per_address_max: int


def slowness_of(config: Config) -> Slowness:
    """The configured delays for failed logins."""
    return {
        "first_seconds": config.login_delay,
        "most_seconds": min(MOST_SECONDS, 10 * config.login_delay),
        "kept_per_address_max": config.login_failures_max,
    }


def engine_settings(config: Config) -> dict[str, Any]:
    """What the engine of a broker gets, alone or as a node of a cluster."""
    return {
        "decoder": Codec(filtered_bytes_max=config.max_decoded_bytes),
        "fsync": config.fsync,
        "checkpoint_bytes": config.checkpoint_bytes,
        "journal_file_bytes": config.journal_file_bytes,
        "queue_bytes_max": config.max_queue_bytes,
        "staging": Staging(
            writer_bytes_max=config.max_staged_writer_bytes,
            staged_bytes_max=config.max_staged_bytes,
        ),
        "staged_seconds": config.staged_seconds,
        "producer_seconds": config.producer_seconds,
        "producer_bytes": config.max_producer_bytes,
        "slow_disk_seconds": config.slow_disk_seconds,
        "reclaim_seconds": config.grace_seconds,
        "scrub_bytes_per_second": config.scrub_bytes,
        "objects": ObjectStores(config.tiers),
    }


def alone(config: Config) -> Broker:
    """A broker that runs alone. Raises where its directory is that of a cluster's node."""
    filesystem = LocalFileSystem(config.data_dir)
    if config.data_dir.is_dir():
        check_alone(filesystem)
    return durable_broker(
        filesystem, sync_on_loop=config.sync_on_loop == "auto", **engine_settings(config)
    )


def gate_for(config: Config) -> ApiKeyGate:
    """Authentication and permissions."""
    slowing = Slowing(**slowness_of(config))
    if config.blip_api_keys and config.auth != "off":
        from ..frontends.blip.keys import listed_keys_gate

        return listed_keys_gate(config.blip_api_keys, config.keys_path, slowing)
    return gate_of(config.auth, config.keys_path, slowing)


def tls_of(config: Config) -> ServerTls | None:
    if config.tls_cert is None or config.tls_key is None:
        return None
    return ServerTls(config.tls_cert, config.tls_key, config.tls_client_ca)


def limits_of(config: Config) -> Limits:
    """The configured limits per client."""
    return Limits(
        connections=config.max_connections,
        frame_bytes=config.max_frame_bytes,
        in_flight_bytes=config.max_in_flight_bytes,
        requests=config.max_requests,
        unacknowledged_bytes=config.max_unacknowledged_bytes,
        streams=config.max_streams,
        delivery_bytes=config.max_delivery_bytes,
        handshake_seconds=config.handshake_timeout,
        idle_seconds=config.idle_timeout,
        # Clients ping in time to be heard, also if one ping is late.
        ping_seconds=min(config.ping_seconds, config.idle_timeout / 2.5),
        grace_seconds=config.grace_seconds,
        away=config.max_away,
        away_bytes=config.max_away_bytes,
    )


def shown(config: Config) -> dict[str, Any]:
    """The settings in effect, without secrets."""
    return {setting.name: setting.shown(getattr(config, setting.name)) for setting in SETTINGS}


def settings_in_force(config: Config) -> list[tuple[Setting, Any, str]]:
    """Every setting with its value, without secrets, and its source."""
    return [
        (
            setting,
            setting.shown(getattr(config, setting.name)),
            config.sources.get(setting.name, DEFAULT),
        )
        for setting in SETTINGS
    ]


def http_limits_of(config: Config) -> HttpLimits:
    """The configured limits of HTTP."""
    return HttpLimits(
        connections=config.http_max_connections,
        body_bytes=config.http_max_body_bytes,
        handler_seconds=config.http_timeout,
        cpu_share=config.http_cpu_share,
        wait_seconds=config.http_max_wait,
        heartbeat_seconds=config.http_heartbeat_seconds,
        stream_seconds=config.http_max_stream_seconds,
        metrics=config.metrics,
        metrics_max_series=config.metrics_max_series,
    )


def hosts_of(config: Config) -> frozenset[str] | None:
    """The host names that HTTP accepts without a key; None: any, because TLS checks them."""
    if config.tls_cert is not None:
        return None
    own = [config.listen[0], *(() if config.http is None else config.http[:1])]
    names = [*config.http_hosts, *own, socket.gethostname()]
    return frozenset(name.lower().rstrip(".") for name in names)


def files_of(config: Config) -> int:
    """Files needed in addition to those for clients."""
    http = 0 if config.http is None else config.http_max_connections
    # What another port takes from the system in one turn, before it is counted.
    return FILES + http + len(configured(config)) * Limits().backlog


def fitted_to_files(limits: Limits, files: int) -> Limits:
    """Each connection takes a file descriptor, and if the journal gets none, the broker stops. So
    raise the limit to the maximum, and accept no more clients than it leaves room for."""
    try:
        import resource
    except ImportError:
        return limits  # no such limit on this system
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = limits.connections + limits.backlog + limits.told + files
    if soft == resource.RLIM_INFINITY or soft >= most:
        return limits
    if hard == resource.RLIM_INFINITY or hard >= most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        return limits
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    room = hard - min(files, hard // 2)
    backlog, told = min(limits.backlog, max(1, room // 4)), min(limits.told, max(1, room // 20))
    connections = min(limits.connections, max(1, room - backlog - told))
    if connections < limits.connections:
        event(
            _log,
            logging.WARNING,
            "files_limited",
            f"this process can open {hard} files (ulimit -n), which allows {connections} "
            f"connections, not {limits.connections}",
            open_files=hard,
            connections=connections,
        )
    return msgspec.structs.replace(limits, connections=connections, backlog=backlog, told=told)


def webhooks_of(config: Config, broker: Broker, node: ClusterNode | None) -> WebhookRunner:
    """Delivers what is defined, while this node leads."""
    tls = ssl.create_default_context()
    if config.webhook_ca is not None:
        load_authorities(tls, config.webhook_ca, name="webhook_ca")
    runner = WebhookRunner(
        Client(broker, Codec(), auto_create=False, timeout=None),
        broker.shard.state.definitions,
        leads=(lambda: True) if node is None else node.is_leading,
        allowed=[ip_network(network) for network in config.webhook_networks],
        tls=tls,
    )
    broker.deliver_webhooks_by(runner)
    if node is not None:
        node.on_leader_changed(lambda leader, term: runner.look_again())
    return runner


def schedules_of(broker: Broker, node: ClusterNode | None) -> ScheduleRunner:
    """Publishes what is due, while this node leads."""
    runner = ScheduleRunner(
        Client(broker, Codec(), auto_create=False, timeout=None),
        broker.shard.state.definitions,
        leads=(lambda: True) if node is None else node.is_leading,
    )
    if node is not None:
        node.on_leader_changed(lambda leader, term: runner.look_again())
    return runner
