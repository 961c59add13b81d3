"""The events of the realtime translation socket, both ways, as types. Pure.

Client events are decoded strictly where they matter (audio, languages); fields that are not known
are passed over. Server events carry an id each. `audio.input.language` and `output_modalities` are
additions of ours: clients that do not know them lose nothing.
"""

from __future__ import annotations

import secrets
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from lingua_scheduler.edge.openai.language_names import are_same, code_of
from lingua_scheduler.edge.openai.trouble import invalid
from lingua_scheduler.errors import InvalidLanguage
from lingua_scheduler.languages import AUTO

RATE = 24_000
Name = Annotated[str, Meta(max_length=128)]
Modality = Literal["audio", "text"]
KNOWN_FORMATS = ("pcm16", "audio/pcm")

# From the client


class FromClient(Struct, frozen=True, kw_only=True, tag_field="type"):
    """Any event of a client."""

    event_id: Name | None = None


class TranscriptionConfig(Struct, frozen=True, kw_only=True):
    """Asks for the text as it was spoken, too."""

    model: Name = ""


class AudioFormatConfig(Struct, frozen=True, kw_only=True):
    """How audio is written; there is one way."""

    type: Name = "pcm16"
    rate: int = RATE


class InputConfig(Struct, frozen=True, kw_only=True):
    """What is heard."""

    language: Name | UnsetType = UNSET
    transcription: TranscriptionConfig | UnsetType | None = UNSET
    noise_reduction: Any = UNSET
    format: AudioFormatConfig | UnsetType = UNSET


class OutputConfig(Struct, frozen=True, kw_only=True):
    """What is spoken."""

    language: Name | UnsetType = UNSET
    format: AudioFormatConfig | UnsetType = UNSET


class AudioConfig(Struct, frozen=True, kw_only=True):
    """What is heard and what is spoken."""

    input: InputConfig = InputConfig()
    output: OutputConfig = OutputConfig()


class SessionConfig(Struct, frozen=True, kw_only=True):
    """The changeable part of a session."""

    type: Name | UnsetType = UNSET
    model: Name | UnsetType = UNSET
    audio: AudioConfig = AudioConfig()
    output_modalities: tuple[Modality, ...] | UnsetType = UNSET


class Update(FromClient, frozen=True, kw_only=True, tag="session.update"):
    """Changes the session."""

    session: SessionConfig


class Append(FromClient, frozen=True, kw_only=True, tag="session.input_audio_buffer.append"):
    """Audio: base64 of 24 kHz mono pcm16."""

    audio: bytes


class Close(FromClient, frozen=True, kw_only=True, tag="session.close"):
    """Ends the session when all that was said is told."""


ClientEvent = Update | Append | Close
decode_event = msgspec.json.Decoder(ClientEvent).decode


class Envelope(Struct, frozen=True):
    """What is read of an event that cannot be used, to say which one it was."""

    type: Any = None
    event_id: Any = None


decode_envelope = msgspec.json.Decoder(Envelope).decode


def decoded(data: bytes) -> ClientEvent:
    """Read an event, or raise `ApiError` that says what is wrong with it."""
    try:
        event: ClientEvent = decode_event(data)
    except msgspec.ValidationError as problem:
        text, _, where = str(problem).partition(" - at `$")
        param = where.strip("`").lstrip(".") or None
        if "base64" in text:
            raise invalid("audio", "is no valid base64", "invalid_audio") from None
        if param == "type" or "`type`" in text:
            raise invalid("type", "no such event", "unknown_event") from None
        raise invalid(param, text) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise invalid(None, "the event is no valid JSON", "invalid_json") from None
    return event


def event_id_of(data: bytes) -> object:
    """Return the id of an event that cannot be used, if it can be found."""
    try:
        return decode_envelope(data).event_id
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def check_audio(audio: bytes) -> None:
    """Raise `ApiError` if bytes are no whole samples."""
    if len(audio) % 2:
        raise invalid("audio", "is no whole number of 16-bit samples", "invalid_audio")


# To the client


class TranscriptionModel(Struct, frozen=True, kw_only=True):
    """The text as it was spoken is told."""

    model: str


class InputAnswer(Struct, frozen=True, kw_only=True):
    """What is heard."""

    transcription: TranscriptionModel | None = None
    # None is done here, whatever was asked for.
    noise_reduction: None = None
    language: str | None = None


class OutputAnswer(Struct, frozen=True, kw_only=True):
    """What is spoken."""

    language: str


class AudioAnswer(Struct, frozen=True, kw_only=True):
    """What is heard and what is spoken."""

    input: InputAnswer
    output: OutputAnswer


class RealtimeSession(Struct, frozen=True, kw_only=True):
    """A session as it stands."""

    id: str
    type: Literal["translation"] = "translation"
    model: str
    expires_at: int
    audio: AudioAnswer
    output_modalities: tuple[Modality, ...] = ("audio",)

    @classmethod
    def new(cls, model: str, expires_at: int) -> RealtimeSession:
        """Return a session nobody has changed yet: whatever is heard, into English."""
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


class ToClient(Struct, frozen=True, kw_only=True, tag_field="type"):
    """Any event to a client."""

    event_id: str = msgspec.field(default_factory=lambda: f"event_{secrets.token_hex(10)}")


class Created(ToClient, frozen=True, kw_only=True, tag="session.created"):
    """The socket is open."""

    session: RealtimeSession


class Updated(ToClient, frozen=True, kw_only=True, tag="session.updated"):
    """The session was changed."""

    session: RealtimeSession


class InputDelta(ToClient, frozen=True, kw_only=True, tag="session.input_transcript.delta"):
    """More of the text as it was spoken."""

    delta: str
    elapsed_ms: int | None = None


class OutputDelta(ToClient, frozen=True, kw_only=True, tag="session.output_transcript.delta"):
    """More of the translation."""

    delta: str
    elapsed_ms: int | None = None


class AudioDelta(ToClient, frozen=True, kw_only=True, tag="session.output_audio.delta"):
    """More of the translation, spoken."""

    delta: bytes
    elapsed_ms: int | None = None
    format: Literal["pcm16"] = "pcm16"
    sample_rate: int = RATE
    channels: int = 1


class Closed(ToClient, frozen=True, kw_only=True, tag="session.closed"):
    """The session has ended; nothing follows."""


class ErrorBody(Struct, frozen=True, kw_only=True):
    """What went wrong, and with which event of the client."""

    type: str
    code: str
    message: str
    param: str | None = None
    event_id: str | None = None


class Failed(ToClient, frozen=True, kw_only=True, tag="error"):
    """Something could not be done; the session goes on unless the socket is closed."""

    error: ErrorBody


encode_event = msgspec.json.Encoder().encode
