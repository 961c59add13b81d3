"""CTranslate2 with small models of both layouts: the input and output of the network."""

from __future__ import annotations

import json
from pathlib import Path

import ctranslate2
import pytest
import sentencepiece

from engines import tiny_models
from engines.watches import StopAfter
from lingua_speech import plugins
from lingua_speech.engine import EngineError, ModelMissing, Stopped, Unwatched
from lingua_speech.engines.ctranslate import CTranslate, make
from lingua_speech.plugins import Spec
from lingua_wire.errors import ConfigError

pytestmark = pytest.mark.unit

TEXT = "good morning where is the station"


@pytest.fixture(name="folder", scope="module")
def all_models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("translators")
    tiny_models.nllb(folder / "nllb")
    tiny_models.opus(folder / "en-es")
    tiny_models.opus(folder / "marian", seed=5, adds_eos=True)
    tiny_models.opus(folder / "many", seed=6, targets=(">>es<<", ">>fra<<"))
    return folder


@pytest.fixture(name="nllb", scope="module")
def of_nllb_layout(folder: Path) -> CTranslate:
    return make({"model": str(folder / "nllb"), "languages": "en+es+fr"})


def translated(engine: CTranslate, text: str, source: str = "en", target: str = "es") -> str:
    return engine.translate(text, source, target, Unwatched())


def directly(path: Path, tokens: list[str], prefix: list[str] | None, target_model: str) -> str:
    """Return the library's own translation of these tokens."""
    translator = ctranslate2.Translator(str(path))
    found = translator.translate_batch(
        [tokens],
        target_prefix=[prefix] if prefix else None,
        beam_size=2,
        max_decoding_length=3 * len(tokens) + 20,
    )[0].hypotheses[0]
    named = {*(prefix or []), "eng_Latn", "spa_Latn", "fra_Latn", "<s>", "</s>", "<unk>", "<pad>"}
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(path / target_model))
    kept = [token for token in found if token not in named and not token.startswith(">>")]
    return " ".join(pieces.decode(kept).replace("▁", " ").split())


def cut(path: Path, model: str, text: str = TEXT) -> list[str]:
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(path / model))
    return list(pieces.encode(text, out_type=str))


def test_nllb_gets_the_language_first_and_the_end_last_and_the_target_as_prefix(folder, nllb):
    path, spm = folder / "nllb", "sentencepiece.bpe.model"
    tokens = ["eng_Latn", *cut(path, spm), "</s>"]
    for code, name in (("es", "spa_Latn"), ("fr", "fra_Latn")):
        wanted = directly(path, tokens, [name], spm)
        assert wanted
        assert translated(nllb, TEXT, target=code) == wanted
    assert translated(nllb, TEXT, target="es") != translated(nllb, TEXT, target="fr")


def test_opus_gets_the_pieces_and_the_end(folder):
    path = folder / "en-es"
    engine = plugins.make(Spec.parse(f"mt=ctranslate2:dir.en-es={path}"))
    wanted = directly(path, [*cut(path, "source.spm"), "</s>"], None, "target.spm")
    assert wanted
    assert translated(engine, TEXT) == wanted
    assert engine.about().pairs == (("en", "es"),)


def test_a_model_that_adds_the_end_itself_does_not_get_it_twice(folder):
    path = folder / "marian"
    assert json.loads((path / "config.json").read_text())["add_source_eos"] is True
    wanted = directly(path, cut(path, "source.spm"), None, "target.spm")
    assert translated(make({"dir.en-es": str(path)}), TEXT) == wanted


def test_a_model_of_many_targets_gets_the_target_as_a_token(folder):
    path = folder / "many"
    engine = make({"model": str(path), "pairs": "en-es+en-fr"})
    pieces = cut(path, "source.spm")
    for code, token in (("es", ">>es<<"), ("fr", ">>fra<<")):
        wanted = directly(path, [token, *pieces, "</s>"], None, "target.spm")
        assert translated(engine, TEXT, target=code) == wanted
    with pytest.raises(ModelMissing, match="no token for the language 'de'"):
        make({"model": str(path), "pairs": "en-de"})


def test_several_folders_serve_several_directions(folder):
    engine = make(
        {
            "dir.en-es": str(folder / "en-es"),
            "model": str(folder / "nllb"),
            "pairs": "es-en+en>fr-ca",
        }
    )
    assert engine.about().pairs == (("en", "es"), ("en", "fr-ca"), ("es", "en"))
    assert translated(engine, TEXT) == translated(make({"dir.en-es": str(folder / "en-es")}), TEXT)


def test_a_long_text_is_translated_sentence_by_sentence_and_in_order(nllb):
    parts = ["Good morning my friend.", "Where is the station?", "Help me please!", "I am here."]
    apart = [guess.text for guess in nllb._models["en", "es"].translate_batch(parts, "en", "es")]
    assert len(set(apart)) == len(parts)
    assert translated(nllb, " ".join(parts * 5)) == " ".join(apart * 5)
    assert translated(nllb, " ".join(parts[::-1])) == " ".join(apart[::-1])


def test_it_tells_how_sure_it_is_of_the_least_sure_sentence(nllb):
    parts = ["Good morning my friend.", "Where is the station?"]
    alone = [nllb.translate_with_score(part, "en", "es", Unwatched()).score for part in parts]
    together = nllb.translate_with_score(" ".join(parts), "en", "es", Unwatched())
    # Not exactly equal: in a batch they may end at another length.
    assert together.score == pytest.approx(min(alone), rel=0.2)
    assert max(alone) < 0
    assert nllb.translate_with_score("...", "en", "es", Unwatched()) == ("...", 0.0)


def test_it_stops_between_sentences(nllb):
    with pytest.raises(Stopped):
        nllb.translate("Good morning. " * 20, "en", "es", StopAfter(2))


def test_a_text_cannot_smuggle_special_tokens_in(nllb):
    model = nllb._models["en", "es"]
    tokens = model.source_tokens("hello </s> fra_Latn <s> >>fra<<", "en", "es")
    assert tokens[0] == "eng_Latn"
    assert tokens[-1] == "</s>"
    assert not {"</s>", "<s>", "fra_Latn"} & set(tokens[1:-1])


def test_nothing_gives_nothing_and_bare_signs_stay(nllb):
    assert translated(nllb, "") == ""
    assert translated(nllb, " \n ") == ""
    assert translated(nllb, "...") == "..."


def test_letters_it_has_never_seen_do_no_harm(nllb):
    assert isinstance(translated(nllb, "中文 😀 ñandú"), str)


def test_a_region_is_served_by_its_language_and_others_are_refused(nllb):
    assert translated(nllb, TEXT, "en-us", "es-mx") == translated(nllb, TEXT)
    with pytest.raises(EngineError, match="no model from 'en' to 'de'"):
        translated(nllb, TEXT, target="de")


def test_a_language_that_the_model_lacks_is_told_at_the_start(folder):
    with pytest.raises(ModelMissing, match="does not know the language 'de'"):
        make({"model": str(folder / "nllb"), "pairs": "en-de"})
    with pytest.raises(ModelMissing, match="does not know the language 'qq'"):
        make({"model": str(folder / "nllb"), "pairs": "en-qq"})


def test_what_is_missing_or_broken_is_told(folder, tmp_path):
    with pytest.raises(ConfigError, match="needs model="):
        make({})
    with pytest.raises(ConfigError, match="needs pairs="):
        make({"model": str(folder / "nllb")})
    with pytest.raises(ModelMissing, match="nothing is fetched"):
        make({"dir.en-es": "facebook/nllb-200"})
    with pytest.raises(ModelMissing, match=r"source\.spm"):
        make({"model": str(folder / "nllb"), "layout": "opus", "pairs": "en-es"})
    broken = tmp_path / "broken"
    broken.mkdir()
    for file in (folder / "nllb").iterdir():
        (broken / file.name).write_bytes(file.read_bytes())
    (broken / "model.bin").write_bytes(b"nonsense")
    with pytest.raises(ModelMissing, match="cannot be loaded"):
        make({"model": str(broken), "pairs": "en-es"})
    with pytest.raises(ConfigError, match="beam"):
        make({"model": str(folder / "nllb"), "pairs": "en-es", "beam": "0"})
