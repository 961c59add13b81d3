"""`Stream`: an utterance while it is being spoken, as the handler of `@node.stream` sees it.

    @node.stream
    async def listen(stream: Stream) -> None:
        async for audio in stream:
            await stream.partial(stable="hello", unstable="wor", upto_ms=800)

The iterator ends when the utterance was cut; its job follows, and has the stream as `job.stream`.
What the handler leaves in `head_start` spares that job work. A stream is never the truth: the job
has the whole audio, and must do without the stream.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final

from lingua_wire.from_node import FromNode, StreamPartial
from lingua_wire.shared import PartialTranslation

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lingua_wire.to_node import StreamOpen

# Utterances are cut long before; a stream beyond it is given up.
STREAM_S_MAX: Final = 60
PCM16_BYTES: Final = 2
TEXT_CHARACTERS_MAX: Final = 65_536

NO_TRANSLATIONS: Final[dict[str, tuple[str, str]]] = {}


class Stream:
    """The audio of one utterance so far, and the way to report its text."""

    def __init__(self, opened: StreamOpen, send: Callable[[FromNode], None]) -> None:
        # The message that opened it: languages, pipeline, sample rate, glossary.
        self.open = opened
        # How much of the audio belongs to the utterance; None until it is cut.
        self.audio_bytes: int | None = None
        # Nobody needs it any more. For work in threads, which cannot be cancelled.
        self.dropped = False
        # Whatever the handler leaves for the job of the utterance.
        self.head_start: Any = None
        self._send = send
        self._audio = bytearray()
        # How much of it the iterator has given.
        self._given = 0
        self._revision = 0
        # What was reported as stable: the text, and the translations by language.
        self._stable = ""
        self._stable_translations: dict[str, str] = {}
        self._change = asyncio.Event()

    def __repr__(self) -> str:
        return f"<Stream {self.stream_id} of {len(self._audio)} bytes>"

    @property
    def stream_id(self) -> str:
        """Return its name, which is never used again."""
        return self.open.stream_id

    @property
    def audio(self) -> bytes:
        """Return all audio so far, from the beginning of the utterance."""
        return bytes(self._audio)

    @property
    def audio_ms(self) -> int:
        """Return how long the audio so far is."""
        return len(self._audio) * 1000 // (PCM16_BYTES * self.open.sample_rate)

    @property
    def is_cut(self) -> bool:
        """Tell whether the utterance has ended and its job follows."""
        return self.audio_bytes is not None

    def __aiter__(self) -> Stream:
        return self

    async def __anext__(self) -> bytes:
        """Return the audio since the last call, waiting for some; ends with the utterance."""
        while self._given >= len(self._audio):
            if self.is_cut:
                raise StopAsyncIteration
            self._change.clear()
            await self._change.wait()
        audio = bytes(self._audio[self._given :])
        self._given = len(self._audio)
        return audio

    async def partial(  # noqa: PLR0913 as many as a partial has fields
        self,
        *,
        upto_ms: int,
        stable: str = "",
        unstable: str = "",
        src_lang: str | None = None,
        translations: Mapping[str, tuple[str, str]] = NO_TRANSLATIONS,
        sentence_end_ms: int | None = None,
        is_complete: bool | None = None,
    ) -> None:
        """Report the text so far; `translations` are (stable, unstable) by language.

        What is stable may only grow: `ValueError` otherwise. Nothing is sent after the cut, as the
        result follows.
        """
        self._keep_stable(stable, translations)
        if self.is_cut or self.dropped:
            return
        self._revision += 1
        self._send(
            StreamPartial(
                stream_id=self.stream_id,
                revision=self._revision,
                upto_ms=upto_ms,
                src_lang=src_lang,
                stable=stable[:TEXT_CHARACTERS_MAX],
                unstable=unstable[:TEXT_CHARACTERS_MAX],
                translations=tuple(
                    PartialTranslation(
                        tgt_lang=language,
                        stable=text[:TEXT_CHARACTERS_MAX],
                        unstable=rest[:TEXT_CHARACTERS_MAX],
                    )
                    for language, (text, rest) in translations.items()
                ),
                sentence_end_ms=sentence_end_ms,
                is_complete=is_complete,
            )
        )

    def add(self, audio: bytes) -> bool:
        """Add audio; return False, and add none, if the stream would become too long."""
        bound = STREAM_S_MAX * PCM16_BYTES * self.open.sample_rate
        if self.is_cut or len(self._audio) + len(audio) > bound:
            return self.is_cut
        self._audio += audio
        self._change.set()
        return True

    def cut(self, audio_bytes: int | None) -> None:
        """End the iterator: the utterance has this much of the audio, or all of it."""
        whole = len(self._audio)
        self.audio_bytes = whole if audio_bytes is None else min(audio_bytes, whole)
        self._change.set()

    def _keep_stable(self, stable: str, translations: Mapping[str, tuple[str, str]]) -> None:
        given = {language: text for language, (text, _) in translations.items()}
        for language, before in self._stable_translations.items():
            if not given.get(language, before).startswith(before):
                raise ValueError(f"the stable translation into {language} may only grow")
        if not stable.startswith(self._stable):
            raise ValueError("the stable text may only grow")
        self._stable = stable
        self._stable_translations |= given


StreamHandler = Callable[[Stream], Coroutine[Any, Any, None]]
