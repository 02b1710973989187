"""The front end as a broker's configuration wants it."""

from __future__ import annotations

from ...broker_api import BrokerApi
from ...config import Config
from ..gate import WatchedGate
from ..limits import Limits
from ..tls import ServerTls
from .options import BlipOptions
from .server import BlipServer


def blip_server(
    broker: BrokerApi, config: Config, gate: WatchedGate, limits: Limits, tls: ServerTls | None
) -> BlipServer:
    return BlipServer(broker, limits=limits, gate=gate, options=blip_options_of(config), tls=tls)


def blip_options_of(config: Config) -> BlipOptions:
    return BlipOptions(
        retry_backoff=config.blip_retry_backoff,
        subscription_seconds=config.blip_subscription_seconds,
        queue_capacity=config.blip_queue_capacity,
        overflow=config.blip_overflow,
        flat_bytes_max=config.blip_max_command_bytes,
    )
