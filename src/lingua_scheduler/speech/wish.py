"""What a job asks for: which languages may be spoken, and into which one it goes. Pure.

Worked out before anything is heard, so that a job this node cannot do costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from lingua_scheduler.languages import AUTO, base_of
from lingua_scheduler.node import JobFailed

if TYPE_CHECKING:
    from lingua_scheduler.node import Job
    from lingua_scheduler.speech.abilities import Abilities

# Lines of a session's context that hold what was said, as the scheduler labels them.
SAID = "User: "


class Wish(NamedTuple):
    """The languages of a job."""

    # The language spoken; '' if it must be found out, among `allowed` unless that is empty.
    language: str
    allowed: tuple[str, ...]
    # What it is wanted in: with two ways, the other one of the two.
    target: str
    two_way: tuple[str, str] | None = None

    @property
    def may_be(self) -> tuple[str, ...]:
        """Return the languages that may be spoken; none means any."""
        return (self.language,) if self.language else self.allowed

    def allows(self, spoken: str) -> bool:
        """Tell whether it may be this language; who hears `en-us` may call it `en`."""
        return not self.may_be or base_of(spoken) in map(base_of, self.may_be)

    def target_of(self, spoken: str) -> str:
        """Return what speech in a language is wanted in."""
        if self.two_way is None:
            return self.target
        one, other = self.two_way
        return other if base_of(spoken) == base_of(one) else one


def wish_of(job: Job, can: Abilities) -> Wish:
    """Return what a job asks for; raises `JobFailed` if it is not served here."""
    if not job.pipeline.use_asr:
        # Not to be tried elsewhere: a job brings speech and nothing else.
        raise JobFailed("UNSUPPORTED_FEATURE", "without recognition there is nothing to work on")
    translated = job.pipeline.use_nmt
    if job.mode == "two_way_auto" and job.lang_a and job.lang_b:
        both = (job.lang_a, job.lang_b)
        if translated and not (can.serves(*both) and can.serves(*both[::-1])):
            raise not_served(*both)
        return Wish("", both, job.tgt_lang, both)
    if job.src_lang != AUTO:
        target = job.tgt_lang if translated else job.src_lang
        if not can.serves(job.src_lang, target):
            raise not_served(job.src_lang, target)
        return Wish(job.src_lang, (), job.tgt_lang)
    return _unknown_source(job, can, translated=translated)


def _unknown_source(job: Job, can: Abilities, *, translated: bool) -> Wish:
    """Return the wish of a job whose language must be found out, among those that help."""
    named = job.auto_langs or can.heard()
    allowed = tuple(
        code for code in named if can.serves(code, job.tgt_lang if translated else code)
    )
    if named and not allowed:
        raise not_served("/".join(named[:8]), job.tgt_lang)
    if len(allowed) == 1:
        return Wish(allowed[0], (), job.tgt_lang)
    return Wish("", allowed, job.tgt_lang)


def not_served(source: str, target: str) -> JobFailed:
    """Return the failure of a job for which this node has no engine: another one may have it."""
    # No service is named: what it has works, and must not be left out for others' jobs.
    return JobFailed("MODEL_NOT_AVAILABLE", f"{source}>{target} is not served here")


def said_before(context: str | None) -> str:
    """Return what was said before from a session's context, which also has what was answered.

    A context without such lines is a hint that a client gave, and is taken as it is.
    """
    lines = (context or "").splitlines()
    said = [line[len(SAID) :] for line in lines if line.startswith(SAID)]
    return "\n".join(said or lines)
