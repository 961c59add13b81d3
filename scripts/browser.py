"""Install the Chromium and the accessibility checker that the tests of the pages use.

    python scripts/browser.py            install what is missing, print where the browser is

Both come from the npm registry, are pinned by SHA-256 as models are, and need no root: the package
`@sparticuz/chromium` also carries the libraries that a bare machine lacks. A folder is complete or
absent. The registry is the public one, or whatever npm on this machine is configured with.
"""

from __future__ import annotations

import io
import shutil
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import brotli

from lingua_speech.models.errors import ModelError
from lingua_speech.models.fetch import PinnedFile, fetch
from lingua_speech.models.store import default_root

if TYPE_CHECKING:
    from collections.abc import Callable

REGISTRY = "https://registry.npmjs.org"
CHROMIUM = PinnedFile(
    model="chromium",
    file="@sparticuz/chromium-147.0.1.tgz",
    urls=(f"{REGISTRY}/@sparticuz/chromium/-/chromium-147.0.1.tgz",),
    size=68_305_976,
    sha256="370a01b951806194c600d68af27aceefa16e5f6edc50c3fa6f2787da730077e1",
    variable="npm_config_registry",
    packager="npm",
)
AXE = PinnedFile(
    model="axe-core",
    file="axe-core-4.14.0.tgz",
    urls=(f"{REGISTRY}/axe-core/-/axe-core-4.14.0.tgz",),
    size=706_680,
    sha256="2277b0a3ef47af9b52497faa3e71598e86e0a0e5e6eb295207a5657ede4709af",
    variable="npm_config_registry",
    packager="npm",
)


# Its own fonts, so that pages look the same on every machine.
FONTS = """<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig>
<dir prefix="relative">fonts</dir><cachedir prefix="xdg">fontconfig</cachedir>
</fontconfig>
"""


class Browser(NamedTuple):
    """Where the installed parts are."""

    program: Path
    # What LD_LIBRARY_PATH needs.
    libraries: Path
    # The script that finds barriers for people with disabilities.
    axe: Path


def installed() -> Browser:
    """Return the browser, installed now if it was not."""
    root = default_root().parent / "browser"
    chromium = _installed(root / "chromium-147.0.1", CHROMIUM, _unpack_chromium)
    axe = _installed(root / "axe-core-4.14.0", AXE, _unpack_axe)
    return Browser(chromium / "chromium", chromium / "lib", axe / "axe.min.js")


def _installed(folder: Path, pinned: PinnedFile, unpack: Callable[[Path, Path], None]) -> Path:
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    archive = folder.parent / Path(pinned.file).name
    fetch(pinned, archive, lambda _: None)
    with tempfile.TemporaryDirectory(dir=folder.parent) as made:
        unpack(archive, Path(made) / "whole")
        try:
            (Path(made) / "whole").rename(folder)
        except OSError:
            # Another process was faster.
            if not folder.is_dir():
                raise
    archive.unlink(missing_ok=True)
    return folder


def _unpack_chromium(archive: Path, folder: Path) -> None:
    folder.mkdir()
    with tarfile.open(archive) as package:
        program = folder / "chromium"
        program.write_bytes(_expanded(package, "package/bin/chromium.br"))
        program.chmod(0o755)
        for name in ("al2023", "fonts", "swiftshader"):
            data = _expanded(package, f"package/bin/{name}.tar.br")
            with tarfile.open(fileobj=io.BytesIO(data)) as inner:
                # Python 3.11 has filters since 3.11.4; what is unpacked is pinned by its checksum.
                inner.extraction_filter = getattr(tarfile, "data_filter", _unfiltered)
                inner.extractall(folder)  # noqa: S202 see above
        (folder / "fonts.conf").write_text(FONTS)


def _unfiltered(member: tarfile.TarInfo, _: str) -> tarfile.TarInfo:
    return member


def _unpack_axe(archive: Path, folder: Path) -> None:
    folder.mkdir()
    with tarfile.open(archive) as package:
        source = package.extractfile("package/axe.min.js")
        assert source is not None
        with (folder / "axe.min.js").open("wb") as target:
            shutil.copyfileobj(source, target)


def _expanded(package: tarfile.TarFile, name: str) -> bytes:
    source = package.extractfile(name)
    assert source is not None
    return bytes(brotli.decompress(source.read()))


def main() -> int:
    """Install, and print where the browser is."""
    try:
        print(installed().program)
    except ModelError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
