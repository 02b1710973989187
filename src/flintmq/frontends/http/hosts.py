"""Whether a request was meant for this broker, by its Host header. Pure.

A page on the web can have its own name resolve to 127.0.0.1 (DNS rebinding): the browser then takes
a broker that asks for no keys for that page's own server, and lets it read and write. What it
cannot do is send another name than its own. So without keys and TLS only names are answered that
nobody on the web can own. With keys the page has none; with TLS the certificate has another
name.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection
from functools import lru_cache

UNREGISTRABLE = (".localhost", ".local", ".internal", ".home.arpa", ".lan", ".svc", ".test")
"""Ends of names that are not given to anybody on the web; `.svc` is Kubernetes' own."""


@lru_cache(maxsize=64)
def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def is_ours(host_header: str, names: Collection[str]) -> bool:
    """`names`: those this broker is known by beside its addresses, in lower case."""
    host = host_of(host_header)
    if _is_address(host):
        return True
    name = host.lower().rstrip(".")
    if "." not in name:
        return bool(name)  # a name of this network: the web has none without a dot
    return name.endswith(UNREGISTRABLE) or name in names


def host_of(header: str) -> str:
    """The header without its port, and an IPv6 address without its brackets."""
    header = header.strip()
    if header.startswith("["):
        return header[1:].partition("]")[0]
    return header.partition(":")[0]
