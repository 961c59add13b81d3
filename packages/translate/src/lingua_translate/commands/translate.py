"""`lingua translate`: a recording, a pipe or a microphone, translated as it is spoken.

This module has the arguments, the choice of the scheduler, and the handling of Ctrl-C; the work is
`interpret`. With `--url` that scheduler is used. Without, the one of the settings if it runs and
serves the languages; else a private one is started, with a node of the default engines, and ended
again.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import ssl
import subprocess
import sys
import urllib.error
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from lingua_cli.certificates import add_ca, tls_of
from lingua_cli.language_arguments import checked_language, checked_source_language
from lingua_cli.terminal import output_errors, stoppable
from lingua_client import Options, SessionRefused
from lingua_scheduler.commands.scheduler_client import TOKEN_VARIABLE, NotTrusted, scheduler_of
from lingua_scheduler.config import SegmentationSettings
from lingua_speech.commands.voice import add_voice, voice_words
from lingua_translate import (
    InterpretationReport,
    ListenerGroup,
    NullListener,
    Order,
    PipeSource,
    RecordingSource,
    interpret,
    microphone,
)
from lingua_translate.commands.translate_files import OutputFiles, is_on_stdout
from lingua_translate.commands.translate_text import glossary_of, run_text
from lingua_translate.local import private_service, unserved_pairs
from lingua_translate.playback import Playback
from lingua_translate.screen import Screen
from lingua_wire.codes import ErrorCode
from lingua_wire.errors import ConfigError, LinguaError
from lingua_wire.languages import AUTO
from lingua_wire.recording import RATE_MAX, RATE_MIN

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from lingua_translate import AudioSource, Rendition, TranslatedUtterance, TranslationListener
    from lingua_translate.local import PrivateService

STDIN, MICROPHONE = "-", "mic"
# Silence after a recording, beyond what ends an utterance.
TAIL_MS: Final = 300
SESSION_PATH: Final = "/ws/session"
# How long a running scheduler may take to open a session.
OPEN_S: Final = 10.0
RESUME_S: Final = 3.0
REACH_S: Final = 5.0
DEFAULT_ENGINES: Final = "default"
EPILOG = """\
examples:
  lingua translate talk.wav --from en --to es
  lingua translate mic --from en --to es --to fr --play
  lingua translate talk.mp3 --from en --to es --fast --srt talk.srt --out-audio talk-es.wav
  ffmpeg -i talk.mkv -f wav - | lingua translate - --from auto --to en
  lingua translate --text "Where is the station?" --from en --to es
  lingua translate --text - --from en --to pt < lines.txt > linhas.txt
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `lingua translate`."""
    parser = subparsers.add_parser(
        "translate",
        help="translate a recording, a microphone or a text",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=run_translate)
    add = parser.add_argument
    add(
        "source",
        metavar="FILE|-|mic",
        nargs="?",
        help="a recording, standard input, or the microphone",
    )
    add(
        "--text",
        metavar="TEXT|-",
        help="translate this instead, or each line of standard input into one line",
    )
    add(
        "--show-route",
        action="store_true",
        help="with --text: print the route of each line on standard error",
    )
    add("--from", dest="spoken", metavar="LANG", help="the language spoken, or auto")
    add(
        "--to",
        dest="targets",
        action="append",
        default=[],
        metavar="LANG",
        help="a language wanted; may be given several times",
    )
    add(
        "--two-way",
        nargs=2,
        metavar=("A", "B"),
        help="both are spoken, each is translated into the other; instead of --from and --to",
    )
    add(
        "--glossary",
        type=Path,
        metavar="FILE",
        help='terms to keep, or to translate as given (TOML: term = { es = "..." })',
    )
    add("--fast", action="store_true", help="send a recording as fast as it is accepted")
    add(
        "--rate",
        type=_rate,
        default=16_000,
        metavar="HZ",
        help="samples per second of raw audio on standard input (default: 16000)",
    )
    add(
        "--silence-ms",
        type=_silence,
        metavar="MS",
        help="silence that ends an utterance (default: as the scheduler is set, "
        f"{SegmentationSettings().silence_ms} by itself)",
    )
    _add_service(parser)
    _add_outputs(parser)


def _add_service(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("which scheduler")
    add = group.add_argument
    add(
        "--url",
        action="append",
        dest="urls",
        metavar="ws://HOST:PORT",
        help="a scheduler; several times: its instances (default: the one of the settings if it "
        "runs and serves the languages, else a private one)",
    )
    add(
        "--token",
        metavar="T",
        help=f"client token, if it requires one (default: ${TOKEN_VARIABLE})",
    )
    add_ca(group)
    add("--private", action="store_true", help="start a private one in any case")
    add(
        "--engines",
        nargs="+",
        metavar="ROLE=NAME",
        default=[DEFAULT_ENGINES],
        help="engines of the private node (default: default)",
    )
    add_voice(group)
    add("--install", action="store_true", help="install the models of the private node if needed")


def _add_outputs(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("what is written (`-`: standard output)")
    add = group.add_argument
    add("--srt", type=Path, metavar="FILE", help="captions as SubRip")
    add("--vtt", type=Path, metavar="FILE", help="captions as WebVTT")
    add("--json", type=Path, metavar="FILE", help="everything, with times and latencies")
    add("--out-audio", type=Path, metavar="FILE.wav", help="the translated speech")
    add("--play", action="store_true", help="play the translated speech (the first language)")
    add(
        "--partials",
        action="store_true",
        help="print the texts so far, too, where the output is no terminal",
    )
    add("--quiet", action="store_true", help="show only problems and the summary")


def run_translate(args: argparse.Namespace) -> int:
    """Translate until the source ends; exit code 1 if something failed."""
    if args.text is not None:
        return run_text(args)
    _check(args)
    with output_errors():
        try:
            return asyncio.run(translate(args))
        except SessionRefused as refused:
            if refused.code != ErrorCode.UNAUTHORIZED:
                raise
            hint = f"give it with --token or ${TOKEN_VARIABLE}"
            raise LinguaError(f"{refused}; {hint}") from refused


async def translate(args: argparse.Namespace) -> int:
    """Follow the command line; return the exit code."""
    translation = Translation(args)
    try:
        return await translation.run()
    finally:
        translation.leave_screen()


def _check(args: argparse.Namespace) -> None:
    if args.source is None:
        raise ConfigError("", "give what to translate: a FILE, -, mic, or --text TEXT")
    if args.show_route:
        raise ConfigError("--show-route", "needs --text")
    if args.private and args.urls:
        raise ConfigError("--private", "cannot be combined with --url")
    if args.voice and args.urls:
        raise ConfigError("--voice", "is for a private node: cannot be combined with --url")
    if args.two_way:
        if args.spoken or args.targets:
            raise ConfigError("--two-way", "cannot be combined with --from and --to")
        args.two_way = tuple(checked_language("--two-way", code) for code in args.two_way)
        if len(set(args.two_way)) == 1:
            raise ConfigError("--two-way", "needs two languages")
        return
    if not args.spoken or not args.targets:
        raise ConfigError("", "give --from LANG and --to LANG, or --two-way A B")
    args.spoken = checked_source_language("--from", args.spoken)
    args.targets = list(dict.fromkeys(checked_language("--to", code) for code in args.targets))


class Translation:
    """One run of the command."""

    def __init__(self, args: argparse.Namespace) -> None:
        self._args = args
        # People read stdout, unless a program does.
        stream = sys.stderr if is_on_stdout(args) else sys.stdout
        is_live = args.source == MICROPHONE or not args.fast
        self._screen = Screen(
            stream,
            os.environ,
            shows_times=is_live and args.source != STDIN,
            prints_partials=args.partials,
        )
        self._files = OutputFiles(args, self._screen.noticed)
        self._files.check(Path(args.source) if args.source not in (STDIN, MICROPHONE) else None)
        self._tls = tls_of(args.ca)
        self._glossary = glossary_of(args)
        # A private scheduler or node that ended does not come back.
        self._options = Options(open_s=OPEN_S)
        # Why no more could be translated.
        self._broken = ""
        # Set by the first Ctrl-C: no more is sent, and everything sent still gets its outcome.
        self._stop = asyncio.Event()
        # Before that there is nothing to wait for.
        self._is_speaking = False

    async def run(self) -> int:
        """Run everything; return the exit code."""
        with stoppable(self._is_stopped_softly):
            async with AsyncExitStack() as stack:
                # First, so that a missing file is reported before anything is started.
                player = Playback(self._screen.noticed) if self._args.play else None
                source = await stack.enter_async_context(self._source())
                urls = await stack.enter_async_context(self._service())
                listeners: list[TranslationListener] = [self._files]
                listeners.append(self._screen if not self._args.quiet else Problems(self._screen))
                if player is not None:
                    listeners.append(await stack.enter_async_context(player))
                report = await self._interpret(source, self._order(urls), ListenerGroup(*listeners))
                self._screen.finish(report)
        if problems := [*filter(None, [self._broken]), *self._files.problems]:
            raise LinguaError("; ".join(problems))
        return 1 if report.failures else 0

    async def _interpret(
        self, source: AudioSource, order: Order, listener: TranslationListener
    ) -> InterpretationReport:
        self._is_speaking = True
        self._screen.waiting("listening …")
        report, is_whole = InterpretationReport(), False
        try:
            await interpret(source, order, listener, self._stop, report)
            is_whole = True
        finally:
            # An interrupted run, too, has something to write.
            if is_whole or report.utterances:
                self._files.write(report)
        return report

    def leave_screen(self) -> None:
        """Leave the terminal ready for the next program, whatever happened."""
        self._screen.finish(None)

    def _order(self, urls: tuple[str, ...]) -> Order:
        args = self._args
        return Order(
            urls=urls,
            source=args.spoken or AUTO,
            targets=tuple(args.targets),
            two_way=args.two_way,
            silence_ms=args.silence_ms,
            token=args.token or os.environ.get(TOKEN_VARIABLE) or None,
            tls=self._tls,
            options=self._options,
            partials=self._screen.shows_partials and not args.quiet,
            init={"enable_streaming_asr": True, "glossary": self._glossary or None},
            keeps_audio=False,
        )

    def _is_stopped_softly(self) -> bool:
        """Handle Ctrl-C; return whether it was handled."""
        if self._stop.is_set() or not self._is_speaking:
            return False
        self._stop.set()
        self._screen.line("stopping: waiting for the last outcomes (again to quit)")
        return True

    # The source

    @asynccontextmanager
    async def _source(self) -> AsyncIterator[AudioSource]:
        args = self._args
        if args.source == MICROPHONE:
            async with microphone() as source:
                yield source
        elif args.source == STDIN:
            # Unbuffered: speech must not wait for a full buffer.
            with open(0, "rb", buffering=0, closefd=False) as pipe:  # noqa: ASYNC230 not read here
                yield await PipeSource.open(pipe, args.rate)
        elif (path := Path(args.source)).is_fifo():
            yield await PipeSource.open(path, args.rate)
        else:
            tail_ms = (args.silence_ms or SegmentationSettings().silence_ms) + TAIL_MS
            opened = RecordingSource.open(path, is_live=not args.fast, tail_ms=tail_ms)
            async with opened as source:
                yield source

    # The scheduler

    @asynccontextmanager
    async def _service(self) -> AsyncIterator[tuple[str, ...]]:
        args = self._args
        if args.urls:
            urls = tuple(session_url(url) for url in args.urls)
            await _reach(urls, self._tls)
            yield urls
            return
        # A chosen voice needs a private node.
        if not (args.private or args.voice) and (found := await self._running_scheduler()):
            yield (found,)
            return
        await self._check_models()
        self._tell("starting a private scheduler and a node …")
        async with private_service(
            args.engines,
            pairs=self._pairs(),
            node_words=voice_words(args.voice),
            say=self._screen.waiting,
        ) as service:
            self._options = Options(open_s=OPEN_S, resume_s=RESUME_S, reopen=False)
            watching = asyncio.create_task(self._watch(service))
            try:
                yield (service.session_url,)
            finally:
                watching.cancel()

    async def _watch(self, service: PrivateService) -> None:
        """Stop sending when the private scheduler or node has ended."""
        child = await service.ended()
        self._broken = f"{child.name} has ended (exit code {child.exit_code})"
        self._screen.noticed(self._broken)
        self._stop.set()

    async def _running_scheduler(self) -> str:
        """Return the address of the scheduler of the settings, if it serves the languages."""
        args = self._args
        asked = argparse.Namespace(url=None, token=args.token, config=args.config, ca=args.ca)
        scheduler = scheduler_of(asked)
        try:
            missing = await unserved_pairs(
                scheduler.url, self._pairs(), scheduler.token or "", scheduler.tls
            )
        except urllib.error.HTTPError as error:
            why = f"does not say what it serves (HTTP {error.code}); to use it, give --url"
            self._tell(f"the scheduler at {scheduler.url} {why}")
            return ""
        except OSError:
            return ""
        if missing:
            wanted = ", ".join(f"{source} to {target}" for source, target in missing)
            self._tell(f"the scheduler at {scheduler.url} has no node for {wanted} now")
            return ""
        self._tell(f"using the scheduler at {scheduler.url}")
        self._tls = scheduler.tls
        return session_url(scheduler.sockets)

    def _pairs(self) -> list[tuple[str, str]]:
        if self._args.two_way:
            first, second = self._args.two_way
            return [(first, second), (second, first)]
        return [(self._args.spoken, target) for target in self._args.targets]

    async def _check_models(self) -> None:
        """Check that the private node will find its models; installs them if asked to."""
        # Imported only here: users of another scheduler need none of it.
        from lingua_speech.models import default_store  # noqa: PLC0415
        from lingua_speech.presets import (  # noqa: PLC0415
            check_libraries,
            missing_models,
            plan_of,
        )

        plan = plan_of(self._args.engines, self._args.voice)
        check_libraries(plan)
        missing = missing_models(plan, default_store())
        if not missing:
            return
        command = f"lingua models install {' '.join(plan.groups)}"
        if not self._args.install:
            raise ModelsMissing(missing, command)
        self._tell(f"{command} …")
        words = [sys.executable, "-m", "lingua_cli", "models", "install", *plan.groups]
        done = await asyncio.to_thread(_run_shown, words)
        if done:
            raise LinguaError(f"`{command}` failed")

    def _tell(self, what: str) -> None:
        if not self._args.quiet:
            self._screen.line(f"({what})", "note")


class ModelsMissing(LinguaError):
    """The private node would not find its models."""

    def __init__(self, names: Sequence[str], command: str) -> None:
        super().__init__(
            f"models are missing: {', '.join(names)}\n"
            f"get them with `{command}`, or run this again with --install"
        )


class Problems(NullListener):
    """Shows failures only."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen

    def rendered(self, utterance: TranslatedUtterance, rendition: Rendition) -> None:
        """Show it if it is missing."""
        if rendition.has_failed:
            self._screen.rendered(utterance, rendition)

    def noticed(self, what: str) -> None:
        """Show it."""
        self._screen.noticed(what)


async def _reach(urls: Sequence[str], tls: ssl.SSLContext | None) -> None:
    """Raise if no trusted scheduler listens at any of these: connecting would retry for long."""
    problems = []
    for parts in map(urlsplit, urls):
        port = parts.port or (443 if parts.scheme == "wss" else 80)
        try:
            async with asyncio.timeout(REACH_S):
                checked = (tls or True) if parts.scheme == "wss" else None
                _, writer = await asyncio.open_connection(parts.hostname, port, ssl=checked)
        except ssl.SSLCertVerificationError as error:
            problems.append(str(NotTrusted(f"wss://{parts.netloc}", error.verify_message)))
        except OSError as error:  # TimeoutError is an OSError, too.
            number = error.errno or 0
            why = os.strerror(number) if number > 0 else error.strerror or "no answer"
            problems.append(f"no scheduler at {parts.scheme}://{parts.netloc}: {why}")
        else:
            writer.close()
            return
    raise LinguaError("; ".join(problems))


def session_url(url: str) -> str:
    """Return the address of sessions: that of a scheduler, whose path may be left out."""
    parts = urlsplit(url)
    schemes = {"http": "ws", "https": "wss", "ws": "ws", "wss": "wss"}
    if parts.scheme not in schemes or not parts.hostname:
        raise ConfigError("--url", f"must be ws://HOST:PORT or wss://..., got: {url[:80]!r}")
    path = parts.path if parts.path not in ("", "/") else SESSION_PATH
    return parts._replace(scheme=schemes[parts.scheme], path=path).geturl()


def _run_shown(words: Sequence[str]) -> int:
    """Run a command that shows its progress itself; its output is not a caption."""
    return subprocess.run(words, check=False, stdout=sys.stderr).returncode  # noqa: S603 our own


def _rate(text: str) -> int:
    if not text.isdecimal() or not RATE_MIN <= int(text) <= RATE_MAX:
        raise argparse.ArgumentTypeError(f"must be {RATE_MIN} to {RATE_MAX}, got: {text!r}")
    return int(text)


def _silence(text: str) -> int:
    if not text.isdecimal() or not 100 <= int(text) <= 10_000:
        raise argparse.ArgumentTypeError(f"must be 100 to 10000, got: {text!r}")
    return int(text)
