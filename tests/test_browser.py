"""The browser that the tests install is unpacked by every Python that the project runs on."""

from __future__ import annotations

import importlib.util
import io
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING

import brotli
import pytest

if TYPE_CHECKING:
    from types import ModuleType

pytestmark = pytest.mark.unit

SCRIPT = Path(__file__).parents[1] / "scripts" / "browser.py"


def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("browser_script", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def tar_of(files: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return out.getvalue()


def test_the_program_and_its_libraries_come_out_of_their_package(tmp_path: Path) -> None:
    parts = {
        "al2023": {"lib/libnss3.so": b"nss"},
        "fonts": {"fonts/open.ttf": b"font"},
        "swiftshader": {"libGLESv2.so": b"gles"},
    }
    package = {"package/bin/chromium.br": brotli.compress(b"the program")}
    for name, files in parts.items():
        package[f"package/bin/{name}.tar.br"] = brotli.compress(tar_of(files))
    archive = tmp_path / "chromium.tar"
    archive.write_bytes(tar_of(package))

    folder = tmp_path / "chromium"
    script()._unpack_chromium(archive, folder)

    assert (folder / "chromium").read_bytes() == b"the program"
    assert (folder / "chromium").stat().st_mode & 0o777 == 0o755
    for files in parts.values():
        for name, content in files.items():
            assert (folder / name).read_bytes() == content
