"""The pages that people read: one width, links that lead somewhere, pictures without dependencies.

That command lines and generated parts of the pages are right is checked in `test_docs.py`, that
their programs run in `test_examples.py`.
"""

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path

import pytest

from lingua_scheduler import docs
from workspace import ROOT

pytestmark = pytest.mark.unit

PAGES = sorted(
    [*ROOT.glob("*.md"), *(ROOT / "docs").glob("**/*.md"), *ROOT.glob("packages/*/README.md")]
)
PICTURES = ROOT / "docs" / "images"
COLUMNS_MAX = 100
# Pages that are being rewritten. Remove a page from here when it is wrapped.
NOT_WRAPPED_YET: frozenset[str] = frozenset()

FENCE = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)
GENERATED = re.compile(r"^<!-- begin generated.*?<!-- end generated -->$", re.MULTILINE | re.DOTALL)
CODE_SPAN = re.compile(r"`[^`\n]+`")
# A line that is a word or a link cannot be broken. Marks of lists and quotations do not count.
UNBREAKABLE = re.compile(r"\s*(?:(?:[-*>]|\d+\.) )*(?:\S+|\[[^\]]*\]\(\S+\)\S*)")
LINK = re.compile(r"\]\(([^)\s]+)\)|\b(?:src|srcset|href)=\"([^\"]+)\"")
ELSEWHERE = re.compile(r"[a-z]+:", re.IGNORECASE)


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blanked(pattern: re.Pattern[str], text: str) -> str:
    """Empty the lines of every match, so that the others keep their numbers."""
    return pattern.sub(lambda match: "\n" * match[0].count("\n"), text)


def long_lines(text: str) -> Iterator[str]:
    """Give the lines of prose that are too long."""
    prose = blanked(GENERATED, blanked(FENCE, text))
    for number, line in enumerate(prose.splitlines(), 1):
        is_table_or_heading = line.lstrip(" >").startswith(("|", "#"))
        if len(line) > COLUMNS_MAX and not is_table_or_heading and not UNBREAKABLE.fullmatch(line):
            yield f"line {number} has {len(line)} columns"


def anchors(text: str) -> set[str]:
    """Return the names that GitHub gives the headings of a page."""
    found: set[str] = set()
    for title in re.findall(r"^#+ (.+)$", blanked(FENCE, text), re.MULTILINE):
        shown = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title).strip().lower()
        name = re.sub(r"[^\w\- ]", "", shown).replace(" ", "-")
        repeats = (f"{name}-{count}" for count in range(1, 100))
        found.add(name if name not in found else next(n for n in repeats if n not in found))
    return found


def broken_links(page: Path, text: str) -> Iterator[str]:
    """Give the links of a page to files and headings of the repository that do not exist."""
    prose = CODE_SPAN.sub("``", blanked(FENCE, text))
    for match in LINK.finditer(prose):
        link = match[1] or match[2]
        if ELSEWHERE.match(link):
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        if not target.exists():
            yield f"{link}: no such file"
        elif anchor:
            there = text if target == page else target.read_text(encoding="utf-8")
            if anchor not in anchors(there):
                yield f"{link}: no such heading"


WRAPPED = [page for page in PAGES if name_of(page) not in NOT_WRAPPED_YET | docs.PAGES.keys()]


@pytest.mark.parametrize("page", WRAPPED, ids=name_of)
def test_a_page_is_wrapped(page: Path) -> None:
    assert list(long_lines(page.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_the_links_of_a_page_lead_somewhere(page: Path) -> None:
    assert list(broken_links(page, page.read_text(encoding="utf-8"))) == []


def test_the_pages_are_found() -> None:
    names = {name_of(page) for page in PAGES}
    assert names >= {"README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/guarantees.md"}
    assert names >= {"packages/client/README.md", *docs.PAGES, *NOT_WRAPPED_YET}


LONG = "word " * 20 + "word"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (LONG, ["line 1 has 104 columns"]),
        (f"- {LONG}", ["line 1 has 106 columns"]),
        (f"```\n{LONG}\n```\n\n{LONG}", ["line 5 has 104 columns"]),
        (f"<!-- begin generated: x -->\n{LONG}\n<!-- end generated -->", []),
        (f"| {LONG} |", []),
        (f"## {LONG}", []),
        (f"  - {'w' * 120}", []),
        (f"1. [two words](https://{'w' * 120}.example).", []),
        (f"See https://{'w' * 120}.example", ["line 1 has 140 columns"]),
    ],
    ids=["prose", "list", "code", "block", "table", "heading", "word", "link", "two words"],
)
def test_a_line_of_prose_that_is_too_long_is_found(text: str, found: list[str]) -> None:
    assert list(long_lines(text)) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("# A title\n\n[here](#a-title)", []),
        ("# `lingua up [FILE]`\n\n[here](#lingua-up-file)", []),
        ("# Same\n\n# Same\n\n[second](#same-1)", []),
        ("[here](#a-title)", ["#a-title: no such heading"]),
        ("[there](other.md#there), [there](other.md)", []),
        ("[there](other.md#here)", ["other.md#here: no such heading"]),
        ("[there](missing.md)", ["missing.md: no such file"]),
        ('<img src="missing.svg">', ["missing.svg: no such file"]),
        ("`[x](missing.md)`\n\n```\n[x](missing.md)\n```", []),
        ("[web](https://example.org/#x), [mail](mailto:a@example.org)", []),
    ],
)
def test_a_broken_link_is_found(text: str, found: list[str], tmp_path: Path) -> None:
    (tmp_path / "other.md").write_text("# There\n")
    page = tmp_path / "page.md"
    page.write_text(text)
    assert list(broken_links(page, text)) == found


@pytest.mark.parametrize("picture", sorted(PICTURES.glob("*.svg")), ids=name_of)
def test_a_picture_needs_nothing_from_elsewhere(picture: Path) -> None:
    text = picture.read_text(encoding="utf-8")
    root = ET.fromstring(text)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert root.find("{http://www.w3.org/2000/svg}title") is not None, "screen readers need a title"
    used = re.findall(r"href=\"([^\"]*)\"|url\(([^)]*)\)", text)
    assert all((link or url).startswith("#") for link, url in used)
    assert not re.search(r"@import|@font-face|<script|<foreignObject", text)


def test_light_and_dark_pictures_differ_in_colours_only() -> None:
    light, dark = (
        re.sub(r"#[0-9a-f]{6}\b", "#", (PICTURES / name).read_text(encoding="utf-8"))
        for name in ("flow-light.svg", "flow-dark.svg")
    )
    assert light == dark
