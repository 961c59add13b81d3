"""Reading the options of engines, and importing their libraries."""

from __future__ import annotations

import re

import pytest

from lingua_cli.extras import install_command
from lingua_speech.engine import ModelMissing
from lingua_speech.engines import options as reading
from lingua_wire.errors import ConfigError

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("text", ["en", "en-", "-es", "en-pt-br", ">es", ""])
def test_a_direction_that_is_none_is_refused(text):
    with pytest.raises(ConfigError):
        reading.direction(text)


def test_directions_lists_and_families_are_read():
    assert reading.direction("en>pt-BR") == ("en", "pt-br")
    assert reading.pairs({"pairs": "en-es+es-en"}, "pairs") == (("en", "es"), ("es", "en"))
    others, voices = reading.family({"voice.es": "a", "rate": "1", "voice": "b"}, "voice")
    assert (others, voices) == ({"rate": "1", "voice": "b"}, {"es": "a"})


@pytest.mark.parametrize("value", ["", "x", "nan", "11", "-1", "1.5"])
def test_a_number_out_of_its_bounds_is_refused(value):
    with pytest.raises(ConfigError):
        reading.whole({"beam": value}, "beam", 0, 10)


def test_a_library_that_is_not_there_is_told_with_the_way_to_get_it():
    with pytest.raises(ModelMissing, match=re.escape(install_command("lingua-speech", "piper"))):
        reading.library("no_such_library_at_all", extra="piper")


def test_a_folder_must_be_there_with_its_files(tmp_path):
    with pytest.raises(ConfigError, match="FOLDER"):
        reading.folder({"model": ""}, "model")
    with pytest.raises(ModelMissing, match="nothing is fetched from a hub"):
        reading.folder({"model": "large-v3"}, "model")
    with pytest.raises(ModelMissing, match=r"no model\.bin"):
        reading.folder({"model": str(tmp_path)}, "model", "model.bin")
