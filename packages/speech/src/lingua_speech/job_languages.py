"""The languages of a job: which may be spoken, and which one is the target. Pure.

They are determined before recognition, so that a job that this node cannot do costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from lingua_node import JobFailed
from lingua_wire.languages import AUTO, base_of

if TYPE_CHECKING:
    from lingua_node import Job
    from lingua_speech.abilities import Abilities

# The label with which the scheduler marks lines of speech in a session's context.
SPEECH_LABEL = "User: "


class JobLanguages(NamedTuple):
    """The languages of one job."""

    # The language spoken; '' if it must be detected, among `allowed` unless that is empty.
    language: str
    allowed: tuple[str, ...]
    # The target language; in a two-way job it is the other one of the two.
    target: str
    two_way: tuple[str, str] | None = None

    @property
    def candidates(self) -> tuple[str, ...]:
        """Return the languages that may be spoken; empty means any."""
        return (self.language,) if self.language else self.allowed

    def allows(self, spoken: str) -> bool:
        """Tell whether a language may be spoken; `en` matches `en-us`."""
        return not self.candidates or base_of(spoken) in map(base_of, self.candidates)

    def target_of(self, spoken: str) -> str:
        """Return the target for speech in a language."""
        if self.two_way is None:
            return self.target
        one, other = self.two_way
        return other if base_of(spoken) == base_of(one) else one


def languages_of(job: Job, abilities: Abilities) -> JobLanguages:
    """Return the languages of a job; raises `JobFailed` if this node does not serve them."""
    if not job.pipeline.use_asr:
        # Not to be retried on another node: a job contains nothing but speech.
        raise JobFailed("UNSUPPORTED_FEATURE", "a job without recognition has no input")
    translated = job.pipeline.use_nmt
    if job.mode == "two_way_auto" and job.lang_a and job.lang_b:
        both = (job.lang_a, job.lang_b)
        if translated and not (abilities.serves(*both) and abilities.serves(*both[::-1])):
            raise not_served(*both)
        return JobLanguages("", both, job.tgt_lang, both)
    if job.src_lang != AUTO:
        target = job.tgt_lang if translated else job.src_lang
        if not abilities.serves(job.src_lang, target):
            raise not_served(job.src_lang, target)
        return JobLanguages(job.src_lang, (), job.tgt_lang)
    return _with_unknown_source(job, abilities, translated=translated)


def _with_unknown_source(job: Job, abilities: Abilities, *, translated: bool) -> JobLanguages:
    """Return the languages of a job whose source must be detected, among those served here."""
    named = job.auto_langs or abilities.recognised_languages()
    allowed = tuple(
        code for code in named if abilities.serves(code, job.tgt_lang if translated else code)
    )
    if named and not allowed:
        raise not_served("/".join(named[:8]), job.tgt_lang)
    if len(allowed) == 1:
        return JobLanguages(allowed[0], (), job.tgt_lang)
    return JobLanguages("", allowed, job.tgt_lang)


def not_served(source: str, target: str) -> JobFailed:
    """Return the failure of a job that no engine here can do; another node may have one."""
    # No service is named: the services of this node work, and must stay available for other jobs.
    return JobFailed("MODEL_NOT_AVAILABLE", f"{source}>{target} is not served here")


def previous_speech(context: str | None) -> str:
    """Return the speech in a session's context, which also contains the answers.

    A context without labelled lines is a hint of the client and is returned unchanged.
    """
    lines = (context or "").splitlines()
    speech = [line[len(SPEECH_LABEL) :] for line in lines if line.startswith(SPEECH_LABEL)]
    return "\n".join(speech or lines)
