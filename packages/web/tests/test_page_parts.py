"""The pure parts of the pages, in a real browser: QR codes, saved subtitles, languages."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.browser

LINK = "https://lingua.example/room/483920"
GUEST = f"{LINK}#token={'abcDEF0123456789._-' * 14}"


def run(page: Page, module: str, source: str, given: object = None) -> Any:
    """Run a function of a module of the pages and what the test gives it."""
    script = f"""async (given) => {{
        const part = await import("/assets/app/{module}");
        return await ({source})(part, given);
    }}"""
    return page.evaluate(script, given)


# The matrices of an independent generator (python-qrcode 8, same text, mask and level).
VECTORS = [
    ("http://127.0.0.1:5010/room/123456", 0, 3,
     "d1c9aa99ae1b6dd98ae66be7405011595ea08d2acd715973d4bb2d2b7c9ff8ef"),
    (LINK, 3, 3, "374c5f42512a893ae68dc15078177689bc044761b47936c8aba1ecdfbaaabb17"),
    ("x", 1, 1, "3597dfe51bab975ee911935017dcd5b801ce2d4def707f4faf3b237370a7e1e6"),
    ("ñ世", 7, 1, "042fd83dfc4525f17fb68c61f7c8d4739b3fcea009fef4e5f8bcf1d23d461937"),
    (GUEST, 2, 13, "25073fbb61f66e5d1e7e77e88920e7415337ca39f1b0ccde75f426a6acd5059e"),
    ("y" * 150, 4, 8, "c43de0e036fc8ce62ab354169301504ae816febf475a17a239f03c5f35fc8011"),
    ("z" * 500, 5, 17, "3d86ad82f1de6fffb50c5476bdc835984da9e4345dda68431c6f0188bde8d885"),
    ("w" * 1300, 6, 30, "6f4b82201d75aaf839eda562f03bd77c0027928adb5e91654e0510bda1049ad0"),
    ("v" * 1600, 1, 29,
     "c71e30cabec25575ffd6342e3f7bb3cde9e3829580a2cf3db68c9d03c3001c42"),
    (LINK, None, 3, "f91a75e27a38d168654f1c1da8f602b3a21338c12f5a8c309475156304542ab4"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "mask", "version", "digest"), VECTORS)
def test_a_qr_code_is_that_of_another_generator(
    page: Page, text: str, mask: int | None, version: int, digest: str
) -> None:
    rows = run(
        page,
        "qr.js",
        """(part, [text, mask]) => part.qrMatrix(text, mask === null ? {} : { mask })
            .map((row) => row.map(Number).join(""))""",
        [text, mask],
    )
    assert len(rows) == version * 4 + 17
    assert hashlib.sha256("\n".join(rows).encode()).hexdigest() == digest


def test_a_text_that_no_qr_code_holds_is_refused(page: Page) -> None:
    said = run(
        page,
        "qr.js",
        "(part) => { try { part.qrMatrix('x'.repeat(5000)); } catch (e) { return e.name; } }",
    )
    assert said == "RangeError"


def test_subtitles_follow_each_other_and_hold_no_line_that_breaks_them(page: Page) -> None:
    made = run(
        page,
        "transcript.js",
        """({ HeardText }) => {
        const heard = new HeardText();
        const broken = "Uno\\n\\n--> dos";
        heard.add({ original: "One", translation: broken, atMs: 10_000, durationMs: 2000 });
        heard.add({ speaker: "Ann", original: "Two", translation: "Dos", atMs: 10_500 });
        heard.add({ original: "Three", atMs: 3_675_000, durationMs: 1500 });
        return ["srt", "vtt", "txt"].map((format) => heard.as(format));
    }""",
    )
    assert made[0] == (
        "1\n00:00:00,000 --> 00:00:02,000\nUno → dos\n\n"
        "2\n00:00:02,000 --> 00:00:03,000\nAnn: Dos\n\n"
        "3\n01:01:05,500 --> 01:01:07,000\nThree\n"
    )
    assert made[1].startswith("WEBVTT\n\n1\n00:00:00.000 --> 00:00:02.000\n")
    assert made[2] == "One\n    Uno\n\n--> dos\n\nAnn: Two\n    Dos\n\nThree\n"


@pytest.mark.parametrize(
    ("typed", "found"),
    [
        ("span", ["es"]), ("ESPA", ["es"]), ("deut", ["de"]), ("fr", ["fr"]), ("中", ["zh"]),
        ("", ["de", "es", "fr", "zh"]), ("xyz", []), ("franca", ["fr"]),
    ],
)  # fmt: skip
def test_a_language_is_found_by_any_of_its_names(page: Page, typed: str, found: list[str]) -> None:
    said = run(
        page,
        "languages.js",
        "(part, typed) => ['de', 'es', 'fr', 'zh'].filter((code) => part.matches(code, typed))",
        typed,
    )
    assert said == found


@pytest.mark.parametrize(
    ("wishes", "remembered", "expected"),
    [
        (["de-AT", "en"], {}, {"source": "de", "target": "en"}),
        (["pt-BR"], {}, {"source": "en", "target": "es"}),
        (["en-GB"], {}, {"source": "en", "target": "es"}),
        (["en-GB"], {"source": "es", "target": "en"}, {"source": "es", "target": "en"}),
        (["en-GB"], {"source": "es", "target": "de"}, {"source": "es", "target": "en"}),
    ],
)
def test_the_guess_is_something_that_is_served(
    page: Page, wishes: list[str], remembered: dict[str, str], expected: dict[str, str]
) -> None:
    said = run(
        page,
        "languages.js",
        """(part, [wishes, remembered]) => new part.ServedLanguages({
            pairs: ["en>es", "en>de", "es>en", "de>en"],
            languages: ["en", "es", "de"].map((code) => ({ code })),
        }).guess(wishes, remembered)""",
        [wishes, remembered],
    )
    assert said == expected
