"""How well voices are understood: each says the same sentences, the recogniser writes them down.

What is measured is a voice and a recogniser together, so the figures compare voices and are no
measure of how pleasant they are. Sentences are our own (`sentences.tsv`, a column for each
language); figures in what was heard count as the words for them.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from importlib.resources import files
from time import perf_counter
from typing import TYPE_CHECKING, Final

from lingua_scheduler.interpret import quantile
from lingua_scheduler.speech.abilities import closest
from lingua_scheduler.speech.engine import Hint
from lingua_scheduler.speech.host import Crew, CrewRules
from lingua_scheduler.speech.plugins import Spec
from lingua_scheduler.speech.scores import word_error_rate
from lingua_scheduler.speech.text import for_speech

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lingua_scheduler.speech.engine import Sound

EAR: Final = "asr=whisper:model=base"
VOICES: Final = ("tts=kokoro", "tts=pico", "tts=espeak")
SENTENCES: Final = "sentences.tsv"
# Of a quick run, in each language.
QUICK: Final = 8
SPEAK_S: Final = 60.0
HEAR_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Understood:
    """One voice in one language."""

    voice: str
    language: str
    sentences: int
    # Errors per word of what was recognised.
    wer: float
    # Work per second of speech, and how long it took until a sentence could be heard: a result
    # comes whole, so that is the time of a whole sentence.
    rtf: float
    first_audio_p50_ms: float
    speech_s: float


@dataclass(frozen=True, slots=True)
class VoiceReport:
    """All voices, in all languages."""

    rows: tuple[Understood, ...]
    # Voices that could not be loaded, and why.
    left_out: Mapping[str, str]

    def summary(self) -> dict[str, float]:
        """Return the numbers to quote."""
        return {f"wer_{row.language}_{row.voice}": round(row.wer, 4) for row in self.rows}

    def objects(self) -> list[dict[str, object]]:
        """Return everything measured, one object each, the summary last."""
        rows: list[dict[str, object]] = [{"kind": "voice", **asdict(row)} for row in self.rows]
        return [*rows, dict(self.summary())]


def sentences() -> dict[str, list[str]]:
    """Return the sentences by language; those of one row say the same."""
    text = files(__package__).joinpath(SENTENCES).read_text(encoding="utf-8")
    heads, *rows = (line.split("\t") for line in text.splitlines())
    return {code: [row[column] for row in rows] for column, code in enumerate(heads)}


async def measure_voices(
    specs: Sequence[str], tell: Callable[[str], None], *, is_quick: bool = False
) -> VoiceReport:
    """Let every voice say every sentence in each language that it has."""
    crew = Crew([Spec.parse(EAR), *map(Spec.parse, specs)], CrewRules())
    await crew.start()
    try:
        rows = []
        for number in sorted(set(crew.abouts) - {0}):
            for language, texts in sentences().items():
                if code := closest(crew.abouts[number].languages, language):
                    tell(f"{specs[number - 1]} says it in {language}")
                    said = texts[:QUICK] if is_quick else texts
                    rows.append(await _understood(crew, specs[number - 1], (number, code), said))
    finally:
        await crew.close()
    left_out = {specs[number - 1]: str(why) for number, why in crew.failures.items() if number}
    return VoiceReport(tuple(rows), left_out)


async def _understood(
    crew: Crew, spec: str, by: tuple[int, str], texts: Sequence[str]
) -> Understood:
    number, language = by
    heard: list[tuple[str, str]] = []
    took_ms, lasted_ms = [], []
    # The first call starts what a voice starts late.
    await crew.call(number, texts[0], language, timeout_s=SPEAK_S)
    for text in texts:
        began = perf_counter()
        aloud = for_speech(text, language)
        sound: Sound = await crew.call(number, aloud, language, timeout_s=SPEAK_S)
        took_ms.append((perf_counter() - began) * 1000)
        lasted_ms.append(sound.duration_ms)
        written = await crew.call(0, sound, Hint(language=language), timeout_s=HEAR_S)
        heard.append((aloud, for_speech(written.text, language)))
    return Understood(
        voice=_name(spec),
        language=language,
        sentences=len(texts),
        wer=word_error_rate(heard),
        rtf=sum(took_ms) / sum(lasted_ms),
        first_audio_p50_ms=quantile(took_ms, 0.5),
        speech_s=sum(lasted_ms) / 1000,
    )


def _name(spec: str) -> str:
    return spec.partition("=")[2]
