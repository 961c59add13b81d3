"""What a session reports to its user: events to iterate, and the errors that end it.

Each event carries the message that it was made from.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from lingua_wire.errors import LinguaError
from lingua_wire.text_joints import joined_text
from lingua_wire.to_client import AsrPartial, MissingResult, PartialResult, TranslationResult

if TYPE_CHECKING:
    from lingua_wire.to_client import ToClient, TtsPart


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of one utterance in one language: a translation, or why there is none."""

    message: TranslationResult | MissingResult
    # Spoken in this session, not by another member of the room.
    is_own: bool

    @property
    def kind(self) -> Literal["translation", "missing"]:
        """Tell whether there is a translation."""
        return "translation" if isinstance(self.message, TranslationResult) else "missing"

    @property
    def utterance_index(self) -> int:
        """Return the number of the utterance in its speaker's session."""
        return self.message.utterance_index

    @property
    def target(self) -> str:
        """Return the target language; empty if the recognised text itself is given."""
        return self.message.tgt_lang or ""

    @property
    def speaker(self) -> str:
        """Return the speaker's session id."""
        return self.message.session_id

    @property
    def text_asr(self) -> str:
        """Return the recognised text; empty if there is no translation."""
        return self.message.text_asr if isinstance(self.message, TranslationResult) else ""

    @property
    def text(self) -> str:
        """Return the translation; empty if there is none."""
        return self.message.text_translated if isinstance(self.message, TranslationResult) else ""

    @property
    def audio(self) -> bytes:
        """Return the spoken translation; may be empty."""
        return self.message.tts_audio if isinstance(self.message, TranslationResult) else b""

    @property
    def audio_format(self) -> str:
        """Return the format of `audio`."""
        return self.message.tts_format if isinstance(self.message, TranslationResult) else ""

    @property
    def reason(self) -> str:
        """Return why there is no translation; empty if there is one."""
        return self.message.reason if isinstance(self.message, MissingResult) else ""

    @property
    def epoch(self) -> str:
        """Return the epoch within which `seq` counts."""
        return self.message.epoch or ""

    @property
    def seq(self) -> int:
        """Return the outcome's position within its epoch; 0 if the server sent none."""
        return self.message.seq or 0


@dataclass(frozen=True, slots=True)
class TextSoFar:
    """A text that is not complete: what will not change any more, and the rest."""

    stable: str
    unstable: str

    @property
    def text(self) -> str:
        """Return the whole text so far."""
        return joined_text(self.stable, self.unstable)


@dataclass(frozen=True, slots=True)
class Partial:
    """The text recognised so far of an utterance, and its translations; never after its outcome.

    Any outcome of the same speaker with this `utterance_index`, or a higher one, replaces it.
    """

    # An `AsrPartial` has the recognised text only, undivided.
    message: AsrPartial | PartialResult
    # Spoken in this session, not by another member of the room.
    is_own: bool = True

    @property
    def speaker(self) -> str:
        """Return the speaker's session id."""
        return self.message.session_id

    @property
    def utterance_index(self) -> int:
        """Return the number of the utterance; while it is spoken, the one it will probably get."""
        return self.message.utterance_index

    @property
    def stable(self) -> str:
        """Return the text that will not change any more."""
        if isinstance(self.message, PartialResult):
            return self.message.stable
        return self.message.text if self.message.is_final else ""

    @property
    def unstable(self) -> str:
        """Return the text after `stable`, which may still change."""
        if isinstance(self.message, PartialResult):
            return self.message.unstable
        return "" if self.message.is_final else self.message.text

    @property
    def text(self) -> str:
        """Return the whole text so far, not the change."""
        return joined_text(self.stable, self.unstable)

    @property
    def translations(self) -> dict[str, TextSoFar]:
        """Return the translations so far by language, as far as there are any."""
        if not isinstance(self.message, PartialResult):
            return {}
        return {
            one.tgt_lang: TextSoFar(one.stable, one.unstable) for one in self.message.translations
        }

    @property
    def revision(self) -> int:
        """Return the number that rises with every partial of one utterance; 0 if unknown."""
        return self.message.revision if isinstance(self.message, PartialResult) else 0

    @property
    def start_ms(self) -> int | None:
        """Return where the utterance begins in the speaker's admitted audio, if it is known."""
        return self.message.start_ms if isinstance(self.message, PartialResult) else None

    @property
    def upto_ms(self) -> int | None:
        """Return up to where in the speaker's admitted audio this is the text, if it is known."""
        return self.message.upto_ms if isinstance(self.message, PartialResult) else None

    @property
    def is_final(self) -> bool:
        """Tell whether the node will not change this text again."""
        return isinstance(self.message, AsrPartial) and self.message.is_final


@dataclass(frozen=True, slots=True)
class SpeechPart:
    """The next part of a spoken translation before its outcome, which has all of it.

    The part with `part_index` 0 replaces all parts of the utterance before it: the work was begun
    again.
    """

    message: TtsPart
    # Spoken in this session, not by another member of the room.
    is_own: bool = True

    @property
    def speaker(self) -> str:
        """Return the speaker's session id."""
        return self.message.session_id

    @property
    def utterance_index(self) -> int:
        """Return the number of the utterance in its speaker's session."""
        return self.message.utterance_index

    @property
    def target(self) -> str:
        """Return the target language."""
        return self.message.tgt_lang

    @property
    def part_index(self) -> int:
        """Return the number of the part, from 0 without gaps."""
        return self.message.part_index

    @property
    def audio(self) -> bytes:
        """Return the audio of this part."""
        return self.message.audio

    @property
    def audio_format(self) -> str:
        """Return the format of `audio`."""
        return self.message.tts_format


@dataclass(frozen=True, slots=True)
class Notice:
    """Any other message of the server: see `kind` and `message`."""

    message: ToClient

    @property
    def kind(self) -> str:
        """Return the message's type as the protocol names it, such as `utterance_accepted`."""
        return str(type(self.message).__struct_config__.tag)


@dataclass(frozen=True, slots=True)
class Reset:
    """The session could not be resumed: a new one was opened, with indices from 0."""

    reason: str
    # Accepted audio whose outcome will not arrive; audio that was not accepted is sent again.
    lost_ms: int
    former_id: str
    session_id: str


Event = Outcome | Partial | SpeechPart | Notice | Reset


class SessionRefused(LinguaError):
    """The scheduler refused this session, and the same request would be refused again."""

    def __init__(self, code: str, message: str) -> None:
        self.code = code
        self.message = message
        super().__init__(f"the scheduler refused the session: {code}: {message}")


class SessionLost(LinguaError):
    """The session could not be opened or resumed in time."""

    def __init__(self, reason: str, lost_ms: int = 0) -> None:
        self.reason = reason
        # Audio whose outcome is unknown.
        self.lost_ms = lost_ms
        super().__init__(f"the session is lost: {reason}")


class RoomRefused(LinguaError):
    """A room could not be created or joined."""

    def __init__(self, code: str, message: str) -> None:
        self.code = code
        self.message = message
        super().__init__(f"the room was refused: {code}: {message}")
