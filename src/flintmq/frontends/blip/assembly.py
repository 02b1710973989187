"""The front end as a broker's configuration wants it."""

from __future__ import annotations

from ...config.table import Config
from ..front_end import FrontEndContext
from .options import BlipOptions
from .server import BlipServer


def front_end(around: FrontEndContext) -> BlipServer:
    native = around.native
    return BlipServer(
        around.broker,
        limits=native.limits,
        gate=around.gate,
        options=blip_options_of(around.config()),
        tls=around.tls,
        places=native.places,
    )


def blip_options_of(config: Config) -> BlipOptions:
    return BlipOptions(
        retry_backoff=config.blip_retry_backoff,
        subscription_seconds=config.blip_subscription_seconds,
        adopt=config.blip_adopt,
        queue_capacity=config.blip_queue_capacity,
        overflow=config.blip_overflow,
        flat_bytes_max=config.blip_max_command_bytes,
    )
