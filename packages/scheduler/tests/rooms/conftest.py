"""The server that the store tests of this folder share; each scenario empties it first."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

# Before they are imported, so that their assertions show what they compared.
pytest.register_assert_rewrite("rooms.room_stage", "runtime.bare_instances")

from servers import start_server  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator

    from servers import Server


@pytest.fixture(name="server", scope="package")
def one_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with start_server(tmp_path_factory.mktemp("store")) as server:
        yield server
