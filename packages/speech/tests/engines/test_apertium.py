"""Apertium with real programs and pairs: translations, and programs that die."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.watches import StopAfter
from lingua_speech.engine import EngineError, ModelMissing, Stopped, Unwatched
from lingua_speech.engines.apertium import KNOWN, Apertium, make
from lingua_speech.engines.apertium.pipeline import CLOSE_S
from lingua_speech.models import default_store
from lingua_speech.pipeline_stage import translation_s
from lingua_speech.prompt_corpus import parallel_prompts
from lingua_speech.scores import chrf
from lingua_wire.errors import ConfigError

pytestmark = pytest.mark.speech

NEEDED = ("apertium", "apertium-eng-spa", "apertium-fra-spa")
BOUND_S = 10.0
WATCH = Unwatched()


@pytest.fixture(name="apertium", scope="module")
def _apertium() -> Iterator[Apertium]:
    for name in NEEDED:
        if not default_store().has(name):
            default_store().install(name)
    engine = make({"pairs": "en-es+es-en+en-fr", "timeout_s": "2"})
    yield engine
    engine.close()


def _eventually(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + BOUND_S
    while not condition():
        assert time.monotonic() < end, "the condition was not met in time"
        time.sleep(0.01)


def _is_gone(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return True
    return state == "Z"


def test_it_says_what_it_can_do(apertium: Apertium) -> None:
    assert apertium.about().pairs == (("en", "es"), ("en", "fr"), ("es", "en"))
    assert "GPL" in apertium.about().licence


@pytest.mark.parametrize(
    ("said", "translated"),
    [
        ("Please send me the report.", "Por favor envíeme el informe."),
        ("Don't open the door.", "No abra la puerta."),
        ("If you need anything, call me.", "Si necesita cualquier cosa, llámeme."),
        ("Where is the nearest pharmacy?", "¿Dónde está la farmacia más cercana?"),
        ("Good morning, how are you today?", "Buenos días, ¿cómo está hoy?"),
        ("There is no problem.", "No hay problema."),
        ("You must not take this medicine.", "Usted no debe tomar esta medicina."),
    ],
)
def test_english_becomes_spanish(apertium: Apertium, said: str, translated: str) -> None:
    assert apertium.translate(said, "en", "es", WATCH) == translated


@pytest.mark.parametrize(
    ("said", "translated"),
    [
        ("El tren sale a las cinco.", "The train leaves at five."),
        ("Presione la tecla de asterisco.", "Press the star key."),
        ("Usted tiene un mensaje nuevo.", "You have a new message."),
        ("En este momento nadie es libre.", "At the moment nobody is free."),
        ("No hay nadie en casa.", "There is nobody at home."),
        ("Nunca he estado en Francia.", "I have never been in France."),
    ],
)
def test_spanish_becomes_english(apertium: Apertium, said: str, translated: str) -> None:
    assert apertium.translate(said, "es", "en", WATCH) == translated


def test_french_is_reached_over_spanish_and_stays_polite(apertium: Apertium) -> None:
    assert apertium.translate("Do you want a coffee?", "en", "fr", WATCH) == "Vous voulez un café?"


def test_a_sentence_does_not_change_how_others_are_translated(apertium: Apertium) -> None:
    had = "John had then leisure to consider."
    before = apertium.translate(had, "en", "es", WATCH)
    apertium.translate("He might even have been made amiable himself.", "en", "es", WATCH)
    assert (
        apertium.translate(had, "en", "es", WATCH)
        == before
        == "John hubo entonces ocio para considerar."
    )


def test_a_region_is_served_by_its_language(apertium: Apertium) -> None:
    assert apertium.translate("The house", "en-us", "es-mx", WATCH) == "La casa"


def test_a_direction_that_is_not_there_is_refused(apertium: Apertium) -> None:
    with pytest.raises(EngineError, match="no en>de"):
        apertium.translate("hello", "en", "de", WATCH)


@pytest.mark.parametrize(
    "kept",
    [
        "https://x.org/a?b=c#d",
        "me@here.org",
        "C#",
        "*hello*",
        "@me",
        "#tag",
        "^x^",
        "[a]",
        "{b}",
        "<b>",
        "🙂",
        "$5.50",
        "zqxaz",
        "\\",
        "Qwrtpsdf",
    ],
)
def test_what_is_no_word_comes_through(apertium: Apertium, kept: str) -> None:
    assert kept in apertium.translate(f"The house {kept} is big.", "en", "es", WATCH)


def test_no_marks_are_left_at_unknown_words(apertium: Apertium) -> None:
    said = apertium.translate("The blorptastic frobnicator unmutes grumblings.", "en", "es", WATCH)
    assert not set("*@#~^$[]") & set(said)


def test_lines_stay_lines_and_nul_is_a_space(apertium: Apertium) -> None:
    said = apertium.translate("The house.\n\nThe\0tree.", "en", "es", WATCH)
    assert said == "La casa.\n\nEl árbol."


@pytest.mark.parametrize("text", ["", " ", "...", "🙂🙂", "\n\n"])
def test_what_says_nothing_is_left_alone(apertium: Apertium, text: str) -> None:
    assert apertium.translate(text, "en", "es", WATCH) == text.strip()


def test_very_long_text_is_translated_piece_by_piece(apertium: Apertium) -> None:
    said = apertium.translate("The house is big and the tree is small, " * 200, "en", "es", WATCH)
    assert said.lower().count("casa") == 200


@given(st.text(max_size=60), st.sampled_from([("en", "es"), ("es", "en"), ("en", "fr")]))
@settings(max_examples=150)
def test_no_text_is_too_strange(apertium: Apertium, text: str, direction: tuple[str, str]) -> None:
    said = apertium.translate(text, *direction, WATCH)
    assert bool(said) or not any(sign.isalnum() for sign in text)


def test_a_dead_program_is_replaced(apertium: Apertium) -> None:
    apertium.translate("The house", "en", "es", WATCH)
    victim = apertium.pids[0]
    os.kill(victim, signal.SIGKILL)
    assert apertium.translate("The house", "en", "es", WATCH) == "La casa"
    assert victim not in apertium.pids


def test_a_hung_program_is_replaced(apertium: Apertium) -> None:
    apertium.translate("The house", "en", "es", WATCH)
    victims = apertium.pids
    for pid in victims:
        os.kill(pid, signal.SIGSTOP)
    assert apertium.translate("The house", "en", "es", WATCH) == "La casa"
    _eventually(lambda: all(_is_gone(pid) or pid in apertium.pids for pid in victims))


def test_a_second_try_fits_into_the_time_that_the_node_gives_a_translation() -> None:
    # The hanging programs are ended, new ones are started, and these answer.
    started_anew_s = CLOSE_S + 0.5
    assert float(KNOWN["timeout_s"]) + started_anew_s < translation_s("The house")


def test_nobody_waits_for_what_nobody_wants(apertium: Apertium) -> None:
    with pytest.raises(Stopped):
        apertium.translate("The house. The tree. The dog.", "en", "es", StopAfter(1))


def test_the_programs_die_with_their_owner(apertium: Apertium) -> None:
    code = (
        "from lingua_speech.engines.apertium import make\n"
        "from lingua_speech.engine import Unwatched\n"
        "engine = make({'pairs': 'en-es'})\n"
        "engine.translate('The house', 'en', 'es', Unwatched())\n"
        "print(*engine.pids, flush=True)\n"
        "input()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout is not None
        pids = [int(word) for word in owner.stdout.readline().split()]
        assert len(pids) > 5
        owner.kill()
        _eventually(lambda: all(_is_gone(pid) for pid in pids))


def test_a_pair_that_is_not_installed_is_told() -> None:
    with pytest.raises(ModelMissing, match="cannot do en>de"):
        make({"pairs": "en-de"})


def test_an_empty_tree_has_no_pairs(tmp_path: Path) -> None:
    with pytest.raises(ModelMissing, match="lingua models install"):
        make({"dir": str(tmp_path)})


@pytest.mark.parametrize("value", ["0", "-1", "soon", "601", "nan"])
def test_a_time_limit_must_be_one(value: str) -> None:
    with pytest.raises(ConfigError, match="timeout_s"):
        make({"timeout_s": value})


def test_the_rules_help_where_nobody_looked() -> None:
    store = default_store()
    for name in ("recordings-prompts-en", "recordings-prompts-es"):
        if not store.has(name):
            store.install(name)
    prompts = parallel_prompts(
        store.path("recordings-prompts-en") / "transcripts.tsv",
        store.path("recordings-prompts-es") / "transcripts.tsv",
    )
    held_out = [prompt for prompt in prompts if prompt.is_held_out]
    assert len(held_out) > 70
    english = [prompt.first for prompt in held_out]
    spanish = [prompt.second for prompt in held_out]
    scores = {}
    for rules in ("yes", "no"):
        engine = make({"pairs": "en-es+es-en", "rules": rules})
        there = [engine.translate(text, "en", "es", WATCH) for text in english]
        back = [engine.translate(text, "es", "en", WATCH) for text in spanish]
        engine.close()
        scores[rules] = chrf(there, spanish), chrf(back, english)
    assert scores["yes"][0] > scores["no"][0] + 10
    assert scores["yes"][1] > scores["no"][1] + 9
