"""The languages that each size of Whisper recognises well enough to be offered.

Whisper knows 99 languages, most of them badly. The lists contain those where about three words in
four or more are right at this size, by the results that its authors published for read speech
(FLEURS; Radford et al. 2022); only English and Spanish were measured here. The option
`languages=en+nl` selects others.
"""

from __future__ import annotations

from typing import Final

_BASE: Final = ("en", "es", "it", "pt", "de", "fr")
_SMALL: Final = (*_BASE, "nl", "ca", "pl", "ru", "uk", "tr", "id", "sv", "ja")

LANGUAGES: Final = {"tiny": ("en", "es"), "base": _BASE, "small": _SMALL}
