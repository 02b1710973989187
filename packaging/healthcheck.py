"""Whether the broker of this container is ready: asks /ready, says why not, exits with 0 or 1.

Only this container is asked, so the certificate is not checked; with `tls_client_ca`, ours is taken
from FLINTMQ_TLS_CLIENT_CERT and FLINTMQ_TLS_CLIENT_KEY.
"""

from __future__ import annotations

import os
import ssl
import sys
import urllib.error
import urllib.request


def url() -> str:
    _, _, port = os.environ.get("FLINTMQ_HTTP", "127.0.0.1:7601").rpartition(":")
    scheme = "https" if os.environ.get("FLINTMQ_TLS_CERT") else "http"
    return f"{scheme}://127.0.0.1:{port}/ready"


def context() -> ssl.SSLContext:
    unchecked = ssl.create_default_context()
    unchecked.check_hostname, unchecked.verify_mode = False, ssl.CERT_NONE
    if certificate := os.environ.get("FLINTMQ_TLS_CLIENT_CERT"):
        unchecked.load_cert_chain(certificate, os.environ.get("FLINTMQ_TLS_CLIENT_KEY"))
    return unchecked


def main() -> int:
    try:
        with urllib.request.urlopen(url(), timeout=2, context=context()) as answer:
            return 0 if answer.status == 200 else 1
    except (OSError, urllib.error.URLError) as error:
        print(f"{url()}: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
