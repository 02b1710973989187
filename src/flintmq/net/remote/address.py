"""Where the servers of a `flint://` or `flints://` URL are."""

from __future__ import annotations

from urllib.parse import urlsplit

from ...errors import InvalidRequest

PORT = 7600

Address = tuple[str, int]


def parse_addresses(url: str) -> list[Address]:
    """`flint://host1:7600,host2` has two servers; a port that is not said is 7600."""
    scheme, _, rest = url.partition("://")
    hosts = rest.rstrip("/")
    if "@" in hosts:
        # Not repeated: it holds a key, or what somebody took for one.
        raise InvalidRequest(
            "a broker URL must not contain the key, because URLs end up in process lists "
            "and logs; pass it as api_key=..., or set FLINTMQ_API_KEY"
        )
    if not hosts or "/" in hosts or "?" in hosts:
        raise InvalidRequest(
            f"a broker URL must be {scheme}://host:port, or several hosts separated by "
            f"commas; not {url!r}"
        )
    return [_address(host, url) for host in hosts.split(",")]


def _address(text: str, url: str) -> Address:
    try:
        parts = urlsplit(f"//{text}")
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise InvalidRequest(f"{text!r} in {url!r}: {error}") from None
    if not host:
        raise InvalidRequest(f"{text!r} in {url!r} has no host")
    return host, PORT if port is None else port


def shown(address: Address) -> str:
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
