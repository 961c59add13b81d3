"""The stories of `lingua demo` and `lingua demo --room`: real speech, translated live.

A real scheduler and a real node as processes of their own, a real recording (LibriVox, Jane
Austen), spoken at the pace at which it was read; the node recognises, translates and speaks. Each
story checks what it claims and returns what did not hold. How it looks is up to the `DemoDisplay`.
"""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager, AsyncExitStack, closing
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING, Final, Protocol

from lingua_client import Notice, Outcome, connect
from lingua_speech.models import default_store
from lingua_translate import InterpretationReport, ListenerGroup, Order, RecordingSource, interpret
from lingua_translate.local import private_service
from lingua_translate.outputs import SpeechFile, captions_of
from lingua_translate.playback import NoPlayer, Playback
from lingua_wire.captions import to_srt
from lingua_wire.recording import Recording, read
from lingua_wire.to_client import UtteranceAccepted

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from lingua_bench.demo.placement import DemoOutput
    from lingua_client import Session
    from lingua_translate import TranslationListener
    from lingua_translate.local import PrivateService

GROUP: Final = "demo"
RECORDINGS: Final = "recordings-librivox-en"
ENGINES: Final = ("default",)
SPOKEN, TARGET = "en", "es"
LISTENERS: Final = (("Ben", "es"), ("Cleo", "fr"))
PAUSE_MS, TAIL_MS = 900, 700
# How long listeners may take to receive the last sentence.
WAIT_S: Final = 60.0


class DemoDisplay(Protocol):
    """How a story looks."""

    @property
    def screen(self) -> DemoOutput:
        """Titles and lines."""

    @property
    def captions(self) -> TranslationListener:
        """Live captions."""

    def closing(self, report: InterpretationReport) -> None:
        """Show the account of the speech, and how long things took."""


@dataclass(slots=True)
class Guest:
    """A listener of the room."""

    name: str
    language: str
    session: Session
    # Utterance -> its text in this language; empty if it is missing.
    heard: dict[int, str] = field(default_factory=dict)


def recording_of(names: int = 5) -> Recording:
    """Return the reader's sentences with a pause after each."""
    folder = default_store().path(RECORDINGS) / "wav"
    parts = [read(file) for file in sorted(folder.glob("*.wav"))[:names]]
    rate = parts[0].sample_rate
    pause = bytes(2 * (rate * PAUSE_MS // 1000))
    return Recording(b"".join(part.pcm + pause for part in parts), rate)


async def tell_speech_story(
    showing: DemoDisplay, folder: Path, node_words: Sequence[str] = (), *, stays: bool = False
) -> list[str]:
    """Translate a recording live and write the results; returns the claims that did not hold.

    With `stays` the service then waits for people with a browser, until it is stopped.
    """
    screen = showing.screen
    report = InterpretationReport()
    recording = recording_of()
    async with AsyncExitStack() as stack:
        service = await stack.enter_async_context(_service(screen, ((SPOKEN, TARGET),), node_words))
        screen.title("A recording in English, put into Spanish while it is read")
        screen.say("Sense and Sensibility, read for LibriVox; as a microphone would hear it")
        listeners = [showing.captions, *await _players(stack, screen)]
        order = Order(
            urls=(service.session_url,),
            source=SPOKEN,
            targets=(TARGET,),
            init={"enable_streaming_asr": True},
        )
        source = RecordingSource(recording, tail_ms=TAIL_MS)
        try:
            await interpret(source, order, ListenerGroup(*listeners), report=report)
        except asyncio.CancelledError:
            write_results(screen, report, folder)
            raise
        screen.title("The results")
        showing.closing(report)
        write_results(screen, report, folder)
        problems = problems_of(report)
        if stays and not problems:
            problems = await _stay(screen, service)
    return problems


async def _stay(screen: DemoOutput, service: PrivateService) -> list[str]:
    """Leave the service running until Ctrl-C; returns what ended by itself."""
    screen.title("Now you, in a browser")
    screen.say(f"open {service.http_url} and press the button; Ctrl-C ends it", "good")
    try:
        child = await service.ended()
    except asyncio.CancelledError:
        return []
    return [f"{child.name} has ended (exit code {child.exit_code})"]


def write_results(screen: DemoOutput, report: InterpretationReport, folder: Path) -> None:
    """Write captions and speech, and print where."""
    captions = folder / f"sensibility.{TARGET}.srt"
    captions.write_text(to_srt(captions_of(report, TARGET)), encoding="utf-8")
    sound = folder / f"sensibility.{TARGET}.wav"
    with closing(SpeechFile(sound)) as speech:
        for said in report.utterances:
            for one in said.renditions.values():
                speech.add(said.start_ms, one)
        length_s = speech.duration_ms / 1000
    if length_s:
        screen.say(f"spoken: {sound} ({length_s:.0f} s), captions: {captions}", "good")


def problems_of(report: InterpretationReport) -> list[str]:
    """Return the claims about this report that do not hold."""
    found = []
    coverage = report.coverage
    if coverage is None or coverage.failed_ms or coverage.skipped_ms or report.lost_ms:
        found.append("some speech has no outcome")
    if report.error is not None:
        found.append(f"it ended early: {report.error}")
    if not report.utterances:
        found.append("no utterance was recognised")
    found += [
        f"utterance {said.index} has no translation: {one.reason}"
        for said in report.utterances
        for one in said.renditions.values()
        if one.has_failed or not (one.is_silent or (one.text and one.pcm))
    ]
    return found


async def _players(stack: AsyncExitStack, screen: DemoOutput) -> list[TranslationListener]:
    try:
        playback = Playback(lambda why: screen.say(f"({why})", "note"))
    except NoPlayer:
        screen.say("(no sound device here: the Spanish is written to a file)", "note")
        return []
    return [await stack.enter_async_context(playback)]


def _service(
    screen: DemoOutput, pairs: tuple[tuple[str, str], ...], node_words: Sequence[str]
) -> AbstractAsyncContextManager[PrivateService]:
    screen.title("A scheduler and a node that listens, translates and speaks")
    return private_service(
        ENGINES, pairs=pairs, node_words=node_words, say=lambda line: screen.say(line, "note")
    )


# The room


async def tell_room_story(showing: DemoDisplay, node_words: Sequence[str] = ()) -> list[str]:
    """Let one speaker speak to two listeners in their languages; returns what did not hold."""
    screen = showing.screen
    pairs = tuple((SPOKEN, language) for _, language in LISTENERS)
    async with _service(screen, pairs, node_words) as service:
        screen.title("Ana speaks English; Ben hears Spanish, Cleo French")
        room = DemoRoom(screen, service)
        return await room.play()


class DemoRoom:
    """A speaker and the listeners, each with a session of their own."""

    def __init__(self, screen: DemoOutput, service: PrivateService) -> None:
        self._screen = screen
        self._url = service.session_url
        # Utterances of the speaker that were accepted, and when.
        self._said: dict[int, float] = {}
        self._guests: list[Guest] = []
        # Set when a listener received something.
        self._changed = asyncio.Event()

    async def play(self) -> list[str]:
        """Speak until the recording ends and every listener has received all of it."""
        async with AsyncExitStack() as stack:
            ana = await stack.enter_async_context(self._session(SPOKEN, LISTENERS[0][1]))
            code = await ana.create_room(preferred_lang=SPOKEN, display_name="Ana")
            for name, language in LISTENERS:
                session = await stack.enter_async_context(self._session(language, SPOKEN))
                await session.join_room(code, preferred_lang=language, display_name=name)
                self._guests.append(Guest(name, language, session))
            listening = [asyncio.create_task(self._listen(guest)) for guest in self._guests]
            following = asyncio.create_task(self._follow(ana))
            try:
                async for chunk in RecordingSource(recording_of(), tail_ms=TAIL_MS).chunks():
                    await ana.send(chunk)
                coverage = await ana.close()
                await following
                await self._until_heard()
            finally:
                for task in (*listening, following):
                    task.cancel()
                await asyncio.wait([*listening, following])
        self._screen.title("The results")
        count = len(self._said)
        self._screen.say(f"{count} sentences, heard by both, each recognised once", "good")
        if coverage is not None:
            parts = f"{coverage.admitted_ms} ms admitted, {coverage.silent_ms} ms of it silence"
            self._screen.say(f"speech: {parts}, {coverage.failed_ms} ms failed")
        return self._problems()

    def _session(self, source: str, target: str) -> Session:
        return connect(self._url, source=source, targets=target)

    async def _follow(self, ana: Session) -> None:
        """Note the utterances of the speaker that were accepted."""
        async for event in ana:
            if isinstance(event, Notice) and isinstance(event.message, UtteranceAccepted):
                self._said[event.message.utterance_index] = monotonic()

    async def _listen(self, guest: Guest) -> None:
        async for event in guest.session:
            if isinstance(event, Outcome) and not event.is_own:
                guest.heard[event.utterance_index] = event.text
                since = self._said.get(event.utterance_index)
                after = f" ({monotonic() - since:.2f} s after the cut)" if since else ""
                words = event.text or f"(missing: {event.reason})"
                self._screen.say(f"{guest.name} [{guest.language}]  {words}{after}")
                self._changed.set()

    async def _until_heard(self) -> None:
        """Wait until every listener has an outcome of every utterance."""
        async with asyncio.timeout(WAIT_S):
            while any(len(guest.heard) < len(self._said) for guest in self._guests):
                self._changed.clear()
                await self._changed.wait()

    def _problems(self) -> list[str]:
        found = []
        for guest in self._guests:
            indices = list(guest.heard)
            if indices != sorted(self._said):
                found.append(f"{guest.name} heard {indices}, said was {sorted(self._said)}")
            if not any(guest.heard.values()):
                found.append(f"{guest.name} heard nothing")
        return found
