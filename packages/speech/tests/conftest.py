"""Fixtures for the tests of the pipeline and the node."""

import pytest

from engine_node import install_engines


@pytest.fixture
def stage_engines(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Install the test engines as a plugin package."""
    install_engines(tmp_path_factory.mktemp("stages"), monkeypatch)
