"""`lingua translate`: a recording, a pipe or a microphone, put into other languages as it is heard.

Here are the arguments, which scheduler is used, and what Ctrl-C does; the work is `interpret`. With
`--url` that scheduler is used. Without, the one of the settings if it runs and serves the
languages; else a private one is started, with a node of the default engines, and ended again.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import os
import signal
import subprocess
import sys
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, TextIO
from urllib.parse import urlsplit

from lingua_scheduler.captions import to_srt, to_vtt
from lingua_scheduler.cli.ask import TOKEN_VARIABLE, scheduler_of
from lingua_scheduler.errors import ConfigError, LinguaError
from lingua_scheduler.interpret import Order, PipeSource, RecordingSource, interpret, microphone
from lingua_scheduler.interpret.outputs import as_json, captions_of, path_for, speech_of
from lingua_scheduler.interpret.playback import Playback
from lingua_scheduler.interpret.screen import Screen
from lingua_scheduler.languages import AUTO, language
from lingua_scheduler.local import private_service, unserved_pairs
from lingua_scheduler.recording import RATE_MAX, RATE_MIN, read, write_wav

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Sequence

    from lingua_scheduler.interpret import Rendition, Report, Source, Utterance
    from lingua_scheduler.recording import Recording

STDIN, MICROPHONE, STDOUT = "-", "mic", Path("-")
SILENCE_MS: Final = 400
# Silence after a recording, beyond what ends an utterance.
TAIL_MS: Final = 300
SESSION_PATH: Final = "/ws/session"
DEFAULT_ENGINES: Final = "default"
EPILOG = """\
examples:
  lingua translate talk.wav --from en --to es
  lingua translate mic --from en --to es --to fr --play
  lingua translate talk.mp3 --from en --to es --fast --srt talk.srt --out-audio talk-es.wav
  ffmpeg -i talk.mkv -f wav - | lingua translate - --from auto --to en
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `lingua translate`."""
    parser = subparsers.add_parser(
        "translate", help="translate a recording or a microphone, live", epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.set_defaults(run=run_translate)
    add = parser.add_argument
    add("source", metavar="FILE|-|mic", help="a recording, standard input, or the microphone")
    add("--from", dest="spoken", metavar="LANG", help="the language spoken, or auto")
    add("--to", dest="targets", action="append", default=[], metavar="LANG",
        help="a language wanted; may be given several times")  # fmt: skip
    add("--two-way", nargs=2, metavar=("A", "B"),
        help="both are spoken, each is put into the other; instead of --from and --to")  # fmt: skip
    add("--fast", action="store_true", help="send a recording as fast as it is taken")
    add("--rate", type=_rate, default=16_000, metavar="HZ",
        help="samples per second of raw audio on standard input (default: 16000)")  # fmt: skip
    add("--silence-ms", type=_silence, default=SILENCE_MS, metavar="MS",
        help=f"silence that ends an utterance (default: {SILENCE_MS})")  # fmt: skip
    _add_service(parser)
    _add_outputs(parser)


def _add_service(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("which scheduler")
    add = group.add_argument
    add("--url", action="append", dest="urls", metavar="ws://HOST:PORT",
        help="a scheduler; several times: its instances (default: the one of the settings if it "
        "runs and serves the languages, else a private one)")  # fmt: skip
    add("--token", metavar="T", help=f"client token, if it wants one (default: ${TOKEN_VARIABLE})")
    add("--private", action="store_true", help="start a private one in any case")
    add("--engines", nargs="+", metavar="ROLE=NAME", default=[DEFAULT_ENGINES],
        help="engines of the private node (default: default)")  # fmt: skip
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
    _check(args)
    _check_outputs(args)
    try:
        return asyncio.run(translate(args))
    except asyncio.CancelledError:
        return 130


async def translate(args: argparse.Namespace) -> int:
    """Do what the command line says; return the exit code."""
    translation = Translation(args)
    try:
        return await translation.run()
    finally:
        translation.leave_screen()


def _check_outputs(args: argparse.Namespace) -> None:
    """Raise before anything is said if what will be written has no place."""
    targets = args.targets or [""]
    if args.out_audio == STDOUT and len(targets) > 1:
        raise ConfigError("--out-audio", "- takes one language")
    for path in filter(None, (args.srt, args.vtt, args.json, args.out_audio)):
        if path.is_dir() or not path.name:
            raise ConfigError("", f"cannot write {path}: it is a directory")
        names = [path] if path == args.json else [path_for(path, code, targets) for code in targets]
        for file in names:
            if file != STDOUT and not _is_writable(file):
                raise ConfigError("", f"cannot write {file}: no such directory, or not allowed")


def _is_writable(file: Path) -> bool:
    if file.exists():
        return os.access(file, os.W_OK)
    return file.parent.is_dir() and os.access(file.parent, os.W_OK)


def _check(args: argparse.Namespace) -> None:
    if args.private and args.urls:
        raise ConfigError("--private", "goes without --url")
    if args.two_way:
        if args.spoken or args.targets:
            raise ConfigError("--two-way", "goes without --from and --to")
        args.two_way = tuple(language(code) for code in args.two_way)
        if len(set(args.two_way)) == 1:
            raise ConfigError("--two-way", "needs two languages")
        return
    if not args.spoken or not args.targets:
        raise ConfigError("", "say --from LANG and --to LANG, or --two-way A B")
    args.spoken = AUTO if args.spoken.lower() == AUTO else language(args.spoken)
    args.targets = list(dict.fromkeys(language(code) for code in args.targets))


class Translation:
    """One run of the command."""

    def __init__(self, args: argparse.Namespace) -> None:
        self._args = args
        files = (args.srt, args.vtt, args.json, args.out_audio)
        # People read on stdout, unless a program does.
        stream: TextIO = sys.stderr if STDOUT in files else sys.stdout
        for output in (sys.stdout, sys.stderr):
            if isinstance(output, io.TextIOWrapper):
                # A terminal that lacks a letter must not end the talk.
                output.reconfigure(errors="replace")
        is_live = args.source == MICROPHONE or not args.fast
        self._screen = Screen(stream, os.environ, shows_times=is_live and args.source != STDIN)
        # Set by the first Ctrl-C: no more is said, what was said is still answered.
        self._stop = asyncio.Event()
        # Before that there is nothing to be answered.
        self._is_speaking = False

    async def run(self) -> int:
        """Do all of it; return the exit code."""
        with self._stoppable():
            async with AsyncExitStack() as stack:
                # First, so that a wrong file is told before anything is started.
                source = await stack.enter_async_context(self._source())
                urls = await stack.enter_async_context(self._service())
                player = None
                if self._args.play:
                    player = await stack.enter_async_context(Playback())
                self._is_speaking = True
                self._screen.waiting("listening …")
                listener = Shown(self._screen, player, is_quiet=self._args.quiet)
                report = await interpret(source, self._order(urls), listener, self._stop)
                self._write(report)
                self._screen.finish(report)
        return 1 if report.failures else 0

    def leave_screen(self) -> None:
        """Leave the terminal as a next program wants it, whatever happened."""
        self._screen.finish(None)

    def _order(self, urls: tuple[str, ...]) -> Order:
        args = self._args
        return Order(
            urls=urls, source=args.spoken or AUTO, targets=tuple(args.targets),
            two_way=args.two_way, silence_ms=args.silence_ms,
            token=args.token or os.environ.get(TOKEN_VARIABLE) or None,
            init={"enable_streaming_asr": True}, keeps_audio=bool(args.out_audio or args.play),
        )  # fmt: skip

    # Ctrl-C

    def _stoppable(self) -> _Signals:
        task = asyncio.current_task()
        assert task is not None

        def take_signal() -> None:
            if self._stop.is_set() or not self._is_speaking:
                task.cancel()
            else:
                self._stop.set()
                self._screen.line("stopping: what was said is still answered (again to quit)")

        return _Signals(take_signal)

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
        else:
            recording = await asyncio.to_thread(read, Path(args.source))
            tail_ms = args.silence_ms + TAIL_MS
            yield RecordingSource(recording, is_live=not args.fast, tail_ms=tail_ms)

    # Which scheduler

    @asynccontextmanager
    async def _service(self) -> AsyncIterator[tuple[str, ...]]:
        args = self._args
        if args.urls:
            yield tuple(session_url(url) for url in args.urls)
            return
        if not args.private and (found := await self._running_scheduler()):
            yield (found,)
            return
        await self._check_models()
        self._tell("starting a private scheduler and a node …")
        async with private_service(
            args.engines, pairs=self._pairs(), say=self._screen.waiting
        ) as service:
            yield (service.session_url,)

    async def _running_scheduler(self) -> str:
        """Return the address of the scheduler of the settings, if it runs and has what we want."""
        args = self._args
        scheduler = scheduler_of(argparse.Namespace(url=None, token=args.token, config=args.config))
        try:
            missing = await unserved_pairs(scheduler.url, self._pairs(), scheduler.token or "")
        except OSError:
            return ""
        if missing:
            wanted = ", ".join(f"{source} to {target}" for source, target in missing)
            self._tell(f"the scheduler at {scheduler.url} has no node for {wanted} now")
            return ""
        self._tell(f"using the scheduler at {scheduler.url}")
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
        from lingua_scheduler.speech.presets import missing_models, plan_of  # noqa: PLC0415

        plan = plan_of(self._args.engines)
        missing = missing_models(plan, default_store())
        if not missing:
            return
        command = f"lingua models install {plan.group}"
        if not self._args.install:
            raise ModelsMissing(missing, command)
        self._tell(f"{command} …")
        words = [sys.executable, "-m", "lingua_scheduler", "models", "install", plan.group]
        done = await asyncio.to_thread(_run_shown, words)
        if done:
            raise LinguaError(f"`{command}` failed")

    def _tell(self, what: str) -> None:
        if not self._args.quiet:
            self._screen.line(f"({what})", "note")

    # What is written

    def _write(self, report: Report) -> None:
        """Write all files; one that cannot be written does not cost the others."""
        problems = []
        for path, put in self._files(report):
            try:
                put(path)
            except OSError as error:
                if path == STDOUT:
                    raise
                problems.append(f"cannot write {path}: {error.strerror}")
        if problems:
            raise LinguaError("; ".join(problems))

    def _files(self, report: Report) -> Iterator[tuple[Path, Callable[[Path], None]]]:
        args = self._args
        # Of a talk in two languages there is one file, with both.
        targets = args.targets or [""]
        for target in targets:
            captions = captions_of(report, target)
            what = f"{args.spoken} to {target}" if target else " and ".join(args.two_way)
            note = f"{what}, by lingua translate"
            if args.srt:
                yield path_for(args.srt, target, targets), _text(to_srt(captions))
            if args.vtt:
                yield path_for(args.vtt, target, targets), _text(to_vtt(captions, note))
            if args.out_audio and (speech := speech_of(report, target)) is not None:
                yield path_for(args.out_audio, target, targets), _sound(speech)
        if args.json:
            yield args.json, _text(as_json(report, args.spoken or AUTO))


class ModelsMissing(LinguaError):
    """The private node would not find its models."""

    def __init__(self, names: Sequence[str], command: str) -> None:
        super().__init__(
            f"models are missing: {', '.join(names)}\n"
            f"get them with `{command}`, or run this again with --install"
        )


class Shown:
    """Shows what comes, and plays it if there is something to play it with."""

    def __init__(self, screen: Screen, player: Playback | None, *, is_quiet: bool) -> None:
        self._screen = screen
        self._player = player
        self._is_quiet = is_quiet
        # The language that is played: the first that speaks.
        self._played = ""

    def accepted(self, utterance: Utterance) -> None:
        """Show it."""
        if not self._is_quiet:
            self._screen.accepted(utterance)

    def partial(self, utterance: Utterance, text: str) -> None:
        """Show it."""
        if not self._is_quiet:
            self._screen.partial(utterance, text)

    def rendered(self, utterance: Utterance, rendition: Rendition) -> None:
        """Show and play it."""
        if not self._is_quiet or rendition.has_failed:
            self._screen.rendered(utterance, rendition)
        if self._player is not None and rendition.pcm:
            self._played = self._played or rendition.target
            if rendition.target == self._played:
                self._player.play(rendition.pcm, rendition.sample_rate)

    def noticed(self, what: str) -> None:
        """Show it."""
        self._screen.noticed(what)


class _Signals:
    """Takes Ctrl-C and SIGTERM inside a block."""

    def __init__(self, take: Callable[[], None]) -> None:
        self._take = take

    def __enter__(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, self._take)

    def __exit__(self, *_: object) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().remove_signal_handler(number)


def session_url(url: str) -> str:
    """Return where sessions are opened: an address of a scheduler, its path may be left out."""
    parts = urlsplit(url)
    schemes = {"http": "ws", "https": "wss", "ws": "ws", "wss": "wss"}
    if parts.scheme not in schemes or not parts.hostname:
        raise ConfigError("--url", f"must be ws://HOST:PORT or wss://..., got: {url[:80]!r}")
    path = parts.path if parts.path not in ("", "/") else SESSION_PATH
    return parts._replace(scheme=schemes[parts.scheme], path=path).geturl()


def _text(text: str) -> Callable[[Path], None]:
    def put(path: Path) -> None:
        if path == STDOUT:
            sys.stdout.write(text)
        else:
            path.write_text(text, encoding="utf-8")

    return put


def _sound(speech: Recording) -> Callable[[Path], None]:
    def put(path: Path) -> None:
        target = sys.stdout.buffer if path == STDOUT else path
        write_wav(target, speech.pcm, speech.sample_rate)

    return put


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
