"""The official OpenAI client, unchanged, against a running scheduler with recognising nodes."""

from __future__ import annotations

import asyncio
import io
import json
import threading
from pathlib import Path

import numpy as np
import openai
import pytest
import soundfile

from edge.live_server import Stage, play, until
from edge.openai_stage import (
    RATE,
    client,
    failing_at,
    heard,
    in_thread,
    node,
    silence,
    spoken,
    tone,
    understand,
    until_no_sessions,
    wav,
)
from lingua_node import Job, JobFailed, Result
from lingua_scheduler.edge.openai import audio, pages
from lingua_scheduler.edge.openai.audio import OpenRecording
from lingua_wire.recording import Limits
from lingua_wire.shared import InstalledModel

pytestmark = pytest.mark.store

THREE = ("alpha", "bravo", "charlie")
FILE = ("speech.wav", wav(spoken(*THREE)))
# A job that failed on the only node waits no longer than this for another.
IMPATIENT = {"jobs__pending_ms": 400, "jobs__sweep_interval_ms": 20}


def compressed(kind: str, *words: str) -> bytes:
    """Return a recording of these words in another format than WAV."""
    file = io.BytesIO()
    soundfile.write(file, np.frombuffer(spoken(*words), "int16"), RATE, format=kind)
    return file.getvalue()


def test_a_recording_is_transcribed_in_the_order_it_was_spoken() -> None:
    async def scenario(stage: Stage) -> None:
        async with node(stage):
            api = client(stage)
            found = await in_thread(api.audio.transcriptions.create, model="whisper-1", file=FILE)
            assert found.text == "alpha bravo charlie"
            assert found.usage.type == "duration"
            assert found.usage.seconds == 5
            await until_no_sessions(stage)

    play(scenario)


def test_every_response_format_is_what_the_client_expects() -> None:
    async def scenario(stage: Stage) -> None:
        async with node(stage):
            create = client(stage).audio.transcriptions.create
            given = {"model": "whisper-1", "file": FILE}
            text = await in_thread(create, response_format="text", **given)
            assert text == "alpha bravo charlie\n"
            srt = await in_thread(create, response_format="srt", **given)
            assert srt.startswith("1\n00:00:00,")
            assert "\nalpha\n" in srt
            assert srt.count(" --> ") == 3
            vtt = await in_thread(create, response_format="vtt", **given)
            assert vtt.startswith("WEBVTT\n")
            assert vtt.count(" --> ") == 3
            verbose = await in_thread(
                create, response_format="verbose_json", timestamp_granularities=["segment"], **given
            )
            assert type(verbose).__name__ == "TranscriptionVerbose"
            assert verbose.text == "alpha bravo charlie"
            assert verbose.language == "es"
            assert verbose.duration == pytest.approx(5.0, abs=0.01)
            assert [part.text for part in verbose.segments] == list(THREE)
            # Each begins no more than the kept lead before its tone, and ends after it.
            for part, at in zip(verbose.segments, (0.2, 1.8, 3.4), strict=True):
                assert at - 0.5 <= part.start <= at
                assert at + 0.6 <= part.end <= at + 1.6
            assert verbose.missing == []

    play(scenario)


def test_a_translation_goes_into_english_or_where_it_is_asked_to() -> None:
    async def scenario(stage: Stage) -> None:
        async with node(stage):
            create = client(stage).audio.translations.create
            plain = await in_thread(create, model="whisper-1", file=FILE)
            assert plain.text == "alpha in en bravo in en charlie in en"
            german = await in_thread(
                create, model="whisper-1", file=FILE, response_format="verbose_json",
                extra_body={"target_language": "de", "source_language": "es"},
            )  # fmt: skip
            assert german.text == "alpha in de bravo in de charlie in de"
            assert german.language == "de"
            same = await in_thread(
                create, model="whisper-1", file=FILE, response_format="text",
                extra_body={"target_language": "en", "source_language": "en"},
            )  # fmt: skip
            assert same == "alpha bravo charlie\n"
            # A region makes no other language of it.
            american = await in_thread(
                create, model="whisper-1", file=FILE, extra_body={"source_language": "en-US"}
            )
            assert american.text == "alpha bravo charlie"

    play(scenario)


def test_a_node_is_asked_for_what_the_request_says() -> None:
    async def scenario(stage: Stage) -> None:
        jobs: list[Job] = []

        async def note(job: Job) -> Result:
            jobs.append(job)
            return await understand(job)

        async with node(stage, note):
            create = client(stage).audio.transcriptions.create
            given = {"model": "whisper-1", "file": FILE}
            await in_thread(create, language="ES", prompt="Alpha, Bravo", **given)
            assert {job.src_lang for job in jobs} == {"es"}
            assert jobs[0].context_text == "Alpha, Bravo"
            asked = jobs[0].pipeline
            assert (asked.use_asr, asked.use_nmt, asked.use_tts) == (True, False, False)
            jobs.clear()
            await in_thread(create, **given)
            assert {job.src_lang for job in jobs} == {"auto"}
            jobs.clear()
            # Speech follows on the end of a long hint.
            await in_thread(create, prompt="x" * 900 + " Zulu", **given)
            assert jobs[0].context_text == "x" * 795 + " Zulu"

    play(scenario)


@pytest.mark.parametrize(
    ("given", "code"),
    [("en", "en"), ("en-US", "en-us"), ("English", "en"), ("indonesian", "id"), (" fr ", "fr")],
)
def test_a_language_is_given_by_code_or_by_name(given: str, code: str) -> None:
    async def scenario(stage: Stage) -> None:
        jobs: list[Job] = []

        async def note(job: Job) -> Result:
            jobs.append(job)
            return await understand(job)

        async with node(stage, note):
            api = client(stage).audio
            file = ("a.wav", wav(spoken("alpha")))
            asked = {"model": "gpt-transcribe", "file": file, "language": given}
            await in_thread(api.transcriptions.create, **asked)
            assert [job.src_lang for job in jobs] == [code]
            into = {"source_language": "german", "target_language": given}
            await in_thread(api.translations.create, model="whisper-1", file=file, extra_body=into)
            assert (jobs[-1].src_lang, jobs[-1].tgt_lang) == ("de", code)

    play(scenario)


def test_rates_and_formats_that_are_not_ours_are_read() -> None:
    async def scenario(stage: Stage) -> None:
        async with node(stage):
            create = client(stage).audio.transcriptions.create
            for rate in (8000, 44_100, 48_000):
                file = ("a.wav", wav(spoken(*THREE, rate=rate), rate))
                found = await in_thread(create, model="whisper-1", file=file)
                assert found.text == "alpha bravo charlie", rate
            for kind in ("FLAC", "MP3", "OGG"):
                # Its name says nothing: it is found out.
                file = ("speech", compressed(kind, *THREE))
                found = await in_thread(create, model="whisper-1", file=file)
                assert found.text == "alpha bravo charlie", kind

    play(scenario)


def test_speech_without_a_pause_is_sliced_and_all_of_it_comes() -> None:
    async def scenario(stage: Stage) -> None:
        lengths: list[tuple[int, bool]] = []

        async def note(job: Job) -> Result:
            ms = len(job.audio) * 1000 // (2 * job.sample_rate)
            lengths.append((ms, job.is_max_duration_triggered))
            return Result(text_asr=f"{ms}")

        async with node(stage, note):
            # At a rate at which the bound in bytes would cut in half of the time.
            file = ("long.wav", wav(tone(300, 34_000, 48_000), 48_000))
            create = client(stage).audio.transcriptions.create
            found = await in_thread(
                create, model="whisper-1", file=file, response_format="verbose_json"
            )
            assert sum(ms for ms, _ in lengths) == 34_000
            assert all(7000 <= ms <= 10_400 for ms, is_slice in lengths if is_slice)
            assert len([1 for _, is_slice in lengths if is_slice]) >= 3
            ends = [part.end for part in found.segments]
            assert [part.start for part in found.segments] == [0.0, *ends[:-1]]
            assert ends[-1] == 34.0

    play(scenario)


def test_silence_has_no_text_and_is_no_error() -> None:
    async def scenario(stage: Stage) -> None:
        async with node(stage):
            file = ("quiet.wav", wav(silence(3000)))
            create = client(stage).audio.transcriptions.create
            assert (await in_thread(create, model="whisper-1", file=file)).text == ""
            srt = await in_thread(create, model="whisper-1", file=file, response_format="srt")
            assert srt.strip() == ""
            await until_no_sessions(stage)
            total = stage.server.instance.metrics.speech.coverage_ms_total
            assert total.labels(fate="silent").value == 6000

    play(scenario)


def test_what_no_node_can_do_is_marked_in_every_format_and_the_rest_is_told() -> None:
    async def scenario(stage: Stage) -> None:
        async with node(stage, failing_at("bravo", "UNSUPPORTED_LANGUAGE")):
            create = client(stage).audio.transcriptions.with_raw_response.create
            given = {"model": "whisper-1", "file": FILE}
            raw = await in_thread(create, **given)
            assert raw.parse().text == "alpha […] charlie"
            assert 600 <= int(raw.headers["x-lingua-missing-ms"]) <= 2200
            raw = await in_thread(create, response_format="verbose_json", **given)
            (gap,) = raw.parse().missing
            assert gap["start"] <= 1.8
            assert gap["end"] >= 2.4
            assert gap["reason"] == "UNSUPPORTED_LANGUAGE"
            text = await in_thread(create, response_format="text", **given)
            assert text.parse() == "alpha […] charlie\n"
            assert "x-lingua-missing-ms" in text.headers
            srt = await in_thread(create, response_format="srt", **given)
            assert "\n[…]\n" in srt.parse()
            stream = await in_thread(
                client(stage).audio.transcriptions.create, stream=True, **given
            )
            *deltas, done = await in_thread(list, stream)
            assert "".join(event.delta for event in deltas) == done.text == "alpha […] charlie"

    play(scenario)


def test_a_node_that_is_full_at_times_costs_no_word_and_doubles_none() -> None:
    async def scenario(stage: Stage) -> None:
        asked: list[str] = []

        async def full_at_first(job: Job) -> Result:
            word = heard(job.audio, job.sample_rate)
            asked.append(word)
            if asked.count(word) <= 2:
                raise JobFailed("NODE_OVERLOADED", "for the test")
            return await understand(job)

        async with node(stage, full_at_first):
            create = client(stage).audio.transcriptions.with_raw_response.create
            raw = await in_thread(create, model="whisper-1", file=FILE)
            assert raw.parse().text == "alpha bravo charlie"
            assert "x-lingua-missing-ms" not in raw.headers
            await until_no_sessions(stage)

    play(scenario, **IMPATIENT)


def test_a_part_that_nobody_ever_takes_is_an_error_and_no_text_with_a_hole() -> None:
    async def scenario(stage: Stage) -> None:
        jobs: list[Job] = []

        async def full(job: Job) -> Result:
            jobs.append(job)
            return await failing_at("bravo", "NODE_OVERLOADED")(job)

        async with node(stage, full):
            create = client(stage, max_retries=2).audio.transcriptions.create
            with pytest.raises(openai.InternalServerError) as failed:
                await in_thread(create, model="whisper-1", file=FILE)
            assert (failed.value.status_code, failed.value.code) == (503, "part_not_processed")
            assert "could not be processed: pending_timeout" in failed.value.message
            # The official client did not send the recording again.
            assert len({job.session_id for job in jobs}) == 1
            stream = await in_thread(create, model="whisper-1", file=FILE, stream=True)
            with pytest.raises(openai.APIError) as broken:
                await in_thread(list, stream)
            assert broken.value.code == "part_not_processed"
            await until_no_sessions(stage)

    play(scenario, **IMPATIENT)


def test_nothing_but_failures_is_an_error_that_is_not_tried_again() -> None:
    async def scenario(stage: Stage) -> None:
        jobs: list[Job] = []

        async def refuse(job: Job) -> Result:
            jobs.append(job)
            return await failing_at("alpha", "UNSUPPORTED_LANGUAGE")(job)

        async with node(stage, refuse):
            create = client(stage, max_retries=2).audio.transcriptions.create
            file = ("a.wav", wav(spoken("alpha")))
            with pytest.raises(openai.InternalServerError) as failed:
                await in_thread(create, model="whisper-1", file=file)
            assert failed.value.code == "nothing_could_be_processed"
            assert failed.value.status_code == 503
            assert len({job.session_id for job in jobs}) == 1
            await until_no_sessions(stage)

    play(scenario)


def test_a_stream_gives_each_utterance_as_it_is_done_and_then_all() -> None:
    async def scenario(stage: Stage) -> None:
        release = asyncio.Event()

        async def one_by_one(job: Job) -> Result:
            if heard(job.audio, job.sample_rate) != "alpha":
                await release.wait()
            return await understand(job)

        async with node(stage, one_by_one):
            create = client(stage).audio.transcriptions.create
            stream = await in_thread(create, model="whisper-1", file=FILE, stream=True)
            events = iter(stream)
            first = await in_thread(next, events)
            assert (first.type, first.delta) == ("transcript.text.delta", "alpha")
            release.set()
            rest = await in_thread(list, events)
            assert [event.type for event in rest] == ["transcript.text.delta"] * 2 + [
                "transcript.text.done"
            ]
            assert "".join(event.delta for event in (first, *rest[:2])) == rest[-1].text
            assert rest[-1].text == "alpha bravo charlie"
            await until_no_sessions(stage)

    play(scenario)


def test_a_stream_that_fails_raises_in_the_client() -> None:
    async def scenario(stage: Stage) -> None:
        async with node(stage, failing_at("alpha", "UNSUPPORTED_LANGUAGE")):
            create = client(stage).audio.transcriptions.create
            file = ("a.wav", wav(spoken("alpha")))
            stream = await in_thread(create, model="whisper-1", file=file, stream=True)
            with pytest.raises(openai.APIError) as failed:
                await in_thread(list, stream)
            assert failed.value.code == "nothing_could_be_processed"
            await until_no_sessions(stage)

    play(scenario)


def test_models_are_the_known_names_and_what_nodes_declare() -> None:
    async def scenario(stage: Stage) -> None:
        models = (InstalledModel(model_id="whisper-base", kind="asr"),)
        async with node(stage, models=models):
            api = client(stage)
            found = await in_thread(lambda: list(api.models.list()))
            assert found[0].id == "whisper-1"
            assert "whisper-base" in [model.id for model in found]
            one = await in_thread(api.models.retrieve, "whisper-base")
            assert (one.id, one.object, one.owned_by) == ("whisper-base", "model", "node")
            with pytest.raises(openai.NotFoundError) as failed:
                await in_thread(api.models.retrieve, "no-such-model")
            assert failed.value.code == "model_not_found"
            text = await in_thread(api.audio.transcriptions.create, model="whisper-base", file=FILE)
            assert text.text == "alpha bravo charlie"

    play(scenario)


def test_the_asynchronous_client_works_too() -> None:
    async def scenario(stage: Stage) -> None:
        async with node(stage):
            api = openai.AsyncOpenAI(base_url=f"{stage.server.url}/v1", api_key="x", max_retries=0)
            async with api:
                found = await asyncio.gather(
                    *(
                        api.audio.transcriptions.create(
                            model="whisper-1", file=("a.wav", wav(spoken(word)))
                        )
                        for word in THREE
                    )
                )
            assert [one.text for one in found] == list(THREE)

    play(scenario)


def test_a_client_that_gives_up_ends_its_session_and_its_jobs_and_is_no_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(stage: Stage) -> None:
        cancelled: list[str] = []

        async def never(job: Job) -> Result:
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.append(job.job_id)
            raise AssertionError

        async with node(stage, never):
            create = client(stage, timeout=0.7).audio.transcriptions.create
            for stream in (False, True):
                cancelled.clear()
                ask = {"model": "whisper-1", "file": FILE, "stream": stream}
                with pytest.raises(openai.APITimeoutError):
                    await in_thread(lambda ask=ask: list(create(**ask)))
                await until(lambda: cancelled, "the node was told to drop the job")
                await until_no_sessions(stage)

    play(scenario)
    assert not caplog.records


def test_a_node_that_is_lost_costs_nothing() -> None:
    async def scenario(stage: Stage) -> None:
        begun = asyncio.Event()

        async def hang(_: Job) -> Result:
            begun.set()
            await asyncio.Event().wait()
            raise AssertionError

        async with node(stage, hang, "doomed") as doomed:
            create = client(stage).audio.transcriptions.create
            asked = asyncio.create_task(in_thread(create, model="whisper-1", file=FILE))
            await begun.wait()
            async with node(stage, understand, "healthy"):
                doomed.stop()
                assert (await asked).text == "alpha bravo charlie"

    play(scenario)


def test_a_busy_fleet_loses_nothing_of_a_recording() -> None:
    """Each utterance waits for its turn outside the queue, whose patience is short."""

    async def scenario(stage: Stage) -> None:
        async def slowly(job: Job) -> Result:
            await asyncio.sleep(0.25)
            return await understand(job)

        words = ("alpha", "bravo", "charlie", "delta", "echo", "foxtrot")
        async with node(stage, slowly, max_jobs=1):
            create = client(stage).audio.transcriptions.with_raw_response.create
            file = ("a.wav", wav(spoken(*words)))
            raw = await in_thread(create, model="whisper-1", file=file)
            assert raw.parse().text == " ".join(words)
            assert "x-lingua-missing-ms" not in raw.headers

    play(scenario, **IMPATIENT)


def test_a_stopping_instance_asks_for_the_recording_again() -> None:
    async def scenario(stage: Stage) -> None:
        begun = asyncio.Event()

        async def slowly(job: Job) -> Result:
            begun.set()
            await asyncio.sleep(0.3)
            return await understand(job)

        async with node(stage, slowly, max_jobs=1):
            create = client(stage).audio.transcriptions.create
            asked = asyncio.create_task(in_thread(create, model="whisper-1", file=FILE))
            await begun.wait()
            draining = asyncio.create_task(stage.server.drain())
            with pytest.raises(openai.InternalServerError) as failed:
                await asked
            assert failed.value.code == "going_away"
            assert failed.value.response.headers["retry-after"] == "1"
            await draining

    play(scenario, server__drain_ms=5000)


def test_the_document_has_the_routes() -> None:
    async def scenario(stage: Stage) -> None:
        found = await in_thread(
            lambda: client(stage)._client.get(f"{stage.server.url}/api/v1/openapi.json").json()
        )
        paths = found["paths"]
        body = paths["/v1/audio/transcriptions"]["post"]["requestBody"]["content"]
        ref = body["multipart/form-data"]["schema"]["$ref"]
        fields = found["components"]["schemas"][ref.rpartition("/")[2]]
        assert {"file", "model", "language", "response_format"} <= set(fields["properties"])
        assert fields["required"] == ["file", "model"]
        assert set(paths["/v1/models/{id}"]["get"]["responses"]) >= {"200", "401", "404"}
        assert json.dumps(found).count("ApiErrorAnswer") > 5

    play(scenario)


def test_a_client_that_reads_nothing_of_its_stream_is_let_go(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(pages, "UNREAD_S", 0.3)

    async def scenario(stage: Stage) -> None:
        async def at_length(_: Job) -> Result:
            return Result(text_asr="x" * 60_000)

        async with node(stage, at_length, max_jobs=8):
            # More text than the system keeps for a socket that is not read.
            body, head = encoded({"model": b"whisper-1", "stream": b"true"}, spoken("alpha") * 160)
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", stage.server.port, limit=1024
            )
            reader._transport.pause_reading()
            writer.write(head + body)
            await until(lambda: stage.server.instance.sessions, "it is heard")
            await until_no_sessions(stage)
            await until(lambda: stage.server.front.connections == 1, "only the node is there")
            writer.close()

    play(scenario)
    assert not caplog.records


def encoded(fields: dict[str, bytes], pcm: bytes) -> tuple[bytes, bytes]:
    """Return the body and the head of an upload as they are on the wire."""
    parts = b"".join(
        b"--xyz\r\nContent-Disposition: form-data; name=%s\r\n\r\n%s\r\n" % (name.encode(), value)
        for name, value in fields.items()
    )
    file = b"--xyz\r\nContent-Disposition: form-data; name=file; filename=a\r\n\r\n" + wav(pcm)
    body = parts + file + b"\r\n--xyz--\r\n"
    head = (
        b"POST /v1/audio/transcriptions HTTP/1.1\r\nHost: localhost\r\n"
        b"Content-Type: multipart/form-data; boundary=xyz\r\nContent-Length: %d\r\n\r\n"
    )
    return body, head % len(body)


def test_a_wav_file_does_not_wait_for_others_to_be_decoded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def held(path: Path, limits: Limits) -> OpenRecording:
        begun.set()
        go_on.wait()
        return audio.decode(path, limits)

    monkeypatch.setattr(pages, "decode", held)

    async def scenario(stage: Stage) -> None:
        async with node(stage):
            create = client(stage).audio.transcriptions.create
            file = ("a.flac", compressed("FLAC", "bravo"))
            slow = asyncio.create_task(in_thread(create, model="whisper-1", file=file))
            try:
                await until(begun.is_set, "one is decoded")
                assert (await in_thread(create, model="whisper-1", file=FILE)).text
                assert not slow.done()
            finally:
                go_on.set()
            assert (await slow).text == "bravo"

    play(scenario)
