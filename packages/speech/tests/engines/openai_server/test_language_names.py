"""Names of languages and their codes."""

from __future__ import annotations

import pytest

from lingua_speech.engines.openai_server.language_names import code_of, name_of

pytestmark = pytest.mark.unit


def test_languages_have_names():
    assert (code_of("English"), code_of("pt-BR"), code_of("jw"), code_of("")) == (
        "en",
        "pt",
        "jv",
        "",
    )
    assert code_of(None) == code_of("x" * 100) == code_of("gibberis") == ""
    assert name_of("es-mx") == "Spanish (es-mx)"
    assert "qq" in name_of("qq")
