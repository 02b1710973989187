"""The front end as a broker's configuration wants it."""

from __future__ import annotations

from pathlib import Path

from ...errors import InvalidRequest
from ..front_end import FrontEndContext
from .server import HermesLimits, HermesServer


def front_end(around: FrontEndContext) -> HermesServer:
    config, native = around.config(), around.native
    return HermesServer(
        around.broker if around.cluster is None or around.local is None else around.local,
        gate=around.gate,
        credential=key_in(config.hermes_key_file),
        limits=HermesLimits().with_those_of_all(native.limits),
        node_id=config.hermes_node_id,
        native=None if around.tls is not None else native,
        may_create=lambda: around.config().auto_create,
        tls=around.tls,
        places=native.places,
        cluster=around.cluster,
    )


def key_in(file: Path | None) -> str | None:
    """The key that a file holds; one that cannot be read stops the start."""
    if file is None:
        return None
    try:
        return file.read_text().strip() or None
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"cannot read hermes_key_file {file}: {error}") from None
