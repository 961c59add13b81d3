"""Responses for a recording: joined texts, captions, segments, missing parts. No server."""

from __future__ import annotations

import json

import pytest

from lingua_scheduler.edge.openai.answers import RecordingResult, joined, render, spaced
from lingua_scheduler.edge.openai.form import RecordingRequest
from lingua_scheduler.runtime.file_session import FileUtterance
from lingua_wire.language_names import are_same

pytestmark = pytest.mark.unit

PARTS = (
    FileUtterance(0, 1500, " hola ", "hello", "es"),
    FileUtterance(1500, 2000),
    FileUtterance(2000, 3000, missing="JOB_TIMEOUT"),
    FileUtterance(3000, 4200, "mundo", "world", "es"),
    FileUtterance(4200, 4500, "yes", "yes", "en"),
)


def told(**wish: object) -> RecordingResult:
    return RecordingResult(
        RecordingRequest(**{"model": "whisper-1", "source": "auto", **wish}), PARTS, 4500
    )


@pytest.mark.parametrize(
    ("texts", "whole"),
    [
        ([], ""),
        (["", "a", "", "b"], "a b"),
        (["Hello.", "World."], "Hello. World."),
        (["你好。", "世界"], "你好。世界"),
        (["こんにちは", "世界"], "こんにちは世界"),
        (["hello", "世界"], "hello 世界"),
        (["สวัสดี", "โลก"], "สวัสดีโลก"),
        (["안녕", "세계"], "안녕 세계"),
    ],
)
def test_texts_are_joined_as_their_script_is_written(texts: list[str], whole: str) -> None:
    assert joined(texts) == whole


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [("en", "en", True), ("en-us", "en", True), ("zh", "zh-hant-tw", True),
     ("zh-cn", "zh-tw", False), ("es", "est", False), ("auto", "en", False)],
)  # fmt: skip
def test_a_region_makes_no_other_language_but_two_regions_do(
    one: str, other: str, same: bool
) -> None:
    assert are_same(one, other) is are_same(other, one) is same


def test_deltas_carry_their_own_space() -> None:
    assert spaced("", "one") == "one"
    assert spaced("one", "two") == " two"
    assert spaced("一", "二") == "二"


def test_plain_json_has_the_text_and_what_is_missing() -> None:
    body, kind = render(told())
    assert kind == "application/json"
    assert json.loads(body) == {
        "text": "hola […] mundo yes",
        "usage": {"type": "duration", "seconds": 5},
        "missing": [{"start": 2.0, "end": 3.0, "reason": "JOB_TIMEOUT"}],
    }
    whole = RecordingResult(RecordingRequest(model="m", source="es"), PARTS[:2], 2000)
    assert "missing" not in json.loads(render(whole)[0])


def test_verbose_json_has_a_segment_for_each_text_and_the_language_of_the_longest_speech() -> None:
    body = json.loads(render(told(format="verbose_json", temperature=0.4))[0])
    assert (body["task"], body["language"], body["duration"]) == ("transcribe", "es", 4.5)
    assert [(part["id"], part["start"], part["end"]) for part in body["segments"]] == [
        (0, 0.0, 1.5), (1, 2.0, 3.0), (2, 3.0, 4.2), (3, 4.2, 4.5),
    ]  # fmt: skip
    assert {part["temperature"] for part in body["segments"]} == {0.4}
    translated = json.loads(render(told(format="verbose_json", target="en"))[0])
    assert (translated["task"], translated["language"]) == ("translate", "en")
    assert translated["text"] == "hello […] world yes"
    nothing = RecordingResult(
        RecordingRequest(model="m", source="auto", format="verbose_json"), (), 100
    )
    assert json.loads(render(nothing)[0])["language"] == "und"


def test_captions_have_what_has_text_and_what_is_missing() -> None:
    srt, kind = render(told(format="srt"))
    assert kind == "text/plain; charset=utf-8"
    assert srt.decode().splitlines()[:3] == ["1", "00:00:00,000 --> 00:00:01,500", "hola"]
    assert srt.decode().count("-->") == 4
    assert "00:00:02,000 --> 00:00:03,000\n[…]\n" in srt.decode()
    vtt, kind = render(told(format="vtt", target="en"))
    assert kind == "text/vtt; charset=utf-8"
    assert "00:00:03.000 --> 00:00:04.200\nworld" in vtt.decode()
    assert render(told(format="text"))[0].decode() == "hola […] mundo yes\n"


def test_what_is_missing_is_measured() -> None:
    assert told().missing_ms == 1000
