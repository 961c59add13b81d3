"""Step 3: the word pieces of each side.

English keeps Bergamot's pieces, because their vectors are what its networks know; those that never
occur in our English are left out, to make the model small. Spanish gets pieces of its own: cut
into Bergamot's Portuguese pieces it would be half as long again. Both get the 256 bytes, so no
character is unknown to either.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Final

import sentencepiece
from sentencepiece import sentencepiece_model_pb2 as protocol

from training.translation.split import read_pairs

if TYPE_CHECKING:
    from pathlib import Path

    from sentencepiece import SentencePieceProcessor

EOS: Final = "</s>"
START: Final = "<s>"
SPANISH_SIZE: Final = 6000
# How often a piece must occur to stay. To read, rare ones are worth their bytes; to write, each
# costs time at every step.
LEAST: Final = {"enpt": 1, "pten": 3}
NUMBER = re.compile(r"\d\d")
BYTES: Final = tuple(f"<0x{number:02X}>" for number in range(256))


def build(raw: Path, data: Path, out: Path) -> None:
    """Write es.spm, and en.enpt.spm and en.pten.spm (the two models have their own pieces)."""
    out.mkdir(parents=True, exist_ok=True)
    train = read_pairs(data / "train.tsv")
    if not (out / "es.spm").is_file():
        _learn([spanish for _, spanish in train], out / "es.spm")
    more = (data / "english.txt").read_text("utf-8").splitlines()
    english = [*dict.fromkeys(text for text, _ in train), *more]
    for pair, least in LEAST.items():
        if not (out / f"en.{pair}.spm").is_file():
            _prune(raw / pair / "vocab.spm", english, least, out / f"en.{pair}.spm")


def load(path: Path) -> SentencePieceProcessor:
    """Load a model of pieces."""
    return sentencepiece.SentencePieceProcessor(model_file=str(path))


def tokens(pieces: SentencePieceProcessor) -> list[str]:
    """Return the tokens of the network: all pieces, then the one that starts a translation."""
    names = [pieces.id_to_piece(number) for number in range(pieces.get_piece_size())]
    return [*names, START]


def _learn(texts: list[str], path: Path) -> None:
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts),
        model_prefix=str(path.with_suffix("")),
        vocab_size=SPANISH_SIZE,
        model_type="unigram",
        byte_fallback=True,
        split_digits=True,
        character_coverage=0.9999,
        normalization_rule_name="nmt_nfkc",
        eos_id=0, eos_piece=EOS, unk_id=1, bos_id=-1, pad_id=-1,
        num_threads=1,
        minloglevel=1,
    )  # fmt: skip
    path.with_suffix(".model").rename(path)
    path.with_suffix(".vocab").unlink()


def _prune(big: Path, texts: list[str], least: int, path: Path) -> None:
    """Leave out what does not occur so often; pieces of one character stay, to spell anything with.

    Pieces of several digits go too: digit by digit, a network learns to copy any number.
    """
    pieces = load(big)
    used = Counter(piece for found in pieces.encode(texts) for piece in found)
    model = protocol.ModelProto()
    model.ParseFromString(big.read_bytes())
    kept = [
        piece
        for number, piece in enumerate(model.pieces)
        if (used[number] >= least and not NUMBER.search(piece.piece))
        or piece.type != protocol.ModelProto.SentencePiece.NORMAL
    ]
    lowest = min(piece.score for piece in kept)
    spelled = {piece.piece for piece in kept}
    kept += [
        protocol.ModelProto.SentencePiece(piece=piece.piece, score=lowest)
        for piece in model.pieces
        if len(piece.piece) == 1 and piece.piece.isascii() and piece.piece not in spelled
    ]
    byte = protocol.ModelProto.SentencePiece.BYTE
    kept += [protocol.ModelProto.SentencePiece(piece=name, score=0.0, type=byte) for name in BYTES]
    del model.pieces[:]
    model.pieces.extend(kept)
    model.trainer_spec.byte_fallback = True
    model.trainer_spec.vocab_size = len(kept)
    path.write_bytes(model.SerializeToString())
