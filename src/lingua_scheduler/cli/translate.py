"""`lingua translate`: a recording, a pipe or a microphone, put into other languages as it is heard.

Here are the arguments, which scheduler is used, and what Ctrl-C does; the work is `interpret`. With
`--url` that scheduler is used. Without, the one of the settings if it runs and serves the
languages; else a private one is started, with a node of the default engines, and ended again.
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

from lingua_scheduler.cli.ask import TOKEN_VARIABLE, NotTrusted, scheduler_of
from lingua_scheduler.cli.spoken import checked, source_checked
from lingua_scheduler.cli.streams import output_errors, stoppable
from lingua_scheduler.cli.translate_files import Files, is_on_stdout
from lingua_scheduler.cli.translate_text import glossary_of, run_text
from lingua_scheduler.cli.trust import add_ca, tls_of
from lingua_scheduler.cli.voice import add_voice, voice_words
from lingua_scheduler.client import Options, SessionRefused
from lingua_scheduler.config import Segmentation
from lingua_scheduler.errors import ConfigError, LinguaError
from lingua_scheduler.interpret import (
    Audience,
    Order,
    PipeSource,
    RecordingSource,
    Report,
    Unheard,
    interpret,
    microphone,
)
from lingua_scheduler.interpret.playback import Playback
from lingua_scheduler.interpret.screen import Screen
from lingua_scheduler.languages import AUTO
from lingua_scheduler.local import private_service, unserved_pairs
from lingua_scheduler.messages.codes import ErrorCode
from lingua_scheduler.recording import RATE_MAX, RATE_MIN

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from lingua_scheduler.interpret import Listener, Rendition, Source, Utterance
    from lingua_scheduler.local import PrivateService

STDIN, MICROPHONE = "-", "mic"
# Silence after a recording, beyond what ends an utterance.
TAIL_MS: Final = 300
SESSION_PATH: Final = "/ws/session"
# How long a scheduler that is there may take to open a session.
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
        "translate", help="translate a recording, a microphone or a text", epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.set_defaults(run=run_translate)
    add = parser.add_argument
    add("source", metavar="FILE|-|mic", nargs="?",
        help="a recording, standard input, or the microphone")  # fmt: skip
    add("--text", metavar="TEXT|-",
        help="translate this instead, or each line of standard input into one line")  # fmt: skip
    add("--show-route", action="store_true",
        help="with --text: say on standard error which way each line went")  # fmt: skip
    add("--from", dest="spoken", metavar="LANG", help="the language spoken, or auto")
    add("--to", dest="targets", action="append", default=[], metavar="LANG",
        help="a language wanted; may be given several times")  # fmt: skip
    add("--two-way", nargs=2, metavar=("A", "B"),
        help="both are spoken, each is put into the other; instead of --from and --to")  # fmt: skip
    add("--glossary", type=Path, metavar="FILE",
        help="terms to keep, or to call as it says (TOML: term = { es = \"...\" })")  # fmt: skip
    add("--fast", action="store_true", help="send a recording as fast as it is taken")
    add("--rate", type=_rate, default=16_000, metavar="HZ",
        help="samples per second of raw audio on standard input (default: 16000)")  # fmt: skip
    add("--silence-ms", type=_silence, metavar="MS",
        help="silence that ends an utterance (default: as the scheduler is set, "
        f"{Segmentation().silence_ms} by itself)")  # fmt: skip
    _add_service(parser)
    _add_outputs(parser)


def _add_service(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("which scheduler")
    add = group.add_argument
    add("--url", action="append", dest="urls", metavar="ws://HOST:PORT",
        help="a scheduler; several times: its instances (default: the one of the settings if it "
        "runs and serves the languages, else a private one)")  # fmt: skip
    add("--token", metavar="T", help=f"client token, if it wants one (default: ${TOKEN_VARIABLE})")
    add_ca(group)
    add("--private", action="store_true", help="start a private one in any case")
    add("--engines", nargs="+", metavar="ROLE=NAME", default=[DEFAULT_ENGINES],
        help="engines of the private node (default: default)")  # fmt: skip
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
    add("--quiet", action="store_true", help="show nothing but problems and the end")


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
    """Do what the command line says; return the exit code."""
    translation = Translation(args)
    try:
        return await translation.run()
    finally:
        translation.leave_screen()


def _check(args: argparse.Namespace) -> None:
    if args.source is None:
        raise ConfigError("", "say what to translate: a FILE, -, mic, or --text TEXT")
    if args.show_route:
        raise ConfigError("--show-route", "goes with --text")
    if args.private and args.urls:
        raise ConfigError("--private", "goes without --url")
    if args.voice and args.urls:
        raise ConfigError("--voice", "is for a private node: goes without --url")
    if args.two_way:
        if args.spoken or args.targets:
            raise ConfigError("--two-way", "goes without --from and --to")
        args.two_way = tuple(checked("--two-way", code) for code in args.two_way)
        if len(set(args.two_way)) == 1:
            raise ConfigError("--two-way", "needs two languages")
        return
    if not args.spoken or not args.targets:
        raise ConfigError("", "say --from LANG and --to LANG, or --two-way A B")
    args.spoken = source_checked("--from", args.spoken)
    args.targets = list(dict.fromkeys(checked("--to", code) for code in args.targets))


class Translation:
    """One run of the command."""

    def __init__(self, args: argparse.Namespace) -> None:
        self._args = args
        # People read on stdout, unless a program does.
        stream = sys.stderr if is_on_stdout(args) else sys.stdout
        is_live = args.source == MICROPHONE or not args.fast
        self._screen = Screen(stream, os.environ, shows_times=is_live and args.source != STDIN)
        self._files = Files(args, self._screen.noticed)
        self._files.check(Path(args.source) if args.source not in (STDIN, MICROPHONE) else None)
        self._tls = tls_of(args.ca)
        self._glossary = glossary_of(args)
        # One of ours that ends does not come back.
        self._options = Options(open_s=OPEN_S)
        # Why no more could be translated.
        self._broken = ""
        # Set by the first Ctrl-C: no more is said, what was said is still answered.
        self._stop = asyncio.Event()
        # Before that there is nothing to be answered.
        self._is_speaking = False

    async def run(self) -> int:
        """Do all of it; return the exit code."""
        with stoppable(self._is_stopped_softly):
            async with AsyncExitStack() as stack:
                # First, so that what is not there is told before anything is started.
                player = Playback(self._screen.noticed) if self._args.play else None
                source = await stack.enter_async_context(self._source())
                urls = await stack.enter_async_context(self._service())
                listeners: list[Listener] = [self._files]
                listeners.append(self._screen if not self._args.quiet else Problems(self._screen))
                if player is not None:
                    listeners.append(await stack.enter_async_context(player))
                report = await self._interpret(source, self._order(urls), Audience(*listeners))
                self._screen.finish(report)
        if problems := [*filter(None, [self._broken]), *self._files.problems]:
            raise LinguaError("; ".join(problems))
        return 1 if report.failures else 0

    async def _interpret(self, source: Source, order: Order, listener: Listener) -> Report:
        self._is_speaking = True
        self._screen.waiting("listening …")
        report, is_whole = Report(), False
        try:
            await interpret(source, order, listener, self._stop, report)
            is_whole = True
        finally:
            # A talk that is broken off, too, has left something.
            if is_whole or report.utterances:
                self._files.write(report)
        return report

    def leave_screen(self) -> None:
        """Leave the terminal as a next program wants it, whatever happened."""
        self._screen.finish(None)

    def _order(self, urls: tuple[str, ...]) -> Order:
        args = self._args
        return Order(
            urls=urls, source=args.spoken or AUTO, targets=tuple(args.targets),
            two_way=args.two_way, silence_ms=args.silence_ms,
            token=args.token or os.environ.get(TOKEN_VARIABLE) or None,
            tls=self._tls, options=self._options,
            init={"enable_streaming_asr": True, "glossary": self._glossary or None},
            keeps_audio=False,
        )  # fmt: skip

    def _is_stopped_softly(self) -> bool:
        """Take Ctrl-C; tell whether it is taken care of."""
        if self._stop.is_set() or not self._is_speaking:
            return False
        self._stop.set()
        self._screen.line("stopping: what was said is still answered (again to quit)")
        return True

    # Where speech comes from

    @asynccontextmanager
    async def _source(self) -> AsyncIterator[Source]:
        args = self._args
        if args.source == MICROPHONE:
            async with microphone() as source:
                yield source
        elif args.source == STDIN:
            # Unbuffered: what was said must not wait for what was not.
            with open(0, "rb", buffering=0, closefd=False) as pipe:  # noqa: ASYNC230 not read here
                yield await PipeSource.open(pipe, args.rate)
        elif (path := Path(args.source)).is_fifo():
            yield await PipeSource.open(path, args.rate)
        else:
            tail_ms = (args.silence_ms or Segmentation().silence_ms) + TAIL_MS
            opened = RecordingSource.open(path, is_live=not args.fast, tail_ms=tail_ms)
            async with opened as source:
                yield source

    # Which scheduler

    @asynccontextmanager
    async def _service(self) -> AsyncIterator[tuple[str, ...]]:
        args = self._args
        if args.urls:
            urls = tuple(session_url(url) for url in args.urls)
            await _reach(urls, self._tls)
            yield urls
            return
        # Who wants a voice wants it of a node of his own.
        if not (args.private or args.voice) and (found := await self._running_scheduler()):
            yield (found,)
            return
        await self._check_models()
        self._tell("starting a private scheduler and a node …")
        async with private_service(
            args.engines, pairs=self._pairs(), node_words=voice_words(args.voice),
            say=self._screen.waiting,
        ) as service:  # fmt: skip
            self._options = Options(open_s=OPEN_S, resume_s=RESUME_S, reopen=False)
            watching = asyncio.create_task(self._watch(service))
            try:
                yield (service.session_url,)
            finally:
                watching.cancel()

    async def _watch(self, service: PrivateService) -> None:
        """Say no more when the private scheduler or node has ended: nobody would translate it."""
        child = await service.ended()
        self._broken = f"{child.name} has ended (exit code {child.exit_code})"
        self._screen.noticed(self._broken)
        self._stop.set()

    async def _running_scheduler(self) -> str:
        """Return the address of the scheduler of the settings, if it runs and has what we want."""
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
        """See that the private node will find its models; installs them if asked to."""
        # Only here: who uses another scheduler needs none of it.
        from lingua_scheduler.models import default_store  # noqa: PLC0415
        from lingua_scheduler.speech.presets import (  # noqa: PLC0415
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
        words = [sys.executable, "-m", "lingua_scheduler", "models", "install", *plan.groups]
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


class Problems(Unheard):
    """Shows what went wrong, and nothing else."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen

    def rendered(self, utterance: Utterance, rendition: Rendition) -> None:
        """Show it if it is missing."""
        if rendition.has_failed:
            self._screen.rendered(utterance, rendition)

    def noticed(self, what: str) -> None:
        """Show it."""
        self._screen.noticed(what)


async def _reach(urls: Sequence[str], tls: ssl.SSLContext | None) -> None:
    """Raise if nobody whom we trust listens at any of these: it would be tried for long."""
    problems = []
    for parts in map(urlsplit, urls):
        port = parts.port or (443 if parts.scheme == "wss" else 80)
        try:
            async with asyncio.timeout(REACH_S):
                checked = (tls or True) if parts.scheme == "wss" else None
                _, writer = await asyncio.open_connection(parts.hostname, port, ssl=checked)
        except ssl.SSLCertVerificationError as error:
            problems.append(str(NotTrusted(f"wss://{parts.netloc}", error.verify_message)))
        except OSError as error:  # TimeoutError is one.
            number = error.errno or 0
            why = os.strerror(number) if number > 0 else error.strerror or "no answer"
            problems.append(f"no scheduler at {parts.scheme}://{parts.netloc}: {why}")
        else:
            writer.close()
            return
    raise LinguaError("; ".join(problems))


def session_url(url: str) -> str:
    """Return where sessions are opened: an address of a scheduler, its path may be left out."""
    parts = urlsplit(url)
    schemes = {"http": "ws", "https": "wss", "ws": "ws", "wss": "wss"}
    if parts.scheme not in schemes or not parts.hostname:
        raise ConfigError("--url", f"must be ws://HOST:PORT or wss://..., got: {url[:80]!r}")
    path = parts.path if parts.path not in ("", "/") else SESSION_PATH
    return parts._replace(scheme=schemes[parts.scheme], path=path).geturl()


def _run_shown(words: Sequence[str]) -> int:
    """Run a command that shows its progress itself; its output is no caption."""
    return subprocess.run(words, check=False, stdout=sys.stderr).returncode  # noqa: S603 our own


def _rate(text: str) -> int:
    if not text.isdecimal() or not RATE_MIN <= int(text) <= RATE_MAX:
        raise argparse.ArgumentTypeError(f"must be {RATE_MIN} to {RATE_MAX}, got: {text!r}")
    return int(text)


def _silence(text: str) -> int:
    if not text.isdecimal() or not 100 <= int(text) <= 10_000:
        raise argparse.ArgumentTypeError(f"must be 100 to 10000, got: {text!r}")
    return int(text)
