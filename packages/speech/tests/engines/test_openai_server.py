"""The options of engines on a server with OpenAI's API, and the library they need."""

from __future__ import annotations

import subprocess
import sys

import pytest

from engines.openai_api import KEY
from lingua_cli.extras import install_command
from lingua_speech.engines.openai_server import make_asr, make_mt, make_tts
from lingua_wire.errors import ConfigError

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("maker", "options"),
    [
        (make_asr, {"url": "https://h/v1", "model": "m"}),
        (make_tts, {"url": "https://h/v1", "model": "m"}),
        (make_mt, {"url": "https://h/v1", "model": "m"}),
        (make_mt, {"url": "https://h/v1", "pairs": "en-es"}),
        (make_mt, {"url": "", "model": "m", "pairs": "en-es"}),
        (make_mt, {"url": "ftp://h/v1", "model": "m", "pairs": "en-es"}),
        (make_mt, {"url": "https://key@h/v1", "model": "m", "pairs": "en-es"}),
        (make_mt, {"url": "https://h:x/v1", "model": "m", "pairs": "en-es"}),
        (make_mt, {"url": "https://h/v1", "model": "m", "pairs": "en-es", "key": KEY}),
        (make_asr, {"url": "https://h/v1", "model": "m", "languages": "en", "pairs": "en-es"}),
        (make_asr, {"url": "https://h/v1", "model": "m", "languages": "e!"}),
        (make_tts, {"url": "https://h/v1", "model": "m", "languages": "en", "format": "mp3"}),
    ],
)
def test_what_is_missing_or_impossible_is_told_before_anything_is_sent(maker, options):
    with pytest.raises(ConfigError):
        maker(options)


def test_only_the_voice_needs_a_library_and_says_which() -> None:
    code = """
import sys
sys.modules["numpy"] = None
from lingua_speech.engine import ModelMissing
from lingua_speech.plugins import Spec, make
server = "url=http://127.0.0.1:1/v1,model=m,languages=en+es"
for kind in ("asr", "mt"):
    print(make(Spec.parse(f"{kind}=openai-{kind}:{server}")).about().engine)
try:
    make(Spec.parse(f"tts=openai-tts:{server}"))
except ModelMissing as missing:
    print(missing)
"""
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    *without, voice = ran.stdout.splitlines()
    assert without == ["openai-asr", "openai-mt"]
    assert "numpy" in voice
    assert install_command("lingua-speech", "engines") in voice
