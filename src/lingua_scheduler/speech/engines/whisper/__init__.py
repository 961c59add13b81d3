"""Whisper (OpenAI, MIT) on onnxruntime and numpy alone: speech -> text, and X -> English.

The default recogniser. It listens only to as much as was said (`window=short`) instead of always
30 s, finds the language among those allowed, and doubts itself: noise gives no text. It does not
look for speech in silence, that is a voice finder's work (`silero`).
"""

from lingua_scheduler.speech.engines.whisper.recogniser import KNOWN, Whisper, make

__all__ = ["KNOWN", "Whisper", "make"]
