"""Language codes in their canonical form."""

from __future__ import annotations

import pytest

from lingua_wire.errors import InvalidLanguage
from lingua_wire.languages import base_of, language, understands

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("code", "expected"),
    [("zh", "zh"), ("EN", "en"), ("pt-BR", "pt-br"), ("zh_Hant_TW", "zh-hant-tw"), ("fil", "fil")],
)
def test_a_code_is_brought_into_its_one_form(code: str, expected: str) -> None:
    assert language(code) == expected


NO_LANGUAGES = (
    "",
    "a",
    "auto",
    "Auto",
    "*",
    "zh>en",
    "zh,en",
    "zh|x",
    "zh en",
    "zh\n",
    "-zh",
    "zh-",
    "z1",
)


@pytest.mark.parametrize(
    "code",
    [*NO_LANGUAGES, "a" * 9, "en-a-b-c-d", "x" * 100_000],
    ids=lambda code: code[:12],
)
def test_an_invalid_language_is_refused_in_few_words(code: str) -> None:
    with pytest.raises(InvalidLanguage, match="not a language code") as caught:
        language(code)
    assert len(str(caught.value)) < 100


def test_a_region_is_an_addition() -> None:
    assert base_of("en-us") == "en"
    assert understands(("en",), "en-us")
    assert not understands(("en-us",), "en")
    assert understands(None, "en")
    assert not understands((), "en")
