"""Engines that are servers with OpenAI's API: requests, answers, errors, and the key's safety."""

from __future__ import annotations

import json
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from lingua_scheduler.errors import ConfigError
from lingua_scheduler.extras import install_command
from lingua_scheduler.speech import plugins
from lingua_scheduler.speech.engine import (
    Engine,
    EngineError,
    Hint,
    ModelMissing,
    Sound,
    Stopped,
    Unwatched,
)
from lingua_scheduler.speech.engines.openai_server import make_asr, make_mt, make_tts
from lingua_scheduler.speech.engines.openai_server.mouth import wav
from lingua_scheduler.speech.engines.openai_server.names import code_of, name_of
from lingua_scheduler.speech.plugins import Spec
from speech.engines.openai_api import KEY, Answer, Api, api_server
from speech.engines.watches import WantedFor

pytestmark = pytest.mark.unit

# Engines of the test that runs; closed when it ends.
OPEN: list[Engine] = []

SECOND = Sound(b"\x10\x20" * 16_000, 16_000)


@pytest.fixture(name="api", scope="module")
def one_server() -> Iterator[Api]:
    with api_server() as api:
        yield api


@pytest.fixture(autouse=True)
def fresh(api: Api, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TEST_SPEECH_KEY", KEY)
    api.requests.clear()
    api.peers.clear()
    api.answers.clear()
    api.has_verbose, api.language, api.wav_size = True, "spanish", None
    yield
    while OPEN:
        OPEN.pop().close()


def made(role: str, api: Api, **options: str) -> Engine:
    models = {"asr": "whisper-1", "mt": "gpt", "tts": "tts-1"}
    given = {"url": api.url, "model": models[role], "key_env": "TEST_SPEECH_KEY", **options}
    OPEN.append(plugins.make(Spec(role, f"openai-{role}", given)))
    return OPEN[-1]


def hear(engine: Engine, **hint: object) -> object:
    return engine.recognise(SECOND, Hint(**hint), Unwatched())


# Listening


def test_a_recording_is_sent_as_a_form_and_its_text_comes_back(api):
    ears = made("asr", api, languages="en+es")
    heard = hear(ears, language="es-mx", context="we were talking")
    assert (heard.text, heard.language) == ("Buenos días.", "es-mx")
    assert heard.confidence == pytest.approx(0.7788, abs=1e-3)
    (path, fields), *more = api.requests
    assert not more
    assert path == "/audio/transcriptions"
    assert fields.pop("file")[44:] == SECOND.pcm
    assert fields == {
        "model": "whisper-1", "language": "es", "prompt": "we were talking",
        "response_format": "verbose_json", "temperature": "0",
    }  # fmt: skip


@pytest.mark.parametrize("spoken", ["spanish", "es", "Spanish", "es-ES"])
def test_the_language_is_what_the_server_says_in_whatever_way(api, spoken):
    api.language = spoken
    assert hear(made("asr", api, languages="en+es"), allowed=("en", "es-mx")).language == "es-mx"
    assert "language" not in api.requests[0][1]


def test_a_language_that_nobody_knows_is_left_open(api):
    api.language = "elvish tongue"
    assert hear(made("asr", api, languages="en+es"), allowed=("en", "es")).language == ""


def test_a_server_without_the_full_form_of_answer_is_asked_for_the_short_one(api):
    api.has_verbose = False
    ears = made("asr", api, languages="es")
    assert hear(ears, language="es").text == "Buenos días."
    assert hear(ears).language == ""
    forms = [fields["response_format"] for _, fields in api.requests]
    assert forms == ["verbose_json", "json", "json"]


def test_a_translation_is_asked_for_where_the_operator_declared_it(api):
    ears = made("asr", api, languages="en+es", pairs="es-en")
    assert ears.about().pairs == (("es", "en"),)
    assert hear(ears, language="es", translate_to="en").translation == "Good day."
    assert [path for path, _ in api.requests] == ["/audio/transcriptions", "/audio/translations"]
    assert (
        hear(made("asr", api, languages="es"), language="es", translate_to="en").translation == ""
    )


def test_no_sound_is_not_sent(api):
    ears = made("asr", api, languages="es")
    assert ears.recognise(Sound(b"", 16_000), Hint(), Unwatched()).text == ""
    assert api.requests == []


# Translating


def test_a_region_is_translated_where_its_language_was_declared(api):
    ears = made("asr", api, languages="es-mx", pairs="es-en")
    assert hear(ears, language="es-mx", translate_to="en").translation == "Good day."


def test_a_text_is_translated_by_a_strict_instruction(api):
    chat = made("mt", api, pairs="en-es+en>pt-br")
    text = 'Say "hello" \u2028 and <b>ignore</b> this'
    assert chat.translate(text, "en-us", "es", Unwatched()) == f"«{text}» in Spanish (es)"
    assert "Portuguese (pt-br)" in chat.translate("x", "en", "pt-br", Unwatched())
    assert chat.about().pairs == (("en", "es"), ("en", "pt-br"))
    assert made("mt", api, languages="en+es").about().pairs == (("en", "es"), ("es", "en"))


@pytest.mark.parametrize(
    ("answered", "wanted"),
    [
        ("Hola", "Hola"),
        ("  “Hola”\n", "Hola"),
        ('"Hola"', "Hola"),
        ('"Hola" dijo "adiós"', '"Hola" dijo "adiós"'),
        ("<think>hm, Spanish</think>\nHola", "Hola"),
    ],
)
def test_what_models_put_around_a_translation_is_taken_away(api, answered, wanted):
    api.answers.append(chatted(answered))
    assert made("mt", api, pairs="en-es").translate("Hello", "en", "es", Unwatched()) == wanted


def chatted(text: object, end: str = "stop") -> Answer:
    choice = {"message": {"content": text}, "finish_reason": end}
    return Answer(200, json.dumps({"choices": [choice]}).encode())


@pytest.mark.parametrize(
    "answer",
    [chatted(""), chatted(None), chatted("Hol", "length"), Answer(200, b"{}"), Answer(200, b"<p>")],
)
def test_an_answer_that_is_no_translation_is_an_error(api, answer):
    api.answers.append(answer)
    with pytest.raises(EngineError, match="PROCESSING_ERROR"):
        made("mt", api, pairs="en-es").translate("Hello", "en", "es", Unwatched())


def test_nothing_is_not_translated_and_other_directions_are_refused(api):
    chat = made("mt", api, pairs="en-es")
    assert chat.translate(" ", "en", "es", Unwatched()) == ""
    with pytest.raises(EngineError, match="not declared"):
        chat.translate("Hallo", "de", "es", Unwatched())
    assert api.requests == []


# Speaking


def test_a_text_is_spoken_as_bare_samples(api):
    mouth = made("tts", api, languages="es+en", voice="nova", **{"voice.en": "echo"})
    sound = mouth.speak("Buenos días.", "es-mx", Unwatched())
    assert (sound.sample_rate, sound.duration_ms) == (24_000, 120)
    mouth.speak("Good day.", "en", Unwatched())
    assert [fields["voice"] for _, fields in api.requests] == ["nova", "echo"]
    assert api.requests[0][1]["response_format"] == "pcm"
    assert mouth.about().languages == ("es", "en")


@pytest.mark.parametrize("size", [None, 0, 0xFFFFFFFF, 0x7FFFFFFF])
def test_a_text_is_spoken_as_a_wav_file_even_if_it_was_streamed(api, size):
    api.wav_size = size
    mouth = made("tts", api, languages="es", format="wav")
    assert mouth.speak("Buenos días.", "es", Unwatched()).duration_ms == 120


def test_a_long_text_is_spoken_in_pieces_that_the_api_takes(api):
    text = "One more sentence of this long story. " * 200
    mouth = made("tts", api, languages="en")
    sound = mouth.speak(text, "en", Unwatched())
    assert len(api.requests) > 4
    assert " ".join(fields["input"] for _, fields in api.requests) == text.strip()
    assert sound.duration_ms > 10 * (len(text) - 200)
    with pytest.raises(Stopped):
        mouth.speak(text, "en", WantedFor(3))


def test_nothing_is_not_spoken_and_other_languages_are_refused(api):
    mouth = made("tts", api, languages="en")
    assert mouth.speak("...", "en", Unwatched()) == Sound(b"", 24_000)
    with pytest.raises(EngineError, match="'de'"):
        mouth.speak("Hallo", "de", Unwatched())
    assert api.requests == []


@pytest.mark.parametrize(
    "content", [b"", b"RIFF", b"ID3" * 50, b"RIFF\0\0\0\0WAVEdata\4\0\0\0abcd"]
)
def test_what_is_no_wav_file_is_an_error(content):
    with pytest.raises(EngineError, match="no WAV file"):
        wav(content)


# Errors


@pytest.mark.parametrize(
    ("status", "code", "words"),
    [
        (401, "MODEL_NOT_AVAILABLE", "the key is refused"),
        (403, "MODEL_NOT_AVAILABLE", "the key is refused"),
        (404, "MODEL_NOT_AVAILABLE", "no such model"),
        (429, "NODE_OVERLOADED", "slow down"),
        (503, "NODE_OVERLOADED", "slow down"),
        (500, "PROCESSING_ERROR", "slow down"),
        (400, "PROCESSING_ERROR", "slow down"),
    ],
)
def test_a_refusal_has_a_code_and_the_servers_words(api, status, code, words):
    api.answers.append(Answer(status, b'{"error": {"message": "slow down"}}'))
    with pytest.raises(EngineError, match=words) as caught:
        made("mt", api, pairs="en-es").translate("Hello", "en", "es", Unwatched())
    assert caught.value.code == code
    assert len(api.requests) == 1


def test_a_wrong_key_is_told_without_being_shown(api, monkeypatch):
    monkeypatch.setenv("TEST_SPEECH_KEY", "sk-wrong-key-987")
    with pytest.raises(EngineError, match="the key is refused") as caught:
        made("mt", api, pairs="en-es").translate("Hello", "en", "es", Unwatched())
    assert "sk-wrong" not in str(caught.value)


def test_a_redirect_is_not_followed_so_the_key_goes_nowhere_else(api):
    with api_server() as other:
        where = f"{other.url}/chat/completions"
        api.answers.append(Answer(307, b"", (("Location", where),)))
        with pytest.raises(EngineError, match="not followed") as caught:
            made("mt", api, pairs="en-es").translate("Hello", "en", "es", Unwatched())
        assert caught.value.code == "MODEL_NOT_AVAILABLE"
        assert other.peers == []


def test_an_answer_without_end_is_cut_off(api):
    api.answers.append(Answer(200, bytes(5 << 20)))
    with pytest.raises(EngineError, match="too much"):
        made("mt", api, pairs="en-es").translate("Hello", "en", "es", Unwatched())


def test_it_waits_no_longer_than_it_was_told_and_stops_when_nobody_waits(api):
    api.held = threading.Event()
    try:
        with pytest.raises(EngineError, match="no answer in time"):
            made("mt", api, pairs="en-es", timeout_s="1").translate("a", "en", "es", Unwatched())
        with pytest.raises(Stopped):
            made("mt", api, pairs="en-es").translate("a", "en", "es", WantedFor(2))
    finally:
        api.held.set()
        api.held = None


def test_a_server_that_is_not_there_is_told():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    chat = make_mt({"url": f"http://127.0.0.1:{port}/v1", "model": "gpt", "pairs": "en-es"})
    with pytest.raises(EngineError, match="ConnectionRefused"):
        chat.translate("Hello", "en", "es", Unwatched())


# The connection


def test_one_connection_serves_many_requests(api):
    chat = made("mt", api, pairs="en-es")
    for _ in range(5):
        chat.translate("Hello", "en", "es", Unwatched())
    assert len(set(api.peers)) == 1
    chat.close()
    chat.translate("Hello", "en", "es", Unwatched())
    assert len(set(api.peers)) == 2


def closing_server(listener: socket.socket, heard: list[bytes], answers: int) -> None:
    """Answer once on each connection, promise to keep it, and close it; then never answer."""
    body = chatted("Hola").body
    head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    for number in range(answers + 1):
        connection, _ = listener.accept()
        with connection:
            connection.settimeout(5)
            data = b""
            while b'"content": "Hello"' not in data:
                data += connection.recv(65_536)
            heard.append(data)
            if number < answers:
                connection.sendall(head + body)


def test_a_kept_connection_that_was_dropped_is_tried_once_more_and_a_new_one_is_not():
    heard: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=closing_server, args=(listener, heard, 2))
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
        chat = make_mt({"url": url, "model": "gpt", "pairs": "en-es"})
        assert chat.translate("Hello", "en", "es", Unwatched()) == "Hola"
        # The server has closed; the request finds out and goes over a new connection.
        assert chat.translate("Hello", "en", "es", Unwatched()) == "Hola"
        chat.close()
        with pytest.raises(EngineError, match="RemoteDisconnected"):
            chat.translate("Hello", "en", "es", Unwatched())
        thread.join(5)
    assert len(heard) == 3
    assert not any(b"Authorization" in data for data in heard)


@pytest.fixture(name="certificate", scope="module")
def self_signed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tls")
    made_with = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1"
    names = ["-subj", "/CN=test", "-addext", "subjectAltName=IP:127.0.0.1"]
    files = ["-keyout", folder / "key.pem", "-out", folder / "cert.pem"]
    subprocess.run(
        [*made_with.split(), *names, *files], check=True, capture_output=True, timeout=30
    )
    return folder


def test_a_server_whose_certificate_is_not_trusted_gets_nothing(certificate, monkeypatch):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate / "cert.pem", certificate / "key.pem")
    with api_server(context) as api:
        with pytest.raises(EngineError, match="CERTIFICATE_VERIFY_FAILED"):
            made("mt", api, pairs="en-es").translate("Hello", "en", "es", Unwatched())
        assert api.requests == []
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate / "cert.pem"))
        chat = made("mt", api, pairs="en-es")
        assert chat.translate("Hello", "en", "es", Unwatched()).startswith("«Hello»")
        assert chat.translate("Again", "en", "es", Unwatched()).startswith("«Again»")
        assert len(set(api.peers)) == 1
        chat.close()


# What the operator may say


@pytest.mark.parametrize(
    ("maker", "options"),
    [
        (make_asr, {"url": "https://h/v1", "model": "m"}),
        (make_tts, {"url": "https://h/v1", "model": "m"}),
        (make_mt, {"url": "https://h/v1", "model": "m"}),
        (make_mt, {"url": "https://h/v1", "pairs": "en-es"}),
        (make_mt, {"url": "", "model": "m", "pairs": "en-es"}),
        (make_mt, {"url": "ftp://h/v1", "model": "m", "pairs": "en-es"}),
        (make_mt, {"url": "https://key@h/v1", "model": "m", "pairs": "en-es"}),
        (make_mt, {"url": "https://h:x/v1", "model": "m", "pairs": "en-es"}),
        (make_mt, {"url": "https://h/v1", "model": "m", "pairs": "en-es", "key": KEY}),
        (make_asr, {"url": "https://h/v1", "model": "m", "languages": "en", "pairs": "en-es"}),
        (make_asr, {"url": "https://h/v1", "model": "m", "languages": "e!"}),
        (make_tts, {"url": "https://h/v1", "model": "m", "languages": "en", "format": "mp3"}),
    ],
)
def test_what_is_missing_or_impossible_is_told_before_anything_is_sent(maker, options):
    with pytest.raises(ConfigError):
        maker(options)


def test_a_key_that_is_not_set_is_told_and_none_goes_over_an_open_wire(monkeypatch):
    options = {"model": "m", "pairs": "en-es", "key_env": "TEST_SPEECH_KEY"}
    with pytest.raises(ConfigError, match="in the clear"):
        make_mt({**options, "url": "http://192.0.2.1/v1"})
    make_mt({**options, "url": "http://192.0.2.1/v1", "plain": "yes"})
    make_mt({**options, "url": "http://localhost:8000/v1"})
    monkeypatch.setenv("TEST_SPEECH_KEY", "two\nlines")
    with pytest.raises(ModelMissing, match="holds no key"):
        make_mt({**options, "url": "https://h/v1"})
    monkeypatch.delenv("TEST_SPEECH_KEY")
    with pytest.raises(ModelMissing, match="TEST_SPEECH_KEY"):
        make_mt({**options, "url": "https://h/v1"})


def test_a_host_without_a_scheme_is_asked_over_tls():
    chat = make_mt({"url": "speech.example/v1", "model": "m", "pairs": "en-es"})
    assert chat._line._tls is not None


def test_languages_have_names():
    assert (code_of("English"), code_of("pt-BR"), code_of("jw"), code_of("")) == (
        "en",
        "pt",
        "jv",
        "",
    )
    assert code_of(None) == code_of("x" * 100) == code_of("gibberis") == ""
    assert name_of("es-mx") == "Spanish (es-mx)"
    assert "qq" in name_of("qq")


def stalling_server(listener: socket.socket, beginning: bytes, done: threading.Event) -> None:
    """Begin an answer and never go on."""
    connection, _ = listener.accept()
    with connection:
        connection.recv(65_536)
        connection.sendall(beginning)
        done.wait(20)


@pytest.mark.parametrize(
    "beginning", [b"HTTP/1.1 200", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{"]
)
def test_an_answer_that_stops_in_the_middle_holds_nobody_who_was_cancelled(beginning):
    done = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=stalling_server, args=(listener, beginning, done))
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
        chat = make_mt({"url": url, "model": "gpt", "pairs": "en-es", "timeout_s": "3"})
        try:
            with pytest.raises(Stopped):
                chat.translate("Hello", "en", "es", WantedFor(3))
        finally:
            done.set()
            thread.join(25)


@pytest.mark.parametrize("secret", ["https://me:hunter2@h/v1", "https://h/v1?key=hunter2"])
def test_a_password_in_an_address_is_not_quoted(secret):
    with pytest.raises(ConfigError) as refused:
        make_mt({"url": secret, "model": "m", "pairs": "en-es"})
    assert "hunter2" not in str(refused.value)


def test_an_ipv6_address_needs_no_port():
    chat = make_mt({"url": "http://[::1]/v1", "model": "m", "pairs": "en-es"})
    connection = chat._line._opened()
    assert (connection.host, connection.port) == ("::1", 80)


def test_only_the_voice_needs_a_library_and_says_which() -> None:
    code = """
import sys
sys.modules["numpy"] = None
from lingua_scheduler.speech.engine import ModelMissing
from lingua_scheduler.speech.plugins import Spec, make
server = "url=http://127.0.0.1:1/v1,model=m,languages=en+es"
for kind in ("asr", "mt"):
    print(make(Spec.parse(f"{kind}=openai-{kind}:{server}")).about().engine)
try:
    make(Spec.parse(f"tts=openai-tts:{server}"))
except ModelMissing as missing:
    print(missing)
"""
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    *without, voice = ran.stdout.splitlines()
    assert without == ["openai-asr", "openai-mt"]
    assert "numpy" in voice
    assert install_command("speech") in voice
