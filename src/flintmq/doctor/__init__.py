"""What a bug report needs, gathered: each finding with a verdict and, where it helps, a remedy.

Reads only, but for a short probe of the disk in a file of its own. Works beside a running broker.
No secret is ever among the facts.
"""

from __future__ import annotations

from .bundle import Redactor, write_bundle
from .configuration import look_at_configuration
from .data_directory import look_at_directory
from .findings import Finding, Report, Verdict
from .machine import look_at_machine
from .server import look_at_certificate, look_at_server

__all__ = [
    "Finding",
    "Redactor",
    "Report",
    "Verdict",
    "look_at_certificate",
    "look_at_configuration",
    "look_at_directory",
    "look_at_machine",
    "look_at_server",
    "write_bundle",
]
