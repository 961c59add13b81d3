"""Text that passes every translation unchanged."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lingua_speech.engines import sentences
from lingua_speech.routing.protected import is_whole, mask, parts, restore, stand_ins

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    "piece",
    [
        "https://example.com/a?b=1&c=2",
        "www.example.org",
        "example.com/path",
        "bob.smith+tag@mail.example.co.uk",
        "@maria_99",
        "#tag",
        "x**2",
        "snake_case_name",
        "+1 555 123 4567",
        "8837261",
        "XQ7",
        "/usr/share/doc",
        "😀😀",
        "русский текст",
        "C++",
        "a" * 80,
    ],
)
def test_such_a_piece_is_replaced_and_comes_back(piece: str) -> None:
    text = f"Look at {piece} now, please."
    masked = mask(text, "en")
    assert masked.text == "Look at XQ1 now, please."
    assert masked.kept == (piece,)
    assert restore("Mire XQ1 ahora.", masked.kept) == f"Mire {piece} ahora."


@pytest.mark.parametrize(
    "text",
    [
        "I was born in 1987.",
        "It costs $1,234.50 for 3 items, about 10%.",
        "Press 1 for sales; press 2 for support!",
        "¿Dónde está la estación? — Aquí, señor…",
        "Mr. O'Neil's well-known “idea” isn\u2019t bad (really).",
        "Meet me at 3:30 p.m. on 12/05/2024.",
        "AT&T and R2-D2 met at No. 10.",
    ],
)
def test_plain_speech_is_left_alone(text: str) -> None:
    assert mask(text, "en") == (text, ())


def test_other_letters_are_copied_only_where_they_are_foreign() -> None:
    assert mask("我爱你", "en").kept == ("我爱你",)
    assert mask("我爱你", "zh").kept == ()


def test_what_touches_a_word_is_set_apart() -> None:
    masked = mask("hello😀world", "en")
    assert masked.text == "hello XQ1 world"
    assert mask("5😀5 😀😀", "en").text == "5 XQ1 5 XQ2"


@pytest.mark.parametrize("text", ["[⒜", "*😀", "see =😀 here"])
def test_two_pieces_that_touch_are_both_restored(text: str) -> None:
    masked = mask(text, "en")
    assert stand_ins(masked.text) == [1, 2]
    assert restore(masked.text, masked.kept).replace(" ", "") == text.replace(" ", "")


def test_stand_ins_are_counted() -> None:
    assert stand_ins("XQ2 and xq10, not XQX1") == [2, 10]
    assert is_whole("XQ1 a XQ2", "b XQ2, XQ1.")
    assert not is_whole("XQ1 a", "b")
    assert not is_whole("XQ1 a", "XQ1 XQ1 b")
    assert not is_whole("a", "XQ1 b")
    assert parts("Write to XQ1 or XQ2, please.") == ["Write to", "XQ1", "or", "XQ2", ", please."]


def test_a_number_that_stands_for_nothing_stays() -> None:
    assert restore("XQ9 XQ0 XQ1", ("a",)) == "XQ9 XQ0 a"


@given(st.text(max_size=200), st.sampled_from(["en", "zh", "es"]))
def test_any_text_comes_back_whole(text: str, language: str) -> None:
    plain = sentences.plain(text)
    masked = mask(plain, language)
    assert restore(masked.text, masked.kept).replace(" ", "") == plain.replace(" ", "")


@pytest.mark.parametrize(
    ("text", "masked", "kept"),
    [
        (
            "请发邮件到info@example.com或者打电话。",
            "请发邮件到XQ1或者打电话。",
            ("info@example.com",),
        ),
        ("我在学C++编程很难。", "我在学XQ1编程很难。", ("C++",)),
        ("号码是8837261。", "号码是XQ1。", ("8837261",)),
        ("今天" * 60, "今天" * 60, ()),
    ],
)
def test_without_spaces_a_piece_ends_where_the_script_begins_again(
    text: str, masked: str, kept: tuple[str, ...]
) -> None:
    found = mask(text, "zh")
    assert found == (masked, kept)
    assert restore(found.text, found.kept) == text
