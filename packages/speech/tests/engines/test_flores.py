"""The codes of languages in NLLB."""

from __future__ import annotations

import pytest

from lingua_speech.engines.flores import flores

pytestmark = pytest.mark.unit


def test_codes_have_their_name_in_nllb():
    assert flores("es-mx") == "spa_Latn"
    assert flores("zh-tw") == "zho_Hant"
    assert flores("zh") == "zho_Hans"
    assert flores("qq") == ""
