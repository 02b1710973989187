"""Whether a broker may be reached from other machines as it is configured.

An address that other machines can reach needs both authentication (API keys or client certificates)
and TLS, without which keys can be read in transit. `insecure` allows it anyway, with a warning.
"""

from __future__ import annotations

import ipaddress

from ..config.kinds import Address, shown_address
from ..config.table import BY_NAME, Config
from ..errors import InvalidRequest
from ..frontends.front_end import FRONT_ENDS


class Exposed(InvalidRequest):
    """The broker would be open to other machines. It does not start without `insecure`."""

    def __init__(self, faults: list[str]) -> None:
        super().__init__(
            f"{'; '.join(faults)}. Listen on 127.0.0.1, or {_REMEDY}; or pass "
            f"{BY_NAME['insecure'].flag} if the network itself is secure"
        )


_REMEDY = "add keys (flintmq key add) and set tls_cert and tls_key"


def check_exposure(config: Config, has_keys: bool) -> list[str]:
    """Returns warnings; raises Exposed if the configuration is not allowed.

    `has_keys`: whether clients need a key, now or later.
    """
    has_to_show_a_key = config.auth == "required" or (config.auth == "auto" and has_keys)
    # The key a front end acts by does not help if it asks its clients for none.
    asking_nobody = {one.name for one in FRONT_ENDS if not one.asks_for_keys}
    faults = []
    for name, address in config.addresses().items():
        if not is_loopback(address[0]):
            is_asked = has_to_show_a_key and name not in asking_nobody
            is_asked = is_asked or config.tls_client_ca is not None
            if name == "peer_listen":
                faults += _peer_faults(address, config.peer_ca is not None)
            else:
                faults += _faults(name, address, is_asked, config.tls_cert is not None)
    if faults and not config.insecure:
        raise Exposed(faults)
    return faults


def _peer_faults(address: Address, has_tls: bool) -> list[str]:
    """A key is never sent between nodes, but without TLS everything else is."""
    if has_tls:
        return []
    return [
        f"peer_listen {shown_address(address)} can be reached from other machines without TLS: "
        "messages can be read and changed in transit; set peer_ca, tls_cert and tls_key"
    ]


def _faults(name: str, address: Address, is_asked: bool, is_encrypted: bool) -> list[str]:
    place = f"{name} {shown_address(address)} can be reached from other machines"
    match is_asked, is_encrypted:
        case True, True:
            return []
        case True, False:
            return [f"{place} without TLS: keys and messages can be read in transit"]
        case False, True:
            return [f"{place} without keys: anyone can connect, read, publish and delete"]
    return [f"{place} without keys and without TLS: anyone can connect, read, publish and delete"]


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach that host. A name other than localhost is not trusted."""
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return host.rstrip(".").lower() == "localhost"
