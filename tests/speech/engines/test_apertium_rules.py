"""The rules around Apertium, without Apertium: stream, protection, word forms, lexicon, modes."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lingua_scheduler.speech.engine import ModelMissing
from lingua_scheduler.speech.engines.apertium import (
    english,
    english_spanish,
    lexicon,
    modes,
    negation,
    protection,
    routes,
    spanish,
    spanish_english,
    spanish_rules,
    stream,
)  # fmt: skip
from lingua_scheduler.speech.engines.apertium.edits import capitalised, patterns, phrases, tidy
from lingua_scheduler.speech.engines.apertium.line import stretches, without_marks
from lingua_scheduler.speech.engines.apertium.modes import Place

pytestmark = pytest.mark.unit

MODE = (
    "lt-proc '/usr/share/apertium/p/a.bin' | apertium-tagger -g $2 '/usr/share/apertium/p/b.bin'"
    " | lrx-proc -m '/usr/share/apertium/p/c.bin' | apertium-transfer -b '/usr/share/apertium/p/d'"
    " | lt-proc $1 '/usr/share/apertium/p/e.bin' | lt-proc -p '/usr/share/apertium/p/f.bin'"
)


# The stream.


@given(st.text())
def test_escaped_text_comes_back(text: str) -> None:
    assert stream.unescape(stream.escape(text)) == text


@given(st.text(st.characters(exclude_characters="^$\\[]"), max_size=20), st.text(max_size=20))
def test_reading_and_writing_a_stream_changes_nothing(blank: str, word: str) -> None:
    text = f"{blank}^{stream.escape(word)}/lemma<n><sg>$ ^x/*x$[]"
    pieces = stream.read(text)
    assert stream.write(pieces) == text
    assert pieces[0].blank == blank
    assert pieces[-1].parts == ()


def test_readings_are_told_apart_by_lemma_and_tags() -> None:
    assert stream.tags("guiar<vblex><inf>+prpers<prn><enc>") == ("vblex", "inf")
    assert stream.lemma("take<vblex><inf># care") == "take# care"
    assert stream.tags("plain") == ()


# What must come through as it is.


@pytest.mark.parametrize(
    "kept",
    ["https://x.org/a?b=c#d", "me@here.org", "C#", "A4", "50%", "$5.50", "🙂", "*hello*", "zqxbz",
     "Zqyaz", "<b>", "^x^", "{b}", "snake_case"],
)  # fmt: skip
def test_what_is_not_a_word_is_protected(kept: str) -> None:
    hidden, pieces = protection.protect(f"see {kept} now")
    assert kept not in hidden
    assert protection.restore(hidden, pieces) == f"see {kept} now"


@given(st.text())
def test_protection_takes_nothing_away(text: str) -> None:
    hidden, pieces = protection.protect(text)
    assert protection.restore(hidden, pieces).replace("\u2060", "") == text.replace("\u2060", "")


def test_what_a_program_lost_is_said_at_the_end() -> None:
    hidden, pieces = protection.protect("see www.x.org now")
    assert hidden != "see now"
    assert protection.restore("see now", pieces) == "see now www.x.org"


# Word forms.


@pytest.mark.parametrize(
    ("lemma", "tags", "form"),
    [
        ("presionar", "imp p3 sg", "presione"), ("marcar", "imp p3 sg", "marque"),
        ("pagar", "prs p1 pl", "paguemos"), ("ingresar", "pp f pl", "ingresadas"),
        ("oprimir", "fti p1 sg", "oprimiré"), ("correr", "ger", "corriendo"),
        ("cruzar", "ifi p3 sg", "cruzó"), ("escoger", "prs p3 sg", "escoja"),
        ("ingresar de nuevo", "imp p3 sg", "ingrese de nuevo"), ("silenciar", "inf", "silenciar"),
    ],
)  # fmt: skip
def test_regular_spanish_verbs_have_their_forms(lemma: str, tags: str, form: str) -> None:
    assert spanish.verb(lemma, tags.split()) == form


def test_spanish_nouns_adjectives_and_joined_pronouns() -> None:
    assert spanish.noun("extensión", "pl") == "extensiones"
    assert spanish.noun("correo de voz", "pl") == "correos de voz"
    assert spanish.noun("luz", "pl") == "luces"
    assert spanish.adjective("operador", "f", "pl") == "operadoras"
    assert spanish.adjective("disponible", "f", "pl") == "disponibles"
    assert spanish.with_enclitic("presione", "lo") == "presiónelo"
    assert spanish.with_enclitic("guiar", "le") == "guiarle"
    assert spanish.reflexive("unir", ["fti", "p3", "sg"]) == "se unirá"
    assert spanish.reflexive("unir", ["imp", "p3", "sg"]) == "únase"
    assert spanish.bare("añádír") == "añadir"


def test_english_words_have_their_forms() -> None:
    assert english.plural("pound key") == "pound keys"
    assert english.plural("city") == "cities"
    assert english.verb("log in", "ed") == "logged in"
    assert english.verb("erase", "ing") == "erasing"
    assert english.verb("verify", "ed") == "verified"
    assert english.verb_by_tags("unlock", ("pri", "p3", "sg")) == "unlocks"


# The lexicon and the other tables.


def test_every_row_of_the_lexicon_is_whole() -> None:
    assert len(lexicon.rows()) > 300
    for row in lexicon.rows():
        assert row.kind in {"n", "vblex", "adj", "adv"}, row
        assert row.english, row
        assert row.spanish, row
        assert (row.gender in {"m", "f", "mf"}) is (row.kind == "n"), row
        assert set(row.flags) <= set("<>sei"), row


@pytest.mark.parametrize("table", ["en-es", "es-en", "es-fr", "fr-es"])
def test_every_row_of_the_tables_of_phrases_can_be_used(table: str) -> None:
    assert phrases(table)
    for pattern, said in phrases(table):
        groups = pattern.groups
        assert all(int(number) <= groups for number in re.findall(r"\\(\d)", said)), pattern
        assert said.strip(), pattern


@pytest.mark.parametrize("name", ["before-en-es", "after-en-es", "before-es-en", "after-es-en"])
def test_every_row_of_the_tables_of_corrections_can_be_used(name: str) -> None:
    assert patterns(f"{name}.tsv")
    for pattern, said in patterns(f"{name}.tsv"):
        assert all(int(n) <= pattern.groups for n in re.findall(r"\\(\d)", said)), pattern


def test_an_unknown_word_of_the_lexicon_is_recognised_translated_and_said() -> None:
    words = lexicon.lexicon("es")
    units = words.recognise(stream.read("^pound/pound<n><sg>$ ^keys/key<n><pl>$[]"))
    assert units[0].parts == ("pound keys", "pound key<n><pl>")
    unit = words.translate(stream.Piece("", ("pound key<n><pl>", "@pound key<n><pl>")))
    assert unit.parts[1] == "tecla de número<n><f><pl>"
    said = words.say(stream.Piece("", ("tecla de número<n><f><pl>",)))
    assert [piece.parts for piece in said] == [("*teclas de número",)]


def test_on_the_way_to_a_third_language_apertiums_own_word_is_kept() -> None:
    unit = stream.Piece("", ("press<vblex><inf>", "pulsar<vblex><inf>"))
    words = lexicon.lexicon("es")
    assert words.translate(unit).parts[1] == "presionar<vblex><inf>"
    assert words.translate(unit, only_known=True).parts[1] == "pulsar<vblex><inf>"


# English into Spanish, rule by rule.


def _before(text: str) -> str:
    return english_spanish.EnglishSpanish().before(text)


@pytest.mark.parametrize(
    ("said", "written"),
    [
        ("I can't and won't go", "I can not and will not go"),
        ("You've seen it, they'll see", "You have seen it, they will see"),
        ("Is there a bank?", "There Is a bank?"),
    ],
)
def test_english_is_written_as_the_analyser_expects(said: str, written: str) -> None:
    assert _before(said) == written


def test_a_bare_verb_where_a_clause_begins_is_a_command() -> None:
    text = "^Press/Press<n><sg>/Press<vblex><inf>$ ^1/1<num>$ ^now/now<adv>$[]"
    units, forbids = english_spanish.commands(stream.read(text))
    assert units[0].parts == ("Press", "Press<vblex><inf>")
    assert not forbids


def _corrected(rules: ModuleType, rule: str, readings: str) -> str:
    """Apply a rule to units that are written with a space between them."""
    units = stream.read(" ".join(f"^{reading}$" for reading in readings.split(" ")))
    return " ".join(unit.parts[0] for unit in getattr(rules, rule)(units) if unit.parts)


@pytest.mark.parametrize(
    ("rule", "wrong", "right"),
    [
        (
            "ser_or_estar",
            "ser<vbser><pri><p3><sg> aquí<adv>",
            "estar<vblex><pri><p3><sg> aquí<adv>",
        ),
        ("ser_or_estar", "ser<vbser><pri><p3><sg> alto<adj>", "ser<vbser><pri><p3><sg> alto<adj>"),
        (
            "polite",
            "tener<vblex><pri><p2><sg> vuestro<det><pos><m><sg>",
            "tener<vblex><pri><p3><sg> suyo<det><pos><mf><sg>",
        ),
        ("polite", "ti<prn><tn><p2><mf><sg>", "prpers<prn><tn><p3><mf><sg>"),
        ("plural_you", "tener<vblex><pri><p2><sg>", "tener<vblex><pri><p2><pl>"),
        (
            "subjunctive_after_when",
            "venir<vblex><fti><p3><sg> cuando<cnjadv> llegar<vblex><pri><p3><sg>",
            "venir<vblex><fti><p3><sg> cuando<cnjadv> llegar<vblex><prs><p3><sg>",
        ),
        (
            "personal_a",
            "llamar<vblex><inf> el<det> médico<n>",
            "llamar<vblex><inf> a<pr> el<det> médico<n>",
        ),
        ("plainer_words", "uno<det> otro<det>", "otro<det>"),
    ],
)
def test_spanish_is_put_right(rule: str, wrong: str, right: str) -> None:
    assert _corrected(spanish_rules, rule, wrong) == right


def test_spanish_questions_are_opened() -> None:
    assert spanish_rules.with_opening_marks("Dónde está?") == "¿Dónde está?"
    assert spanish_rules.with_opening_marks("Hola, cómo está?") == "Hola, ¿cómo está?"
    assert spanish_rules.with_opening_marks("¿Ya?") == "¿Ya?"


# Spanish into English, rule by rule.


@pytest.mark.parametrize(
    ("rule", "wrong", "right"),
    [
        (
            "agreeing",
            "prpers<prn><subj><p2><mf><sp> have<vbhaver><pri><p3><sg>",
            "prpers<prn><subj><p2><mf><sp> have<vbhaver><pres>",
        ),
        (
            "to_you",
            "prpers<prn><subj><p3><nt><sg> can<vaux><pres>",
            "prpers<prn><subj><p2><mf><sp> can<vaux><pres>",
        ),
        ("compounds", "number<n><sg> of<pr> phone<n><sg>", "phone<n><sg> number<n><sg>"),
        ("compounds", "cup<n><sg> of<pr> coffee<n><sg>", "cup<n><sg> of<pr> coffee<n><sg>"),
    ],
)
def test_english_is_put_right(rule: str, wrong: str, right: str) -> None:
    assert _corrected(spanish_english, rule, wrong) == right


def test_su_is_yours_unless_the_sentence_is_about_somebody_else() -> None:
    su = "^suyo<det><pos><mf><sg>/his<det><pos><mf><sg>$"
    yours = spanish_english.whose(stream.read(su))
    hers = spanish_english.whose(stream.read(f"^madre<n><f><sg>/mother<n><sg>$ {su}"))
    assert yours[0].parts[1] == "your<det><pos><mf><sg>"
    assert hers[1].parts[1] == "her<det><pos><mf><sg>"


# Text, modes, routes.


def test_text_is_tidied() -> None:
    assert tidy("a  b , c .") == "a b, c."
    assert capitalised("...¿qué?") == "...¿Qué?"


def test_words_without_translation_are_said_without_a_mark() -> None:
    units = without_marks(stream.read("^@foo<n><sg>$ ^bar<n><sg>$"))
    assert stream.write(units) == "^*foo$ ^bar<n><sg>$"


def _tree(root: Path) -> Place:
    (root / "usr/bin").mkdir(parents=True)
    (root / "usr/share/apertium/modes").mkdir(parents=True)
    (root / "usr/share/apertium/p").mkdir()
    for name in ("a.bin", "b.bin", "c.bin", "d", "e.bin", "f.bin"):
        (root / "usr/share/apertium/p" / name).touch()
    for name in ("lt-proc", "apertium-tagger", "lrx-proc", "apertium-transfer"):
        (root / "usr/bin" / name).touch(mode=0o755)
    (root / "usr/share/apertium/modes/eng-spa.mode").write_text(MODE)
    (root / "usr/share/apertium/modes/eng-cat_valencia.mode").write_text(MODE)
    return Place(root)


def test_a_mode_is_read_with_its_paths_in_the_tree(tmp_path: Path) -> None:
    found = modes.find_modes([_tree(tmp_path)])
    assert list(found) == [("en", "es")]
    steps = found[("en", "es")].steps
    assert steps[0] == (f"{tmp_path}/usr/bin/lt-proc", f"{tmp_path}/usr/share/apertium/p/a.bin")
    assert f"{tmp_path}/usr/lib" in found[("en", "es")].environment["LD_LIBRARY_PATH"]


def test_a_mode_whose_data_or_program_is_missing_is_none(tmp_path: Path) -> None:
    place = _tree(tmp_path)
    (tmp_path / "usr/share/apertium/p/d").unlink()
    assert modes.find_modes([place]) == {}
    (tmp_path / "usr/share/apertium/p/d").touch()
    (tmp_path / "usr/bin/lrx-proc").unlink()
    assert modes.find_modes([place]) == {}


def test_programs_are_cut_where_rules_look_at_the_stream(tmp_path: Path) -> None:
    mode = modes.find_modes([_tree(tmp_path)])[("en", "es")]
    cut = stretches(mode)
    assert [stage for _, stage in cut] == ["analysed", "tagged", "bilingual", "target", ""]
    assert all(step[1] == "-z" for steps, _ in cut for step in steps)
    assert cut[-1][0][0][2] == "-n"


@pytest.mark.parametrize(
    ("name", "direction"),
    [
        ("eng-spa", ("en", "es")), ("es-pt_BR", ("es", "pt-br")), ("fr-es", ("fr", "es")),
        ("eco-es-fr", None), ("spa-eng_US", None), ("nno-nob", None),
    ],
)  # fmt: skip
def test_directions_are_told_by_the_modes_name(
    name: str, direction: tuple[str, str] | None
) -> None:
    assert modes.direction_of(name) == direction


def test_two_directions_make_a_third_over_spanish() -> None:
    found = routes({("en", "es"), ("es", "en"), ("es", "fr"), ("en", "ca")})
    assert found[("en", "fr")] == (("en", "es"), ("es", "fr"))
    assert ("fr", "en") not in found
    assert ("en", "en") not in found
    assert found[("es", "ca")] == (("es", "en"), ("en", "ca"))


def test_pairs_are_listed_with_plus_and_nonsense_is_refused() -> None:
    assert modes.wanted("en-es+es>en", {}) == (("en", "es"), ("es", "en"))
    with pytest.raises(ModelMissing, match="not a direction"):
        modes.wanted("english", {})


@pytest.mark.parametrize(
    ("spanish", "english", "kept"),
    [
        ("Nadie sabe.", "Anybody knows.", "Nobody knows."),
        ("Ahora nadie es libre.", "Now anyone is free.", "Now nobody is free."),
        ("No hay nadie.", "There is not anybody.", "There is not anybody."),
        ("No he visto a nadie.", "I have not seen anybody.", "I have not seen anybody."),
        ("Ningún médico está libre.", "Any doctor is free.", "No doctor is free."),
        ("Nada es gratis.", "At all it is free.", "Nothing is free."),
        ("¿Sabe alguien?", "Does anybody know?", "Does anybody know?"),
        ("Sin nadie.", "Without anybody.", "Without anybody."),
        ("Nadie sabe nada.", "Anybody knows anything.", "Anybody knows anything."),
    ],
)
def test_a_spanish_no_stays_one_in_english(spanish: str, english: str, kept: str) -> None:
    assert negation.kept_in_english(spanish, english) == kept


@pytest.mark.parametrize(
    ("english", "spanish", "kept"),
    [
        ("You must not smoke.", "No tiene que fumar.", "No debe fumar."),
        ("They mustn't go.", "Ellos no tienen que ir.", "Ellos no deben ir."),
        ("You do not have to go.", "No tiene que ir.", "No tiene que ir."),
        ("I cannot see anyone.", "No puedo ver cualquiera.", "No puedo ver a nadie."),
        ("Anyone can come.", "Cualquiera puede venir.", "Cualquiera puede venir."),
    ],
)
def test_an_english_no_stays_one_in_spanish(english: str, spanish: str, kept: str) -> None:
    assert negation.kept_in_spanish(english, spanish) == kept
