"""Piper: natural voices, each a small neural model (tts=piper).

Licence: GPL-3.0-or-later (piper-tts, with espeak-ng inside); each voice has its own. Needs `pip
install 'lingua-scheduler[piper]'` and voices: NAME.onnx with NAME.onnx.json beside it. Nothing is
fetched. About a tenth of real time on one core.

| option | default | what it is |
|---|---|---|
| voice | | a voice's .onnx file; it speaks the language its .json names |
| voice.LANG | | the voice of a language: `voice.es=/voices/es_ES-davefx-medium.onnx` |
| speaker | | number or name of the speaker, in voices that have several |
| length_scale | 0 | how slow: 1.2 is slower, 0.8 faster; 0: as the voice says |
| device | cpu | cpu or cuda (needs onnxruntime-gpu) |
"""

from __future__ import annotations

import json
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from lingua_scheduler.errors import ConfigError, InvalidLanguage
from lingua_scheduler.languages import base_of
from lingua_scheduler.languages import language as one_form
from lingua_scheduler.speech import plugins
from lingua_scheduler.speech.engine import About, EngineError, ModelMissing, Sound, Watch
from lingua_scheduler.speech.engines import options as reading
from lingua_scheduler.speech.engines import sentences
from lingua_scheduler.speech.engines.stitching import stitched

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

KNOWN: Final = {"voice": "", "speaker": "", "length_scale": "0", "device": "cpu"}
# Text between double brackets is taken for phonemes by Piper: no text may give any.
BRACKETS: Final = str.maketrans("[]", "()")


class Speaker(NamedTuple):
    """A loaded voice, and how it is to speak."""

    name: str
    voice: Any
    manner: Any
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
    speakers = {
        code: _load(file, taken["speaker"], scale, is_cuda=device == "cuda")
        for code, file in files.items()
    }
    return Piper(speakers, device)


class Piper:
    """Speaks with the voices it was given."""

    def __init__(self, speakers: Mapping[str, Speaker], device: str) -> None:
        # Language -> who speaks it; a voice of a region also speaks its language.
        self._speakers = dict(speakers)
        for code, speaker in speakers.items():
            self._speakers.setdefault(base_of(code), speaker)
        self._device = device

    def about(self) -> About:
        """Tell what it is and can do."""
        return About(
            engine="piper",
            version=version("piper-tts"),
            model="+".join(sorted({speaker.name for speaker in self._speakers.values()})),
            licence="GPL-3.0-or-later; of the voices: see there",
            device=self._device,
            languages=tuple(sorted(self._speakers)),
        )

    def speak(self, text: str, language: str, watch: Watch) -> Sound:
        """Say it aloud, sentence by sentence."""
        speaker = self._speakers.get(language) or self._speakers.get(base_of(language))
        if speaker is None:
            raise EngineError("UNSUPPORTED_FEATURE", f"piper has no voice for {language!r}")
        return stitched(self._spoken(speaker, text, watch), speaker.sample_rate)

    def close(self) -> None:
        """Let go of the voices."""
        self._speakers.clear()

    def _spoken(self, speaker: Speaker, text: str, watch: Watch) -> Iterator[bytes]:
        for sentence in sentences.split(sentences.plain(text.translate(BRACKETS))):
            if not sentences.is_speakable(sentence):
                continue
            watch.check()
            for chunk in speaker.voice.synthesize(sentence, speaker.manner):
                yield chunk.audio_int16_bytes
                watch.check()


def _load(file: Path, who: str, scale: float, *, is_cuda: bool) -> Speaker:
    """Load one voice; `who` is a speaker's number or name, if it has several."""
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
    manner = library.SynthesisConfig(
        speaker_id=_speaker(config, who, file), length_scale=scale or None
    )
    return Speaker(file.stem, voice, manner, voice.config.sample_rate)


def _failures() -> tuple[type[Exception], ...]:
    """Return what onnxruntime raises for a file that is no model of its own kind."""
    inner = reading.library("onnxruntime.capi.onnxruntime_pybind11_state", extra="piper")
    return (inner.Fail, inner.InvalidProtobuf, inner.InvalidGraph, inner.NoSuchFile)


def _config(file: Path) -> dict[str, Any]:
    beside = file.with_name(f"{file.name}.json")
    if not file.is_file() or not beside.is_file():
        raise ModelMissing(f"a voice is two files, {file} and {beside.name}; they are not here")
    try:
        return dict(json.loads(beside.read_text("utf-8")))
    except ValueError as error:
        raise ModelMissing(f"{beside} is no description of a voice: {error}") from error


def _language(file: Path) -> str:
    """Read which language a voice speaks: `language.code`, else what espeak-ng calls it."""
    config = _config(file)
    names = (config.get("language", {}).get("code"), config.get("espeak", {}).get("voice"))
    try:
        return one_form(next(name for name in names if name))
    except (StopIteration, InvalidLanguage) as error:
        problem = f"{file.name} does not say its language: use voice.LANG={file}"
        raise ConfigError("engines", problem) from error


def _speaker(config: Mapping[str, Any], who: str, file: Path) -> int | None:
    if not who:
        return None
    known = config.get("speaker_id_map") or {}
    number = known.get(who, int(who) if who.isdecimal() else -1)
    if not 0 <= number < config.get("num_speakers", 1):
        raise ConfigError("engines", f"{file.name} has no speaker {who!r}")
    return int(number)
