"""A real voice into the page, real engines behind it: words, their translation, and its sound."""

from __future__ import annotations

import base64
import io
import json
import re
import urllib.request
import uuid
import wave
from difflib import SequenceMatcher
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from browser_stage import (
    RATE,
    chromium,
    open_page,
    problems_of,
    recording,
    service,
    spoken_file,
    until_served,
)
from lingua_process import running
from lingua_speech.models.store import default_store

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.speech

START_S = 180
SAID = (
    "And Mr. John Dashwood had then leisure to consider how much there might be prudently in his "
    "power to do for them. He was not an ill-disposed young man, unless to be rather cold-hearted "
    "and rather selfish is to be ill-disposed."
)
# Everything that goes to the loudspeaker, as samples at the rate of its context.
RECORD = """() => {
    const connect = AudioNode.prototype.connect;
    window.played = [];
    AudioNode.prototype.connect = function (target, ...more) {
        if (target instanceof AudioDestinationNode && !(this instanceof ScriptProcessorNode)) {
            window.playedRate = this.context.sampleRate;
            const ear = this.context.createScriptProcessor(4096, 1, 1);
            ear.onaudioprocess = ({ inputBuffer }) => {
                window.played.push(inputBuffer.getChannelData(0).slice());
            };
            connect.call(this, ear);
            connect.call(ear, target);
        }
        return connect.call(this, target, ...more);
    };
}"""
TAKE = """async () => {
    const { Resampler, toPcm16 } = await import("/sdk/resampler.js");
    const resampler = new Resampler(window.playedRate);
    const bytes = window.played.map((part) => new Uint8Array(toPcm16(resampler.push(part)).buffer));
    return btoa(bytes.map((part) => String.fromCharCode(...part)).join(""));
}"""


def recognised(url: str, audio: bytes, lang: str) -> str:
    """Ask the service itself what was said, as any client of its HTTP API can."""
    file = io.BytesIO()
    with wave.open(file, "wb") as sound:
        sound.setparams((1, 2, RATE, 0, "NONE", ""))
        sound.writeframes(audio)
    edge = uuid.uuid4().hex
    parts = [("model", b"whisper-1"), ("language", lang.encode()), ("file", file.getvalue())]
    body = b"".join(
        f'--{edge}\r\nContent-Disposition: form-data; name="{name}"'.encode()
        + (b'; filename="x.wav"' if name == "file" else b"")
        + b"\r\n\r\n"
        + value
        + b"\r\n"
        for name, value in parts
    )
    request = urllib.request.Request(
        f"{url}/v1/audio/transcriptions",
        data=body + f"--{edge}--\r\n".encode(),
        headers={"Content-Type": f"multipart/form-data; boundary={edge}"},
    )
    with urllib.request.urlopen(request, timeout=START_S) as answer:
        return str(json.load(answer)["text"])


def words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


def test_a_voice_is_read_in_spanish_and_heard_in_spanish(tmp_path: Path) -> None:
    default_store().install("bench")
    said = [recording(name) for name in ("0870", "0880", "0890")]
    microphone = spoken_file(tmp_path / "voice.wav", said, pause_s=0.9)
    with service(tmp_path) as scheduler:
        url = scheduler.url().replace("http", "ws", 1) + "/ws/node"
        node = ["node", "--engines", "default", "--max-jobs", "1", "--url", url]
        with running(node, tmp_path) as engines, chromium(microphone) as browser:
            engines.until("registered as", START_S)
            until_served(scheduler.url())
            page = open_page(browser, scheduler.url())
            page.evaluate(RECORD)
            page.get_by_label("Read aloud").check()
            # The recording itself is loud all the time: nothing would be said before its end.
            page.get_by_role("button", name="Settings").click()
            page.get_by_label("Be quiet while I speak").uncheck()
            page.keyboard.press("Escape")
            page.locator("#talk").click()
            expect(page.locator("#words .original").first).to_have_text(re.compile(r"\w+ \w+"))
            # It is still reading.
            assert page.locator("#rows li").count() < len(said)
            page.wait_for_function(
                "() => document.querySelectorAll('#rows li').length >= 3", timeout=START_S * 1000
            )
            page.locator("#talk").click()
            expect(page.locator("#status")).to_have_text("Stopped.", timeout=START_S * 1000)
            page.wait_for_function(
                "() => document.getElementById('skip').disabled", timeout=START_S * 1000
            )
            original = " ".join(page.locator("#rows .original").all_inner_texts())
            spanish = " ".join(page.locator("#rows .translation").all_inner_texts())
            played = base64.b64decode(page.evaluate(TAKE))
            heard = recognised(scheduler.url(), played, "es")
            assert [one for one in problems_of(page) if "ScriptProcessor" not in one] == []
    assert len(played) > 2 * RATE * 4
    # A browser that is short of time loses samples, and a word may be misheard for it.
    read = SequenceMatcher(None, words(original), words(SAID)).ratio()
    assert read > 0.8, f"shown: {original}\nsaid: {SAID}"
    likeness = SequenceMatcher(None, words(heard), words(spanish)).ratio()
    assert likeness > 0.5, f"shown: {spanish}\nheard: {heard}"
    print(f"said: {original}\nshown: {spanish}\nheard: {heard}\nlikeness {likeness:.2f}")
