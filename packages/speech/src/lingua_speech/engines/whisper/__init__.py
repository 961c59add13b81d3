"""Whisper (OpenAI, MIT) on onnxruntime and numpy alone: speech -> text, and X -> English.

The default recogniser. It encodes only the length of the speech (`window=short`) instead of always
30 s, finds the language among those allowed, and rejects improbable results: noise gives no text.
It does not search for speech in silence; that is the work of a speech detector (`silero`).
"""

from lingua_speech.engines.whisper.recogniser import KNOWN, Whisper, make

__all__ = ["KNOWN", "Whisper", "make"]
