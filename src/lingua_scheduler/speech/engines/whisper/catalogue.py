"""Which languages each size of Whisper is good enough for to be offered.

Whisper knows 99, most of them badly. Listed are those where, by the results that its authors
published for read speech (FLEURS; Radford et al. 2022), about three words in four or more are
right at this size; only English and Spanish were measured here. Who wants others names them:
`languages=en+nl`.
"""

from __future__ import annotations

from typing import Final

_BASE: Final = ("en", "es", "it", "pt", "de", "fr")
_SMALL: Final = (*_BASE, "nl", "ca", "pl", "ru", "uk", "tr", "id", "sv", "ja")

LANGUAGES: Final = {"tiny": ("en", "es"), "base": _BASE, "small": _SMALL}
