"""What tests of the pipeline and the node ask for by name."""

import pytest

from speech.stages import install_engines


@pytest.fixture
def stage_engines(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Install the test engines as a plugin package."""
    install_engines(tmp_path_factory.mktemp("stages"), monkeypatch)
