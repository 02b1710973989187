"""`flintmq console`: open the broker's page in a browser."""

from __future__ import annotations

import webbrowser
from urllib.error import URLError
from urllib.parse import urlsplit
from urllib.request import urlopen

import click

from ..config.table import HTTP_PORT
from ..errors import Disconnected
from .shared import hint, output_option, show

TIMEOUT_SECONDS = 5.0


@click.command("console")
@click.argument("url", default=f"http://localhost:{HTTP_PORT}", metavar="[URL]")
@click.option("--no-open", is_flag=True, help="Print the address only.")
@output_option
def command(url: str, no_open: bool, output: str) -> int:
    """Open the console of a broker in the browser, and print its address.

    The broker serves it itself, at the address of its --http; URL is that address, by default
    http://localhost:7601. Exits with 3 if no broker answers there.

    \b
    Examples:
      flintmq console --no-open
      flintmq console --no-open https://mq.example.com:7601 --output json
    """
    if "://" not in url:
        url = f"http://{url}"
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise click.UsageError(f"{url} is not an address of HTTP, such as http://localhost:7601")
    address = url.rstrip("/") + "/"
    opened = False
    if not no_open:
        try:
            urlopen(f"{address}health", timeout=TIMEOUT_SECONDS).close()
        except (URLError, OSError) as error:
            why = getattr(error, "reason", error)
            raise Disconnected(
                address, f"no broker answers ({why}); start one with `flintmq serve --http :7601`"
            ) from None
        opened = webbrowser.open(address)
        if not opened:
            hint("there is no browser here: open the address by hand")
    return show(output, {"url": address, "opened": opened}, address)
