"""The connection to a server: refusals, deadlines, redirects, TLS, and the safety of the key."""

from __future__ import annotations

import socket
import ssl
import subprocess
import threading
from pathlib import Path

import pytest

from engines.openai_api import Answer, api_server
from engines.openai_server.server_engines import chat_answer, connected_engine
from engines.watches import StopAfter
from lingua_speech.engine import EngineError, ModelMissing, Stopped, Unwatched
from lingua_speech.engines.openai_server import make_mt
from lingua_wire.errors import ConfigError

pytestmark = pytest.mark.unit


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
        connected_engine("mt", api, pairs="en-es").translate("Hello", "en", "es", Unwatched())
    assert caught.value.code == code
    assert len(api.requests) == 1


def test_a_wrong_key_is_told_without_being_shown(api, monkeypatch):
    monkeypatch.setenv("TEST_SPEECH_KEY", "sk-wrong-key-987")
    with pytest.raises(EngineError, match="the key is refused") as caught:
        connected_engine("mt", api, pairs="en-es").translate("Hello", "en", "es", Unwatched())
    assert "sk-wrong" not in str(caught.value)


def test_a_redirect_is_not_followed_so_the_key_goes_nowhere_else(api):
    with api_server() as other:
        where = f"{other.url}/translator/completions"
        api.answers.append(Answer(307, b"", (("Location", where),)))
        with pytest.raises(EngineError, match="not followed") as caught:
            connected_engine("mt", api, pairs="en-es").translate("Hello", "en", "es", Unwatched())
        assert caught.value.code == "MODEL_NOT_AVAILABLE"
        assert other.peers == []


def test_an_answer_without_end_is_cut_off(api):
    api.answers.append(Answer(200, bytes(5 << 20)))
    with pytest.raises(EngineError, match="too large"):
        connected_engine("mt", api, pairs="en-es").translate("Hello", "en", "es", Unwatched())


def test_it_waits_no_longer_than_it_was_told_and_stops_when_nobody_waits(api):
    api.held = threading.Event()
    try:
        with pytest.raises(EngineError, match="no answer in time"):
            connected_engine("mt", api, pairs="en-es", timeout_s="1").translate(
                "a", "en", "es", Unwatched()
            )
        with pytest.raises(Stopped):
            connected_engine("mt", api, pairs="en-es").translate("a", "en", "es", StopAfter(2))
    finally:
        api.held.set()
        api.held = None


def test_a_server_that_is_not_there_is_told():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    translator = make_mt({"url": f"http://127.0.0.1:{port}/v1", "model": "gpt", "pairs": "en-es"})
    with pytest.raises(EngineError, match="ConnectionRefused"):
        translator.translate("Hello", "en", "es", Unwatched())


def test_one_connection_serves_many_requests(api):
    translator = connected_engine("mt", api, pairs="en-es")
    for _ in range(5):
        translator.translate("Hello", "en", "es", Unwatched())
    assert len(set(api.peers)) == 1
    translator.close()
    translator.translate("Hello", "en", "es", Unwatched())
    assert len(set(api.peers)) == 2


def closing_server(listener: socket.socket, heard: list[bytes], answers: int) -> None:
    """Answer once on each connection, promise to keep it, and close it; then never answer."""
    body = chat_answer("Hola").body
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
        translator = make_mt({"url": url, "model": "gpt", "pairs": "en-es"})
        assert translator.translate("Hello", "en", "es", Unwatched()) == "Hola"
        # The server has closed the connection; the request is repeated on a new one.
        assert translator.translate("Hello", "en", "es", Unwatched()) == "Hola"
        translator.close()
        with pytest.raises(EngineError, match="RemoteDisconnected"):
            translator.translate("Hello", "en", "es", Unwatched())
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
            connected_engine("mt", api, pairs="en-es").translate("Hello", "en", "es", Unwatched())
        assert api.requests == []
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate / "cert.pem"))
        translator = connected_engine("mt", api, pairs="en-es")
        assert translator.translate("Hello", "en", "es", Unwatched()).startswith("«Hello»")
        assert translator.translate("Again", "en", "es", Unwatched()).startswith("«Again»")
        assert len(set(api.peers)) == 1
        translator.close()


def test_a_key_that_is_not_set_is_told_and_none_goes_over_an_open_wire(monkeypatch):
    options = {"model": "m", "pairs": "en-es", "key_env": "TEST_SPEECH_KEY"}
    with pytest.raises(ConfigError, match="sent unencrypted"):
        make_mt({**options, "url": "http://192.0.2.1/v1"})
    make_mt({**options, "url": "http://192.0.2.1/v1", "plain": "yes"})
    make_mt({**options, "url": "http://localhost:8000/v1"})
    monkeypatch.setenv("TEST_SPEECH_KEY", "two\nlines")
    with pytest.raises(ModelMissing, match="is not a valid key"):
        make_mt({**options, "url": "https://h/v1"})
    monkeypatch.delenv("TEST_SPEECH_KEY")
    with pytest.raises(ModelMissing, match="TEST_SPEECH_KEY"):
        make_mt({**options, "url": "https://h/v1"})


def test_a_host_without_a_scheme_is_asked_over_tls():
    translator = make_mt({"url": "speech.example/v1", "model": "m", "pairs": "en-es"})
    assert translator._connection._tls is not None


def stalling_server(listener: socket.socket, beginning: bytes, done: threading.Event) -> None:
    """Begin an answer and never continue it."""
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
        translator = make_mt({"url": url, "model": "gpt", "pairs": "en-es", "timeout_s": "3"})
        try:
            with pytest.raises(Stopped):
                translator.translate("Hello", "en", "es", StopAfter(3))
        finally:
            done.set()
            thread.join(25)


@pytest.mark.parametrize("secret", ["https://me:hunter2@h/v1", "https://h/v1?key=hunter2"])
def test_a_password_in_an_address_is_not_quoted(secret):
    with pytest.raises(ConfigError) as refused:
        make_mt({"url": secret, "model": "m", "pairs": "en-es"})
    assert "hunter2" not in str(refused.value)


def test_an_ipv6_address_needs_no_port():
    translator = make_mt({"url": "http://[::1]/v1", "model": "m", "pairs": "en-es"})
    connection = translator._connection._opened()
    assert (connection.host, connection.port) == ("::1", 80)
