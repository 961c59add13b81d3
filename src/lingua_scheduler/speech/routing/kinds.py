"""What kind of sentence it is: one that a telephone system says, or one that people say. Pure.

Rules that were written for the first kind are better there than any network here, and worse
elsewhere. The words are those of the half of the prompts that rules were written on.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from lingua_scheduler.languages import base_of

if TYPE_CHECKING:
    from collections.abc import Mapping

EVERYDAY, PROMPTS = "everyday", "prompts"
WORD = re.compile(r"[^\W\d_]+")


def _set(text: str) -> frozenset[str]:
    return frozenset(text.split())


# One of these is enough: hardly anybody says them but on the telephone.
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
# Of these it takes two.
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
    """Return the set of sentences that a text is most like."""
    words = set(WORD.findall(text.lower()))
    base = base_of(language)
    if words & TELLING.get(base, frozenset()):
        return PROMPTS
    return PROMPTS if len(words & LIKELY.get(base, frozenset())) >= 2 else EVERYDAY
