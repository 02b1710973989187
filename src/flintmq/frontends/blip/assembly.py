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
        is_shared=around.cluster is not None,
    )


def blip_options_of(config: Config) -> BlipOptions:
    """Each option is a setting by the same name, with `blip_` before it."""
    names = BlipOptions.__struct_fields__
    return BlipOptions(**{name: getattr(config, f"blip_{name}") for name in names})
