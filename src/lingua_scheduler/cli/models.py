"""`lingua models list | install | verify | remove | path`: the models that speech engines use.

Progress goes to stderr, as a bar on a terminal and as plain lines elsewhere; results go to stdout.
The work itself is `lingua_scheduler.models`; nothing here needs a scheduler or a store.
"""

from __future__ import annotations

import shutil
import sys
import textwrap
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO

import msgspec

from lingua_scheduler.cli.table import render_table
from lingua_scheduler.models import ModelNotInstalled, Store, default_store

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator, Sequence

    from lingua_scheduler.models import Entry, Installed, Stage

    Act = Callable[[Store, argparse.Namespace], int]

HEADERS = ("name", "for", "download", "licence", "installed")
DOING = {"wait": "waiting", "unpack": "unpacking", "prepare": "preparing"}
BAR_COLUMNS = 24
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
        if name == "list":
            sub.add_argument("-v", "--verbose", action="store_true", help="show all there is")


def run_models(args: argparse.Namespace) -> int:
    """Do one act on the store that the environment names."""
    act: Act = args.act
    return act(default_store(), args)


def list_models(store: Store, args: argparse.Namespace) -> int:
    """Print the catalogue with what is installed of it."""
    entries = store.entries()
    if args.json:
        print(msgspec.json.encode([about(store, entry) for entry in entries]).decode())
    elif args.verbose:
        print("\n\n".join(page(store, entry) for entry in entries))
    else:
        print(list_page(store, entries))
    return 0


def install_models(store: Store, args: argparse.Namespace) -> int:
    """Install what is named and print where it is, how much was fetched and how long it took."""
    models = store.catalogue.expand(args.names)
    started = time.monotonic()
    done: list[Installed] = []
    for model in models:
        with progress_on(sys.stderr) as show:
            # What it requires came before it: the last one is the model itself.
            done.append(store.install(model.name, show)[-1])
        print(installed_line(done[-1]), flush=True)
    fetched = sum(result.download_bytes for result in done)
    if len(done) > 1:
        took_s = time.monotonic() - started
        print(f"{len(done)} models in {store.root}: {size(fetched)} fetched in {took_s:.1f} s")
    return 0


def verify_models(store: Store, args: argparse.Namespace) -> int:
    """Hash the files of models again; exit code 1 when something is wrong."""
    names = [model.name for model in store.catalogue.expand(args.names)]
    names = names or [entry.model.name for entry in store.entries() if store.has(entry.model.name)]
    found = {name: check(store, name) for name in names}
    if args.json:
        print(msgspec.json.encode(found).decode())
    else:
        print("\n".join(verdict(*item) for item in found.items()) or "no model is installed")
    return 1 if any(found.values()) else 0


def remove_models(store: Store, args: argparse.Namespace) -> int:
    """Remove the models that are named; a group means its members that are installed."""
    for name in args.names:
        members = store.catalogue.groups.get(name)
        for member in [m for m in members if store.has(m)] if members else [name]:
            store.remove(member)
            print(f"{member}: removed")
    return 0


def print_path(store: Store, args: argparse.Namespace) -> int:
    """Print the folder of one model."""
    print(store.path(args.names))
    return 0


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
        again = f"lingua models remove {name} && {again}"
    return "\n  ".join([f"{name}: NOT as installed", *problems, f"run: {again}"])


def about(store: Store, entry: Entry) -> dict[str, Any]:
    """Return all that is known of a model, for `--json`."""
    model, manifest = entry
    return {
        "name": model.name, "purpose": model.purpose, "licence": model.licence,
        "credit": model.credit, "download_bytes": model.download_bytes(),
        "disk_mb": model.disk_mb, "requires": list(model.requires),
        "groups": groups_of(store, model.name), "installed": manifest is not None,
        "is_current": entry.is_current,
        "path": str(store.root / model.name) if manifest else None,
        "installed_at": manifest.installed_at if manifest else None,
        "size_bytes": manifest.size_bytes if manifest else None,
        "sources": sources_of(store, entry),
    }  # fmt: skip


def groups_of(store: Store, name: str) -> list[str]:
    """Return the groups that a model belongs to."""
    return [group for group, members in store.catalogue.groups.items() if name in members]


def sources_of(store: Store, entry: Entry) -> list[str]:
    """Return where a model came from, or would come from first."""
    if entry.manifest:
        return list(entry.manifest.sources)
    sources = store.catalogue.sources
    return [f"{sources[d.source].addresses()[0]}/{d.path}" for d in entry.model.downloads]


def list_page(store: Store, entries: Sequence[Entry]) -> str:
    """Return the table, the groups and the total."""
    rows = [row(entry) for entry in entries]
    there = [entry.manifest for entry in entries if entry.manifest]
    on_disk = sum(manifest.size_bytes for manifest in there)
    groups = "\n".join(group_line(store, name) for name in store.catalogue.groups)
    total = f"{len(there)} of {len(entries)} installed, {size(on_disk)} in {store.root}"
    return f"{render_table(HEADERS, rows)}\n\n{groups}\n\n{total}"


def row(entry: Entry) -> tuple[str, ...]:
    """Return the cells of one model."""
    model, manifest = entry
    state = "-" if manifest is None else size(manifest.size_bytes)
    if manifest is not None and not entry.is_current:
        state += " (older)"
    fetched = model.download_bytes()
    return (
        model.name, model.purpose, size(fetched).rjust(8) if fetched else "not here",
        model.licence, state,
    )  # fmt: skip


def group_line(store: Store, name: str) -> str:
    """Return what a group has and how much of it is still to fetch."""
    models = store.catalogue.expand([name])
    missing = sum(model.download_bytes() for model in models if not store.has(model.name))
    left = f"{size(missing)} to fetch" if missing else "installed"
    text = f"group {name} ({left}): {' '.join(model.name for model in models)}"
    return textwrap.fill(text, PAGE_COLUMNS, subsequent_indent="  ", break_on_hyphens=False)


def page(store: Store, entry: Entry) -> str:
    """Return all that is known of a model, for `-v`."""
    facts = about(store, entry)
    fetched = facts["download_bytes"]
    shown = {
        "for": facts["purpose"], "licence": facts["licence"], "credit": facts["credit"],
        "download": size(fetched) if fetched else "not for this machine",
        "groups": " ".join(facts["groups"]), "requires": " ".join(facts["requires"]),
        "installed": facts["installed_at"], "path": facts["path"],
        "from": "\n            ".join(facts["sources"]),
    }  # fmt: skip
    lines = [f"  {name:9} {value}" for name, value in shown.items() if value]
    return "\n".join([facts["name"], *lines])


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


@contextmanager
def progress_on(stream: TextIO) -> Iterator[Callable[[Stage], None]]:
    """Show progress on this stream: by a bar on a terminal, which is gone after, else by lines."""
    if not stream.isatty():
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
        self._last = ("", "")  # model and stage said last

    def show(self, stage: Stage) -> None:
        """Print a line when a stage begins."""
        if (stage.model, stage.what) == self._last or stage.what == "done":
            return
        self._last = (stage.model, stage.what)
        text = DOING.get(stage.what) or f"downloading {size(stage.total_bytes)}"
        detail = f" ({stage.detail})" if stage.what == "wait" else ""
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
            columns = shutil.get_terminal_size().columns
            self._stream.write(f"\r\x1b[K{self._line(stage, now)[: columns - 1]}")
            self._stream.flush()

    def _line(self, stage: Stage, now: float) -> str:
        if stage.what != "download":
            return f"{stage.model:24} {DOING[stage.what]}… {stage.detail}"
        part = stage.done_bytes / stage.total_bytes if stage.total_bytes else 1.0
        full = int(part * BAR_COLUMNS)
        bar = "#" * full + "-" * (BAR_COLUMNS - full)
        return (
            f"{stage.model:24} [{bar}] {part:4.0%}  {stage.done_bytes / 1e6:.1f} of "
            f"{size(stage.total_bytes)}{self._speed(stage, now)}"
        )

    def _speed(self, stage: Stage, now: float) -> str:
        """Return how fast it comes and how long that takes, once that can be told."""
        took_s = now - self._began
        if took_s < TELLING_S or stage.done_bytes <= self._began_bytes:
            return ""
        rate = (stage.done_bytes - self._began_bytes) / took_s
        left_s = (stage.total_bytes - stage.done_bytes) / rate
        return f", {rate / 1e6:.1f} MB/s, {left_s:.0f} s left"
