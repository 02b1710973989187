"""The docs as a site: every link leads somewhere, search finds what people look for, offline."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

ROOT = Path(__file__).parents[2]
WORDS = ["exactly once", "dead letter", "fsync", "kill -9"]
CHROMIUM = shutil.which("chromium")
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Built in a copy, as `make docs` builds it."""
    place = tmp_path_factory.mktemp("docs")
    for name in ("docs", "src", "scripts", "examples", "zensical.toml", "SECURITY.md"):
        made = ROOT / name
        if made.is_dir():
            leave_out = shutil.ignore_patterns("__pycache__", "site")
            shutil.copytree(made, place / name, ignore=leave_out)
        else:
            shutil.copy(made, place / name)
    for command in ([sys.executable, "scripts/make_site.py"], [zensical(), "build", "--strict"]):
        done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    yield place / "docs" / "site"
    shutil.rmtree(place)


def zensical() -> str:
    return str(Path(sys.executable).with_name("zensical"))


def slug(heading: str) -> str:
    """The anchor of a heading."""
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower())


@cache
def anchors(page: Path) -> frozenset[str]:
    return frozenset(re.findall(r'\bid="?([^"\s>]+)', page.read_text()))


def test_every_link_leads_to_a_page_and_a_heading_that_are_there(site: Path) -> None:
    broken = []
    pages = [page for page in site.rglob("*.html") if page.name != "404.html"]
    assert len(pages) > 60
    for page in pages:
        for link in re.findall(
            r'<(?:a|img|script|link)\b[^>]*?\b(?:href|src)="?([^"\s>]+)', page.read_text()
        ):
            if re.match(r"[a-z]+:", link):
                continue
            path, _, anchor = unquote(link).partition("#")
            target = (page.parent / path).resolve() if path else page
            if target.is_dir():
                target = target / "index.html"
            is_there = target.exists() and (
                not anchor or target.suffix != ".html" or anchor in anchors(target)
            )
            if not is_there:
                broken.append(f"{page.relative_to(site)}: {link}")
    assert broken == []


@pytest.mark.parametrize("words", WORDS)
def test_search_has_what_people_look_for(site: Path, words: str) -> None:
    index = json.loads((site / "search.json").read_text())
    found = {item["location"] for item in index["items"] if words in item["text"].lower()}
    assert found, words


def test_every_picture_is_there_light_and_dark(site: Path) -> None:
    """Each in the form that suits what the reader chose."""
    shown: list[str] = []
    for page in site.rglob("*.html"):
        shown += re.findall(r'<img\b[^>]*?\bsrc="?([^"\s>]*pictures/[^"\s>]+)', page.read_text())
    light = {one.removesuffix("#only-light") for one in shown if one.endswith("#only-light")}
    dark = {one.removesuffix("#only-dark") for one in shown if one.endswith("#only-dark")}

    assert len(light) + len(dark) == len(set(shown))
    assert dark == {re.sub(r"(\.\w+)$", r"-dark\1", one) for one in light}
    assert len(light) >= 6


def test_the_dark_drawings_are_those_of_the_light_ones() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts/make-dark-pictures"), "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_system_of_the_cookbook_has_a_page_with_its_programs(site: Path) -> None:
    cookbook = (site / "cookbook.html").read_text()
    for system in (ROOT / "examples").glob("*/README.md"):
        name = system.parent.name
        assert f"cookbook/{name}.html" in cookbook, name
        assert f"{name}/README.md" in (ROOT / "examples/README.md").read_text(), name
        for program in system.parent.glob("*.py"):
            assert program.name.replace(".", "-") in anchors(site / "cookbook" / f"{name}.html")


def test_a_browser_finds_these_words_also_without_a_server_and_fetches_nothing(site: Path) -> None:
    """On a phone, in the dark, from files: the search of the site is all there."""
    if CHROMIUM is None:
        pytest.skip("NOT TESTED IN A BROWSER: chromium is not installed")
    from playwright.sync_api import sync_playwright

    phone: Any = {"viewport": {"width": 360, "height": 740}, "color_scheme": "dark"}
    fetched: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        for words in WORDS:
            page = browser.new_page(**phone)
            page.on("request", lambda request: fetched.append(request.url))
            page.goto((site / "index.html").as_uri())
            page.locator("label[for=__search]:visible").click()
            page.locator("input[type=text]:visible, input[type=search]:visible").fill(words)
            page.locator(f'a[href*="h={words.replace(" ", "+")}"]').first.wait_for()
            width = page.evaluate("document.documentElement.scrollWidth")
            schemes = []
            for scheme in ("dark", "light"):  # also if it was visited in the other one
                page.emulate_media(color_scheme=scheme)
                page.goto((site / "queues.html").as_uri())
                schemes.append(page.evaluate("document.body.dataset.mdColorScheme"))
            page.close()
            assert width <= 360, "the page is wider than the phone"
            assert schemes == ["slate", "default"]
        browser.close()
    assert [url for url in fetched if not url.startswith(("file:", "data:", "blob:"))] == []


def test_every_program_and_command_can_be_copied_with_a_button(site: Path) -> None:
    if CHROMIUM is None:
        pytest.skip("NOT TESTED IN A BROWSER: chromium is not installed")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(permissions=["clipboard-read", "clipboard-write"])
        page.goto((site / "index.html").as_uri())
        buttons = page.locator("pre button[title='Copy to clipboard']")
        buttons.first.wait_for()
        assert buttons.count() == page.locator("pre").count() > 5
        page.locator("pre").nth(1).hover()
        buttons.nth(1).click()
        page.locator(".md-dialog--active").wait_for()
        copied = page.evaluate("navigator.clipboard.readText()")
        browser.close()
    (first, *_) = re.findall(
        r"```python\n(.*?)```", (ROOT / "docs/index.md").read_text(), re.DOTALL
    )
    assert copied.strip() == first.strip()


def test_pages_fetch_nothing_from_elsewhere(site: Path) -> None:
    fetched = re.compile(r'<(?:script|img|link|iframe)\b[^>]*?\b(?:href|src)="?(https?:[^"\s>]+)')
    for page in site.rglob("*.html"):
        assert fetched.findall(page.read_text()) == [], page.name


def test_every_page_of_the_docs_is_in_the_navigation(site: Path) -> None:
    navigation = (ROOT / "zensical.toml").read_text()
    for page in (ROOT / "docs").rglob("*.md"):
        name = str(page.relative_to(ROOT / "docs"))
        if not name.startswith("site/"):
            assert f'"{name}"' in navigation, name


def test_the_reference_has_every_name_that_is_exported_and_every_command(site: Path) -> None:
    import flintmq
    from flintmq.cli.root import SECTIONS
    from flintmq.frontends.http.api import ROUTES

    python = anchors(site / "reference" / "python.html")
    for name in flintmq.__all__:  # type: ignore[attr-defined]
        if not name.startswith("__"):
            assert name.lower() in python, name
    http = anchors(site / "reference" / "http.html")
    for route in ROUTES:
        assert slug(f"{route.method} {route.path}") in http, route.path
    command_line = anchors(site / "reference" / "command-line.html")
    for commands in SECTIONS.values():
        for name in commands:
            assert f"flintmq-{name}" in command_line
