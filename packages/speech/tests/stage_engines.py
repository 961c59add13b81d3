"""Engines controlled by the speech itself, for tests of the pipeline and the node.

They run in real worker processes, through real entry points; `engine_node.py` installs them. Speech
is text in the bytes of the audio (`engine_node.spoken`). `<es>` at its beginning sets the language
spoken. A word such as `asr!kill!once!met` makes an engine do something the first time it meets it,
counted in the file `met` of the folder $STAGE_ORDERS: kill, hang, slow, fail, missing, memory.
"""

from __future__ import annotations

import math
import os
import re
import signal
import time
from array import array
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from lingua_speech.engine import (
    About,
    EngineError,
    Hint,
    ModelMissing,
    Sound,
    SpeechSpan,
    Transcript,
    Watch,
)
from lingua_speech.plugins import take

SPOKEN = re.compile(r"<(?P<language>[a-z-]+)>")
ORDER = re.compile(r"(?P<role>asr|mt|tts)!(?P<deed>\w+)!(?P<times>once|twice)!(?P<file>[a-z]+)")
TIMES = {"once": 1, "twice": 2}
MS_PER_CHARACTER = 20


def obey(role: str, text: str, watch: Watch) -> None:
    """Do what a text orders this role to do, unless it was done often enough."""
    for order in ORDER.finditer(text):
        counter = Path(os.environ["STAGE_ORDERS"]) / order["file"]
        done = len(counter.read_bytes()) if counter.exists() else 0
        if order["role"] == role and done < TIMES[order["times"]]:
            with counter.open("ab") as file:
                file.write(b"x")
            DEEDS[order["deed"]](watch)


def kill(_: Watch) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def hang(_: Watch) -> None:
    time.sleep(3600)


def slow(watch: Watch) -> None:
    ends = time.monotonic() + 60
    while time.monotonic() < ends:
        watch.check()
        time.sleep(0.01)


def fail(_: Watch) -> None:
    raise EngineError("PROCESSING_ERROR", "as it was told")


def missing(_: Watch) -> None:
    raise ModelMissing("the model is gone")


def memory(_: Watch) -> None:
    kept = []
    while True:
        kept.append(bytearray(64 << 20))


DEEDS: dict[str, Callable[[Watch], None]] = {
    "kill": kill,
    "hang": hang,
    "slow": slow,
    "fail": fail,
    "missing": missing,
    "memory": memory,
}


def log(file: str, line: bytes) -> None:
    if file:
        with Path(file).open("ab") as out:
            out.write(line + b"\n")


class Plain:
    """The options and methods that all test engines share."""

    def __init__(self, options: Mapping[str, str], known: Mapping[str, str]) -> None:
        self.options = take(options, {"log": "", "only_if": "", **known})
        needed = self.options["only_if"]
        if needed and not Path(needed).exists():
            raise ModelMissing(f"there is no {needed}; run: lingua models install it")

    def close(self) -> None:
        """Do nothing."""

    def codes(self) -> tuple[str, ...]:
        return tuple(filter(None, self.options["languages"].split("+")))


class AudioTextRecogniser(Plain):
    """Recognises the text in the audio and reports it word by word."""

    def about(self) -> About:
        pairs = tuple(
            (one, other) for one, _, other in (p.partition(">") for p in self._itself()) if other
        )
        return About(engine="scribe", version="1", model="m", languages=self.codes(), pairs=pairs)

    def _itself(self) -> list[str]:
        return self.options["itself"].split("+")

    def recognise(self, sound: Sound, hint: Hint, watch: Watch) -> Transcript:
        log(self.options["log"], msgspec.json.encode(hint))
        text = sound.pcm.replace(b"\0", b"").decode()
        obey("asr", text, watch)
        marked = SPOKEN.match(text)
        said = text[marked.end() :] if marked else text
        language = marked["language"] if marked else hint.language
        if self.options["deaf"]:
            language = ""
        words = said.split()
        for count in range(1, len(words)):
            watch.partial(" ".join(words[:count]))
            time.sleep(float(self.options["word_s"]))
            watch.check()
        into = hint.translate_to
        return Transcript(
            text=said,
            language=language,
            scores={language: 0.9} if language and not hint.language else {},
            confidence=0.75,
            translation=f"{into} by scribe: {said}" if into else "",
        )


class NonZeroDetector(Plain):
    """Finds speech wherever the audio is not all zero."""

    def about(self) -> About:
        return About(engine="gate", version="1")

    def spans(self, sound: Sound, watch: Watch) -> tuple[SpeechSpan, ...]:
        pcm = sound.pcm
        first = len(pcm) - len(pcm.lstrip(b"\0"))
        if first == len(pcm):
            return ()
        per_ms = sound.sample_rate * 2 / 1000
        return (SpeechSpan(int(first / per_ms), math.ceil(len(pcm.rstrip(b"\0")) / per_ms)),)


class MarkingTranslator(Plain):
    """Translates by naming the language."""

    def about(self) -> About:
        pairs = tuple(pair.split(">") for pair in self.options["pairs"].split("+"))
        return About(engine="marker", version="2", pairs=tuple((a, b) for a, b in pairs))

    def translate(self, text: str, source: str, target: str, watch: Watch) -> str:
        log(self.options["log"], f"{source}>{target} {text}".encode())
        obey("mt", text, watch)
        return f"{source} in {target}: {text}"


class ToneVoice(Plain):
    """Speaks a tone as long as the text."""

    def about(self) -> About:
        return About(engine="tones", version="3", languages=self.codes())

    def speak(self, text: str, language: str, watch: Watch) -> Sound:
        obey("tts", text, watch)
        rate = int(self.options["rate"])
        count = rate * len(text) * MS_PER_CHARACTER // 1000
        step = 2 * math.pi * 440 / rate
        samples = array("h", (round(8000 * math.sin(step * at)) for at in range(count)))
        return Sound(samples.tobytes(), rate)


class AudioTextVoice(ToneVoice):
    """Speaks audio that contains the text, for `AudioTextRecogniser`."""

    def speak(self, text: str, language: str, watch: Watch) -> Sound:
        size = 16 * 2 * len(text) * MS_PER_CHARACTER
        return Sound(text.encode().ljust(size, b"\0"), 16_000)


class FirstLetterDetector(Plain):
    """Detects the language by the first letter: s is Spanish."""

    def about(self) -> About:
        return About(engine="letters", languages=("en", "es"))

    def identify(self, text: str, allowed: tuple[str, ...], watch: Watch) -> dict[str, float]:
        found = "es" if text.startswith("s") else "en"
        return {found: 0.8} if found in allowed else {}


def make_scribe(options: Mapping[str, str]) -> AudioTextRecogniser:
    return AudioTextRecogniser(
        options, {"languages": "en+es", "itself": "", "deaf": "", "word_s": "0"}
    )


def make_gate(options: Mapping[str, str]) -> NonZeroDetector:
    return NonZeroDetector(options, {})


def make_marker(options: Mapping[str, str]) -> MarkingTranslator:
    return MarkingTranslator(options, {"pairs": "en>es+es>en"})


def make_tones(options: Mapping[str, str]) -> ToneVoice:
    return ToneVoice(options, {"languages": "en+es", "rate": "16000"})


def make_echo(options: Mapping[str, str]) -> AudioTextVoice:
    return AudioTextVoice(options, {"languages": "en+es"})


def make_letters(options: Mapping[str, str]) -> FirstLetterDetector:
    return FirstLetterDetector(options, {})
