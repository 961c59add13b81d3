"""The recogniser without a model: options, missing files, codes of languages."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lingua_speech.engine import About, Hint, ModelMissing
from lingua_speech.engines import whisper
from lingua_speech.engines.whisper import recogniser
from lingua_wire.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path


pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    "options",
    [{"model": "huge"}, {"window": "tall"}, {"threads": "0"}, {"threads": "x"}, {"beams": "5"}],
)
def test_an_option_that_makes_no_sense_is_refused(options: dict[str, str]) -> None:
    with pytest.raises(ConfigError):
        whisper.make(options)


def test_a_folder_without_the_model_says_how_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(ModelMissing, match="lingua models install"):
        whisper.make({"dir": str(tmp_path)})


@pytest.mark.parametrize(("ours", "its"), [("nb", "no"), ("fil", "tl"), ("pt-br", "pt")])
def test_a_language_that_whisper_calls_otherwise_is_translated_too(ours: str, its: str) -> None:
    about = About(engine="whisper", languages=(ours,), pairs=((ours, "en"),))
    hint = Hint(language=ours, translate_to="en")
    transcript = recogniser._Transcript({its: ours}, hint, has_context=False)
    assert transcript.is_translated(about, its)
    assert not transcript.is_translated(about, "xx")
