"""All tests of worker processes have the test engines installed."""

import pytest

from host.worker_pools import install_plugins


@pytest.fixture(autouse=True)
def test_engines(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install the test engines as a plugin package."""
    install_plugins(tmp_path_factory.mktemp("plugins"), monkeypatch)
