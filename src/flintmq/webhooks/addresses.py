"""Where requests may go: not into the broker's own network, unless a setting allows it.

A name is resolved for each new connection, and the connection goes to the very address that was
checked: what the name means a moment later does not matter. Pure, but for `resolved`.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from ..errors import FlintError

IpAddress = IPv4Address | IPv6Address
IpNetwork = IPv4Network | IPv6Network

_NAT64 = ip_network("64:ff9b::/96")


class AddressRefused(FlintError):
    """The target of a webhook is in a network that requests must not reach."""

    def __init__(self, host: str, address: str) -> None:
        what = f"{host} is" if host == address else f"{host} is at {address}, which is"
        super().__init__(
            f"{what} not a public address; allow its network with the setting webhook_networks "
            "(flintmq serve --webhook-networks)"
        )


def may_be_reached(address: IpAddress, allowed: Sequence[IpNetwork]) -> bool:
    address = _meant(address)
    if any(address.version == network.version and address in network for network in allowed):
        return True
    is_special = address.is_multicast or address.is_reserved
    if isinstance(address, IPv6Address):
        is_special = is_special or address.is_site_local
    return address.is_global and not is_special


def _meant(address: IpAddress) -> IpAddress:
    """IPv4 in the clothes of IPv6 is judged as what it is."""
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            return address.ipv4_mapped
        if address.sixtofour is not None:
            return address.sixtofour
        if address in _NAT64:
            return IPv4Address(int(address) & 0xFFFFFFFF)
    return address


async def resolved(host: str, port: int, allowed: Sequence[IpNetwork]) -> list[str]:
    """The addresses of a host, in the order to try them. Raises AddressRefused if one of them must
    not be reached, and OSError."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
    for one in addresses:
        if not may_be_reached(ip_address(one.partition("%")[0]), allowed):
            raise AddressRefused(host, one)
    return addresses
