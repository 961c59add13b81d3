"""Unpacking of three kinds of archives, and of hostile and damaged ones."""

from __future__ import annotations

import lzma
import tarfile
import zlib
from pathlib import Path

import pytest

from lingua_speech.models import ModelCorrupt, UnsafeArchive
from lingua_speech.models.archives import Unpacker, kind_of
from models.depot import TarEntry, ar_of, deb, deb_of, plain, symbolic, tar_of, tgz, wheel

pytestmark = pytest.mark.unit

LIMIT = 100_000


def unpacked(tmp_path: Path, archive: bytes, kind: str, take: dict[str, str] | None = None) -> Path:
    """Unpack one archive into `tree` and return the tree."""
    file = tmp_path / "archive"
    file.write_bytes(archive)
    tree = tmp_path / "tree"
    unpacker = Unpacker("m", tree, {"usr/": "root/usr/"} if take is None else take, LIMIT)
    unpacker.unpack(file, kind)
    unpacker.finish()
    return tree


def contents(tree: Path) -> dict[str, bytes]:
    return {
        path.relative_to(tree).as_posix(): path.read_bytes()
        for path in tree.rglob("*")
        if path.is_file()
    }


def hostile(*entries: TarEntry) -> bytes:
    return deb_of(tar_of(list(entries), "w"))


def test_only_what_is_taken_is_written_and_where_it_was_said(tmp_path: Path) -> None:
    archive = tgz({"package/a/x.bin": b"1", "package/b/y.txt": b"2", "package/z": b"3"})
    tree = unpacked(tmp_path, archive, "tgz", {"package/a/x.bin": "x", "package/b/": "texts/"})
    assert contents(tree) == {"x": b"1", "texts/y.txt": b"2"}


def test_a_wheel_is_unpacked(tmp_path: Path) -> None:
    tree = unpacked(tmp_path, wheel({"usr/a": b"1", "other": b"2"}), "zip")
    assert contents(tree) == {"root/usr/a": b"1"}


def test_a_debian_package_is_unpacked_with_its_links_and_programs(tmp_path: Path) -> None:
    entries = [
        plain("./usr/bin/run", b"#!", 0o755),
        plain("./usr/lib/liba.so.1.2", b"library"),
        symbolic("./usr/lib/liba.so.1", "liba.so.1.2"),
        plain("./etc/passwd", b"not taken"),
    ]
    tree = unpacked(tmp_path, hostile(*entries), "deb")
    assert contents(tree) == {
        "root/usr/bin/run": b"#!",
        "root/usr/lib/liba.so.1.2": b"library",
        "root/usr/lib/liba.so.1": b"library",
    }
    assert (tree / "root/usr/lib/liba.so.1").is_symlink()
    assert (tree / "root/usr/bin/run").stat().st_mode & 0o777 == 0o755
    assert (tree / "root/usr/lib/liba.so.1.2").stat().st_mode & 0o777 == 0o644


def test_a_debian_package_that_is_not_compressed_is_read_too(tmp_path: Path) -> None:
    tar = tar_of([plain("./usr/a", b"odd")], "w")
    assert contents(unpacked(tmp_path, deb_of(tar, "data.tar"), "deb")) == {"root/usr/a": b"odd"}


@pytest.mark.parametrize("name", ["../evil", "usr/../../evil", "/etc/evil", "usr/..\\evil"])
def test_a_path_that_leaves_the_tree_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UnsafeArchive, match="leaves the tree"):
        unpacked(tmp_path, hostile(plain(name, b"x")), "deb")
    assert not (tmp_path / "evil").exists()


def test_a_path_that_leaves_the_tree_is_refused_in_a_wheel(tmp_path: Path) -> None:
    with pytest.raises(UnsafeArchive, match="leaves the tree"):
        unpacked(tmp_path, wheel({"usr/../../evil": b"x"}), "zip")
    assert not (tmp_path / "evil").exists()


@pytest.mark.parametrize(
    ("entries", "problem"),
    [
        ([symbolic("usr/a", "/etc/passwd")], "absolute"),
        ([symbolic("usr/a", "../../../secret")], "out of the tree"),
        (
            # Lexically inside, but by then `deep/up` is the parent folder of the tree.
            [symbolic("usr/deep/up", "../.."), symbolic("usr/b", "deep/up/../../x")],
            "out of the tree",
        ),
        ([symbolic("usr/d", "sub"), symbolic("usr/d/e", "x")], "is in use already"),
        ([plain("usr/a", b"1"), symbolic("usr/a", "b")], "is in use already"),
        ([plain("usr/a", b"1"), plain("usr/a", b"2")], "occurs twice"),
        ([plain("usr/a", b"1"), plain("usr/a/b", b"2")], "is a file"),
        ([plain("usr/a", bytes(LIMIT + 1))], "more than"),
        ([plain(f"usr/{n}", bytes(LIMIT // 4)) for n in range(5)], "more than"),
    ],
)
def test_a_hostile_archive_is_refused(
    tmp_path: Path, entries: list[TarEntry], problem: str
) -> None:
    (tmp_path / "secret").write_text("mine")
    with pytest.raises(UnsafeArchive, match=problem):
        unpacked(tmp_path, hostile(*entries), "deb")
    assert (tmp_path / "secret").read_text() == "mine"


def test_nothing_is_written_through_a_link(tmp_path: Path) -> None:
    entries = [symbolic("usr/out", "../../.."), plain("usr/out/evil", b"x")]
    with pytest.raises(UnsafeArchive):
        unpacked(tmp_path, hostile(*entries), "deb")
    assert not list(tmp_path.glob("evil"))
    assert not (tmp_path.parent / "evil").exists()


@pytest.mark.parametrize("kind", [tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE])
def test_hard_links_devices_and_pipes_are_refused(tmp_path: Path, kind: bytes) -> None:
    entry = tarfile.TarInfo("usr/a")
    entry.type, entry.linkname = kind, "/etc/passwd"
    with pytest.raises(UnsafeArchive, match="neither a file nor"):
        unpacked(tmp_path, hostile((entry, b"")), "deb")


def test_too_many_files_are_refused_even_if_none_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lingua_speech.models.archives.MEMBERS_MAX", 50)
    entries = [plain(f"other/{number}", b"") for number in range(50)]
    taken = plain("usr/a", b"1")
    with pytest.raises(UnsafeArchive, match="too many"):
        unpacked(tmp_path, hostile(*entries, taken), "deb")
    assert contents(unpacked(tmp_path, hostile(*entries[1:], taken), "deb"))


@pytest.mark.parametrize(
    ("archive", "kind"),
    [
        (b"no archive at all", "tgz"),
        (b"no archive at all", "zip"),
        (b"no archive at all", "deb"),
        (b"!<arch>\n" + b"x" * 60, "deb"),
        (b"!<arch>\nshort", "deb"),
        (b"!<arch>\n", "deb"),
        # With a time in its bytes, which would be another name in each process.
        pytest.param(tgz({"usr/a": b"x" * 5000})[:-40], "tgz", id="cut-tgz"),
        (deb({"usr/a": bytes(range(256)) * 200})[:-80], "deb"),
        (deb_of(b"x", "data.tar.zst"), "deb"),
    ],
)
def test_a_damaged_archive_is_refused(tmp_path: Path, archive: bytes, kind: str) -> None:
    with pytest.raises(ModelCorrupt):
        unpacked(tmp_path, archive, kind)


def test_an_archive_that_lacks_what_is_taken_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelCorrupt, match="have no usr/b"):
        unpacked(tmp_path, deb({"usr/a": b"1"}), "deb", {"usr/a": "a", "usr/b": "b"})


def test_the_kind_of_an_archive_is_told_by_its_name() -> None:
    names = {"a.tgz": "tgz", "a.tar.gz": "tgz", "a.whl": "zip", "a_1_all.deb": "deb"}
    assert {name: kind_of(name) for name in names} == names
    with pytest.raises(ValueError, match="unknown kind"):
        kind_of("a.rar")


def test_links_in_a_circle_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsafeArchive, match="part of a loop"):
        unpacked(tmp_path, hostile(symbolic("usr/a", "b"), symbolic("usr/b", "a")), "deb")


def test_a_link_that_comes_twice_is_refused(tmp_path: Path) -> None:
    entries = [plain("usr/x", b"1"), symbolic("usr/a", "x"), symbolic("usr/a", "y")]
    with pytest.raises(UnsafeArchive, match="occurs twice"):
        unpacked(tmp_path, hostile(*entries), "deb")


def test_a_link_that_lies_in_a_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsafeArchive, match="is a file"):
        unpacked(tmp_path, hostile(plain("usr/a", b"1"), symbolic("usr/a/b", "c")), "deb")


@pytest.mark.parametrize("name", ["usr/\x1b]0;owned\x07", "usr/two\nlines", "usr/\udce9"])
def test_a_name_that_cannot_be_shown_is_refused_and_not_shown(tmp_path: Path, name: str) -> None:
    for entry in (plain(name, b"1"), symbolic("usr/a", name)):
        with pytest.raises(UnsafeArchive) as caught:
            unpacked(tmp_path, hostile(entry), "deb")
        assert str(caught.value).isprintable()


def test_what_is_skipped_is_bounded_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lingua_speech.models.archives.SKIPPED_BYTES_MAX", 1_000_000)
    bomb = [plain("other/zeros", bytes(2_000_000)), plain("usr/a", b"1")]
    for archive, kind in ((hostile(*bomb), "deb"), (tar_of(bomb, "w:gz"), "tgz")):
        with pytest.raises(UnsafeArchive, match="more than"):
            unpacked(tmp_path, archive, kind)


def test_a_package_that_wants_gigabytes_to_be_unpacked_is_refused(tmp_path: Path) -> None:
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 1 << 20}]
    packed = bytearray(lzma.compress(tar_of([plain("usr/a", b"1")], "w"), filters=filters))
    # The header of the block has the size of the window, 4 GiB instead of 1 MiB, and a CRC.
    length = (packed[12] + 1) * 4
    at = packed.index(bytes([0x21, 0x01]), 12, 12 + length)
    packed[at + 2] = 40
    packed[12 + length - 4 : 12 + length] = zlib.crc32(packed[12 : 12 + length - 4]).to_bytes(
        4, "little"
    )
    with pytest.raises(ModelCorrupt, match=r"[Mm]emory"):
        unpacked(tmp_path, ar_of({"data.tar.xz": bytes(packed)}), "deb")


@pytest.mark.parametrize("size", ["-60", "-61", "1_0", "+9", "0x10"])
def test_a_package_whose_member_has_no_plain_size_is_refused(tmp_path: Path, size: str) -> None:
    header = f"{'first':<16}{0:<12}{0:<6}{0:<6}{100644:<8}{size:<10}`\n".encode()
    with pytest.raises(ModelCorrupt, match="damaged"):
        unpacked(tmp_path, b"!<arch>\n" + header + bytes(16), "deb")


@pytest.mark.parametrize("flag", [0x20, 0x40])
def test_a_wheel_with_what_zip_can_also_do_is_refused(tmp_path: Path, flag: int) -> None:
    archive = bytearray(wheel({"usr/a": b"1"}))
    for signature, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        archive[archive.index(signature) + offset] |= flag
    with pytest.raises(ModelCorrupt, match="not supported"):
        unpacked(tmp_path, bytes(archive), "zip")


def test_a_wheel_whose_name_is_no_text_is_refused(tmp_path: Path) -> None:
    archive = wheel({"usr/é": b"1"}).replace("é".encode(), b"\xff\xff")
    with pytest.raises(ModelCorrupt):
        unpacked(tmp_path, archive, "zip")


def test_a_sparse_file_with_a_broken_map_is_refused(tmp_path: Path) -> None:
    entry, data = plain("usr/a", b"no number\n" + bytes(600))
    entry.pax_headers = {
        "GNU.sparse.major": "1",
        "GNU.sparse.minor": "0",
        "GNU.sparse.name": "usr/a",
        "GNU.sparse.realsize": "9",
    }
    with pytest.raises(ModelCorrupt):
        unpacked(tmp_path, hostile((entry, data)), "deb")


# A zip file inside archives

INNER = wheel({"skipped": b"no", "m/a.bin": bytes(range(256)) * 8, "m/b": b"b", "rest": b"r" * 500})
BEGIN = INNER.index(b"PK\x03\x04", 1)


def in_wheels(tmp_path: Path, *pieces: bytes, name: str = "p/all.zip.{}") -> list[tuple[Path, str]]:
    """Write archives with one piece of the zip file in each."""
    files = []
    for at, piece in enumerate(pieces):
        files.append((tmp_path / f"{at}.whl", "zip"))
        files[-1][0].write_bytes(wheel({"p/__init__.py": b"", name.format(at): piece}))
    return files


def unpacked_inner(
    tmp_path: Path, archives: list[tuple[Path, str]], take: dict[str, str], skip: int = 0
) -> Path:
    unpacker = Unpacker("m", tmp_path / "tree", take, LIMIT)
    unpacker.unpack_inner(archives, "p/all.zip.*", skip)
    unpacker.finish()
    return tmp_path / "tree"


TAKE = {"m/a.bin": "a.bin", "m/b": "kept/b"}
TAKEN = {"a.bin": bytes(range(256)) * 8, "kept/b": b"b"}


@pytest.mark.parametrize("cut", [1, 50, 300, 10**6])
def test_what_is_taken_from_a_zip_file_in_pieces_is_whole(tmp_path: Path, cut: int) -> None:
    pieces = [INNER[at : at + cut] for at in range(0, len(INNER), cut)][:400]
    pieces[-1:] = [INNER[(len(pieces) - 1) * cut :]]
    tree = unpacked_inner(tmp_path, in_wheels(tmp_path, *pieces), TAKE)
    assert contents(tree) == TAKEN
    assert sorted(path.name for path in tmp_path.iterdir() if path.suffix != ".whl") == ["tree"]


def test_of_a_folder_everything_is_taken_up_to_the_end(tmp_path: Path) -> None:
    tree = unpacked_inner(tmp_path, in_wheels(tmp_path, INNER[:90], INNER[90:]), {"m/": ""})
    assert contents(tree) == {"a.bin": TAKEN["a.bin"], "b": b"b"}


def test_pieces_before_and_after_what_is_taken_are_not_needed(tmp_path: Path) -> None:
    middle = INNER[BEGIN - 9 : INNER.index(b"rest") + 2]
    archives = in_wheels(tmp_path, middle[:40], middle[40:])
    assert contents(unpacked_inner(tmp_path, archives, TAKE, 9)) == TAKEN


def test_a_zip_file_in_a_tarball_is_read_too(tmp_path: Path) -> None:
    (tmp_path / "s.tgz").write_bytes(tgz({"p/other": b"x", "p/all.zip.0": INNER}))
    tree = unpacked_inner(tmp_path, [(tmp_path / "s.tgz", "tgz")], TAKE)
    assert contents(tree) == TAKEN


@pytest.mark.parametrize(
    ("pieces", "name", "why"),
    [
        ([INNER[:200]], "p/all.zip.{}", "cut short"),
        ([INNER[:200], INNER[201:]], "p/all.zip.{}", "cannot unpack"),
        ([INNER[1:]], "p/all.zip.{}", "not a zip file"),
        ([INNER], "p/other.{}", "has no file that matches"),
    ],
)
def test_a_zip_file_that_is_not_whole_is_told(
    tmp_path: Path, pieces: list[bytes], name: str, why: str
) -> None:
    with pytest.raises(ModelCorrupt, match=why):
        unpacked_inner(tmp_path, in_wheels(tmp_path, *pieces, name=name), TAKE)


def test_what_the_zip_file_does_not_have_is_told(tmp_path: Path) -> None:
    with pytest.raises(ModelCorrupt, match="the archives have no m/c"):
        unpacked_inner(tmp_path, in_wheels(tmp_path, INNER), {**TAKE, "m/c": "c"})


def test_paths_and_sizes_of_the_zip_file_are_bounded_as_all_others(tmp_path: Path) -> None:
    with pytest.raises(UnsafeArchive, match="leaves the tree"):
        unpacked_inner(tmp_path, in_wheels(tmp_path, wheel({"../x": b""})), TAKE)
    big = wheel({"m/a.bin": bytes(LIMIT + 1)})
    with pytest.raises(UnsafeArchive, match="unpacks to more than"):
        unpacked_inner(tmp_path, in_wheels(tmp_path, big), TAKE)


def test_a_bomb_is_one_also_where_nothing_of_it_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lingua_speech.models.archives.SKIPPED_BYTES_MAX", 1000)
    bomb = in_wheels(tmp_path, bytes(LIMIT + 2000))
    with pytest.raises(UnsafeArchive, match="unpacks to more than"):
        unpacked_inner(tmp_path, bomb, TAKE, LIMIT + 1500)
