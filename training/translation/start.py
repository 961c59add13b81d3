"""Step 5: give the first weights: Bergamot's layers, and vectors for the Spanish pieces.

Bergamot never saw Spanish. But for a Spanish piece we can tell which Portuguese pieces mean it:
the corpus has (Spanish, English) pairs, Bergamot made Portuguese of the English, and a word
alignment model (IBM model 1) says which pieces occur together. A Spanish piece starts as the
mean of their vectors, so the network begins as one that reads or writes a kind of Portuguese.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import torch

from training.translation import bergamot, vocabulary
from training.translation.model import Shape, Translator, start_from

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from sentencepiece import SentencePieceProcessor

# Which of Bergamot's models a direction starts from.
ORIGINS: Final = {"en-es": "enpt", "es-en": "pten"}
ROUNDS: Final = 6
# Weaker alignments are noise.
LEAST: Final = 0.05


def pieces_of(direction: str, pieces: Path) -> tuple[Path, Path]:
    """Return the files of the pieces of the source and the target."""
    english = pieces / f"en.{ORIGINS[direction]}.spm"
    both = (english, pieces / "es.spm")
    return both if direction == "en-es" else (both[1], both[0])


def first_model(
    direction: str, raw: Path, pieces: Path, portuguese: Sequence[tuple[str, str]]
) -> Translator:
    """Return the untrained network of `en-es` or `es-en`, from (Portuguese, Spanish) pairs."""
    origin = ORIGINS[direction]
    weights = bergamot.weights(raw / origin / "model.bin")
    old = vocabulary.load(raw / origin / "vocab.spm")
    english = vocabulary.load(pieces / f"en.{origin}.spm")
    spanish = vocabulary.load(pieces / "es.spm")
    table = np.concatenate([weights["Wemb"], weights["decoder_ff_logit_out_b"].T], axis=1)
    vectors = {
        "en": _same(english, old, table),
        "es": _aligned(spanish, old, table, portuguese),
    }
    source, target = direction.split("-")
    model = Translator(Shape(len(vectors[source]), len(vectors[target])))
    start_from(model, weights)
    with torch.no_grad():
        model.source.weight.copy_(torch.from_numpy(vectors[source][:, :-1]))
        model.target.weight.copy_(torch.from_numpy(vectors[target][:, :-1]))
        model.bias.copy_(torch.from_numpy(vectors[target][:, -1]))
    return model


def _same(
    new: SentencePieceProcessor, old: SentencePieceProcessor, table: np.ndarray
) -> np.ndarray:
    """Return the old vectors of the pieces; bytes are rare and start as what is unknown."""
    ids = [old.piece_to_id(token) for token in vocabulary.tokens(new)]
    vectors = table[ids].copy()
    vectors[-1] = 0.0  # Marian starts a translation with a vector of zeros.
    return vectors


def _aligned(
    new: SentencePieceProcessor,
    old: SentencePieceProcessor,
    table: np.ndarray,
    pairs: Sequence[tuple[str, str]],
) -> np.ndarray:
    found, wanted, chance = _ibm1(
        old.encode([portuguese for portuguese, _ in pairs]),
        new.encode([spanish for _, spanish in pairs]),
        old.get_piece_size(),
    )
    size = new.get_piece_size()
    strong = chance > LEAST
    found, wanted, chance = found[strong], wanted[strong], chance[strong]
    total = np.bincount(wanted, chance, size)
    vectors = np.zeros((size + 1, table.shape[1]), np.float32)
    np.add.at(vectors, wanted, chance[:, None].astype(np.float32) * table[found])
    vectors[:size][total > 0] /= total[total > 0, None]
    for number in np.flatnonzero(total == 0):
        # Not in the corpus (a byte, a special piece): what the same text is in Bergamot's pieces.
        ids = [old.piece_to_id(new.id_to_piece(int(number)))]
        vectors[number] = table[ids].mean(axis=0)
    vectors[0] = table[0]  # The end is the end.
    return vectors


def _ibm1(
    words: Sequence[Sequence[int]], causes: Sequence[Sequence[int]], size: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return (word, cause, chance of the word given the cause) for all that occur together."""
    keys, places, place = [], [], 0
    for word, cause in zip(words, causes, strict=True):
        grid = np.asarray(cause)[None, :] * size + np.asarray(word)[:, None]
        keys.append(grid.ravel())
        places.append(np.repeat(np.arange(place, place + len(word)), len(cause)))
        place += len(word)
    unique, index = np.unique(np.concatenate(keys), return_inverse=True)
    where = np.concatenate(places)
    cause_of, word_of = np.divmod(unique, size)
    chance = np.ones(len(unique))
    for _ in range(ROUNDS):
        weight = chance[index]
        weight /= np.bincount(where, weight, place)[where]
        counts = np.bincount(index, weight, len(unique))
        chance = counts / np.bincount(cause_of, counts)[cause_of]
    return word_of, cause_of, chance
