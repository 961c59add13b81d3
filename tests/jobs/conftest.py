"""The server that the scenarios of this folder share; each has keys of its own on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

# Before it is imported, so that its assertions tell what they compared.
pytest.register_assert_rewrite("jobs.deployment")

from servers import start_server  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lingua_scheduler.state.link import Address


@pytest.fixture(name="addresses", scope="package")
def one_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Address]]:
    with start_server(tmp_path_factory.mktemp("server")) as server:
        yield [server.address]
