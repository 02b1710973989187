"""What the comparison of tasks runs: task queues in an environment of their own, and servers."""

from __future__ import annotations

from pathlib import Path

from ..installing import PEERS, install_python
from ..peers.install import NATS_SERVER, server_of

OURS = ("click", "httptools", "pyyaml", "rich", "starlette", "uvicorn", "websockets")
"""What our own command line needs."""
PACKAGES = {
    "celery": "celery==5.7.0",
    "dramatiq": "dramatiq==2.2.1",
    "taskiq": "taskiq==0.13.0",
    "taskiq-redis": "taskiq-redis==1.2.4",
    "redis": "redis",
    "hiredis": "hiredis",
    "packaging": "packaging",
    "nats": "nats-py==2.16.0",
    "server": NATS_SERVER,
    "loop": "uvloop",
    "flintmq": "msgspec",
    "checksum": "fastcrc",
    **{name: name for name in OURS},
}
FOLDER = PEERS / "tasks"


def installed() -> tuple[Path, Path]:
    """The interpreter that has all of them, and redis-server. Raises CannotInstall."""
    python = install_python(FOLDER, list(PACKAGES.values()))
    return python, server_of("redis")
