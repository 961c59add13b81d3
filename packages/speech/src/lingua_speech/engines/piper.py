"""Piper: natural voices, each a small neural model (tts=piper).

Licence: GPL-3.0-or-later (piper-tts, with espeak-ng inside); each voice has its own. Needs `pip
install 'lingua-speech[piper]'` and voices: NAME.onnx with NAME.onnx.json beside it. Nothing is
fetched. About a tenth of real time on one core.

| option | default | what it is |
|---|---|---|
| voice | | the .onnx file of a voice; its .json names the language |
| voice.LANG | | the voice of a language: `voice.es=/voices/es_ES-davefx-medium.onnx` |
| speaker | | number or name of the speaker, for voices with several |
| length_scale | 0 | duration of speech: 1.2 is slower, 0.8 faster; 0: the default of the voice |
| device | cpu | cpu or cuda (needs onnxruntime-gpu) |
"""

from __future__ import annotations

import json
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from lingua_speech import plugins
from lingua_speech.engine import About, EngineError, ModelMissing, Sound, Watch
from lingua_speech.engines import options as reading
from lingua_speech.engines import sentences
from lingua_speech.engines.stitching import stitched
from lingua_wire.errors import ConfigError, InvalidLanguage
from lingua_wire.languages import base_of
from lingua_wire.languages import language as one_form

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

KNOWN: Final = {"voice": "", "speaker": "", "length_scale": "0", "device": "cpu"}
# Piper reads text between double brackets as phonemes: no text may contain brackets.
BRACKETS: Final = str.maketrans("[]", "()")


class LoadedVoice(NamedTuple):
    """A loaded voice and its parameters of synthesis."""

    name: str
    voice: Any
    synthesis: Any
    sample_rate: int


def make(options: Mapping[str, str]) -> Piper:
    """Load the voices."""
    others, named = reading.family(options, "voice")
    taken = plugins.take(others, KNOWN)
    device = reading.one_of(taken, "device", ("cpu", "cuda"))
    scale = reading.real(taken, "length_scale", 0, 10)
    files = {code.lower(): Path(file).expanduser() for code, file in named.items()}
    if taken["voice"]:
        file = Path(taken["voice"]).expanduser()
        files.setdefault(_language(file), file)
    if not files:
        raise ConfigError("engines", "piper needs voice=FILE.onnx or voice.es=FILE.onnx")
    voices = {
        code: _load(file, taken["speaker"], scale, is_cuda=device == "cuda")
        for code, file in files.items()
    }
    return Piper(voices, device)


class Piper:
    """The engine: speaks with the configured voices."""

    def __init__(self, voices: Mapping[str, LoadedVoice], device: str) -> None:
        # Language -> its voice; the voice of a region also serves its language.
        self._voices = dict(voices)
        for code, speaker in voices.items():
            self._voices.setdefault(base_of(code), speaker)
        self._device = device

    def about(self) -> About:
        """Return the description of the engine."""
        return About(
            engine="piper",
            version=version("piper-tts"),
            model="+".join(sorted({speaker.name for speaker in self._voices.values()})),
            licence="GPL-3.0-or-later; of the voices: see there",
            device=self._device,
            languages=tuple(sorted(self._voices)),
        )

    def speak(self, text: str, language: str, watch: Watch) -> Sound:
        """Speak a text sentence by sentence."""
        speaker = self._voices.get(language) or self._voices.get(base_of(language))
        if speaker is None:
            raise EngineError("UNSUPPORTED_FEATURE", f"piper has no voice for {language!r}")
        return stitched(self._synthesised(speaker, text, watch), speaker.sample_rate)

    def close(self) -> None:
        """Free the voices."""
        self._voices.clear()

    def _synthesised(self, speaker: LoadedVoice, text: str, watch: Watch) -> Iterator[bytes]:
        for sentence in sentences.split(sentences.plain(text.translate(BRACKETS))):
            if not sentences.is_speakable(sentence):
                continue
            watch.check()
            for chunk in speaker.voice.synthesize(sentence, speaker.synthesis):
                yield chunk.audio_int16_bytes
                watch.check()


def _load(file: Path, speaker_name: str, scale: float, *, is_cuda: bool) -> LoadedVoice:
    """Load one voice; `speaker_name` may be a number, for voices with several."""
    config = _config(file)
    library = reading.library("piper", extra="piper")
    failures: tuple[type[Exception], ...] = (
        ValueError,
        KeyError,
        RuntimeError,
        OSError,
        *_failures(),
    )
    try:
        voice = library.PiperVoice.load(file, use_cuda=is_cuda)
    except failures as error:
        raise ModelMissing(f"the voice {file} cannot be loaded: {error}") from error
    synthesis = library.SynthesisConfig(
        speaker_id=_speaker_id(config, speaker_name, file), length_scale=scale or None
    )
    return LoadedVoice(file.stem, voice, synthesis, voice.config.sample_rate)


def _failures() -> tuple[type[Exception], ...]:
    """Return the exceptions that onnxruntime raises for a file that is not a valid model."""
    inner = reading.library("onnxruntime.capi.onnxruntime_pybind11_state", extra="piper")
    return (inner.Fail, inner.InvalidProtobuf, inner.InvalidGraph, inner.NoSuchFile)


def _config(file: Path) -> dict[str, Any]:
    beside = file.with_name(f"{file.name}.json")
    if not file.is_file() or not beside.is_file():
        raise ModelMissing(
            f"a voice is two files, {file} and {beside.name}; at least one is missing"
        )
    try:
        return dict(json.loads(beside.read_text("utf-8")))
    except ValueError as error:
        raise ModelMissing(f"{beside} is not a description of a voice: {error}") from error


def _language(file: Path) -> str:
    """Return the language of a voice: `language.code`, else the name of espeak-ng's voice."""
    config = _config(file)
    names = (config.get("language", {}).get("code"), config.get("espeak", {}).get("voice"))
    try:
        return one_form(next(name for name in names if name))
    except (StopIteration, InvalidLanguage) as error:
        problem = f"{file.name} does not say its language: use voice.LANG={file}"
        raise ConfigError("engines", problem) from error


def _speaker_id(config: Mapping[str, Any], speaker_name: str, file: Path) -> int | None:
    if not speaker_name:
        return None
    known = config.get("speaker_id_map") or {}
    number = known.get(speaker_name, int(speaker_name) if speaker_name.isdecimal() else -1)
    if not 0 <= number < config.get("num_speakers", 1):
        raise ConfigError("engines", f"{file.name} has no speaker {speaker_name!r}")
    return int(number)
