"""Tells telephone prompts from everyday sentences. Pure.

Rules written for prompts are better than any network on prompts, and worse elsewhere. The words
come from the half of the prompts on which the rules were written.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from lingua_wire.languages import base_of

if TYPE_CHECKING:
    from collections.abc import Mapping

EVERYDAY, PROMPTS = "everyday", "prompts"
WORD = re.compile(r"[^\W\d_]+")


def _set(text: str) -> frozenset[str]:
    return frozenset(text.split())


# One of these words is enough: they are rare outside telephone prompts.
TELLING: Final[Mapping[str, frozenset[str]]] = {
    "en": _set(
        "press dial mailbox voicemail pound conference participant participants caller callers"
        " extension"
    ),
    "es": _set(
        "marque presione pulse oprima ingrese tecla asterisco buzón buzon conferencia participante"
        " participantes extensión extension"
    ),
}
# Two of these words are needed.
LIKELY: Final[Mapping[str, frozenset[str]]] = {
    "en": _set(
        "message messages greeting tone beep key star hash agent agents representative operator"
        " queue menu password pin number volume audio recording record call calls line system"
        " temporary default enter hold transfer channel directory options currently"
    ),
    "es": _set(
        "mensaje mensajes saludo tono grabar grabación agente agentes representante operador cola"
        " menú contraseña clave número numero volumen audio llamada llamadas línea linea sistema"
        " temporal espere canal directorio opciones opción usuario actualmente archivo"
    ),
}


def kind_of(text: str, language: str) -> str:
    """Return the set of sentences that a text resembles most."""
    words = set(WORD.findall(text.lower()))
    base = base_of(language)
    if words & TELLING.get(base, frozenset()):
        return PROMPTS
    return PROMPTS if len(words & LIKELY.get(base, frozenset())) >= 2 else EVERYDAY
