"""The server shared by the scenarios of this folder; each has its own keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from servers import start_server

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lingua_scheduler.state.link import Address


@pytest.fixture(name="addresses", scope="package")
def one_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Address]]:
    with start_server(tmp_path_factory.mktemp("server")) as server:
        yield [server.address]
