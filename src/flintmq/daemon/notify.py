"""Reports to the service manager: ready, reloading, stopping (systemd's Type=notify).

A datagram to the socket in NOTIFY_SOCKET. Without that variable, nothing is sent.
"""

from __future__ import annotations

import os
import socket
import time

READY, STOPPING = "READY=1", "STOPPING=1"


def notify(*lines: str) -> bool:
    """Returns whether it was sent. An error is ignored: the broker runs on without it."""
    place = os.environ.get("NOTIFY_SOCKET", "")
    if place[:1] not in ("/", "@"):
        return False
    address = "\0" + place[1:] if place[0] == "@" else place  # an abstract one
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
            sender.sendto("\n".join(lines).encode(), address)
    except OSError:
        return False
    return True


def notify_reloading() -> bool:
    return notify("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")
