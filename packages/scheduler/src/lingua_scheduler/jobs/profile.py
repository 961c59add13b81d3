"""What a session speaks and wants: languages, stages, audio, and what nodes must offer for it.

A profile never changes; a change of languages is a new profile from the next utterance on. The
demand of each language is computed once and kept, because computing it costs more than submitting a
job.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from lingua_scheduler.jobs.requirement import Languages, PipelineStages, demand
from lingua_scheduler.session.audio import AudioFormat
from lingua_scheduler.session.utterance import Target
from lingua_wire import glossary as glossaries
from lingua_wire.errors import InvalidMessage
from lingua_wire.languages import AUTO, language
from lingua_wire.shared import FeatureFlags, PipelineConfig, Term

if TYPE_CHECKING:
    from lingua_wire.from_client import SessionInit, SessionUpdate, Utterance

TARGETS_MAX = 16
LANE_CHARS_MAX = 64
# The format of clients that do not declare their audio; older clients rely on it.
OLD_FORMAT = ("opus", 16_000)
FULL_PIPELINE = PipelineConfig(use_asr=True, use_nmt=True, use_tts=True)


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """A session's languages and stages."""

    source: str
    targets: tuple[str, ...]
    audio: AudioFormat
    two_way: tuple[str, str] | None = None
    auto_langs: tuple[str, ...] = ()
    dialect: str | None = None
    features: FeatureFlags | None = None
    pipeline: PipelineConfig = FULL_PIPELINE
    streaming: bool = True
    partial_ms: int = 1000
    # How much silence ends an utterance; None: as configured.
    silence_ms: int | None = None
    # The same after a whole sentence, and after one that plainly is not.
    silence_min_ms: int | None = None
    silence_max_ms: int | None = None
    # Whether sentences are cut without a pause; None: as configured.
    sentence_cuts: bool | None = None
    # The client wants words while somebody speaks: as `partial_result`, or as `asr_partial`.
    partials: bool = False
    old_partials: bool = False
    # The client wants parts of the spoken translation before its outcome.
    tts_parts: bool = False
    tenant: str = ""
    labels: tuple[str, ...] = ()
    paired: str = ""
    # The terms of the session and of its tenant.
    glossary: tuple[Term, ...] = ()
    # Language -> the demand's text; grows with the languages asked for, which rooms bound.
    demands: dict[str, str] = {}
    # Language -> what a job into it needs of the glossary.
    terms: dict[str, tuple[Term, ...]] = {}
    # The jobs of an utterance whose speaker is in no room: one entry, once it was worked out.
    own: list[tuple[Target, ...]] = []

    @classmethod
    def of(
        cls,
        init: SessionInit,
        *,
        tenant: str,
        labels: tuple[str, ...],
        paired: str,
        glossary: tuple[Term, ...] = (),
    ) -> Profile:
        """Read a `session_init`, or raise what is wrong with it."""
        two_way = None
        if init.mode == "two_way_auto":
            two_way = (language(init.lang_a or ""), language(init.lang_b or ""))
            if len("~".join(two_way)) > LANE_CHARS_MAX:
                raise InvalidMessage("lang_a and lang_b are too long for one lane")
        name, rate = init.audio_format or OLD_FORMAT[0], init.sample_rate or OLD_FORMAT[1]
        profile = cls(
            source=source_of(AUTO if two_way else init.src_lang),
            targets=targets_of(init.tgt_lang, init.tgt_langs, two_way),
            audio=AudioFormat(name, rate),
            two_way=two_way,
            auto_langs=tuple(language(code) for code in init.auto_langs or ()),
            dialect=init.dialect,
            features=init.features,
            pipeline=init.pipeline or FULL_PIPELINE,
            streaming=init.enable_streaming_asr is not False,
            partial_ms=init.partial_update_interval_ms or 1000,
            silence_ms=init.silence_ms,
            silence_min_ms=init.silence_min_ms,
            silence_max_ms=init.silence_max_ms,
            sentence_cuts=init.sentence_cuts,
            partials=bool(init.partials),
            old_partials=init.enable_streaming_asr is True and not init.partials,
            tts_parts=bool(init.tts_parts),
            tenant=tenant,
            labels=labels,
            paired=paired,
            glossary=glossary,
            demands={},
            terms={},
        )
        return profile.prepared()

    def changed(self, update: SessionUpdate) -> Profile:
        """Return the profile after a `session_update`."""
        if self.two_way is not None:
            raise InvalidMessage("languages of a two_way_auto session do not change")
        targets = self.targets
        if update.tgt_lang or update.tgt_langs:
            targets = targets_of(update.tgt_lang or "", update.tgt_langs, None)
        source = source_of(update.src_lang) if update.src_lang else self.source
        return self._with(source=source, targets=targets)

    def for_utterance(self, message: Utterance) -> Profile:
        """Return the profile of one whole utterance; its own languages take precedence."""
        audio = self.audio
        # The usual case: it asks for exactly what the session has.
        if (
            message.tgt_lang == self.targets[0]
            and (message.src_lang == self.source or self.two_way is not None)
            and message.audio_format == audio.name
            and message.sample_rate == audio.sample_rate
            and message.pipeline is None
            and message.features is None
            and message.dialect is None
        ):
            return self
        source, targets = self.source, self.targets
        if self.two_way is None:
            source = source_of(message.src_lang)
            targets = targets_of(message.tgt_lang, None, None)
        return self._with(
            source=source,
            targets=self.targets if targets == self.targets[:1] else targets,
            audio=AudioFormat(message.audio_format, message.sample_rate),
            pipeline=message.pipeline or self.pipeline,
            features=message.features or self.features,
            dialect=message.dialect or self.dialect,
        )

    def own_targets(self) -> tuple[Target, ...]:
        """Return the jobs of an utterance whose speaker is in no room."""
        if not self.own:
            targets = tuple([Target(code, code) for code in self.targets])
            if self.two_way is not None:
                targets = (Target("~".join(sorted(self.two_way)), self.targets[0]),)
            self.own.append(targets)
        return self.own[0]

    def in_room(self) -> Profile:
        """Return the profile in a room: either of two languages is spoken, into those of others."""
        if self.two_way is None:
            return self
        return self._with(two_way=None, auto_langs=self.two_way)

    def demand_of(self, target: str) -> str:
        """Return what a job into a language asks of a node."""
        known = self.demands.get(target)
        if known is None:
            known = self.demands[target] = self._work_out(target, self.pipeline)
        return known

    def demand_for(self, target: Target) -> str:
        """Return what the job of a target asks of a node."""
        if not target.is_read:
            return self.demand_of(target.language)
        name = f"{target.language} read"
        known = self.demands.get(name)
        if known is None:
            known = self.demands[name] = self._work_out(target.language, self.stages_of(target))
        return known

    def stages_of(self, target: Target) -> PipelineConfig:
        """Return the stages of the job of a target."""
        if not target.is_read:
            return self.pipeline
        is_translated = self.pipeline.use_nmt and target.language != self.source
        return msgspec.structs.replace(self.pipeline, use_nmt=is_translated, use_tts=False)

    def terms_of(self, target: str) -> tuple[Term, ...]:
        """Return the glossary terms that a job into a language needs; called if there are any."""
        known = self.terms.get(target)
        if known is None:
            into = (target,) if self.two_way is None else self.two_way
            known = self.terms[target] = glossaries.needed(self.glossary, into)
        return known

    def _work_out(self, target: str, flags: PipelineConfig) -> str:
        pipeline = PipelineStages(
            flags.use_asr, flags.use_nmt, flags.use_tts, flags.use_semantic, flags.use_tone
        )
        features = self.features.names() if self.features is not None else frozenset()
        languages = Languages(self.source, target, self.auto_langs, self.two_way)
        return demand(
            languages,
            pipeline,
            features,
            tenant=self.tenant,
            labels=self.labels,
            paired=self.paired,
        ).text

    def _with(self, **changes: object) -> Profile:
        changes["demands"], changes["terms"], changes["own"] = {}, {}, []
        changed = msgspec.structs.replace(self, **changes)
        return changed.prepared()

    def prepared(self) -> Profile:
        """Work out what every utterance needs; returns itself."""
        for target in self.targets:
            self.demand_of(target)
        self.own_targets()
        return self


def source_of(code: str) -> str:
    """Return a spoken language in canonical form, or `auto`."""
    return AUTO if code.lower() == AUTO else language(code)


def targets_of(
    one: str, several: tuple[str, ...] | None, two_way: tuple[str, str] | None
) -> tuple[str, ...]:
    """Return the wanted languages, each once, in the order given."""
    if two_way is not None:
        return (language(one) if one else two_way[1],)
    codes = tuple(dict.fromkeys(language(code) for code in (several or (one,))))
    if len(codes) > TARGETS_MAX:
        raise InvalidMessage(f"at most {TARGETS_MAX} target languages, got {len(codes)}")
    return codes
