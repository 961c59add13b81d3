"""Any server with OpenAI's speech API, over HTTP: openai-asr, openai-mt, openai-tts.

Licence: that of the server and its models. Only the voice needs a library (numpy). The key is read
from an environment variable and never written into a spec. It is sent to the configured host only:
redirects are not followed, and TLS certificates are checked. The operator declares what the server
can do, because the API cannot be asked for it.

| option | default | what it is |
|---|---|---|
| url | | the API's root: `https://host/v1`; a URL without a scheme means `https://` |
| model | | the server's name for its model |
| key_env | | the environment variable that holds the key; empty: no key is sent |
| plain | no | yes: allow sending the key over http:// to a host other than this machine |
| timeout_s | 30 | how long one request may take, 1 to 600 |
| languages | | asr, tts: `en+es+fr`, needed. mt: all directions between these |
| pairs | | mt: `en-es+es-en`. asr: translations the server offers, `es-en` (into English only) |
| format | pcm | tts: pcm or wav |
| sample_rate | 24000 | tts: the sample rate of pcm |
| voice, voice.LANG | alloy | tts: the default voice, and the voice of one language |
"""

from __future__ import annotations

from itertools import permutations
from typing import TYPE_CHECKING, Any, Final

from lingua_speech import plugins
from lingua_speech.engines import options as reading
from lingua_speech.engines.openai_server.asr import OpenAiRecogniser
from lingua_speech.engines.openai_server.http import ApiConnection, key_of
from lingua_speech.engines.openai_server.mt import OpenAiTranslator
from lingua_wire.errors import ConfigError, InvalidLanguage
from lingua_wire.languages import language as one_form

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lingua_speech.engines.openai_server.tts import OpenAiVoice

KNOWN: Final = {
    "url": "",
    "model": "",
    "key_env": "",
    "plain": "no",
    "timeout_s": "30",
    "languages": "",
}
TTS_OPTIONS: Final = {**KNOWN, "format": "pcm", "sample_rate": "24000", "voice": "alloy"}
TEXT_OPTIONS: Final = {**KNOWN, "pairs": ""}


def make_asr(options: Mapping[str, str]) -> OpenAiRecogniser:
    """Make a recogniser: `/audio/transcriptions`, and `/audio/translations` for declared pairs."""
    taken = plugins.take(options, TEXT_OPTIONS)
    pairs = _pairs(taken)
    if any(target != "en" for _, target in pairs):
        raise ConfigError("engines", "openai-asr translates into en only: pairs=es-en+fr-en")
    return OpenAiRecogniser(_connection(taken), _model(taken), _languages(taken), pairs)


def make_mt(options: Mapping[str, str]) -> OpenAiTranslator:
    """Make a translator: `/chat/completions`."""
    taken = plugins.take(options, TEXT_OPTIONS)
    among = tuple(_code(code) for code in reading.listed(taken, "languages"))
    pairs = (*_pairs(taken), *permutations(among, 2))
    if not pairs:
        raise ConfigError("engines", "openai-mt needs pairs=en-es+es-en or languages=en+es")
    return OpenAiTranslator(_connection(taken), _model(taken), tuple(dict.fromkeys(pairs)))


def make_tts(options: Mapping[str, str]) -> OpenAiVoice:
    """Make a voice: `/audio/speech`."""
    reading.library("numpy", extra="engines")
    # Imported here because the recogniser and the translator do not need numpy.
    from lingua_speech.engines.openai_server import tts  # noqa: PLC0415

    others, named = reading.family(options, "voice")
    taken = plugins.take(others, TTS_OPTIONS)
    settings = tts.VoiceSettings(
        model=_model(taken),
        form=reading.one_of(taken, "format", ("pcm", "wav")),
        sample_rate=reading.whole(taken, "sample_rate", 8_000, 48_000),
        voices={"": taken["voice"], **{_code(code): voice for code, voice in named.items()}},
    )
    return tts.OpenAiVoice(_connection(taken), settings, _languages(taken))


def _connection(taken: Mapping[str, Any]) -> ApiConnection:
    timeout_s = reading.real(taken, "timeout_s", 1, 600)
    allow_plain = reading.one_of(taken, "plain", ("no", "yes")) == "yes"
    key = key_of(taken["key_env"])
    return ApiConnection(taken["url"], key, timeout_s, allow_plain=allow_plain)


def _model(taken: Mapping[str, str]) -> str:
    if not taken["model"]:
        raise ConfigError("engines", "model=NAME is needed: the server's name for its model")
    return taken["model"]


def _languages(taken: Mapping[str, str]) -> tuple[str, ...]:
    languages = tuple(_code(code) for code in reading.listed(taken, "languages"))
    if not languages:
        raise ConfigError("engines", "languages=en+es is needed: the languages of the server")
    return languages


def _pairs(taken: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    pairs = reading.pairs(taken, "pairs")
    return tuple((_code(source), _code(target)) for source, target in pairs)


def _code(code: str) -> str:
    try:
        return one_form(code)
    except InvalidLanguage as error:
        raise ConfigError("engines", str(error)) from error
