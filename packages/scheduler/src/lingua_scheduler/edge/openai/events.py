"""The events of the realtime translation socket, in both directions, as types. Pure.

Client events are decoded strictly where it matters (audio, languages); unknown fields are ignored.
Each server event has an id. `audio.input.language` and `output_modalities` are additions to
OpenAI's format: clients that do not know them are not affected.
"""

from __future__ import annotations

import secrets
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from lingua_scheduler.edge.openai.errors import invalid
from lingua_wire.errors import InvalidLanguage
from lingua_wire.language_names import are_same, code_of
from lingua_wire.languages import AUTO

RATE = 24_000
Name = Annotated[str, Meta(max_length=128)]
Modality = Literal["audio", "text"]
KNOWN_FORMATS = ("pcm16", "audio/pcm")

# From the client


class ClientEventBase(Struct, frozen=True, kw_only=True, tag_field="type"):
    """The base of all client events."""

    event_id: Name | None = None


class TranscriptionConfig(Struct, frozen=True, kw_only=True):
    """Requests the transcript in the language of the speech, too."""

    model: Name = ""


class AudioFormatConfig(Struct, frozen=True, kw_only=True):
    """The audio format; only one is supported."""

    type: Name = "pcm16"
    rate: int = RATE


class InputConfig(Struct, frozen=True, kw_only=True):
    """The input audio."""

    language: Name | UnsetType = UNSET
    transcription: TranscriptionConfig | UnsetType | None = UNSET
    noise_reduction: Any = UNSET
    format: AudioFormatConfig | UnsetType = UNSET


class OutputConfig(Struct, frozen=True, kw_only=True):
    """The output audio."""

    language: Name | UnsetType = UNSET
    format: AudioFormatConfig | UnsetType = UNSET


class AudioConfig(Struct, frozen=True, kw_only=True):
    """The input and output audio."""

    input: InputConfig = InputConfig()
    output: OutputConfig = OutputConfig()


class SessionConfig(Struct, frozen=True, kw_only=True):
    """The part of a session that a client can change."""

    type: Name | UnsetType = UNSET
    model: Name | UnsetType = UNSET
    audio: AudioConfig = AudioConfig()
    output_modalities: tuple[Modality, ...] | UnsetType = UNSET


class UpdateEvent(ClientEventBase, frozen=True, kw_only=True, tag="session.update"):
    """Changes the session."""

    session: SessionConfig


class AppendEvent(
    ClientEventBase, frozen=True, kw_only=True, tag="session.input_audio_buffer.append"
):
    """Audio: base64 of 24 kHz mono pcm16."""

    audio: bytes


class CloseEvent(ClientEventBase, frozen=True, kw_only=True, tag="session.close"):
    """Ends the session after all results are delivered."""


ClientEvent = UpdateEvent | AppendEvent | CloseEvent
decode_event = msgspec.json.Decoder(ClientEvent).decode


class EventEnvelope(Struct, frozen=True):
    """The fields that identify an invalid event in the error."""

    type: Any = None
    event_id: Any = None


decode_envelope = msgspec.json.Decoder(EventEnvelope).decode


def decoded(data: bytes) -> ClientEvent:
    """Decode an event, or raise `ApiError` with the reason."""
    try:
        event: ClientEvent = decode_event(data)
    except msgspec.ValidationError as problem:
        text, _, where = str(problem).partition(" - at `$")
        param = where.strip("`").lstrip(".") or None
        if "base64" in text:
            raise invalid("audio", "is not valid base64", "invalid_audio") from None
        if param == "type" or "`type`" in text:
            raise invalid("type", "no such event", "unknown_event") from None
        raise invalid(param, text) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise invalid(None, "the event is not valid JSON", "invalid_json") from None
    return event


def event_id_of(data: bytes) -> object:
    """Return the id of an invalid event, if it can be decoded."""
    try:
        return decode_envelope(data).event_id
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def check_audio(audio: bytes) -> None:
    """Raise `ApiError` if the audio has half a sample."""
    if len(audio) % 2:
        raise invalid("audio", "is not a whole number of 16-bit samples", "invalid_audio")


# To the client


class TranscriptionModel(Struct, frozen=True, kw_only=True):
    """The model of the transcript."""

    model: str


class InputAnswer(Struct, frozen=True, kw_only=True):
    """The input audio."""

    transcription: TranscriptionModel | None = None
    # Never applied here, even if requested.
    noise_reduction: None = None
    language: str | None = None


class OutputAnswer(Struct, frozen=True, kw_only=True):
    """The output audio."""

    language: str


class AudioAnswer(Struct, frozen=True, kw_only=True):
    """The input and output audio."""

    input: InputAnswer
    output: OutputAnswer


class RealtimeSession(Struct, frozen=True, kw_only=True):
    """The current state of a session."""

    id: str
    type: Literal["translation"] = "translation"
    model: str
    expires_at: int
    audio: AudioAnswer
    output_modalities: tuple[Modality, ...] = ("audio",)

    @classmethod
    def new(cls, model: str, expires_at: int) -> RealtimeSession:
        """Return a session with the defaults: any language into English."""
        audio = AudioAnswer(input=InputAnswer(), output=OutputAnswer(language="en"))
        return cls(
            id=f"sess_{secrets.token_hex(16)}", model=model, expires_at=expires_at, audio=audio
        )

    @classmethod
    def asked_for(cls, wanted: dict[str, Any], expires_at: int) -> RealtimeSession:
        """Return the session that a request for a secret describes, or raise `ApiError`."""
        try:
            config = msgspec.convert(wanted, SessionConfig)
        except msgspec.ValidationError as problem:
            raise invalid("session", str(problem)) from None
        if config.model is UNSET or not config.model:
            raise invalid("session.model", "a model is needed", "missing_required_parameter")
        plain = msgspec.structs.replace(config, model=UNSET, type=UNSET)
        return cls.new(config.model, expires_at).changed(plain)

    def changed(self, config: SessionConfig) -> RealtimeSession:
        """Return the session after a change, or raise `ApiError`."""
        heard, spoken = config.audio.input, config.audio.output
        self._check(config)
        before, source = self.audio, self.audio.input.language
        transcription, target = before.input.transcription, before.output.language
        if heard.transcription is None:
            transcription = None
        elif heard.transcription is not UNSET:
            transcription = TranscriptionModel(model=heard.transcription.model)
        if heard.language is not UNSET:
            source = _code("session.audio.input.language", heard.language, may_be_auto=True) or None
        if spoken.language is not UNSET:
            target = _code("session.audio.output.language", spoken.language)
        if source is not None and are_same(source, target):
            raise invalid("session.audio.output.language", "is the language of the input already")
        modalities = config.output_modalities
        return msgspec.structs.replace(
            self,
            audio=AudioAnswer(
                input=InputAnswer(transcription=transcription, language=source),
                output=OutputAnswer(language=target),
            ),
            output_modalities=self.output_modalities if modalities is UNSET else modalities,
        )

    def _check(self, config: SessionConfig) -> None:
        if config.model not in (UNSET, self.model) or config.type not in (UNSET, self.type):
            raise invalid("session", "type and model of a session do not change", "immutable_value")
        audio = config.audio
        for param, given in (("input", audio.input.format), ("output", audio.output.format)):
            if given is not UNSET and (given.type not in KNOWN_FORMATS or given.rate != RATE):
                name = f"session.audio.{param}.format"
                raise invalid(name, "audio is pcm16 at 24000 Hz here", "unsupported_format")


def _code(param: str, code: str, *, may_be_auto: bool = False) -> str:
    if may_be_auto and code.lower() in ("", AUTO):
        return ""
    try:
        return code_of(code)
    except InvalidLanguage as problem:
        raise invalid(param, str(problem), "invalid_language") from None


class ServerEvent(Struct, frozen=True, kw_only=True, tag_field="type"):
    """The base of all server events."""

    event_id: str = msgspec.field(default_factory=lambda: f"event_{secrets.token_hex(10)}")


class CreatedEvent(ServerEvent, frozen=True, kw_only=True, tag="session.created"):
    """The socket is open."""

    session: RealtimeSession


class UpdatedEvent(ServerEvent, frozen=True, kw_only=True, tag="session.updated"):
    """The session was changed."""

    session: RealtimeSession


class InputDeltaEvent(ServerEvent, frozen=True, kw_only=True, tag="session.input_transcript.delta"):
    """The next piece of the transcript."""

    delta: str
    elapsed_ms: int | None = None


class OutputDeltaEvent(
    ServerEvent, frozen=True, kw_only=True, tag="session.output_transcript.delta"
):
    """The next piece of the translation."""

    delta: str
    elapsed_ms: int | None = None


class AudioDeltaEvent(ServerEvent, frozen=True, kw_only=True, tag="session.output_audio.delta"):
    """The next piece of the spoken translation."""

    delta: bytes
    elapsed_ms: int | None = None
    format: Literal["pcm16"] = "pcm16"
    sample_rate: int = RATE
    channels: int = 1


class ClosedEvent(ServerEvent, frozen=True, kw_only=True, tag="session.closed"):
    """The session has ended; no event follows."""


class ErrorBody(Struct, frozen=True, kw_only=True):
    """The error, and the client event that caused it."""

    type: str
    code: str
    message: str
    param: str | None = None
    event_id: str | None = None


class ErrorEvent(ServerEvent, frozen=True, kw_only=True, tag="error"):
    """An error; the session continues unless the socket is closed."""

    error: ErrorBody


encode_event = msgspec.json.Encoder().encode
