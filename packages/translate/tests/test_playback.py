"""Playback with programs that pretend to play: order, one language, reported failures."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

import pytest

from lingua_translate import Rendition, TranslatedUtterance
from lingua_translate.playback import NoPlayer, Playback

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.unit


@pytest.fixture
def on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with the only programs that exist; there is no audio library either."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr("lingua_translate.playback.PLAYERS", (("our-player", "{rate}"),))
    monkeypatch.setitem(sys.modules, "sounddevice", None)
    return tmp_path


def program(folder: Path, script: str) -> None:
    (folder / "our-player").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "our-player").chmod(0o755)


async def play(*pieces: tuple[str, bytes]) -> list[str]:
    told: list[str] = []
    async with Playback(told.append) as playback:
        for target, pcm in pieces:
            playback.rendered(TranslatedUtterance(0), Rendition(target, pcm=pcm, sample_rate=8000))
    return told


def test_the_first_language_that_speaks_is_played_in_order(on_path: Path) -> None:
    program(on_path, f"cat >> {on_path}/played")
    told = asyncio.run(play(("es", b""), ("fr", b"one "), ("es", b"two "), ("fr", b"three ")))
    assert told == []
    assert (on_path / "played").read_bytes() == b"one three "


def test_a_player_that_fails_is_told_once_with_what_it_says(on_path: Path) -> None:
    program(on_path, "cat > /dev/null; echo 'no such device' >&2; exit 1")
    told = asyncio.run(play(("es", b"one "), ("es", b"two ")))
    assert told == ["the translated speech cannot be played: our-player: no such device"]


def test_after_an_error_nothing_more_is_played(on_path: Path) -> None:
    program(on_path, "exec sleep 600")

    async def scenario() -> None:
        async with Playback(lambda _: None) as playback:
            playback.rendered(
                TranslatedUtterance(0), Rendition("es", pcm=bytes(160), sample_rate=8000)
            )
            await asyncio.sleep(0)
            raise KeyError

    with pytest.raises(KeyError):
        asyncio.run(scenario())


def test_where_nothing_plays_it_is_told_what_to_install(on_path: Path) -> None:
    with pytest.raises(NoPlayer, match="our-player"):
        Playback(lambda _: None)
