"""One scheduler without nodes for the tests that only load files from it, and one browser."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from browser_stage import chromium, open_page, problems_of, service

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Page


@pytest.fixture(scope="module")
def quiet_browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with service(tmp_path_factory.mktemp("service")) as scheduler:
        yield scheduler.url()


@pytest.fixture
def page(quiet_browser: Browser, address: str) -> Iterator[Page]:
    """Give a page of the service's origin that has loaded nothing but a file."""
    made = open_page(quiet_browser, f"{address}/assets/icon.svg")
    yield made
    assert problems_of(made) == []
    made.context.close()
