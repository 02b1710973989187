"""What docs/http-api.md shows works as it stands there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import NamedTuple

from flintmq.frontends.http.api import ROUTES

from .conftest import Caller

TEXT = (Path(__file__).parents[3] / "docs" / "http-api.md").read_text()
HOST = "http://localhost:7601"


class Curl(NamedTuple):
    method: str
    path: str
    headers: dict[str, str]
    body: str | None


def curls(text: str = TEXT) -> list[Curl]:
    """The requests of the document, as curl would make them."""
    found = []
    for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL):
        for line in block.splitlines():
            words = iter(shlex.split(line)[1:])
            assert line.startswith("curl "), line
            method, url, headers, body = "GET", "", {}, None
            for word in words:
                match word:
                    case "-X":
                        method = next(words)
                    case "-H":
                        name, _, value = next(words).partition(": ")
                        headers[name] = value
                    case "-N":
                        pass
                    case "-d":
                        body = next(words)
                        method = "POST" if method == "GET" else method
                    case _:
                        url = word
            assert url.startswith(HOST), line
            found.append(Curl(method, url.removeprefix(HOST), headers, body))
    return found


async def test_every_request_of_the_document_is_answered(call: Caller) -> None:
    # Streams need a socket: test_curl.py has them.
    requests = [one for one in curls() if "/stream" not in one.path]
    assert len(requests) >= 8
    for one in requests:
        response = await call._client.request(
            one.method,
            one.path,
            content=one.body,
            headers={**one.headers, "authorization": "Bearer admin-key"},
        )
        assert response.status_code == 200, (one, response.text)


def test_the_document_names_every_route_and_what_it_needs() -> None:
    rows = re.findall(r"^\| `([A-Z]+) (/\S+)` \| (.+?) \|", TEXT, re.MULTILINE)
    assert [(method, path, needs) for method, path, needs in rows] == [
        (route.method, route.path, route.rule.text.partition(";")[0]) for route in ROUTES
    ]
