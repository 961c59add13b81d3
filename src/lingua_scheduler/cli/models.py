"""`lingua models list | install | verify | remove | path`: the models that speech engines use.

Progress goes to stderr, as a bar on a terminal and as plain lines elsewhere; results go to stdout.
The work itself is `lingua_scheduler.models`; nothing here needs a scheduler or a store.
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

from lingua_scheduler.cli.table import render_table
from lingua_scheduler.models import (
    ModelNeeded,
    ModelNotInstalled,
    Store,
    default_store,
    prepare,
)

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from lingua_scheduler.models import Entry, Installed, Model, Stage

    Act = Callable[[Store, argparse.Namespace], int]

HEADERS = ("name", "for", "download", "licence", "installed")
DOING = {
    "wait": "waiting", "ask": "asking", "unpack": "unpacking", "prepare": "preparing",
    "place": "writing",
}  # fmt: skip
# Columns of the list, by how wide a terminal is: all, or the first of these that fit.
NARROWER = ((0, 1, 2, 4), (0, 1, 4), (0, 2, 4), (0, 4))
BAR_COLUMNS = 24
BAR_LINE_COLUMNS = 72  # a terminal that is narrower gets no bar, only the figures
REDRAW_S = 0.1
TELLING_S = 0.3  # from when on the speed of a download means something
PAGE_COLUMNS = 100


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `lingua models` and its acts."""
    parser = subparsers.add_parser("models", help="list, install, verify or remove models")
    acts = parser.add_subparsers(title="acts", required=True, metavar="ACT")
    texts: dict[str, tuple[str, Act, str]] = {
        "list": ("show what can be installed and what is", list_models, ""),
        "install": ("install models or groups with what they require", install_models, "+"),
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
                "--again", action="store_true", help="replace what is there, for it is damaged"
            )
        if name == "list":
            sub.add_argument("-v", "--verbose", action="store_true", help="show all there is")


def run_models(args: argparse.Namespace) -> int:
    """Do one act on the store that the environment names."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A folder's name may have letters that this terminal lacks.
        sys.stdout.reconfigure(errors="backslashreplace")
    act: Act = args.act
    return act(default_store(), args)


def list_models(store: Store, args: argparse.Namespace) -> int:
    """Print the catalogue with what is installed of it."""
    entries = store.entries()
    if args.json:
        print_json([about(store, entry) for entry in entries])
    elif args.verbose:
        print("\n\n".join(page(store, entry) for entry in entries))
    else:
        print(list_page(store, entries, columns_of(sys.stdout)))
    return 0


def install_models(store: Store, args: argparse.Namespace) -> int:
    """Install what is named and print where it is, how much was fetched and how long it took."""
    models = store.catalogue.expand(args.names)
    started = time.monotonic()
    done: list[Installed] = []
    groups = store.catalogue.groups
    named = {m for name in args.names if args.again for m in groups.get(name, (name,))}
    missing = [model for model in models if model.name in named or not store.is_current(model)]
    if missing:
        # What cannot be prepared here is said before anything is fetched, or announced.
        for model in missing:
            prepare.check_model(model)
        print(announcement(missing), file=sys.stderr, flush=True)
    try:
        for model in models:
            with progress_on(sys.stderr) as show:
                # What it requires came before it: the last one is the model itself.
                done.append(store.install(model.name, show, again=model.name in named)[-1])
            print(installed_line(done[-1]), flush=True)
    except KeyboardInterrupt:
        print("interrupted; the same command goes on where it stopped", file=sys.stderr)
        raise
    fetched = sum(result.download_bytes for result in done)
    if len(done) > 1:
        took_s = time.monotonic() - started
        print(f"{len(done)} models in {store.root}: {size(fetched)} fetched in {took_s:.1f} s")
    return 0


def verify_models(store: Store, args: argparse.Namespace) -> int:
    """Hash the files of models again; exit code 1 when something is wrong."""
    names = [model.name for model in store.catalogue.expand(args.names)]
    names = names or [name for name in store.catalogue.models if store.has(name)]
    found = {name: check(store, name) for name in names}
    if args.json:
        print_json(found)
    else:
        print("\n".join(verdict(*item) for item in found.items()) or "no model is installed")
    return 1 if any(found.values()) else 0


def remove_models(store: Store, args: argparse.Namespace) -> int:
    """Remove what is named, users first, or nothing if others need a part of it."""
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


def members_of(store: Store, names: Sequence[str]) -> list[str]:
    """Return the models that are named; a group means its members that are there."""
    found = []
    for name in names:
        members = store.catalogue.groups.get(name)
        there = [member for member in members if store.occupies(member)] if members else [name]
        if not there:
            raise ModelNotInstalled(name, store.root)
        found += there
    return [model.name for model in map(store.catalogue.model, found)]


def print_path(store: Store, args: argparse.Namespace) -> int:
    """Print the folder of one model, byte by byte as the system has it."""
    print_bytes(os.fsencode(store.path(args.names)))
    return 0


def print_json(value: object) -> None:
    """Print JSON, which is UTF-8 wherever it goes."""
    print_bytes(msgspec.json.encode(value))


def print_bytes(line: bytes) -> None:
    """Print a line that is not to be changed by what a terminal can show."""
    sys.stdout.flush()
    sys.stdout.buffer.write(line + b"\n")
    sys.stdout.buffer.flush()


def check(store: Store, name: str) -> list[str]:
    """Return what is wrong with a model; not being there is wrong too."""
    try:
        return store.verify(name)
    except ModelNotInstalled:
        return ["not installed"]


def verdict(name: str, problems: Sequence[str]) -> str:
    """Return the line, or the lines, on one verified model."""
    if not problems:
        return f"{name}: whole"
    again = f"lingua models install {name}"
    if list(problems) != ["not installed"]:
        again = f"lingua models install --again {name}"
    return "\n  ".join([f"{name}: NOT as installed", *problems, f"run: {again}"])


def about(store: Store, entry: Entry) -> dict[str, Any]:
    """Return all that is known of a model, for `--json`."""
    model, manifest, damage = entry
    return {
        "name": model.name, "purpose": model.purpose, "licence": model.licence,
        "credit": model.credit, "download_bytes": model.download_bytes(),
        "disk_mb": model.disk_mb, "kept_bytes": model.kept_bytes, "requires": list(model.requires),
        "groups": groups_of(store, model.name), "installed": manifest is not None,
        "is_current": entry.is_current,
        "damage": damage or None,
        "path": text_of(store.root / model.name) if manifest else None,
        "installed_at": manifest.installed_at if manifest else None,
        "size_bytes": manifest.size_bytes if manifest else None,
        "sources": sources_of(store, entry),
    }  # fmt: skip


def text_of(path: Path) -> str:
    """Return a path as text, also one that is none."""
    return str(path).encode("utf-8", "backslashreplace").decode()


def groups_of(store: Store, name: str) -> list[str]:
    """Return the groups that a model belongs to."""
    return [group for group, members in store.catalogue.groups.items() if name in members]


def sources_of(store: Store, entry: Entry) -> list[str]:
    """Return where a model came from, or would come from first."""
    if entry.manifest:
        return list(entry.manifest.sources)
    sources = store.catalogue.sources
    return [f"{sources[d.source].addresses()[0]}/{d.path}" for d in entry.model.downloads]


def list_page(store: Store, entries: Sequence[Entry], columns: int) -> str:
    """Return the table, the groups and the total; as wide as the terminal, 0: as they are."""
    table = fitting_table([row(entry) for entry in entries], columns)
    there = [entry.manifest for entry in entries if entry.manifest]
    on_disk = sum(manifest.size_bytes for manifest in there)
    width = min(columns or PAGE_COLUMNS, PAGE_COLUMNS)
    groups = "\n".join(group_line(store, name, width) for name in store.catalogue.groups)
    total = f"{len(there)} of {len(entries)} installed, {size(on_disk)} in {store.root}"
    return f"{table}\n\n{groups}\n\n{total}"


def fitting_table(rows: Sequence[tuple[str, ...]], columns: int) -> str:
    """Return the table without the columns for which a terminal has no room."""
    table = render_table(HEADERS, rows)
    for kept in NARROWER:
        if not columns or max(map(len, table.splitlines())) <= columns:
            break
        table = render_table([HEADERS[i] for i in kept], [[row[i] for i in kept] for row in rows])
    return table


def row(entry: Entry) -> tuple[str, ...]:
    """Return the cells of one model."""
    model, manifest, damage = entry
    state = size(manifest.size_bytes) if manifest else "damaged" if damage else "-"
    if manifest is not None and not entry.is_current:
        state += " (older)"
    fetched = model.download_bytes()
    return (
        model.name, model.purpose, size(fetched).rjust(8) if fetched else "not here",
        model.licence, state,
    )  # fmt: skip


def group_line(store: Store, name: str, width: int) -> str:
    """Return what a group has and how much of it is still to fetch."""
    models = store.catalogue.expand([name])
    missing = sum(model.download_bytes() for model in models if not store.has(model.name))
    kept = sum(model.kept_bytes for model in models)
    left = f"{size(missing)} to fetch, {size(kept)} on disk" if missing else "installed"
    text = f"group {name} ({left}): {' '.join(model.name for model in models)}"
    return textwrap.fill(text, width, subsequent_indent="  ", break_on_hyphens=False)


def page(store: Store, entry: Entry) -> str:
    """Return all that is known of a model, for `-v`."""
    facts = about(store, entry)
    fetched = facts["download_bytes"]
    shown = {
        "for": facts["purpose"], "licence": facts["licence"], "credit": facts["credit"],
        "download": size(fetched) if fetched else "not for this machine",
        "on disk": f"about {size(facts['kept_bytes'])}",
        "groups": " ".join(facts["groups"]), "requires": " ".join(facts["requires"]),
        "installed": facts["installed_at"], "damaged": facts["damage"], "path": facts["path"],
        "from": "\n            ".join(facts["sources"]),
    }  # fmt: skip
    lines = [f"  {name:9} {value}" for name, value in shown.items() if value]
    return "\n".join([facts["name"], *lines])


def announcement(models: Sequence[Model]) -> str:
    """Return what an install will take, for who may want to stop it before it begins."""
    fetched = sum(model.download_bytes() for model in models)
    most = after = 0
    for model in models:
        # Archives stay until their model is in its place.
        most = max(most, after + model.download_bytes() + model.disk_mb * 1_000_000)
        after += model.kept_bytes
    what = models[0].name if len(models) == 1 else f"{len(models)} models"
    disk = f"up to {size(most)} of disk meanwhile, about {size(after)} after"
    return f"{what}: {size(fetched)} to fetch; {disk}"


def installed_line(result: Installed) -> str:
    """Return the end of one install."""
    if not result.is_new:
        return f"{result.name}: there already, {result.path}"
    return (
        f"{result.name}: installed, {size(result.download_bytes)} in {result.took_s:.1f} s, "
        f"{result.path}"
    )


def size(count: int) -> str:
    """Return a number of bytes as people read it."""
    return f"{count / 1e6:.1f} MB"


def columns_of(stream: TextIO) -> int:
    """Return how wide the terminal of this stream is, 0 where it is none."""
    if not stream.isatty():
        return 0
    # Not of stdout, which may be a pipe while progress is shown.
    return os.get_terminal_size(stream.fileno()).columns or shutil.get_terminal_size().columns


@contextmanager
def progress_on(stream: TextIO) -> Iterator[Callable[[Stage], None]]:
    """Show progress on this stream: by a bar on a terminal, which is gone after, else by lines."""
    if not stream.isatty() or os.environ.get("TERM") == "dumb":
        yield Lines(stream).show
        return
    try:
        yield Bar(stream).show
    finally:
        stream.write("\r\x1b[K")
        stream.flush()


class Lines:
    """Says each stage of an install once, for logs."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._said: set[tuple[str, str]] = set()  # model and stage

    def show(self, stage: Stage) -> None:
        """Print a line when a stage begins."""
        if (stage.model, stage.what) in self._said or stage.what in {"place", "done"}:
            return
        self._said.add((stage.model, stage.what))
        text = DOING.get(stage.what) or f"downloading {size(stage.total_bytes)}"
        detail = f" {stage.detail}" if stage.what in {"wait", "ask"} else ""
        print(f"{stage.model}: {text}{detail}", file=self._stream, flush=True)


class Bar:
    """One line of a terminal that is drawn over and over, and gone in the end."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._model = ""
        self._what = ""
        self._began = 0.0  # when this model's download began, and at which byte
        self._began_bytes = 0
        self._drawn = 0.0  # when last drawn

    def show(self, stage: Stage) -> None:
        """Draw the line anew, but not more often than an eye follows."""
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

    def _line(self, stage: Stage, now: float, room: int) -> str:
        if stage.what != "download":
            width = 24 if room >= BAR_LINE_COLUMNS else 0
            return f"{stage.model:{width}} {DOING[stage.what]} {stage.detail}".rstrip()
        part = stage.done_bytes / stage.total_bytes if stage.total_bytes else 1.0
        full = int(part * BAR_COLUMNS)
        text = f"{stage.model:24} [{'#' * full:-<{BAR_COLUMNS}}] {part:4.0%} "
        if room < BAR_LINE_COLUMNS:
            text = f"{part:4.0%} {stage.model}"
        amount = f" {stage.done_bytes / 1e6:.1f} of {size(stage.total_bytes)}"
        for more in (amount, *self._speed(stage, now)):
            text += more if len(text) + len(more) <= room else ""
        return text

    def _speed(self, stage: Stage, now: float) -> tuple[str, ...]:
        """Return how fast it comes and how long that takes, once that can be told."""
        took_s = now - self._began
        if took_s < TELLING_S or stage.done_bytes <= self._began_bytes:
            return ()
        rate = (stage.done_bytes - self._began_bytes) / took_s
        left_s = (stage.total_bytes - stage.done_bytes) / rate
        return f", {rate / 1e6:.1f} MB/s", f", {left_s:.0f} s left"
