"""Captions: readable, in order, without overlaps, and safe in each format."""

from __future__ import annotations

import html
import json
import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lingua_wire.captions import (
    LINE_COLUMNS,
    LINES_MAX,
    Caption,
    arrange,
    clean,
    columns,
    split,
    to_json,
    to_srt,
    to_vtt,
    wrap,
)

pytestmark = pytest.mark.unit

LONG = (
    "He was not an ill-disposed young man, unless to be rather cold hearted and rather selfish is "
    "to be ill-disposed: but he was, in general, well respected; for he conducted himself with "
    "propriety in the discharge of his ordinary duties."
)
TIME = r"(\d{2,}):(\d\d):(\d\d)[,.](\d{3})"


def blocks_of(srt: str) -> list[tuple[int, int, int, list[str]]]:
    """Read SubRip as a player does: number, start, end, lines."""
    found = []
    for block in srt.strip().split("\n\n") if srt.strip() else []:
        number, times, *lines = block.split("\n")
        match = re.fullmatch(f"{TIME} --> {TIME}", times)
        assert match is not None, times
        hour, minute, second, ms, *rest = map(int, match.groups())
        start = ((hour * 60 + minute) * 60 + second) * 1000 + ms
        hour, minute, second, ms = rest
        found.append((int(number), start, ((hour * 60 + minute) * 60 + second) * 1000 + ms, lines))
    return found


def test_a_caption_becomes_a_numbered_block_with_its_times() -> None:
    captions = [Caption(1234, 3_723_004, "Hello."), Caption(3_723_004, 3_724_000, "You?", "Ana")]
    assert to_srt(captions) == (
        "1\n00:00:01,234 --> 01:02:03,004\nHello.\n\n2\n01:02:03,004 --> 01:02:04,000\nAna: You?\n"
    )


def test_webvtt_has_a_note_and_voices_and_nothing_in_it_is_taken_for_markup() -> None:
    captions = [Caption(0, 900, "a --> b <i>&", "Ana <x>")]
    assert to_vtt(captions, "en to es -->\n\nby hand") == (
        "WEBVTT\n\nNOTE en to es -> by hand\n\n"
        "00:00:00.000 --> 00:00:00.900\n<v Ana &lt;x&gt;>a --&gt; b &lt;i&gt;&amp;\n"
    )


def test_an_arrow_in_a_text_does_not_look_like_a_time_in_subrip() -> None:
    assert "a -> b" in to_srt([Caption(0, 900, "a --> b")])


def test_no_captions_are_still_a_file() -> None:
    assert to_srt([]) == ""
    assert to_vtt([]) == "WEBVTT\n"
    assert json.loads(to_json([])) == {"language": "", "captions": []}


def test_empty_captions_are_left_out() -> None:
    captions = [Caption(0, 10, " \n\t"), Caption(5, 10, "\x00\x07"), Caption(20, 30, "here")]
    assert [(start, lines) for _, start, _, lines in blocks_of(to_srt(captions))] == [
        (20, ["here"])
    ]
    assert [row["text"] for row in json.loads(to_json(captions))["captions"]] == ["here"]


def test_json_keeps_a_long_caption_whole_with_its_own_times() -> None:
    found = json.loads(to_json([Caption(10.6, 20_000.4, LONG, "Ana")], "en"))
    row = {"start_ms": 11, "end_ms": 20_000, "text": LONG, "speaker": "Ana"}
    assert found == {"language": "en", "captions": [row]}


def test_a_long_caption_is_shown_in_parts_for_as_long_as_each_takes_to_say() -> None:
    parts = split(Caption(1000, 13_000, LONG))
    assert len(parts) == 3
    assert (parts[0].start_ms, parts[-1].end_ms) == (1000, 13_000)
    assert all(one.end_ms == other.start_ms for one, other in pairwise(parts))
    assert " ".join(part.text for part in parts).split() == LONG.split()
    for part in parts:
        share = columns(part.text.replace("\n", "")) / columns(LONG)
        assert part.end_ms - part.start_ms == pytest.approx(12_000 * share, abs=300)


def test_lines_are_about_even_rather_than_one_full_and_one_with_a_word() -> None:
    text = "This sentence is only a little longer than a line"
    assert wrap(text, LINE_COLUMNS) == ["This sentence is only a", "little longer than a line"]


def test_chinese_is_broken_between_its_signs_and_not_before_a_stop() -> None:
    text = "這是一個很長的句子，沒有空格，但是應該在適當的地方換行，因為字幕太長會看不清楚。"  # noqa: RUF001
    lines = wrap(text, LINE_COLUMNS)
    assert "".join(lines) == text
    assert len(lines) == 2
    assert all(columns(line) <= LINE_COLUMNS for line in lines)
    assert not any(line[0] in text[9] + text[-1] for line in lines)


def test_a_word_longer_than_a_line_is_broken() -> None:
    lines = wrap("a " + "x" * 100, LINE_COLUMNS)
    assert "".join(lines).count("x") == 100
    assert all(columns(line) <= LINE_COLUMNS for line in lines)


def test_a_caption_ends_when_the_next_begins_but_is_seen_before() -> None:
    shown = arrange([Caption(0, 4000, "one"), Caption(3000, 5000, "two"), Caption(3001, 6000, "3")])
    assert [(caption.start_ms, caption.end_ms) for caption in shown] == [
        (0, 3000),
        (3000, 3500),
        (3500, 6000),
    ]


def test_times_before_the_beginning_or_without_length_are_mended() -> None:
    assert blocks_of(to_srt([Caption(-50, -10, "x")])) == [(1, 0, 500, ["x"])]


texts = st.text(st.characters(codec="utf-8"), max_size=300)
captions = st.builds(
    Caption,
    start_ms=st.floats(-1000, 1e7),
    end_ms=st.floats(-1000, 1e7),
    text=texts,
    speaker=st.sampled_from(["", "Ana"]),
)


@given(st.lists(captions, max_size=8))
def test_whatever_is_said_is_shown_once_in_order_and_fits(given_captions: list[Caption]) -> None:
    shown = arrange(given_captions)
    assert all(caption.start_ms < caption.end_ms for caption in shown)
    assert all(one.end_ms <= other.start_ms for one, other in pairwise(shown))
    for caption in shown:
        lines = caption.text.split("\n")
        assert all(lines)
        assert all(columns(line) <= LINE_COLUMNS for line in lines)
        is_crowded = caption.end_ms - caption.start_ms == 1
        assert len(lines) <= LINES_MAX or is_crowded
    said = sorted("".join(clean(caption.text).split()) for caption in given_captions)
    letters = sorted("".join(said))
    assert sorted("".join("".join(caption.text.split()) for caption in shown)) == letters


@given(st.lists(captions, max_size=5))
def test_a_player_reads_back_what_was_written(given_captions: list[Caption]) -> None:
    shown = arrange(given_captions)
    blocks = blocks_of(to_srt(given_captions))
    assert [number for number, *_ in blocks] == list(range(1, len(shown) + 1))
    assert [(start, end) for _, start, end, _ in blocks] == [
        (caption.start_ms, caption.end_ms) for caption in shown
    ]
    head, *cues = to_vtt(given_captions).strip().split("\n\n")
    assert head == "WEBVTT"
    for cue, caption in zip(cues, shown, strict=True):
        times, _, text = cue.partition("\n")
        assert re.fullmatch(f"{TIME} --> {TIME}", times)
        assert "-->" not in text
        assert html.unescape(re.sub("^<v Ana>", "", text)) == caption.text


def test_a_hundred_hours_of_captions_are_arranged_in_their_time() -> None:
    text = "the quick brown fox jumps over the lazy dog and then says what it means " * 2
    said = [Caption(3000 * at, 3000 * at + 2500, text) for at in range(5000)]
    assert to_srt(said).count("-->") == 10_000
