"""Which voice a default node has where nobody says it: decided by two measurements.

How well each voice is understood was measured once (`lingua bench speech --voices`): that says for
which languages the natural one is worth its time, where the plan's quick ones are much worse. How
fast it is here is measured at the first start, and kept like the number of slots. It is taken if it
is installed and quick enough, for those languages alone.
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Final

from lingua_scheduler.speech import calibrate
from lingua_scheduler.speech.calibrate import Calibration, Round
from lingua_scheduler.speech.engine import EngineError
from lingua_scheduler.speech.host import Crew, CrewRules, WorkerLost
from lingua_scheduler.speech.plugins import Spec
from lingua_scheduler.speech.presets import NATURAL, NATURAL_VOICE

if TYPE_CHECKING:
    from lingua_scheduler.models import Store
    from lingua_scheduler.speech.engine import Sound
    from lingua_scheduler.speech.presets import Plan

# Words wrong of a hundred when Whisper base listens (the table of docs/speech.md), in the languages
# that have a natural voice.
UNDERSTOOD: Final[dict[str, dict[str, float]]] = {
    "kokoro": {"en": 0.8, "es": 4.4, "fr": 4.3, "it": 13.0, "pt": 4.3},
    "pico": {"en": 0.8, "es": 3.9, "fr": 10.6, "it": 11.1},
    "espeak": {"en": 5.7, "es": 38.9, "fr": 81.3, "it": 61.1, "pt": 74.3},
}
NATURAL_WRONG: Final = UNDERSTOOD["kokoro"]
# So many more, and a listener has lost the thread; with 24 sentences less is no clear difference.
MUCH_WORSE: Final = 10.0
# Of the length of its speech: with recognition, and a machine that is half as busy again as when it
# was measured, a sentence still takes less time than it lasts. Who would wait hears another voice.
MAX_RTF: Final = 0.6
SPEAK_S: Final = 30.0
TOO_SLOW: Final = (
    "the natural voice takes {:.2f} of the length of its speech here, more than {:g}: not used "
    "(--voice natural does)"
)


async def chosen(plan: Plan, store: Store, *, again: bool = False) -> tuple[Plan, str]:
    """Return a plan with the voices that fit this machine, and what there is to tell of it."""
    needed = store.catalogue.expand([NATURAL])
    languages = badly_said(plan)
    if not plan.groups or not languages or not all(store.has(model.name) for model in needed):
        return plan, ""
    spec = Spec.parse(f"{NATURAL_VOICE}:languages={'+'.join(languages)}")
    key = calibrate.key_of([str(spec)], 0, MAX_RTF)
    found = None if again else calibrate.kept(store.root, key)
    if found is None:
        try:
            found = await _measured(spec, languages[0])
        except (EngineError, WorkerLost) as error:
            return plan, f"the natural voice does not work here: {error}"
        calibrate.keep(store.root, key, found)
    rtf = found.rounds[0].slowest_rtf
    if rtf > MAX_RTF:
        return plan, TOO_SLOW.format(rtf, MAX_RTF)
    return plan.with_voice(spec), ""


def badly_said(plan: Plan) -> tuple[str, ...]:
    """Return the languages that a plan's own voices say much worse than the natural one."""
    own = [UNDERSTOOD[spec.name] for spec in plan.of("tts") if spec.name in UNDERSTOOD]
    first = {
        code: next((wrong[code] for wrong in own if code in wrong), None) for code in NATURAL_WRONG
    }
    return tuple(
        code
        for code, wrong in first.items()
        if wrong is None or wrong > NATURAL_WRONG[code] + MUCH_WORSE
    )


async def _measured(spec: Spec, language: str) -> Calibration:
    """Say a sentence twice; the second time counts, when all is loaded."""
    sentence = calibrate.SENTENCES[language]
    crew = Crew([spec], CrewRules())
    await crew.start()
    try:
        await crew.call(0, sentence, language, timeout_s=SPEAK_S)
        began = perf_counter()
        sound: Sound = await crew.call(0, sentence, language, timeout_s=SPEAK_S)
        took_s = perf_counter() - began
    finally:
        await crew.close()
    if not sound.pcm:
        raise EngineError("PROCESSING_ERROR", "it says nothing")
    audio_s = sound.duration_ms / 1000
    return Calibration(1, (Round(1, round(took_s / audio_s, 4)),), audio_s)
