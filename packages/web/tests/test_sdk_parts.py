"""The pure parts of the browser SDK, in a real browser: what they do with their input."""

from __future__ import annotations

import itertools
import math
from array import array
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.browser


def run(page: Page, module: str, source: str, given: object = None) -> Any:
    """Run a function of a module and what the test gives it."""
    return page.evaluate(
        f"""async (given) => {{
        const part = await import("/sdk/{module}");
        return await ({source})(part, given);
    }}""",
        given,
    )


# MessagePack


VALUES: list[Any] = [
    None, True, False, 0, 1, 127, 128, 255, 256, 65535, 65536, 2**32 - 1, 2**32, 1_700_000_000_000,
    2**53 - 1, -1, -32, -33, -128, -129, -(2**31), -(2**31) - 1, -(2**53) + 1, 0.5, -1.25, "", "a",
    "ñ" * 15, "é" * 200, "世" * 30_000, [], [1] * 15, [1] * 16, {}, {"a": {"b": [{"c": "d"}]}},
    {f"field {number}": number for number in range(20)},
]  # fmt: skip


def test_what_is_encoded_is_what_the_server_reads(page: Page) -> None:
    made = run(page, "message-pack.js", "(part, given) => given.map((v) => [...part.encode(v)])",
               VALUES)  # fmt: skip
    assert [msgspec.msgpack.decode(bytes(one)) for one in made] == VALUES


def test_what_the_server_sends_is_what_is_read(page: Page) -> None:
    sent = [list(msgspec.msgpack.encode(value)) for value in VALUES]
    read = run(page, "message-pack.js",
               "(part, sent) => sent.map((v) => part.decode(new Uint8Array(v)))", sent)  # fmt: skip
    assert read == VALUES


def test_bytes_stay_bytes_and_fields_without_a_value_are_left_out(page: Page) -> None:
    made = run(page, "message-pack.js", """(part) => [...part.encode({
        payload: new Uint8Array(70000).fill(7), token: undefined, name: null,
        is_final: false})]""")  # fmt: skip
    read = msgspec.msgpack.decode(bytes(made))
    assert read == {"payload": b"\7" * 70_000, "is_final": False}
    size = run(page, "message-pack.js", """(part, given) => {
        const read = part.decode(new Uint8Array(given));
        return [read.audio instanceof Uint8Array, read.audio.length];
    }""", list(msgspec.msgpack.encode({"audio": b"x" * 300})))  # fmt: skip
    assert size == [True, 300]


@pytest.mark.parametrize(
    "broken",
    [[], [0xA5, 0x61], [0x92, 1], [0xC1], [1, 2], [0xA1, 0xFF], [0xC6, 255, 255, 255, 255]],
)
def test_a_broken_message_is_refused(page: Page, broken: list[int]) -> None:
    said = run(page, "message-pack.js", """(part, given) => {
        try { part.decode(new Uint8Array(given)); } catch (error) { return error.name; }
        return "none";
    }""", broken)  # fmt: skip
    assert said in ("RangeError", "TypeError")


def test_a_field_named_like_a_prototype_is_only_a_field(page: Page) -> None:
    sent = list(msgspec.msgpack.encode({"__proto__": {"polluted": True}}))
    said = run(page, "message-pack.js",
               "(part, given) => [part.decode(new Uint8Array(given)).polluted, ({}).polluted]",
               sent)  # fmt: skip
    assert said == [None, None]


# Audio


@pytest.mark.parametrize("rate", [16_000, 44_100, 48_000, 96_000, 8_000])
def test_a_tone_keeps_its_pitch_and_level_at_any_rate(page: Page, rate: int) -> None:
    made = run(page, "resampler.js", """(part, rate) => {
        const resampler = new part.Resampler(rate);
        const tone = Float32Array.from({length: rate}, (_, n) => Math.sin(2*Math.PI*440*n/rate)/2);
        const made = [];
        for (let from = 0; from < tone.length; from += 128) {
            made.push(...resampler.push(tone.subarray(from, from + 128)));
        }
        return made;
    }""", rate)  # fmt: skip
    assert 16_000 - 40 <= len(made) <= 16_000
    middle = made[2_000:14_000]
    rises = sum(a < 0 <= b for a, b in itertools.pairwise(middle))
    assert abs(rises - 440 * 0.75) <= 2
    assert math.sqrt(sum(x * x for x in middle) / len(middle)) == pytest.approx(0.3535, abs=0.01)


def test_what_16_khz_cannot_carry_is_damped_not_folded(page: Page) -> None:
    made = run(page, "resampler.js", """(part) => {
        const pitch = 2 * Math.PI * 11000 / 48000;
        const tone = Float32Array.from({length: 48000}, (_, n) => Math.sin(pitch * n));
        return [...new part.Resampler(48000).push(tone)];
    }""")  # fmt: skip
    assert max(abs(sample) for sample in made[1000:-1000]) < 0.01


def test_pieces_of_any_length_give_the_same_samples(page: Page) -> None:
    whole, pieces = run(page, "resampler.js", """(part) => {
        const noise = Float32Array.from({length: 4410}, (_, n) => Math.sin(n * n / 900));
        const whole = [...new part.Resampler(44100).push(noise)];
        const resampler = new part.Resampler(44100), pieces = [];
        for (let at = 0, size = 1; at < noise.length; at += size, size = size % 97 + 1) {
            pieces.push(...resampler.push(noise.subarray(at, at + size)));
        }
        return [whole, pieces];
    }""")  # fmt: skip
    assert pieces == pytest.approx(whole, abs=1e-5)
    assert len(pieces) == len(whole)


def test_samples_become_pcm16_and_loud_ones_are_clipped(page: Page) -> None:
    made = run(page, "resampler.js", """(part) =>
        [...part.toPcm16(Float32Array.of(0, 1, -1, 2, -2, 0.5))]""")  # fmt: skip
    assert made == [0, 32767, -32768, 32767, -32768, 16384]
    sent = list(array("h", [0, 16384, -32768]).tobytes())
    back = run(page, "resampler.js", "(part, g) => [...part.fromPcm16(new Uint8Array(g))]", sent)
    assert back == [0, 0.5, -1]


def test_voice_is_told_from_the_quiet_of_a_room(page: Page) -> None:
    said = run(page, "microphone.js", """(part) => {
        const guess = new part.VoiceGuess();
        const levels = [...Array(20).fill(0.004), ...Array(5).fill(0.1), ...Array(20).fill(0.004)];
        return levels.map((level, n) => guess.push(level, n * 100));
    }""")  # fmt: skip
    assert said[:20] == [False] * 20
    # It lasts over a short pause, not for ever.
    assert said[20:30] == [True] * 10
    assert not any(said[35:])


# What is kept, sent again and counted


def test_chunks_are_kept_until_their_utterance_is_answered(page: Page) -> None:
    said = run(page, "replay-buffer.js", """({ ReplayBuffer }) => {
        const buffer = new ReplayBuffer(1000), said = [];
        const seqs = () => { const made = [];
            for (let c = buffer.nextUnsent(); c; c = buffer.nextUnsent()) made.push(c.seq);
            return made; };
        for (let n = 0; n < 4; n++) buffer.add(new Uint8Array(10), n === 3);
        said.push(seqs());
        buffer.accept(1, 20, 0, false);
        said.push([buffer.firstSeq, buffer.openSeq, buffer.unacceptedBytes]);
        buffer.rewind(2); said.push(seqs());          // another instance has what was accepted
        buffer.rewind(0); said.push(seqs());          // a store that lost it all
        buffer.accept(1, 20, 0, false); buffer.markAnswered(0);
        said.push([buffer.firstSeq, buffer.audioMs, buffer.size]);
        buffer.accept(3, 40, 1, true);
        said.push([buffer.firstSeq, buffer.nextSeq, buffer.size]);
        return said;
    }""")  # fmt: skip
    assert said == [[0, 1, 2, 3], [0, 2, 20], [2, 3], [0, 1, 2, 3], [2, 20, 20], [4, 4, 0]]


def test_accepted_audio_makes_room_before_new_speech_is_refused(page: Page) -> None:
    said = run(page, "replay-buffer.js", """({ ReplayBuffer }) => {
        const buffer = new ReplayBuffer(30);
        for (let n = 0; n < 3; n++) buffer.add(new Uint8Array(10), false);
        const before = buffer.isFull;
        buffer.accept(0, 10, 0, false);
        return [before, buffer.isFull, buffer.firstSeq];
    }""")  # fmt: skip
    assert said == [True, False, 1]


def test_an_outcome_counts_once(page: Page) -> None:
    said = run(page, "outcome-tracker.js", """({ OutcomeTracker }) => {
        const tracker = new OutcomeTracker(2);
        tracker.beginSession("e1");
        const one = (epoch, seq, index, lang = "es", who = "me") => tracker.record(
            { epoch, seq, utterance_index: index, tgt_lang: lang, session_id: who });
        return [one("e1", 1, 0), one("e1", 1, 0), one("e1", 2, 0, "de"), one("e2", 1, 0),
            one("e2", 2, 1), tracker.duplicates, tracker.isAhead("me", 1), tracker.isAhead("me", 2),
            tracker.isAhead("you", 0), tracker.recordAccepted(0, 500), tracker.openMs,
            tracker.recordAnswer(0), tracker.recordAnswer(0), tracker.openMs];
    }""")  # fmt: skip
    assert said == [
        True, False, True, False, True, 2, False, True, True, False, 500, False, True, 0,
    ]  # fmt: skip


# What is spoken


def test_speech_is_played_in_order_and_parts_are_not_said_twice(page: Page) -> None:
    said = run(page, "speech-queue.js", """({ SpeechQueue }) => {
        const queue = new SpeechQueue(), said = [], bytes = (...of) => Uint8Array.from(of);
        const take = () => { const next = queue.take();
            said.push(next && [next.key, ...next.bytes]); };
        queue.addPart("a", 0, 1, bytes(1, 2)); take(); take();
        queue.complete("b", bytes(9));
        queue.addPart("a", 1, 1, bytes(3)); queue.addPart("a", 1, 1, bytes(3)); take();
        queue.complete("a", bytes(1, 2, 3, 4)); take(); take(); take();
        queue.addPart("c", 0, 1, bytes(1)); queue.addPart("c", 0, 2, bytes(7)); take();
        queue.complete("c", bytes(7, 8)); take(); take();
        queue.complete("d", bytes(5)); queue.complete("d", bytes(5)); take(); take();
        return said;
    }""")  # fmt: skip
    assert said == [
        ["a", 1, 2], None, ["a", 3], ["a", 4], ["b", 9], None,
        ["c", 7], ["c", 8], None, ["d", 5], None,
    ]  # fmt: skip


def test_what_is_skipped_stays_skipped(page: Page) -> None:
    said = run(page, "speech-queue.js", """({ SpeechQueue }) => {
        const queue = new SpeechQueue(), bytes = (...of) => Uint8Array.from(of), said = [];
        queue.addPart("a", 0, 1, bytes(1)); queue.take(); queue.skip();
        queue.addPart("a", 1, 1, bytes(2)); queue.complete("a", bytes(1, 2, 3));
        queue.complete("b", bytes(4));
        said.push(queue.take()?.key, queue.take(), queue.length);
        queue.complete("c", bytes(1)); queue.complete("d", bytes(1)); queue.skip(true);
        said.push(queue.length);
        return said;
    }""")  # fmt: skip
    assert said == ["b", None, 0, 0]


# Captions


def test_an_event_stream_is_read_in_pieces_of_any_length(page: Page) -> None:
    said = run(page, "caption-feed.js", r"""({ EventStreamParser }) => {
        const text = ": hello\n\nid: 7\nevent: caption\ndata: {\"a\":\ndata: 1}\n\nevent: end\r\n" +
            "data\r\n\r\ndata: x\n\nevent: lost\n";
        return [1, 3, 1000].map((size) => {
            const events = [], parser = new EventStreamParser((event) => events.push(event));
            for (let at = 0; at < text.length; at += size) parser.push(text.slice(at, at + size));
            return events;
        });
    }""")  # fmt: skip
    expected = [
        {"type": "caption", "data": '{"a":\n1}', "id": "7"},
        {"type": "end", "data": "", "id": "7"},
        {"type": "message", "data": "x", "id": "7"},
    ]
    assert said == [expected] * 3


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("https://host.example/some/page", "wss://host.example/ws/session"),
        ("http://127.0.0.1:5010", "ws://127.0.0.1:5010/ws/session"),
        ("wss://host.example/other", "wss://host.example/other"),
    ],
)
def test_the_address_of_the_service_is_enough(page: Page, given: str, expected: str) -> None:
    assert run(page, "session.js", "(part, given) => part.socketUrl(given)", given) == expected
