"""Bad requests to the OpenAI surface, each with its exact error; access and limits."""

from __future__ import annotations

import asyncio
import io
import json
from typing import Any

import aiohttp
import openai
import pytest

from edge.live_server import Stage, play, until
from edge.openai_stage import client, in_thread, node, spoken, understand, until_no_sessions, wav
from lingua_node import Job, Result
from lingua_scheduler.auth.tokens import TokenKeys
from lingua_scheduler.secret import Secret

pytestmark = pytest.mark.store

CLIENT_KEY, NODE_KEY = "client-key-" + "c" * 32, "node-key-" + "n" * 32
KEYS = TokenKeys([Secret(CLIENT_KEY)], [Secret(NODE_KEY)])
WITH_KEYS = {"auth__client_keys": json.dumps([CLIENT_KEY])}
SPEECH = wav(spoken("alpha"))
TRANSCRIBE, TRANSLATE = "/v1/audio/transcriptions", "/v1/audio/translations"

Fields = dict[str, Any]
GOOD: Fields = {"model": "whisper-1", "file": SPEECH}
# What is changed of a good request, where it goes -> status, code, param.
BAD: list[tuple[str, Fields, int, str, str | None]] = [
    (TRANSCRIBE, {"model": None}, 400, "missing_required_parameter", "model"),
    (TRANSCRIBE, {"model": " "}, 400, "missing_required_parameter", "model"),
    (TRANSCRIBE, {"model": "nobody"}, 404, "model_not_found", "model"),
    (TRANSCRIBE, {"file": None}, 400, "missing_required_parameter", "file"),
    (TRANSCRIBE, {"file": None, "audio": SPEECH}, 400, "missing_required_parameter", "file"),
    (TRANSCRIBE, {"file": b""}, 400, "empty_file", "file"),
    (TRANSCRIBE, {"file": b"this is no audio at all" * 9}, 400, "invalid_audio", "file"),
    (TRANSCRIBE, {"file": b"RIFF\0\0\0\0WAVE"}, 400, "invalid_audio", "file"),
    (TRANSCRIBE, {"file": SPEECH[:-2000]}, 400, "invalid_audio", "file"),
    (TRANSCRIBE, {"file": SPEECH[:30]}, 400, "invalid_audio", "file"),
    (TRANSCRIBE, {"language": "not a language"}, 400, "invalid_language", "language"),
    (TRANSCRIBE, {"response_format": "docx"}, 400, "invalid_value", "response_format"),
    (TRANSCRIBE, {"response_format": "diarized_json"}, 400, "invalid_value", "response_format"),
    (TRANSCRIBE, {"temperature": "hot"}, 400, "invalid_value", "temperature"),
    (TRANSCRIBE, {"temperature": "1.5"}, 400, "invalid_value", "temperature"),
    (TRANSCRIBE, {"temperature": "nan"}, 400, "invalid_value", "temperature"),
    (TRANSCRIBE, {"stream": "maybe"}, 400, "invalid_value", "stream"),
    (TRANSCRIBE, {"stream": "true", "response_format": "srt"}, 400, "unsupported_value", "stream"),
    (TRANSLATE, {"stream": "true"}, 400, "unsupported_value", "stream"),
    (TRANSLATE, {"target_language": "auto"}, 400, "invalid_language", "target_language"),
    (TRANSLATE, {"source_language": "!"}, 400, "invalid_language", "source_language"),
    (TRANSCRIBE, {"timestamp_granularities[]": "word"}, 400, "invalid_value",
     "timestamp_granularities"),
    (TRANSCRIBE, {"timestamp_granularities[]": "word", "response_format": "verbose_json"}, 400,
     "unsupported_value", "timestamp_granularities"),
    (TRANSCRIBE, {"timestamp_granularities[]": "day", "response_format": "verbose_json"}, 400,
     "invalid_value", "timestamp_granularities"),
    (TRANSCRIBE, {"prompt": "x" * 70_000}, 400, "string_too_long", "prompt"),
    (TRANSCRIBE, {"prompt": b"\xff\xfe"}, 400, "invalid_value", "prompt"),
    (TRANSCRIBE, {f"more-{n}": "x" for n in range(70)}, 400, "too_many_fields", None),
]  # fmt: skip


def form(fields: Fields) -> aiohttp.FormData:
    made = aiohttp.FormData(default_to_multipart=True)
    for name, value in fields.items():
        if name == "file" and value is not None:
            made.add_field(name, value, filename="a.wav", content_type="audio/wav")
        elif value is not None:
            given = io.BytesIO(value) if isinstance(value, bytes) else value
            made.add_field(name, given, content_type="text/plain")
    return made


async def post(stage: Stage, path: str, **more: Any) -> tuple[int, dict[str, Any], Any]:
    """Return status, error (or the answer) and headers of one request."""
    async with aiohttp.request("POST", f"{stage.server.url}{path}", **more) as answer:
        body = await answer.json()
        if "error" in body:
            assert set(body) == {"error"}
            assert set(body["error"]) == {"message", "type", "param", "code"}
            assert body["error"]["message"]
            return answer.status, body["error"], answer.headers
        return answer.status, body, answer.headers


def test_each_bad_field_has_its_own_error_and_leaves_nothing_behind() -> None:
    async def scenario(stage: Stage) -> None:
        async with node(stage):
            for path, change, status, code, param in BAD:
                found, error, _ = await post(stage, path, data=form(GOOD | change))
                shown = {name: str(value)[:40] for name, value in change.items()}
                assert (found, error["code"], error["param"]) == (status, code, param), shown
                assert error["type"] == "invalid_request_error"
            # Passed over whatever it is: another model's field may be long.
            for unknown in ("field", "x" * 200_000, b"\xff\xfe"):
                data = form(GOOD | {"known_speaker_references[]": unknown})
                status, _, _ = await post(stage, TRANSCRIBE, data=data)
                assert status == 200
            await until_no_sessions(stage)

    play(scenario)


def test_bodies_that_are_no_forms_are_refused() -> None:
    boundary = {"Content-Type": "multipart/form-data; boundary=xyz"}
    bodies: list[tuple[dict[str, str], bytes, str]] = [
        ({"Content-Type": "application/json"}, b"{}", "invalid_content_type"),
        ({"Content-Type": "multipart/form-data"}, b"abc", "invalid_multipart"),
        (boundary, b"not a form", "invalid_multipart"),
        (boundary, b"--xyz\r\nContent-Disposition: form-data; name=model\r\n\r\nwhisper-1",
         "invalid_multipart"),
        (boundary, b"--xyz\r\nno head at all\r\n\r\nx\r\n--xyz--\r\n", "invalid_multipart"),
        (boundary, b"--xyz\r\nX: " + b"y" * 20_000 + b"\r\n\r\nx\r\n--xyz--\r\n",
         "invalid_multipart"),
        (boundary, b"--xyz\r\n\xff: \0\r\n\r\nx\r\n--xyz--\r\n", "invalid_multipart"),
        (boundary, b"--xyz--\r\n", "missing_required_parameter"),
        (boundary, b"", "invalid_multipart"),
    ]  # fmt: skip

    async def scenario(stage: Stage) -> None:
        for headers, body, code in bodies:
            status, error, _ = await post(stage, TRANSCRIBE, data=body, headers=headers)
            assert (status, error["code"]) == (400, code), body

    play(scenario)


def test_paths_and_methods_that_are_none_are_told_as_such() -> None:
    async def scenario(stage: Stage) -> None:
        with pytest.raises(openai.NotFoundError) as failed:
            await in_thread(client(stage).chat.completions.create, model="x", messages=[])
        assert failed.value.code == "not_found"
        async with aiohttp.request("GET", f"{stage.server.url}{TRANSCRIBE}") as answer:
            assert answer.status == 405
            assert answer.headers["Allow"] == "POST"
            assert (await answer.json())["error"]["code"] == "method_not_allowed"

    play(scenario)


def test_a_language_that_nobody_serves_is_told_as_such() -> None:
    async def scenario(stage: Stage) -> None:
        create = client(stage).audio.translations.create
        with pytest.raises(openai.InternalServerError) as failed:
            await in_thread(create, model="whisper-1", file=("a.wav", SPEECH))
        assert (failed.value.status_code, failed.value.code) == (503, "language_not_served")
        async with node(stage, pairs=["es>en"]):
            asked = {"model": "whisper-1", "file": ("a.wav", SPEECH)}
            found = await in_thread(create, **asked)
            assert found.text == "alpha in en"
            with pytest.raises(openai.InternalServerError) as failed:
                await in_thread(create, extra_body={"target_language": "ja"}, **asked)
            assert failed.value.code == "language_not_served"
            assert failed.value.response.headers["retry-after"] == "5"
            transcribe = client(stage).audio.transcriptions.create
            with pytest.raises(openai.InternalServerError) as failed:
                await in_thread(transcribe, language="ja", **asked)
            assert failed.value.code == "language_not_served"
            await until_no_sessions(stage)

    play(scenario)


def test_a_file_that_is_too_large_or_too_long_is_refused() -> None:
    async def scenario(stage: Stage) -> None:
        status, error, _ = await post(stage, TRANSCRIBE, data=form(GOOD))
        assert (status, error["code"], error["param"]) == (413, "file_too_large", "file")
        assert "40000" in error["message"]

        async def chunks() -> Any:
            yield b"--xyz\r\nContent-Disposition: form-data; name=file; filename=a\r\n\r\n"
            for _ in range(1000):
                yield bytes(1000)

        headers = {"Content-Type": "multipart/form-data; boundary=xyz"}
        status, error, _ = await post(stage, TRANSCRIBE, data=chunks(), headers=headers)
        assert (status, error["code"]) == (413, "file_too_large")
        long = wav(bytes(2 * 8000 * 2), 8000)
        status, error, _ = await post(stage, TRANSCRIBE, data=form(GOOD | {"file": long}))
        assert (status, error["code"], error["param"]) == (400, "audio_too_long", "file")
        create = client(stage).audio.transcriptions.create
        with pytest.raises(openai.APIStatusError) as failed:
            await in_thread(create, model="whisper-1", file=("a.wav", SPEECH))
        assert failed.value.status_code == 413

    play(scenario, openai__upload_bytes_max=40_000, openai__max_duration_ms=1000)


def test_too_many_recordings_at_once_are_asked_to_come_back() -> None:
    async def scenario(stage: Stage) -> None:
        begun, go_on = asyncio.Event(), asyncio.Event()

        async def wait(job: Job) -> Result:
            begun.set()
            await go_on.wait()
            return await understand(job)

        async with node(stage, wait):
            asked = {"model": "whisper-1", "file": ("a.wav", SPEECH)}
            create = client(stage).audio.transcriptions.create
            first = asyncio.create_task(in_thread(create, **asked))
            await begun.wait()
            with pytest.raises(openai.RateLimitError) as failed:
                await in_thread(create, **asked)
            assert failed.value.code == "rate_limit_exceeded"
            assert failed.value.response.headers["retry-after"] == "2"
            # The client's own patience is enough: it comes back when the first is done.
            patient = client(stage, max_retries=4).audio.transcriptions.create
            second = asyncio.create_task(in_thread(patient, **asked))
            go_on.set()
            assert (await first).text == (await second).text == "alpha"

    play(scenario, openai__requests_max=1)


def test_an_answer_that_takes_too_long_is_an_error() -> None:
    async def scenario(stage: Stage) -> None:
        async def never(_: Job) -> Result:
            await asyncio.Event().wait()
            raise AssertionError

        async with node(stage, never):
            create = client(stage, max_retries=2).audio.transcriptions.create
            with pytest.raises(openai.InternalServerError) as failed:
                await in_thread(create, model="whisper-1", file=("a.wav", SPEECH))
            assert (failed.value.status_code, failed.value.code) == (504, "processing_timeout")
            await until_no_sessions(stage)

    play(scenario, openai__answer_ms=300, openai__answer_factor=0)


def test_an_upload_that_breaks_off_leaves_no_place_taken() -> None:
    async def scenario(stage: Stage) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", stage.server.port)
        writer.write(
            b"POST /v1/audio/transcriptions HTTP/1.1\r\nHost: localhost\r\n"
            b"Content-Type: multipart/form-data; boundary=xyz\r\nContent-Length: 100000\r\n\r\n"
            b"--xyz\r\nContent-Disposition: form-data; name=file; filename=a\r\n\r\n" + bytes(5000)
        )
        await writer.drain()
        front = stage.server.front
        await until(lambda: front.connections == 1, "it is connected")
        writer.close()
        await until(lambda: front.connections == 0, "it is gone")
        del reader
        async with node(stage):
            status, _, _ = await post(stage, TRANSCRIBE, data=form(GOOD))
            assert status == 200

    play(scenario)


def test_who_may_ask_is_decided_by_the_token() -> None:
    def token(**grant: Any) -> str:
        return KEYS.issue_client(**grant).reveal()

    expired = TokenKeys([Secret(CLIENT_KEY)], [], clock=lambda: 1e9).issue_client().reveal()

    async def scenario(stage: Stage) -> None:
        async with node(stage):
            asked = {"model": "whisper-1", "file": ("a.wav", SPEECH)}
            for key in ("sk-anything", "x", expired):
                api = client(stage, key)
                for call in (api.models.list, lambda api=api: api.models.retrieve("whisper-1")):
                    with pytest.raises(openai.AuthenticationError) as failed:
                        await in_thread(call)
                    assert failed.value.code == "invalid_api_key"
                with pytest.raises(openai.AuthenticationError):
                    await in_thread(api.audio.transcriptions.create, **asked)
            listener = client(stage, token(scopes=("listen",)))
            with pytest.raises(openai.PermissionDeniedError) as denied:
                await in_thread(listener.audio.transcriptions.create, **asked)
            assert denied.value.code == "insufficient_permissions"
            spanish = client(stage, token(languages=("es", "en"), tenant="acme"))
            found = await in_thread(spanish.audio.translations.create, **asked)
            assert found.text == "alpha in en"
            with pytest.raises(openai.PermissionDeniedError):
                await in_thread(spanish.audio.transcriptions.create, language="fr", **asked)
            with pytest.raises(openai.PermissionDeniedError):
                await in_thread(
                    spanish.audio.translations.create, extra_body={"target_language": "fr"}, **asked
                )
            await until_no_sessions(stage)

    play(scenario, **WITH_KEYS)


def test_a_request_for_a_secret_that_is_no_good_json_is_told_as_such() -> None:
    deep = b'{"session": {"model": "whisper-1", "x": ' + b"[" * 5000

    async def scenario(stage: Stage) -> None:
        for body in (b"", b"[]", b"\xff", deep, deep + b"]" * 5000 + b"}}"):
            status, error, _ = await post(
                stage, "/v1/realtime/translations/client_secrets", data=body,
                headers={"Content-Type": "application/json"},
            )  # fmt: skip
            assert (status, error["code"]) == (400, "invalid_json"), body[:50]

    play(scenario)


def test_a_recording_of_a_tenant_is_a_session_of_that_tenant() -> None:
    async def scenario(stage: Stage) -> None:
        instance, tenants = stage.server.instance, []

        async def note(job: Job) -> Result:
            tenants.append(instance.sessions[job.session_id].record.tenant)
            return await understand(job)

        async with node(stage, note):
            api = client(stage, KEYS.issue_client(tenant="acme").reveal())
            asked = {"model": "whisper-1", "file": ("a.wav", SPEECH)}
            await in_thread(api.audio.transcriptions.create, **asked)
            assert tenants == ["acme"]

    play(scenario, **WITH_KEYS)


def test_a_page_of_elsewhere_may_not_send_recordings() -> None:
    async def scenario(stage: Stage) -> None:
        for headers in ({"Origin": "https://evil.example"}, {"Host": "evil.example"}):
            status, error, _ = await post(stage, TRANSCRIBE, data=form(GOOD), headers=headers)
            assert (status, error["code"]) == (403, "insufficient_permissions"), headers

    play(scenario)


def test_a_secret_for_a_browser_allows_no_more_than_its_maker() -> None:
    async def scenario(stage: Stage) -> None:
        maker = KEYS.issue_client(
            tenant="acme", subject="shop", languages=("en", "es"), ttl_s=60
        ).reveal()
        api = client(stage, maker).realtime.translations.client_secrets
        session: Any = {"model": "gpt-realtime-translate", "audio": {"output": {"language": "es"}}}
        made = await in_thread(api.create, session=session, expires_after={"seconds": 30})
        grant = KEYS.read_client(made.value)
        assert (grant.tenant, grant.languages, grant.scopes) == ("acme", ("en", "es"), {"speak"})
        assert made.session.audio.output.language == "es"
        assert abs(grant.expires_at - made.expires_at) <= 2
        # It only lets somebody begin: what has begun may last as long as its maker's token.
        assert grant.holds_until == KEYS.read_client(maker).expires_at > grant.expires_at
        assert grant.subject == "shop"
        longest = await in_thread(api.create, session=session)
        own = KEYS.read_client(maker).expires_at
        assert KEYS.read_client(longest.value).expires_at <= own + 1
        for bad, param in (
            ({"session": {}}, "session.model"),
            ({"session": session, "expires_after": {"seconds": 5}}, "expires_after.seconds"),
            ({"session": {"model": "x", "audio": {"output": {"language": "!"}}}},
             "session.audio.output.language"),
        ):  # fmt: skip
            with pytest.raises(openai.BadRequestError) as failed:
                await in_thread(api.create, **bad)
            assert failed.value.param == param
        with pytest.raises(openai.PermissionDeniedError):
            await in_thread(
                api.create, session={"model": "x", "audio": {"output": {"language": "fr"}}}
            )

    play(scenario, **WITH_KEYS)
