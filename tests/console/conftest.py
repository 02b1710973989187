"""A browser, and a broker with something of everything in it: every action is done in each look."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from tests.effort import looks_of

from .person import LOOKS, Person
from .scene import ConsoleBroker, console_broker, furnish

CHROMIUM = shutil.which("chromium")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Each test in the looks that tests/effort.py says, unless it names them itself."""
    chosen = any(mark.args[0] == "look" for mark in metafunc.definition.iter_markers("parametrize"))
    if "look" in metafunc.fixturenames and not chosen:
        looks = looks_of(metafunc.function.__name__, list(LOOKS), metafunc.config.option.effort)
        metafunc.parametrize("look", looks, indirect=True, scope="package")


@pytest.fixture(scope="package")
def look(request: pytest.FixtureRequest) -> str:
    """Each has a broker of its own."""
    return str(request.param)


@pytest.fixture(scope="package")
def broker(look: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleBroker]:
    with console_broker(tmp_path_factory.mktemp("console")) as broker:
        furnish(broker)
        yield broker


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if CHROMIUM is None:
        pytest.skip("NOT TESTED IN A BROWSER: chromium is not installed")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def person(browser: Any, broker: ConsoleBroker, look: str) -> Iterator[Person]:
    person = Person(browser, broker.url, look)
    yield person
    person.leaves()
