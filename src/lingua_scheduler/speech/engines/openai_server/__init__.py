"""Any server with OpenAI's speech API, over HTTP: openai-asr, openai-mt, openai-tts.

Licence: of the server and its models. Only the voice needs a library (numpy). The key is read from
an environment variable and never written into a spec; it goes to the configured host only
(redirects are not followed, TLS is checked). What the server can do is declared by the operator: it
cannot be asked.

| option | default | what it is |
|---|---|---|
| url | | the API's root: `https://host/v1`; `http://` only where it is said |
| model | | the model's name, as the server knows it |
| key_env | | the environment variable that holds the key; empty: none is sent |
| plain | no | yes: send the key over http:// to a host that is not this machine |
| timeout_s | 30 | how long one request may take, 1 to 600 |
| languages | | asr, tts: `en+es+fr`, needed. mt: all directions between these |
| pairs | | mt: `en-es+es-en`. asr: translations the server gives, `es-en` (only into English) |
| format | pcm | tts: pcm or wav |
| sample_rate | 24000 | tts: of pcm |
| voice, voice.LANG | alloy | tts: the voice, and that of a language |
"""

from __future__ import annotations

from itertools import permutations
from typing import TYPE_CHECKING, Any, Final

from lingua_scheduler.errors import ConfigError, InvalidLanguage
from lingua_scheduler.languages import language as one_form
from lingua_scheduler.speech import plugins
from lingua_scheduler.speech.engines import options as reading
from lingua_scheduler.speech.engines.openai_server.chat import Chat
from lingua_scheduler.speech.engines.openai_server.ears import Ears
from lingua_scheduler.speech.engines.openai_server.line import Line, key_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lingua_scheduler.speech.engines.openai_server.mouth import Mouth

KNOWN: Final = {
    "url": "",
    "model": "",
    "key_env": "",
    "plain": "no",
    "timeout_s": "30",
    "languages": "",
}
OF_VOICES: Final = {**KNOWN, "format": "pcm", "sample_rate": "24000", "voice": "alloy"}
OF_TEXTS: Final = {**KNOWN, "pairs": ""}


def make_asr(options: Mapping[str, str]) -> Ears:
    """Give a recogniser: `/audio/transcriptions`, and `/audio/translations` if pairs say so."""
    taken = plugins.take(options, OF_TEXTS)
    pairs = _pairs(taken)
    if any(target != "en" for _, target in pairs):
        raise ConfigError("engines", "openai-asr translates into en only: pairs=es-en+fr-en")
    return Ears(_line(taken), _model(taken), _languages(taken), pairs)


def make_mt(options: Mapping[str, str]) -> Chat:
    """Give a translator: `/chat/completions`."""
    taken = plugins.take(options, OF_TEXTS)
    among = tuple(_code(code) for code in reading.listed(taken, "languages"))
    pairs = (*_pairs(taken), *permutations(among, 2))
    if not pairs:
        raise ConfigError("engines", "openai-mt needs pairs=en-es+es-en or languages=en+es")
    return Chat(_line(taken), _model(taken), tuple(dict.fromkeys(pairs)))


def make_tts(options: Mapping[str, str]) -> Mouth:
    """Give a voice: `/audio/speech`."""
    reading.library("numpy", extra="speech")
    # Not above: who listens or translates needs no numpy.
    from lingua_scheduler.speech.engines.openai_server import mouth  # noqa: PLC0415

    others, named = reading.family(options, "voice")
    taken = plugins.take(others, OF_VOICES)
    manner = mouth.Manner(
        model=_model(taken),
        form=reading.one_of(taken, "format", ("pcm", "wav")),
        sample_rate=reading.whole(taken, "sample_rate", 8_000, 48_000),
        voices={"": taken["voice"], **{_code(code): voice for code, voice in named.items()}},
    )
    return mouth.Mouth(_line(taken), manner, _languages(taken))


def _line(taken: Mapping[str, Any]) -> Line:
    timeout_s = reading.real(taken, "timeout_s", 1, 600)
    may_be_plain = reading.one_of(taken, "plain", ("no", "yes")) == "yes"
    key = key_of(taken["key_env"])
    return Line(taken["url"], key, timeout_s, may_be_plain=may_be_plain)


def _model(taken: Mapping[str, str]) -> str:
    if not taken["model"]:
        raise ConfigError("engines", "model=NAME is needed: the server's name for its model")
    return taken["model"]


def _languages(taken: Mapping[str, str]) -> tuple[str, ...]:
    languages = tuple(_code(code) for code in reading.listed(taken, "languages"))
    if not languages:
        raise ConfigError("engines", "languages=en+es is needed: what the server can do")
    return languages


def _pairs(taken: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    pairs = reading.pairs(taken, "pairs")
    return tuple((_code(source), _code(target)) for source, target in pairs)


def _code(code: str) -> str:
    try:
        return one_form(code)
    except InvalidLanguage as error:
        raise ConfigError("engines", str(error)) from error
