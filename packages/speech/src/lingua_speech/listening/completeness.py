"""Whether a text so far looks like a whole sentence, plainly not, or unknown. Pure.

Recognisers end whatever they hear with a full stop, so a full stop alone proves little; but a text
that ends with an article or a conjunction goes on in every language. Of other words it depends on
the mark: who says "he was" goes on, who says "than he was." may have ended.
"""

from __future__ import annotations

from typing import Final

from lingua_speech.listening.agreement import plain
from lingua_wire.languages import base_of

# Shorter texts are not judged: "So." may be all that somebody says.
WORDS_AT_LEAST: Final = 3
# With the Chinese and Japanese marks.
SENTENCE_ENDS: Final = (".", "?", "!", "\u3002", "\uff1f", "\uff01")
OPEN_ENDS: Final = (",", ";", ":", "-", "\u2013", "\u2014", "…", "...")


def _listed(**words: str) -> dict[str, frozenset[str]]:
    return {language: frozenset(listed.split()) for language, listed in words.items()}


# Words after which a sentence always goes on: articles, conjunctions, possessives, most
# prepositions.
ALWAYS_OPEN: Final = _listed(
    en=(
        "a an the and or but because if when while although unless than into onto my your our "
        "their its who which whose at of from"
    ),
    es=(
        "el la los las un una unos unas y e o u pero porque si cuando mientras aunque que de del "
        "a al en con por para sin sobre entre hasta desde mi tu su mis tus sus"
    ),
    fr=(
        "le la les un une des du de et ou mais parce que si quand lorsque à au aux en dans par "
        "entre mon ma mes ton ta tes ses notre votre leurs je qui ne"
    ),
    de=(
        "ein eine einen einem einer eines und oder aber weil wenn dass ob obwohl von zum zur für "
        "im am zwischen meine dein deine unsere als"
    ),
    pt=(
        "o a os as um uma uns umas e ou mas porque se quando enquanto embora que de do da dos das "
        "em no na nos nas com por para sem sobre entre até desde ao à"
    ),
    it=(
        "il lo la i gli le un uno una e o ma perché se quando mentre che di del della dei delle a "
        "al alla in nel nella con per tra fra sul sulla"
    ),
)
# Words after which one mostly goes on. But some sentences end with them ("than he was.", "Ich komme
# mit.", "no quiero más."), so that a mark after them makes it unknown.
MOSTLY_OPEN: Final = _listed(
    en=(
        "as by with to for very his is are was were be been am has have had will would can could "
        "should may might must i we they he she"
    ),
    es="nuestro nuestra es son está están muy más ha han he hemos como",
    fr=(
        "avec sans pour sur sous son sa leur est sont très plus tu il elle nous vous ils elles "
        "comme"
    ),
    de=(
        "der die das den dem des zu mit bei in an auf aus nach über unter mein sein seine ihr ihre "
        "unser ist sind sehr ich wir er wie"
    ),
    pt="meu minha seu sua nosso nossa é são está estão muito mais como",
    it="su mio mia tuo tua suo sua nostro nostra è sono molto più ho hai ha come",
)


def is_complete(text: str, language: str) -> bool | None:
    """Tell whether a text is a whole sentence (True), plainly not (False), or unknown (None)."""
    words = text.split()
    if not words:
        return None
    last = words[-1]
    if last.endswith(OPEN_ENDS):
        return False
    base, word = base_of(language), plain(last)
    has_mark = last.rstrip("\"'”»)").endswith(SENTENCE_ENDS)
    is_question = last.endswith("?")
    if word in ALWAYS_OPEN.get(base, ()) and not is_question:
        return False
    if word in MOSTLY_OPEN.get(base, ()) and not is_question:
        return None if has_mark else False
    return True if has_mark and len(words) >= WORDS_AT_LEAST else None
