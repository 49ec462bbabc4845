"""A real Chromium for the workbench's pages.

`workbench` is a broker and `fencepost web`, shared by the tests of a module. `page` is a tab of its own for each test;
an error in its console or a request that fails fails the test, unless the test removes it from `page_troubles`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, sync_playwright

from fencepost.testing import Broker
from tests.web_server import WebServer, web_server

ROOT = Path(__file__).resolve().parents[2]
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
]
PATIENCE_MS = 60_000
# Set by `make pictures`.
PICTURES = "FENCEPOST_PICTURES"
# Without verification (KIP-890), a transaction can hang, which pages have to show.
SETTINGS = {
    "transaction.partition.verification.enable": "false",
    "transaction.state.log.num.partitions": "3",
    "offsets.topic.num.partitions": "3",
}


class Workbench(NamedTuple):
    broker: Broker
    server: WebServer

    @property
    def servers(self) -> str:
        return self.broker.bootstrap_servers

    def url(self, path: str) -> str:
        return self.server.url.rstrip("/") + path


@pytest.fixture(scope="package")
def chromium() -> Iterator[Browser]:
    recorded = ROOT / ".tools" / "chromium"
    if not recorded.is_file():
        pytest.skip("no Chromium: `make chromium` finds or installs it")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=recorded.read_text().strip(), args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def workbench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workbench]:
    with (
        Broker(data=tmp_path_factory.mktemp("data"), settings=SETTINGS) as broker,
        web_server(broker.bootstrap_servers, "--allow-actions") as server,
    ):
        yield Workbench(broker, server)


@pytest.fixture
def page_troubles() -> list[str]:
    """What went wrong in the page of the test."""
    return []


@pytest.fixture
def page(chromium: Browser, page_troubles: list[str]) -> Iterator[Page]:
    context = chromium.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    page.set_default_timeout(PATIENCE_MS)

    def console(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            page_troubles.append(f"console: {message.text}")

    def failed(request: Request) -> None:
        # A stream ends when its page is left.
        if request.failure != "net::ERR_ABORTED":
            page_troubles.append(f"request: {request.url}: {request.failure}")

    page.on("console", console)
    page.on("pageerror", lambda error: page_troubles.append(f"error: {error}"))
    page.on("requestfailed", failed)
    yield page
    context.close()
    assert page_troubles == []


@pytest.fixture
def picture(tmp_path: Path) -> Callable[[Page, str], Path]:
    """Takes a picture of the page, for the documents if `make pictures` runs the test."""
    folder = ROOT / "docs" / "pictures" if os.environ.get(PICTURES) else tmp_path

    def take(page: Page, name: str) -> Path:
        path = folder / f"{name}.png"
        page.screenshot(path=path)
        return path

    return take


def barriers(page: Page) -> list[str]:
    """What axe finds in a page: what would keep some people from using it."""
    # `preload` would fetch the style sheets again and put them into the page, which its policy forbids.
    results = Axe().run(page, options={"preload": False})
    return [
        f"{violation['id']}: {violation['help']}: {[node['html'] for node in violation['nodes']][:3]}"
        for violation in results.response["violations"]
    ]


def is_wider_than_the_window(page: Page) -> bool:
    """Whether a reader has to scroll sideways."""
    return bool(page.evaluate("document.documentElement.scrollWidth > window.innerWidth"))
