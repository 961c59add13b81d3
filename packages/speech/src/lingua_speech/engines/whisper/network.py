"""Whisper's two networks, on onnxruntime: sound -> hidden states, tokens so far -> next scores.

Keys and values stay inside onnxruntime between steps. Those of the sound are computed once, those
of the tokens are passed from step to step without a copy. A `DecoderCache` is never changed, so
several texts can be decoded from one. `decoding.py` chooses the next token.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import onnxruntime as ort

from lingua_speech.engine import ModelMissing
from lingua_speech.engines.whisper import mel

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from lingua_speech.sound import Samples

PAST: Final = "past_key_values."
PRESENT: Final = "present."
# A prepared decoder multiplies the last layer as bytes; the original converts it to floats first.
DECODERS: Final = ("decoder_fast.onnx", "decoder.onnx")
ENCODERS: Final = {"short": "encoder_short.onnx", "full": "encoder.onnx"}
# Attention grows with the square of the length: 30 s need 600 MB, which are released afterwards.
LONG_FRAMES: Final = 10 * mel.FRAMES_PER_S

# A value inside onnxruntime, which has no type annotations.
Value = Any


class DecoderCache(NamedTuple):
    """The decoder's keys and values: of the sound, and of the tokens so far."""

    sound: dict[str, Value]
    tokens: dict[str, Value]
    length: int


class WhisperNetwork:
    """Encoder and decoder of one model directory, loaded."""

    def __init__(self, directory: Path, window: str, threads: int) -> None:
        self._encoder = _load(directory / ENCODERS[window], threads)
        decoder = next((name for name in DECODERS if (directory / name).is_file()), DECODERS[-1])
        self._decoder = _load(directory / decoder, threads)
        # Releases the extra memory of a long run at its end.
        self._shrinking = ort.RunOptions()
        self._shrinking.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
        self.vocabulary: int = self._decoder.get_outputs()[0].shape[2]
        pasts = [one for one in self._decoder.get_inputs() if one.name.startswith(PAST)]
        # The decoder's names of the keys and values of the sound and of the tokens.
        self._of_sound = [one.name for one in pasts if ".encoder." in one.name]
        self._of_tokens = [one.name for one in pasts if ".decoder." in one.name]
        nothing = np.zeros((1, pasts[0].shape[1], 0, pasts[0].shape[3]), np.float32)
        empty = ort.OrtValue.ortvalue_from_numpy(nothing)
        self._nothing = {one.name: empty for one in pasts}
        self._first = ort.OrtValue.ortvalue_from_numpy(np.array([False]))
        self._later = ort.OrtValue.ortvalue_from_numpy(np.array([True]))
        self._later_outputs = ["logits", *map(_present, self._of_tokens)]
        self._first_outputs = [*self._later_outputs, *map(_present, self._of_sound)]

    def encode(self, samples: Samples, frames: int) -> Value:
        """Return the hidden states of a sound, padded or cut to so many frames."""
        features = mel.log_mel(samples, frames)
        value = ort.OrtValue.ortvalue_from_numpy(features)
        how = self._shrinking if frames > LONG_FRAMES else None
        fed = {"input_features": value}
        return self._encoder.run_with_ort_values(["last_hidden_state"], fed, how)[0]

    def begin(self, hidden: Value, tokens: Sequence[int]) -> tuple[Samples, DecoderCache]:
        """Return the scores after each of the first tokens, and the cache for the next step."""
        fed = {
            "input_ids": _ids(tokens),
            "encoder_hidden_states": hidden,
            "use_cache_branch": self._first,
            **self._nothing,
        }
        scores, *kept = self._decoder.run_with_ort_values(self._first_outputs, fed)
        count = len(self._of_tokens)
        sound = dict(zip(self._of_sound, kept[count:], strict=True))
        # The decoder still requires the hidden states as an input, but no longer uses them.
        sound["encoder_hidden_states"] = hidden
        cache = DecoderCache(
            sound, dict(zip(self._of_tokens, kept[:count], strict=True)), len(tokens)
        )
        return scores.numpy()[0], cache

    def step(self, cache: DecoderCache, token: int) -> tuple[Samples, DecoderCache]:
        """Return the scores after one more token, and the extended cache."""
        fed = {
            "input_ids": _ids((token,)),
            "use_cache_branch": self._later,
            **cache.sound,
            **cache.tokens,
        }
        scores, *kept = self._decoder.run_with_ort_values(self._later_outputs, fed)
        tokens = dict(zip(self._of_tokens, kept, strict=True))
        return scores.numpy()[0, -1], DecoderCache(cache.sound, tokens, cache.length + 1)

    def truncated(self, cache: DecoderCache, length: int) -> DecoderCache:
        """Return the cache after only the first tokens."""
        tokens = {
            name: ort.OrtValue.ortvalue_from_numpy(
                np.ascontiguousarray(value.numpy()[:, :, :length])
            )
            for name, value in cache.tokens.items()
        }
        return DecoderCache(cache.sound, tokens, length)


def _load(path: Path, threads: int) -> Any:
    if not path.is_file():
        raise ModelMissing(f"{path} is missing: lingua models install whisper-base")
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    # Lengths differ every time, so memory plans would never be reused.
    options.enable_mem_pattern = False
    # Idle threads must not use processor time that other workers need.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    # Else the 26 million weights of the last layer are converted to floats for every token.
    options.add_session_config_entry("session.disable_quant_qdq", "1")
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def _ids(tokens: Sequence[int]) -> Value:
    return ort.OrtValue.ortvalue_from_numpy(np.array([tokens], np.int64))


def _present(past: str) -> str:
    return past.replace(PAST, PRESENT)
