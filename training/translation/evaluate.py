"""Step 8: score the exported models as they are shipped, and write results.json.

Translation quality as sacreBLEU computes it, on sentences held out before anything was looked at;
whether CTranslate2 computes what torch computes; time a sentence on one thread; numbers kept, and
what odd inputs do. The way over Portuguese is bounded by what Bergamot makes of its own Portuguese.
"""

from __future__ import annotations

import json
import statistics
import time
from typing import TYPE_CHECKING, Any, Final

import ctranslate2
import sacrebleu
import torch

from training.translation import bergamot, odd, vocabulary
from training.translation.export import export, trained
from training.translation.model import present
from training.translation.split import read_pairs

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

SETS: Final = ("test", "test-far", "everyday-en-es")
BEAMS: Final = (1, 2, 4)
SHIPPED_BEAM: Final = 2
# As the product's engine bounds a translation.
GROWTH: Final = 3
SPARE_TOKENS: Final = 20
MOST_TOKENS: Final = 500
COMPARED: Final = 200
TIMED: Final = 300


class Shipped:
    """An exported model, run as the product runs it."""

    def __init__(self, folder: Path, compute_type: str = "int8") -> None:
        self.size = sum(file.stat().st_size for file in folder.iterdir())
        self._cut = vocabulary.load(folder / "source.spm")
        self._join = vocabulary.load(folder / "target.spm")
        self._network = ctranslate2.Translator(
            str(folder), device="cpu", compute_type=compute_type, intra_threads=1
        )

    def translate(self, texts: Sequence[str], beam: int = SHIPPED_BEAM) -> list[str]:
        """Translate; an empty text stays so."""
        tokens = [self._cut.encode(text, out_type=str)[:MOST_TOKENS] for text in texts]
        full = [[*pieces, vocabulary.EOS] for pieces in tokens if pieces]
        longest = max(map(len, full), default=0)
        found = self._network.translate_batch(
            full, beam_size=beam, max_batch_size=1024, batch_type="tokens",
            max_decoding_length=GROWTH * longest + SPARE_TOKENS,
        )  # fmt: skip
        said = iter(result.hypotheses[0] for result in found)
        return [self._join.decode(next(said)) if pieces else "" for pieces in tokens]

    def greedy_tokens(self, text: str) -> tuple[list[int], list[int]]:
        """Return the numbers of the source's tokens and of its greedy translation's."""
        pieces = self._cut.encode(text, out_type=str)
        found = self._network.translate_batch([[*pieces, vocabulary.EOS]], beam_size=1)
        said = found[0].hypotheses[0]
        return self._cut.piece_to_id(pieces), self._join.piece_to_id(said)


def score(found: Sequence[str], wanted: Sequence[str]) -> dict[str, float]:
    """Return chrF2 and BLEU with sacreBLEU's defaults."""
    return {
        "chrf": round(sacrebleu.corpus_chrf(found, [wanted]).score, 2),
        "bleu": round(sacrebleu.corpus_bleu(found, [wanted]).score, 2),
    }


def signatures() -> dict[str, str]:
    """Return how the scores are computed."""
    found = {}
    for name, metric in (("chrf", sacrebleu.CHRF()), ("bleu", sacrebleu.BLEU())):
        metric.corpus_score(["a b c d"], [["a b c d"]])
        found[name] = str(metric.get_signature())
    return found


def quality(model: Shipped, direction: str, data: Path, prompts: Path | None) -> dict[str, Any]:
    """Score a model on all sets, with all beams."""
    files = {name: data / f"{name}.tsv" for name in SETS}
    if prompts:
        files["prompts"] = prompts
    found: dict[str, Any] = {}
    for name, path in files.items():
        source, target = sides(path, direction)
        found[name] = {"pairs": len(source)} | {
            f"beam {beam}": score(model.translate(source, beam), target) for beam in BEAMS
        }
    return found


def sides(path: Path, direction: str) -> tuple[list[str], list[str]]:
    """Return what is to be translated, and its translations."""
    pairs = read_pairs(path)
    english, spanish = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    return (english, spanish) if direction == "en-es" else (spanish, english)


def speed(model: Shipped, texts: Sequence[str], beam: int) -> dict[str, float]:
    """Return milliseconds a sentence, one after the other on one thread."""
    model.translate(texts[:5], beam)
    times = []
    for text in texts[:: max(1, len(texts) // TIMED)]:
        begin = time.perf_counter()
        model.translate([text], beam)
        times.append(1000 * (time.perf_counter() - begin))
    cuts = statistics.quantiles(times, n=20)
    return {"p50_ms": round(statistics.median(times), 1), "p95_ms": round(cuts[-1], 1)}


def robustness(model: Shipped, source: str, texts: Sequence[str]) -> dict[str, Any]:
    """Count what goes wrong with numbers and odd inputs."""
    given = odd.inputs(texts)
    got = [model.translate([text])[0] for text in given]
    numbers = odd.numbered(source)
    said = model.translate(numbers)
    wrong = [pair for pair in zip(numbers, said, strict=True) if not odd.kept_numbers(*pair)]
    repeated = [pair for pair in zip(given, got, strict=True) if odd.repeats(*pair)]
    long = [pair for pair in zip(given, got, strict=True) if odd.is_too_long(*pair)]
    return {
        "odd_inputs": len(given), "repetitions": len(repeated), "too_long": len(long),
        "numbers": len(numbers), "numbers_wrong": len(wrong),
        "examples": {"numbers": wrong[:5], "repetitions": repeated[:5], "too_long": long[:3]},
    }  # fmt: skip


def agreement(
    saved: Path, exact: Shipped, shipped: Shipped, texts: Sequence[str]
) -> dict[str, Any]:
    """Compare torch (greedy) with CTranslate2 in 32 bits and as shipped."""
    model = trained(saved)
    known = [exact.greedy_tokens(text) for text in texts]
    same = sum(_greedy(model, *tokens) for tokens in known)
    pairs = zip(exact.translate(texts, 1), shipped.translate(texts, 1), strict=True)
    return {
        "sentences": len(texts),
        "float32_equals_torch": same,
        "int8_equals_float32": sum(one == other for one, other in pairs),
    }


def _greedy(model: Any, source: list[int], expected: list[int]) -> bool:
    """Whether torch, too, says exactly these tokens (forced decoding, best token each time)."""
    start = model.shape.target_size - 1
    tokens = torch.tensor([[*source, 0]])
    mask = present(torch.tensor([tokens.shape[1]]), tokens.shape[1])
    with torch.no_grad():
        hidden = model.decode(torch.tensor([[start, *expected]]), model.encode(tokens, mask), mask)
        return model.scores(hidden)[0].argmax(-1).tolist() == [*expected, 0]


def evaluate(work: Path, run: str, out: Path, prompts: Path | None) -> dict[str, Any]:
    """Return all scores of the models in a folder."""
    common = {"signatures": signatures(), "shipped_beam": SHIPPED_BEAM}
    found = {name: one_direction(name, work, run, out, prompts) for name in ("en-es", "es-en")}
    bound = round_trip(work / "raw", work / "portuguese.tsv", work / "split")
    return common | found | {"en-pt-en round trip by Bergamot": bound}


def one_direction(
    direction: str, work: Path, run: str, out: Path, prompts: Path | None
) -> dict[str, Any]:
    """Return all scores of one model."""
    model, saved = Shipped(out / direction), work / run / f"{direction}.pt"
    texts, _ = sides(work / "split" / "test.tsv", direction)
    exact = work / "float32" / direction
    export(direction, saved, work / "pieces", exact, "float32")
    return {
        "bytes": model.size,
        "quality": quality(model, direction, work / "split", prompts),
        "speed": {f"beam {beam}": speed(model, texts, beam) for beam in BEAMS},
        "robustness": robustness(model, direction[:2], texts),
        "agreement": agreement(
            saved, Shipped(exact, "float32"), model, texts[:: max(1, len(texts) // COMPARED)]
        ),
    }


def round_trip(raw: Path, synthetic: Path, data: Path) -> dict[str, float]:
    """Score English to Portuguese and back by Bergamot: the best a way over Portuguese can be."""
    portuguese = dict(read_pairs(synthetic))
    english = [pair[0] for pair in read_pairs(data / "everyday-en-es.tsv")]
    back = bergamot.translator(raw / "pten")
    return score([back.translate(portuguese[text]) for text in english], english)


def write(found: dict[str, Any], path: Path) -> None:
    """Write the results for people and programs."""
    path.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", "utf-8")
