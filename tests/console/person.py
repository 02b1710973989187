"""Somebody at the console, in a browser: by what a person sees and presses."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from tests.patience import PATIENCE_SECONDS

AXE = Path(__file__).parent / "vendor" / "axe.min.js"
WIDE, NARROW = (1280, 800), (360, 740)
LOOKS: dict[str, tuple[tuple[int, int], str]] = {
    "wide and light": (WIDE, "light"),
    "narrow and dark": (NARROW, "dark"),
}


class Person:
    """Somebody at the console. What goes wrong in the page, or leaves it, is remembered."""

    def __init__(self, browser: Any, url: str, look: str = "wide and light") -> None:
        (width, height), scheme = LOOKS[look]
        self.url = url
        self.page = browser.new_page(
            viewport={"width": width, "height": height},
            color_scheme=scheme,
            permissions=["clipboard-read", "clipboard-write"],
        )
        self.page.set_default_timeout(PATIENCE_SECONDS * 1000)
        self.faults: list[str] = []
        self.page.on("pageerror", lambda error: self.faults.append(str(error)))
        self.page.on("request", self._requested)
        self.page.on("console", self._said)

    def _said(self, message: Any) -> None:
        if "Content Security Policy" in message.text:
            self.faults.append(message.text)

    def _requested(self, request: Any) -> None:
        if not request.url.startswith((self.url, "data:", "blob:")):
            self.faults.append(f"asked {request.url}")

    def goes(self, where: str, waits_for: str = "main h1") -> None:
        self.page.goto(f"{self.url}/#/{where}")
        self.page.wait_for_selector(waits_for)

    def presses(self, text: str, where: str = "") -> None:
        self.page.locator(where or "body").get_by_role(
            "button", name=text, exact=True
        ).first.click()

    def types(self, label: str, text: str) -> None:
        self.page.get_by_label(label, exact=True).last.fill(text)

    def sees(self, text: str) -> None:
        self.page.get_by_text(text).first.wait_for()

    def waits(self, for_what: str) -> None:
        """Until an expression is true. (The page lets nobody evaluate one, so it is asked.)"""
        until = time.monotonic() + PATIENCE_SECONDS
        while not self.page.evaluate(for_what):
            assert time.monotonic() < until, for_what
            self.page.wait_for_timeout(20)

    def confirms(self, button: str) -> None:
        self.presses(button, "dialog")

    def leaves(self) -> None:
        assert self.page.evaluate("window.hacked") is None
        self.page.close()
        assert self.faults == []


def faults_of(person: Person, where: str, only: str = "") -> list[tuple[str, str, str]]:
    """What axe-core calls serious; of one rule alone if it is named."""
    if not person.page.evaluate("'axe' in window"):
        person.page.evaluate(AXE.read_text())
    rules = f", runOnly: ['{only}']" if only else ""
    found = person.page.evaluate(f"axe.run(document, {{resultTypes: ['violations']{rules}}})")
    return [
        (where, one["id"], one["nodes"][0]["html"][:200])
        for one in found["violations"]
        if one["impact"] in ("serious", "critical")
    ]


def check_view(person: Person, view: str) -> list[tuple[str, str, str]]:
    """In both colour schemes."""
    person.waits("!document.querySelector('p.empty[role=status]')")
    faults = faults_of(person, view)
    overhang = person.page.evaluate("document.documentElement.scrollWidth - innerWidth")
    assert overhang <= 0, f"{view} is wider than its window"
    for scheme in ("dark", "light"):
        person.page.emulate_media(color_scheme=scheme)
        faults += faults_of(person, f"{view}, {scheme}", "color-contrast")
    return faults
