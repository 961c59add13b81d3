"""Listening with the default engines: the job is done by what was heard, as well as without it.

Needs `lingua models install bench`. `lingua bench speech --captions` has figures.
"""

from __future__ import annotations

import asyncio
import itertools

import pytest

from engine_node import JobSource, done, metric, run, until
from lingua_bench.speech import live_captions
from lingua_bench.speech.material import librivox
from lingua_node import Job, Stream
from lingua_speech.assembly import Assembly
from lingua_speech.listening import listener
from lingua_speech.listening.agreement import plain
from lingua_speech.listening.listener import UtteranceListener
from lingua_speech.models import default_store
from lingua_speech.presets import plan_of
from lingua_speech.sound import FRAME_MS
from lingua_wire.from_node import FromNode, StreamPartial

pytestmark = pytest.mark.speech

PIECE_BYTES = 32 * 200


async def spoken(node: Assembly, stream: Stream, pcm: bytes) -> None:
    """Speak as fast as the node listens, however fast that is: a pass for each piece that is due.

    The next piece comes when all before it were heard and the listener waits for more.
    """
    found = node.listener()._listening_to(stream)
    assert found is not None
    utterance = UtteranceListener(node.calls, stream, found)
    listening = asyncio.create_task(utterance.run())

    def waits_for_more() -> bool:
        has_heard_all = len(stream.audio) / 32 - utterance._ear.heard_ms < FRAME_MS
        # What its task waits for right now, which no public method tells.
        waits_for = listening._fut_waiter  # type: ignore[attr-defined]
        return has_heard_all and waits_for in utterance._news._waiters  # type: ignore[attr-defined]

    for at in range(0, len(pcm), PIECE_BYTES):
        stream.add(pcm[at : at + PIECE_BYTES])
        await until(waits_for_more, "the pass")
    stream.cut(None)
    assert await listening == "ended"
    assert (metric(node, "stream_passes_total", outcome="done") or 0.0) >= 3


def test_what_was_heard_is_the_result_and_stable_words_do_not_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Slow passes become rarer, but not by this clock: on a busy machine there are as many.
    monkeypatch.setattr(listener, "monotonic", lambda: 0.0)

    async def scenario() -> None:
        one = live_captions.utterance_of(librivox(default_store())[0])
        pcm = one.pcm[: 32 * int(one.end_ms + 400)]
        sent: list[FromNode] = []
        async with Assembly(plan_of(["default"])) as node:
            stream = Stream(live_captions.opening_of(one, ("en", "es")), sent.append)
            await spoken(node, stream, pcm)
            job: Job = JobSource().job(audio=pcm)
            job.stream = stream
            result = await done(node, job)
            assert metric(node, "head_starts_total", outcome="used") == 1
            without = await done(node, JobSource().job(audio=pcm, session_id="s2"))
        assert result.text_asr == without.text_asr
        assert result.text_translated == without.text_translated
        assert result.tts_audio
        partials = [message for message in sent if isinstance(message, StreamPartial)]
        assert len(partials) >= 3
        for before, after in itertools.pairwise(partials):
            assert after.stable.startswith(before.stable)
        # Most of it was stable before the end.
        stable = {plain(word) for word in partials[-1].stable.split()}
        final = [plain(word) for word in result.text_asr.split()]
        assert sum(word in stable for word in final) >= 0.8 * len(final)
        assert partials[-1].translations[0].tgt_lang == "es"

    run(scenario())
