"""Parts that several messages share. Optional fields are left out when they have no value."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

# Bounds of texts and lists from outside: a single field must not fill a whole message.
Short = Annotated[str, Meta(max_length=128)]
Name = Annotated[str, Meta(max_length=256)]
Text = Annotated[str, Meta(max_length=65_536)]
Count = Annotated[int, Meta(ge=0, le=1 << 40)]
Millis = Annotated[int, Meta(ge=-(1 << 53), le=1 << 53)]
Codes = Annotated[tuple[Short, ...], Meta(max_length=200)]

Mode = Literal["one_way", "two_way_auto"]
ServiceType = Literal["asr", "nmt", "tts", "tone", "semantic", "phonetic", "punctuation"]


# How deep a value of any type may be nested.
DEPTH_MAX = 32


def check_plain(value: Any, depth: int = DEPTH_MAX) -> None:
    """Raise unless a value of any type can be encoded in both forms."""
    if value is None or isinstance(value, str | bytes | bool | float):
        return
    if isinstance(value, int):
        if not -(1 << 63) <= value < 1 << 64:
            raise ValueError("a whole number exceeds 64 bits")
    elif not isinstance(value, list | dict):
        raise ValueError(f"a value of an unknown type: {type(value).__name__}")  # noqa: TRY004
    elif not depth:
        raise ValueError(f"a value is nested deeper than {DEPTH_MAX}")
    elif isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            raise ValueError("a key that is not text")
        for item in value.values():
            check_plain(item, depth - 1)
    else:
        for item in value:
            check_plain(item, depth - 1)


# Messages have no cycles: the collector need not look at them.
class Part(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A structure inside a message."""


class FeatureFlags(Part, frozen=True, kw_only=True):
    """Optional abilities that a session requests or a node has."""

    emotion_detection: bool | None = None
    voice_style_detection: bool | None = None
    speech_rate_detection: bool | None = None
    speech_rate_control: bool | None = None
    speaker_identification: bool | None = None
    persona_adaptation: bool | None = None

    def names(self) -> frozenset[str]:
        """Return the flags that are set."""
        return frozenset(name for name in self.__struct_fields__ if getattr(self, name))


class PipelineConfig(Part, frozen=True, kw_only=True):
    """Which stages a job runs."""

    use_asr: bool
    use_nmt: bool
    use_tts: bool
    use_semantic: bool = False
    use_tone: bool = False


# Terms in the glossary of one client or tenant: few, because every job's record carries them.
TERMS_MAX = 300


class Term(Part, frozen=True, kw_only=True):
    """A word or phrase of a glossary, and its translations."""

    term: Short
    translations: Annotated[dict[Short, Short], Meta(max_length=64)] | None = None

    def said_in(self, language: str) -> str | None:
        """Return its translation into a language; None: it stays as it is."""
        known = self.translations or {}
        return known.get(language) or known.get(language.partition("-")[0])


Glossary = Annotated[tuple[Term, ...], Meta(max_length=TERMS_MAX)]


class ResultAck(Part, frozen=True, kw_only=True):
    """Whether one result counted."""

    job_id: str
    attempt_id: int
    status: str


class ServiceTimings(Part, frozen=True, kw_only=True):
    """How long a node's stages took."""

    asr_ms: float | None = None
    nmt_ms: float | None = None
    tts_ms: float | None = None
    total_ms: float | None = None


class NetworkTimings(Part, frozen=True, kw_only=True):
    """How long messages took between the machines."""

    web_to_scheduler_ms: int | None = None
    scheduler_to_node_ms: int | None = None
    node_to_scheduler_ms: int | None = None
    scheduler_to_web_ms: int | None = None


class ExtraResult(Part, frozen=True, kw_only=True):
    """Additional results of a node."""

    emotion: Any = None
    speech_rate: Any = None
    voice_style: Any = None
    service_timings: ServiceTimings | None = None
    language_probability: float | None = None
    language_probabilities: dict[str, float] | None = None
    reason: str | None = None

    def __post_init__(self) -> None:
        check_plain([self.emotion, self.speech_rate, self.voice_style])


class Timeline(Part, frozen=True, kw_only=True):
    """Where the time of one utterance went: contiguous parts that sum to `total_ms`."""

    endpointing_ms: int = 0
    queue_ms: int = 0
    place_ms: int = 0
    push_ms: int = 0
    retry_ms: int = 0
    accept_ms: int = 0
    asr_ms: int = 0
    nmt_ms: int = 0
    tts_ms: int = 0
    node_other_ms: int = 0
    settle_ms: int = 0
    order_wait_ms: int = 0
    total_ms: int = 0


class Coverage(Part, frozen=True, kw_only=True):
    """What became of every admitted millisecond of speech; the parts sum to `admitted_ms`."""

    admitted_ms: int
    delivered_ms: int
    silent_ms: int
    failed_ms: int
    skipped_ms: int
    # Formerly audio admitted before a move. Now all sums cover the whole session, and this is 0.
    earlier_ms: int = 0


class Participant(Part, frozen=True, kw_only=True):
    """A member of a room."""

    participant_id: str
    session_id: str
    display_name: str | None = None
    preferred_lang: str | None = None
    raw_voice_preferences: dict[str, bool] | None = None
    joined_at: int
    is_away: bool | None = None


class Replaced(Part, frozen=True, kw_only=True):
    """A former session of this client, which it will not resume: it leaves its room at once."""

    session_id: Short
    resume_token: Short


class ErrorDetail(Part, frozen=True, kw_only=True):
    """Why a node could not do a job."""

    code: Short
    message: Name = ""
    details: Any = None

    def __post_init__(self) -> None:
        check_plain(self.details)


class Gpu(Part, frozen=True, kw_only=True):
    """A graphics processor of a node."""

    name: Name
    memory_gb: float = 0


class Hardware(Part, frozen=True, kw_only=True):
    """The machine of a node."""

    cpu_cores: Count
    memory_gb: float
    gpus: Annotated[tuple[Gpu, ...], Meta(max_length=64)] | None = None


class InstalledModel(Part, frozen=True, kw_only=True):
    """A model on a node."""

    model_id: Short
    kind: Short
    src_lang: Short | None = None
    tgt_lang: Short | None = None
    dialect: Short | None = None
    version: Short = ""
    enabled: bool | None = None


class InstalledService(Part, frozen=True, kw_only=True):
    """A service on a node."""

    service_id: Short
    type: ServiceType
    device: Short = "cpu"
    status: Literal["running", "stopped", "error"] = "running"
    version: Short | None = None
    model_id: Short | None = None
    engine: Short | None = None
    mem_mb: float | None = None
    warmup_ms: float | None = None
    last_error: Name | None = None


class CapabilityByType(Part, frozen=True, kw_only=True):
    """Whether a type of service works on a node now."""

    type: ServiceType
    ready: bool
    reason: Name | None = None
    ready_impl_ids: Codes | None = None


class LanguagePair(Part, frozen=True, kw_only=True):
    """One direction that a node translates."""

    src: Short
    tgt: Short


class NmtCapability(Part, frozen=True, kw_only=True):
    """The languages of one translation model."""

    model_id: Short = ""
    languages: Codes = ()
    src_langs: Codes = ()
    tgt_langs: Codes = ()
    supported_pairs: Annotated[tuple[LanguagePair, ...], Meta(max_length=20_000)] | None = None


class LanguageCapabilities(Part, frozen=True, kw_only=True):
    """The languages of a node."""

    asr_languages: Codes | None = None
    tts_languages: Codes | None = None
    semantic_languages: Codes | None = None
    semantic_core_ready: bool | None = None
    nmt_capabilities: Annotated[tuple[NmtCapability, ...], Meta(max_length=200)] | None = None
    supported_language_pairs: (
        Annotated[tuple[LanguagePair, ...], Meta(max_length=20_000)] | None
    ) = None


class ResourceUsage(Part, frozen=True, kw_only=True):
    """How busy a node's machine is."""

    cpu_percent: float
    gpu_percent: float | None = None
    gpu_mem_percent: float | None = None
    mem_percent: float
    running_jobs: Count = 0


class PartialTranslation(Part, frozen=True, kw_only=True):
    """The translation of the speech so far into one language."""

    tgt_lang: Short
    stable: Text = ""
    unstable: Text = ""


Translations = Annotated[tuple[PartialTranslation, ...], Meta(max_length=64)]


class RunningJob(Part, frozen=True, kw_only=True):
    """A job that a node works on."""

    job_id: Short
    attempt_id: Count
