"""Selects the voices of a default node without `--voice`, by two measurements.

The intelligibility of each voice was measured once (`lingua bench speech --voices`). It determines
the languages in which the natural voice is worth its time, because the plan's quick voices are much
worse. The speed of the natural voice is measured at the first start and stored like the number of
slots. The voice is used if it is installed and fast enough, for those languages only.
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Final

from lingua_speech import calibrate
from lingua_speech.calibrate import Calibration, Round
from lingua_speech.engine import EngineError
from lingua_speech.host import WorkerLost, WorkerPool, WorkerPoolRules
from lingua_speech.plugins import Spec
from lingua_speech.presets import NATURAL, NATURAL_VOICE

if TYPE_CHECKING:
    from lingua_speech.engine import Sound
    from lingua_speech.models import ModelStore
    from lingua_speech.presets import EnginePlan

# Word error rates in percent, recognised by Whisper base (the table in docs/speech.md), for the
# languages with a natural voice.
WORD_ERRORS: Final[dict[str, dict[str, float]]] = {
    "kokoro": {"en": 0.8, "es": 4.4, "fr": 4.3, "it": 13.0, "pt": 4.3},
    "pico": {"en": 0.8, "es": 3.9, "fr": 10.6, "it": 11.1},
    "espeak": {"en": 5.7, "es": 38.9, "fr": 81.3, "it": 61.1, "pt": 74.3},
}
NATURAL_ERRORS: Final = WORD_ERRORS["kokoro"]
# A smaller difference is neither significant on 24 sentences nor relevant for a listener.
MUCH_WORSE: Final = 10.0
# The real-time factor up to which the voice is used. With recognition, and on a machine half as
# busy again as during the measurement, a job still takes less time than its speech lasts.
MAX_RTF: Final = 0.6
SPEAK_S: Final = 30.0
TOO_SLOW: Final = (
    "the natural voice takes {:.2f} of the length of its speech here, more than {:g}: not used "
    "(--voice natural uses it)"
)


async def with_natural_voice(
    plan: EnginePlan, store: ModelStore, *, again: bool = False
) -> tuple[EnginePlan, str]:
    """Return a plan with the voices for this machine, and a message for the operator, or ''."""
    needed = store.catalogue.expand([NATURAL])
    languages = poorly_spoken(plan)
    if not plan.groups or not languages or not all(store.has(model.name) for model in needed):
        return plan, ""
    spec = Spec.parse(f"{NATURAL_VOICE}:languages={'+'.join(languages)}")
    key = calibrate.key_of([str(spec)], 0, MAX_RTF)
    found = None if again else calibrate.load(store.root, key)
    if found is None:
        try:
            found = await _measure(spec, languages[0])
        except (EngineError, WorkerLost) as error:
            return plan, f"the natural voice does not work here: {error}"
        calibrate.store(store.root, key, found)
    rtf = found.rounds[0].slowest_rtf
    if rtf > MAX_RTF:
        return plan, TOO_SLOW.format(rtf, MAX_RTF)
    return plan.with_voice(spec), ""


def poorly_spoken(plan: EnginePlan) -> tuple[str, ...]:
    """Return the languages in which a plan's own voices are much worse than the natural one."""
    own = [WORD_ERRORS[spec.name] for spec in plan.of("tts") if spec.name in WORD_ERRORS]
    first = {
        code: next((wrong[code] for wrong in own if code in wrong), None) for code in NATURAL_ERRORS
    }
    return tuple(
        code
        for code, wrong in first.items()
        if wrong is None or wrong > NATURAL_ERRORS[code] + MUCH_WORSE
    )


async def _measure(spec: Spec, language: str) -> Calibration:
    """Speak a sentence twice and measure the second time, when everything is loaded."""
    sentence = calibrate.SENTENCES[language]
    pool = WorkerPool([spec], WorkerPoolRules())
    await pool.start()
    try:
        await pool.call(0, sentence, language, timeout_s=SPEAK_S)
        began = perf_counter()
        sound: Sound = await pool.call(0, sentence, language, timeout_s=SPEAK_S)
        took_s = perf_counter() - began
    finally:
        await pool.close()
    if not sound.pcm:
        raise EngineError("PROCESSING_ERROR", "it returned no speech")
    audio_s = sound.duration_ms / 1000
    return Calibration(1, (Round(1, round(took_s / audio_s, 4)),), audio_s)
