"""Engines connected to the test server, and answers of it."""

from __future__ import annotations

import json

from engines.openai_api import Answer, Api
from lingua_speech import plugins
from lingua_speech.engine import Engine, Hint, Sound, Unwatched
from lingua_speech.plugins import Spec

# The engines of the current test; they are closed at its end.
OPEN_ENGINES: list[Engine] = []


ONE_SECOND = Sound(b"\x10\x20" * 16_000, 16_000)


def connected_engine(role: str, api: Api, **options: str) -> Engine:
    models = {"asr": "whisper-1", "mt": "gpt", "tts": "tts-1"}
    given = {"url": api.url, "model": models[role], "key_env": "TEST_SPEECH_KEY", **options}
    OPEN_ENGINES.append(plugins.make(Spec(role, f"openai-{role}", given)))
    return OPEN_ENGINES[-1]


def recognise(engine: Engine, **hint: object) -> object:
    return engine.recognise(ONE_SECOND, Hint(**hint), Unwatched())


def chat_answer(text: object, end: str = "stop") -> Answer:
    choice = {"message": {"content": text}, "finish_reason": end}
    return Answer(200, json.dumps({"choices": [choice]}).encode())
