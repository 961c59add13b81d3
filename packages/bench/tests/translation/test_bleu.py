"""Our BLEU and chrF are sacreBLEU's, to the last digit."""

from __future__ import annotations

import pytest
import sacrebleu
from hypothesis import given, settings
from hypothesis import strategies as st

from lingua_bench.translation.bleu import SIGNATURES, bleu, tokens
from lingua_bench.translation.sets import FILES, file_text, read
from lingua_speech.scores import chrf

pytestmark = pytest.mark.unit

LINES = st.text(
    st.sampled_from("aAbé ñ.,-!?1290$%&()'\"/:;<>{}~ \u00a0\u2019"), min_size=0, max_size=40
)
PAIRS = st.lists(st.tuples(LINES, LINES), min_size=1, max_size=8)


@given(PAIRS)
@settings(max_examples=300)
def test_bleu_is_what_sacrebleu_computes(pairs: list[tuple[str, str]]) -> None:
    said, wanted = [one for one, _ in pairs], [other for _, other in pairs]
    assert bleu(said, wanted) == pytest.approx(sacrebleu.corpus_bleu(said, [wanted]).score)


@given(PAIRS)
@settings(max_examples=300)
def test_chrf_is_what_sacrebleu_computes(pairs: list[tuple[str, str]]) -> None:
    said, wanted = [one for one, _ in pairs], [other for _, other in pairs]
    assert chrf(said, wanted) == pytest.approx(sacrebleu.corpus_chrf(said, [wanted]).score)


@pytest.mark.parametrize("file", FILES)
def test_both_are_the_same_on_real_sentences(file: str) -> None:
    one = read(file, file_text(file))[0]
    # As if each had been translated by its neighbour's translation, in part.
    said = [f"{a} {b[:20]}" for a, b in zip(one.references, (*one.references[1:], ""), strict=True)]
    wanted = list(one.references)
    assert bleu(said, wanted) == pytest.approx(sacrebleu.corpus_bleu(said, [wanted]).score)
    assert chrf(said, wanted) == pytest.approx(sacrebleu.corpus_chrf(said, [wanted]).score)
    assert bleu(wanted, wanted) == pytest.approx(100)


def test_the_signatures_are_sacrebleus_own() -> None:
    for metric, name in ((sacrebleu.BLEU(), "BLEU"), (sacrebleu.CHRF(), "chrF2")):
        metric.corpus_score(["a b c d"], [["a b c d"]])
        signature = str(metric.get_signature())
        assert signature.rpartition("|version:")[0] == SIGNATURES[name]


def test_nothing_said_is_worth_nothing() -> None:
    assert bleu([""], ["a b c d e"]) == 0
    assert bleu(["a b c d e"], [""]) == 0
    assert tokens("It's 1,000.50 (really).") == ["It's", "1,000.50", "(", "really", ")", "."]
