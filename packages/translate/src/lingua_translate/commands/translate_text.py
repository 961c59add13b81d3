"""`lingua translate --text`: text in, text out, by the translators of a node, without a scheduler.

One line in gives exactly one line out on stdout, and nothing else is written there. A failure is an
empty line, its reason is on stderr and the exit code is 1. The engines run in a worker process as
in a node, and lines pass through it one after the other, so that any number of them can.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, BinaryIO, Final, NamedTuple

from lingua_cli.language_arguments import checked_language
from lingua_cli.logs import configure_logs
from lingua_cli.terminal import output_errors
from lingua_wire import glossary
from lingua_wire.errors import ConfigError, LinguaError
from lingua_wire.languages import AUTO, base_of

if TYPE_CHECKING:
    import argparse
    from collections.abc import AsyncIterator, Awaitable, Iterable

    from lingua_speech.abilities import Abilities, TranslatorMatch
    from lingua_speech.engine import Rendered
    from lingua_speech.host import WorkerPool
    from lingua_wire.shared import Term

STDIN: Final = "-"
# Lines that were read and wait for the translator.
READ_AHEAD: Final = 64
LOAD_S: Final = 120.0
# Options that mean nothing with text: they are about audio, or about a scheduler.
ALONE: Final = (
    "source",
    "two_way",
    "fast",
    "silence_ms",
    "urls",
    "token",
    "private",
    "srt",
    "vtt",
    "json",
    "out_audio",
    "play",
    "voice",
)


def run_text(args: argparse.Namespace) -> int:
    """Translate the text, or each line of stdin; exit code 1 if one of them failed."""
    source, target = languages(args)
    for name in ALONE:
        if getattr(args, name, None):
            option = "FILE" if name == "source" else f"--{name.replace('_', '-')}"
            raise ConfigError("--text", f"cannot be combined with {option}")
    # What engines print at their start belongs to stderr, as everything but the translations.
    configure_logs(sys.stderr, "warning", as_json=not sys.stderr.isatty())
    with output_errors():
        return asyncio.run(translate_lines(args, source, target))


def languages(args: argparse.Namespace) -> tuple[str, str]:
    """Return both languages; raises `ConfigError` unless there is one of each."""
    if not args.spoken or len(args.targets) != 1:
        raise ConfigError("--text", "needs --from LANG and one --to LANG")
    if args.spoken.lower() == AUTO:
        raise ConfigError("--from", "must be a language: that of a text is not detected")
    source, target = (
        checked_language("--from", args.spoken),
        checked_language("--to", args.targets[0]),
    )
    if base_of(source) == base_of(target):
        raise ConfigError("--to", f"{target} is the language of the text")
    return source, target


def glossary_of(args: argparse.Namespace) -> tuple[Term, ...]:
    """Read the glossary of the command line, if there is one; raises `ConfigError`."""
    return glossary.read(args.glossary, "--glossary") if args.glossary else ()


async def translate_lines(args: argparse.Namespace, source: str, target: str) -> int:
    """Run everything; return the exit code."""
    from lingua_speech.glossary import translate_with_terms  # noqa: PLC0415 see `translators`

    failed, terms = 0, glossary_of(args)
    async with translators(args.engines) as office:
        route = office.route(source, target)
        texts = _stdin() if args.text == STDIN else _one(args.text)
        number = 0

        def ask(words: str) -> Awaitable[Rendered]:
            return office.translate(words, route)

        async for text in texts:
            number += 1
            try:
                rendered = await translate_with_terms(text, terms, target, ask)
            except LinguaError as error:
                failed += 1
                print(f"lingua: line {number}: {error}", file=sys.stderr)
                print(flush=True)
                continue
            if args.show_route:
                told = " ".join([rendered.route or "-", *rendered.remarks])
                print(f"{number}\t{told}", file=sys.stderr)
            print(" ".join(rendered.text.split()), flush=True)
    return 1 if failed else 0


class Office(NamedTuple):
    """Running translators."""

    pool: WorkerPool
    can: Abilities

    def route(self, source: str, target: str) -> TranslatorMatch:
        """Return the route of the translation; raises `NoRoute` with the alternatives."""
        found = self.can.route(source, target)
        if found is None:
            raise NoRoute(source, target, self.can)
        return found

    async def translate(self, text: str, route: TranslatorMatch) -> Rendered:
        """Translate one text; with one more attempt if the worker was lost."""
        from lingua_speech.engine import Rendered  # noqa: PLC0415 see `translators`
        from lingua_speech.host import WorkerLost  # noqa: PLC0415

        if not text.strip():
            return Rendered("")
        try:
            said = await self._ask(text, route)
        except WorkerLost:
            said = await self._ask(text, route)
        return said if isinstance(said, Rendered) else Rendered(said)

    async def _ask(self, text: str, route: TranslatorMatch) -> Any:
        from lingua_speech.pipeline_stage import translation_s  # noqa: PLC0415

        arguments = (text, route.source, route.target)
        return await self.pool.call(route.engine.number, *arguments, timeout_s=translation_s(text))


@asynccontextmanager
async def translators(words: list[str]) -> AsyncIterator[Office]:
    """Start the translators that `--engines` names, in a worker process."""
    # Imported only here: users of a scheduler need none of it.
    from lingua_speech.abilities import Abilities, LoadedEngine  # noqa: PLC0415
    from lingua_speech.host import WorkerPool, WorkerPoolRules  # noqa: PLC0415
    from lingua_speech.presets import translators_of  # noqa: PLC0415

    pool = WorkerPool(translators_of(words), WorkerPoolRules(load_s=LOAD_S))
    await pool.start()
    try:
        loaded = [LoadedEngine(index, about, "mt") for index, about in sorted(pool.abouts.items())]
        yield Office(pool, Abilities({"mt": loaded}))
    finally:
        await pool.close()


class NoRoute(ConfigError):
    """No translator here has this direction."""

    def __init__(self, source: str, target: str, can: Abilities) -> None:
        from lingua_speech.routing.offers import to_install  # noqa: PLC0415

        pairs = {pair for engine in can.engines("mt") for pair in engine.about.pairs}
        names = sorted({code for pair in pairs for code in pair})
        models = to_install((base_of(source), base_of(target)), pairs)
        more = f"; run: lingua models install {' '.join(models)}" if models else ""
        into = sorted({other for one, other in pairs if base_of(one) == base_of(source)})
        what = f"{source} into {', '.join(into)}" if into else f"between {', '.join(names)}"
        super().__init__(
            "--to",
            f"nothing here translates {source} into {target}, only {what}"
            f"{more} (lingua languages shows all)",
        )


# The texts


async def _one(text: str) -> AsyncIterator[str]:
    yield " ".join(text.split())


async def _stdin() -> AsyncIterator[str]:
    """Give the lines of stdin as they come; read by a thread, so that Ctrl-C works at once."""
    lines: asyncio.Queue[str | None] = asyncio.Queue(READ_AHEAD)
    loop = asyncio.get_running_loop()

    def put(line: str | None) -> None:
        asyncio.run_coroutine_threadsafe(lines.put(line), loop).result()

    threading.Thread(target=_read, args=(sys.stdin.buffer, put), daemon=True).start()
    while (line := await lines.get()) is not None:
        yield line


def _read(stream: BinaryIO, put: Any) -> None:
    for line in _lines(stream):
        put(line)
    put(None)


def _lines(stream: Iterable[bytes]) -> Iterable[str]:
    """Give each line as text; a line that is not UTF-8 does not end the others."""
    return (line.rstrip(b"\r\n").decode("utf-8", "replace") for line in stream)
