"""Glossaries: their limits, reading, merging, and the part that a job needs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lingua_wire.errors import ConfigError, InvalidGlossary, InvalidLanguage
from lingua_wire.glossary import BYTES_MAX, checked, merged, needed, of_table, read
from lingua_wire.shared import TERMS_MAX, Term

pytestmark = pytest.mark.unit


def term(text: str, **translations: str) -> Term:
    return Term(term=text, translations=translations or None)


def test_a_table_is_terms_with_what_they_are_called() -> None:
    table: dict[str, Any] = {"Acme": {}, "ledger": {"es": "libro mayor"}, "iPhone": None}
    assert of_table(table) == (term("Acme"), term("ledger", es="libro mayor"), term("iPhone"))


def test_terms_and_codes_have_one_form() -> None:
    given = [Term(term=" cafe\u0301 \n bar ", translations={"PT_br": " bar  do cafe\u0301"})]
    assert checked(given) == (Term(term="café bar", translations={"pt-br": "bar do café"}),)


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ({f"t{at}": None for at in range(TERMS_MAX + 1)}, f"at most {TERMS_MAX} terms, got 301"),
        ({f"{at:03}" * 40: {"es": "x" * 20} for at in range(120)}, "at most 16384 bytes of text"),
        ({"x" * 129: None}, "length <= 128"),
        ({"x": {"es": "y" * 129}}, "length <= 128"),
        ({"x": {f"a{a}{b}": "y" for a in "abcdefghi" for b in "abcdefghi"}}, "length <= 64"),
        ({"x": {"es": 7}}, "Expected `str`, got `int`"),
        ({"x": "y"}, "Expected `object | null`, got `str`"),
        ({"a": {"b": {"es": "c"}}}, "Expected `str`, got `object`"),
        ({"": None}, "a letter or a digit: ''"),
        ({"...": None}, "a letter or a digit: '...'"),
        ({"x": {"es": " "}}, "a letter or a digit: ' '"),
        ({"a\0b": None}, "control characters"),
        ({"a b": None, "a  b": None}, "given twice: 'a b'"),
    ],
)
def test_an_invalid_glossary_is_refused(table: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidGlossary) as refused:
        of_table(table)
    assert problem in str(refused.value)


def test_an_invalid_language_is_refused() -> None:
    with pytest.raises(InvalidLanguage, match="not a language code: 'Spanish!'"):
        of_table({"ledger": {"Spanish!": "libro mayor"}})


def test_the_most_that_is_allowed_is_taken() -> None:
    assert len(of_table({f"term {at}": None for at in range(TERMS_MAX)})) == TERMS_MAX
    assert of_table({f"{at:0128}": None for at in range(BYTES_MAX // 128)})


def test_a_term_is_called_by_the_region_else_by_the_language_else_as_it_is() -> None:
    known = Term(term="bus", translations={"es": "autobús", "es-mx": "camión"})
    called = [known.said_in(code) for code in ("es-mx", "es-ar", "es", "fr")]
    assert called == ["camión", "autobús", "autobús", None]


def test_of_two_glossaries_the_own_one_counts() -> None:
    tenants = (term("a", es="1"), term("b"))
    own = (term("a", es="2"), term("c"))
    assert merged(tenants, own) == (term("a", es="2"), term("b"), term("c"))
    assert merged(tenants, ()) is tenants
    assert merged((), own) is own


def test_a_job_gets_what_it_needs() -> None:
    whole = (term("a", es="1", fr="2"), term("b", fr="3"))
    assert needed(whole, ["es-mx"]) == (term("a", es="1"), term("b"))
    assert needed(whole, ["es", "fr"]) == whole


def test_a_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / "acme.toml"
    file.write_text('# ours\n"Acme Cloud" = {}\nledger = { es = "libro mayor" }\n')
    assert read(file, "--glossary") == (term("Acme Cloud"), term("ledger", es="libro mayor"))


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"ledger: libro", "is not TOML"),
        (b"\xff\xfe", "is not TOML"),
        (b'ledger = "libro"', "got `str`"),
        (b'ledger = { "no code" = "libro" }', "not a language code"),
    ],
)
def test_an_invalid_file_is_reported_with_its_setting(
    tmp_path: Path, content: bytes, problem: str
) -> None:
    file = tmp_path / "bad.toml"
    file.write_bytes(content)
    with pytest.raises(ConfigError, match=problem) as refused:
        read(file, "tenants[0].glossary_file")
    assert refused.value.path == "tenants[0].glossary_file"


def test_a_missing_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--glossary: cannot read .*No such file"):
        read(tmp_path / "none.toml", "--glossary")
