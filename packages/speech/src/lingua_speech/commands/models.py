"""`lingua models list | install | verify | remove | path`: the models of speech engines.

Progress goes to stderr, as a bar on a terminal and as plain lines elsewhere; results go to stdout.
The work is done by `lingua_speech.models`; no scheduler is needed.
"""

from __future__ import annotations

import io
import os
import shutil
import sys
import textwrap
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO

import msgspec

from lingua_cli.table import render_table
from lingua_speech.models import (
    ModelNeeded,
    ModelNotInstalled,
    ModelStore,
    default_store,
    prepare,
)

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from lingua_speech.models import Installed, InstallProgress, Model, StoreEntry

    Act = Callable[[ModelStore, argparse.Namespace], int]

HEADERS = ("name", "for", "download", "licence", "installed")
ACTIVITIES = {
    "wait": "waiting",
    "ask": "asking",
    "unpack": "unpacking",
    "prepare": "preparing",
    "place": "writing",
}
# Selections of columns for narrow terminals; the first that fits is used.
NARROWER = ((0, 1, 2, 4), (0, 1, 4), (0, 2, 4), (0, 4))
BAR_COLUMNS = 24
BAR_LINE_COLUMNS = 72  # a narrower terminal gets the figures without a bar
REDRAW_S = 0.1
SPEED_AFTER_S = 0.3  # the speed of a download is meaningless before
PAGE_COLUMNS = 100


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `lingua models` and its actions."""
    parser = subparsers.add_parser("models", help="list, install, verify or remove models")
    acts = parser.add_subparsers(title="acts", required=True, metavar="ACT")
    texts: dict[str, tuple[str, Act, str]] = {
        "list": ("show the available and the installed models", list_models, ""),
        "install": ("install models or groups with their requirements", install_models, "+"),
        "verify": ("hash installed files again (default: of all models)", verify_models, "*"),
        "remove": ("remove models", remove_models, "+"),
        "path": ("print a model's folder", print_path, "1"),
    }
    for name, (text, act, names) in texts.items():
        sub = acts.add_parser(name, help=text, description=text)
        sub.set_defaults(run=run_models, act=act)
        if names:
            several = None if names == "1" else names
            sub.add_argument("names", metavar="NAME", nargs=several, help="a model or a group")
        if name in {"list", "verify"}:
            sub.add_argument("--json", action="store_true", help="print JSON rather than text")
        if name == "install":
            sub.add_argument(
                "--again",
                action="store_true",
                help="replace installed models, because they are damaged",
            )
        if name == "list":
            sub.add_argument("-v", "--verbose", action="store_true", help="show all details")


def run_models(args: argparse.Namespace) -> int:
    """Run one action on the model store of the environment."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # The name of a folder may have characters that this terminal lacks.
        sys.stdout.reconfigure(errors="backslashreplace")
    act: Act = args.act
    return act(default_store(), args)


def list_models(store: ModelStore, args: argparse.Namespace) -> int:
    """Print the catalogue and which models are installed."""
    entries = store.entries()
    if args.json:
        print_json([about(store, entry) for entry in entries])
    elif args.verbose:
        print("\n\n".join(page(store, entry) for entry in entries))
    else:
        print(list_page(store, entries, columns_of(sys.stdout)))
    return 0


def install_models(store: ModelStore, args: argparse.Namespace) -> int:
    """Install the named models; print their folders, download size and duration."""
    models = store.catalogue.expand(args.names)
    started = time.monotonic()
    done: list[Installed] = []
    groups = store.catalogue.groups
    named = {m for name in args.names if args.again for m in groups.get(name, (name,))}
    missing = [model for model in models if model.name in named or not store.is_current(model)]
    if missing:
        # An impossible preparation is reported before any download or announcement.
        for model in missing:
            prepare.check_model(model)
        print(announcement(missing), file=sys.stderr, flush=True)
    try:
        for model in models:
            with progress_on(sys.stderr) as show:
                # Its requirements come first; the last result is the model itself.
                done.append(store.install(model.name, show, again=model.name in named)[-1])
            print(installed_line(done[-1]), flush=True)
    except KeyboardInterrupt:
        print("interrupted; the same command continues where it stopped", file=sys.stderr)
        raise
    fetched = sum(result.download_bytes for result in done)
    if len(done) > 1:
        took_s = time.monotonic() - started
        print(f"{len(done)} models in {store.root}: {size(fetched)} fetched in {took_s:.1f} s")
    return 0


def verify_models(store: ModelStore, args: argparse.Namespace) -> int:
    """Hash the files of models again; exit code 1 for any difference."""
    names = [model.name for model in store.catalogue.expand(args.names)]
    names = names or [name for name in store.catalogue.models if store.has(name)]
    found = {name: check(store, name) for name in names}
    if args.json:
        print_json(found)
    else:
        print("\n".join(verdict(*item) for item in found.items()) or "no model is installed")
    return 1 if any(found.values()) else 0


def remove_models(store: ModelStore, args: argparse.Namespace) -> int:
    """Remove the named models, dependents first; nothing if other models need one of them."""
    names = members_of(store, args.names)
    for name in names:
        if others := [user for user in store.users_of(name) if user not in names]:
            raise ModelNeeded(name, others)
    for model in reversed(store.catalogue.expand(names)):
        if model.name in names:
            with progress_on(sys.stderr) as show:
                store.remove(model.name, show)
            print(f"{model.name}: removed", flush=True)
    return 0


def members_of(store: ModelStore, names: Sequence[str]) -> list[str]:
    """Return the named models; a group means its installed members."""
    found = []
    for name in names:
        members = store.catalogue.groups.get(name)
        there = [member for member in members if store.occupies(member)] if members else [name]
        if not there:
            raise ModelNotInstalled(name, store.root)
        found += there
    return [model.name for model in map(store.catalogue.model, found)]


def print_path(store: ModelStore, args: argparse.Namespace) -> int:
    """Print the folder of one model, with exactly its bytes in the file system."""
    print_bytes(os.fsencode(store.path(args.names)))
    return 0


def print_json(value: object) -> None:
    """Print JSON, always in UTF-8."""
    print_bytes(msgspec.json.encode(value))


def print_bytes(line: bytes) -> None:
    """Print a line without the encoding of the terminal."""
    sys.stdout.flush()
    sys.stdout.buffer.write(line + b"\n")
    sys.stdout.buffer.flush()


def check(store: ModelStore, name: str) -> list[str]:
    """Return the problems of a model, such as not being installed."""
    try:
        return store.verify(name)
    except ModelNotInstalled:
        return ["not installed"]


def verdict(name: str, problems: Sequence[str]) -> str:
    """Return the lines on one verified model."""
    if not problems:
        return f"{name}: whole"
    again = f"lingua models install {name}"
    if list(problems) != ["not installed"]:
        again = f"lingua models install --again {name}"
    return "\n  ".join([f"{name}: NOT as installed", *problems, f"run: {again}"])


def about(store: ModelStore, entry: StoreEntry) -> dict[str, Any]:
    """Return all facts about a model, for `--json`."""
    model, manifest, damage = entry
    return {
        "name": model.name,
        "purpose": model.purpose,
        "licence": model.licence,
        "credit": model.credit,
        "download_bytes": model.download_bytes(),
        "disk_mb": model.disk_mb,
        "kept_bytes": model.kept_bytes,
        "requires": list(model.requires),
        "groups": groups_of(store, model.name),
        "installed": manifest is not None,
        "is_current": entry.is_current,
        "damage": damage or None,
        "path": text_of(store.root / model.name) if manifest else None,
        "installed_at": manifest.installed_at if manifest else None,
        "size_bytes": manifest.size_bytes if manifest else None,
        "sources": sources_of(store, entry),
    }


def text_of(path: Path) -> str:
    """Return a path as text, even if it is not valid UTF-8."""
    return str(path).encode("utf-8", "backslashreplace").decode()


def groups_of(store: ModelStore, name: str) -> list[str]:
    """Return the groups of a model."""
    return [group for group, members in store.catalogue.groups.items() if name in members]


def sources_of(store: ModelStore, entry: StoreEntry) -> list[str]:
    """Return the sources of an installed model, or the first ones of another."""
    if entry.manifest:
        return list(entry.manifest.sources)
    sources = store.catalogue.sources
    return [f"{sources[d.source].addresses()[0]}/{d.path}" for d in entry.model.downloads]


def list_page(store: ModelStore, entries: Sequence[StoreEntry], columns: int) -> str:
    """Return the table, the groups and the total, fitted to a width; 0: no limit."""
    table = fitting_table([row(entry) for entry in entries], columns)
    there = [entry.manifest for entry in entries if entry.manifest]
    on_disk = sum(manifest.size_bytes for manifest in there)
    width = min(columns or PAGE_COLUMNS, PAGE_COLUMNS)
    groups = "\n".join(group_line(store, name, width) for name in store.catalogue.groups)
    total = f"{len(there)} of {len(entries)} installed, {size(on_disk)} in {store.root}"
    return f"{table}\n\n{groups}\n\n{total}"


def fitting_table(rows: Sequence[tuple[str, ...]], columns: int) -> str:
    """Return the table, without the columns that do not fit."""
    table = render_table(HEADERS, rows)
    for kept in NARROWER:
        if not columns or max(map(len, table.splitlines())) <= columns:
            break
        table = render_table([HEADERS[i] for i in kept], [[row[i] for i in kept] for row in rows])
    return table


def row(entry: StoreEntry) -> tuple[str, ...]:
    """Return the cells of one model."""
    model, manifest, damage = entry
    state = size(manifest.size_bytes) if manifest else "damaged" if damage else "-"
    if manifest is not None and not entry.is_current:
        state += " (older)"
    fetched = model.download_bytes()
    download = size(fetched).rjust(8) if fetched else "unavailable"
    return model.name, model.purpose, download, model.licence, state


def group_line(store: ModelStore, name: str, width: int) -> str:
    """Return the members of a group and how much is still to be downloaded."""
    models = store.catalogue.expand([name])
    missing = sum(model.download_bytes() for model in models if not store.has(model.name))
    kept = sum(model.kept_bytes for model in models)
    left = f"{size(missing)} to fetch, {size(kept)} on disk" if missing else "installed"
    text = f"group {name} ({left}): {' '.join(model.name for model in models)}"
    return textwrap.fill(text, width, subsequent_indent="  ", break_on_hyphens=False)


def page(store: ModelStore, entry: StoreEntry) -> str:
    """Return all facts about a model, for `-v`."""
    facts = about(store, entry)
    fetched = facts["download_bytes"]
    shown = {
        "for": facts["purpose"],
        "licence": facts["licence"],
        "credit": facts["credit"],
        "download": size(fetched) if fetched else "not for this machine",
        "on disk": f"about {size(facts['kept_bytes'])}",
        "groups": " ".join(facts["groups"]),
        "requires": " ".join(facts["requires"]),
        "installed": facts["installed_at"],
        "damaged": facts["damage"],
        "path": facts["path"],
        "from": "\n            ".join(facts["sources"]),
    }
    lines = [f"  {name:9} {value}" for name, value in shown.items() if value]
    return "\n".join([facts["name"], *lines])


def announcement(models: Sequence[Model]) -> str:
    """Return the download size and disk space of an installation, printed before it starts."""
    fetched = sum(model.download_bytes() for model in models)
    most = after = 0
    for model in models:
        # An archive is kept until its model is in place.
        most = max(most, after + model.download_bytes() + model.disk_mb * 1_000_000)
        after += model.kept_bytes
    what = models[0].name if len(models) == 1 else f"{len(models)} models"
    disk = f"up to {size(most)} of disk meanwhile, about {size(after)} after"
    return f"{what}: {size(fetched)} to fetch; {disk}"


def installed_line(result: Installed) -> str:
    """Return the line on a finished installation."""
    if not result.is_new:
        return f"{result.name}: already installed, {result.path}"
    return (
        f"{result.name}: installed, {size(result.download_bytes)} in {result.took_s:.1f} s, "
        f"{result.path}"
    )


def size(count: int) -> str:
    """Return a number of bytes in megabytes."""
    return f"{count / 1e6:.1f} MB"


def columns_of(stream: TextIO) -> int:
    """Return the width of the terminal of this stream; 0 if it is not a terminal."""
    if not stream.isatty():
        return 0
    # Not the width of stdout, which may be a pipe.
    return os.get_terminal_size(stream.fileno()).columns or shutil.get_terminal_size().columns


@contextmanager
def progress_on(stream: TextIO) -> Iterator[Callable[[InstallProgress], None]]:
    """Show progress on this stream: a temporary bar on a terminal, else lines."""
    if not stream.isatty() or os.environ.get("TERM") == "dumb":
        yield ProgressLines(stream).show
        return
    try:
        yield ProgressBar(stream).show
    finally:
        stream.write("\r\x1b[K")
        stream.flush()


class ProgressLines:
    """Prints each stage of an installation once, for logs."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._printed: set[tuple[str, str]] = set()  # model and stage

    def show(self, stage: InstallProgress) -> None:
        """Print a line when a stage begins."""
        if (stage.model, stage.what) in self._printed or stage.what in {"place", "done"}:
            return
        self._printed.add((stage.model, stage.what))
        text = ACTIVITIES.get(stage.what) or f"downloading {size(stage.total_bytes)}"
        detail = f" {stage.detail}" if stage.what in {"wait", "ask"} else ""
        print(f"{stage.model}: {text}{detail}", file=self._stream, flush=True)


class ProgressBar:
    """One line of a terminal, redrawn until the end and then removed."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._model = ""
        self._what = ""
        self._began = 0.0  # when the download of this model began, and at which byte
        self._began_bytes = 0
        self._drawn = 0.0  # when last drawn

    def show(self, stage: InstallProgress) -> None:
        """Redraw the line, at a limited rate."""
        if stage.what == "done":
            return
        now = time.monotonic()
        is_new = (stage.model, stage.what) != (self._model, self._what)
        if is_new:
            self._model, self._what = stage.model, stage.what
            self._began, self._began_bytes = now, stage.done_bytes
        if is_new or now - self._drawn >= REDRAW_S or stage.done_bytes == stage.total_bytes:
            self._drawn = now
            room = columns_of(self._stream) - 1
            self._stream.write(f"\r\x1b[K{self._line(stage, now, room)[:room]}")
            self._stream.flush()

    def _line(self, stage: InstallProgress, now: float, room: int) -> str:
        if stage.what != "download":
            width = 24 if room >= BAR_LINE_COLUMNS else 0
            return f"{stage.model:{width}} {ACTIVITIES[stage.what]} {stage.detail}".rstrip()
        part = stage.done_bytes / stage.total_bytes if stage.total_bytes else 1.0
        full = int(part * BAR_COLUMNS)
        text = f"{stage.model:24} [{'#' * full:-<{BAR_COLUMNS}}] {part:4.0%} "
        if room < BAR_LINE_COLUMNS:
            text = f"{part:4.0%} {stage.model}"
        amount = f" {stage.done_bytes / 1e6:.1f} of {size(stage.total_bytes)}"
        for more in (amount, *self._speed(stage, now)):
            text += more if len(text) + len(more) <= room else ""
        return text

    def _speed(self, stage: InstallProgress, now: float) -> tuple[str, ...]:
        """Return the speed and the remaining time, once they are meaningful."""
        took_s = now - self._began
        if took_s < SPEED_AFTER_S or stage.done_bytes <= self._began_bytes:
            return ()
        rate = (stage.done_bytes - self._began_bytes) / took_s
        left_s = (stage.total_bytes - stage.done_bytes) / rate
        return f", {rate / 1e6:.1f} MB/s", f", {left_s:.0f} s left"
