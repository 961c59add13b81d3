"""How well voices are understood: each speaks the same sentences to the recogniser.

A voice and a recogniser are measured together: the figures compare voices, and do not tell how
pleasant they are. The sentences are our own (`sentences.tsv`, a column for each language). Figures
in recognised text count as their words.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from importlib.resources import files
from time import perf_counter
from typing import TYPE_CHECKING, Final

from lingua_speech.abilities import closest
from lingua_speech.engine import Hint
from lingua_speech.host import WorkerPool, WorkerPoolRules
from lingua_speech.plugins import Spec
from lingua_speech.scores import word_error_rate
from lingua_speech.text import for_speech
from lingua_translate import quantile

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lingua_speech.engine import Sound

EAR: Final = "asr=whisper:model=base"
VOICES: Final = ("tts=kokoro", "tts=pico", "tts=espeak")
SENTENCES: Final = "sentences.tsv"
# How many sentences a quick run has in each language.
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
    # Work per second of speech, and the time until a sentence could be played: a result is complete
    # when it arrives, so that is the time of a whole sentence.
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
    """Return the sentences by language; those of one row have the same meaning."""
    text = files(__package__).joinpath(SENTENCES).read_text(encoding="utf-8")
    heads, *rows = (line.split("\t") for line in text.splitlines())
    return {code: [row[column] for row in rows] for column, code in enumerate(heads)}


async def measure_voices(
    specs: Sequence[str], tell: Callable[[str], None], *, is_quick: bool = False
) -> VoiceReport:
    """Let every voice speak every sentence in each language that it has."""
    pool = WorkerPool([Spec.parse(EAR), *map(Spec.parse, specs)], WorkerPoolRules())
    await pool.start()
    try:
        rows = []
        for number in sorted(set(pool.abouts) - {0}):
            for language, texts in sentences().items():
                if code := closest(pool.abouts[number].languages, language):
                    tell(f"{specs[number - 1]} says it in {language}")
                    said = texts[:QUICK] if is_quick else texts
                    rows.append(await _understood(pool, specs[number - 1], (number, code), said))
    finally:
        await pool.close()
    left_out = {specs[number - 1]: str(why) for number, why in pool.failures.items() if number}
    return VoiceReport(tuple(rows), left_out)


async def _understood(
    pool: WorkerPool, spec: str, by: tuple[int, str], texts: Sequence[str]
) -> Understood:
    number, language = by
    heard: list[tuple[str, str]] = []
    took_ms, lasted_ms = [], []
    # The first call starts what a voice starts lazily.
    await pool.call(number, texts[0], language, timeout_s=SPEAK_S)
    for text in texts:
        began = perf_counter()
        aloud = for_speech(text, language)
        sound: Sound = await pool.call(number, aloud, language, timeout_s=SPEAK_S)
        took_ms.append((perf_counter() - began) * 1000)
        lasted_ms.append(sound.duration_ms)
        written = await pool.call(0, sound, Hint(language=language), timeout_s=HEAR_S)
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
