"""Whether a text so far looks like a whole sentence, plainly not, or unknown. Pure.

Recognisers end whatever they hear with a full stop, so a full stop alone proves little; but a text
that ends with an article or a conjunction goes on in every language.
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

# Words after which a sentence goes on: articles, prepositions, conjunctions, possessives. Left out
# are those that often end one ("what for", "come on", "that").
LISTED: Final = {
    "en": (
        "a an the and or but because if when while although unless than of from with into onto at "
        "by my your his our their its to for very is are was were be been am has have had will "
        "would can could should may might must who which whose i we they he she as"
    ),
    "es": (
        "el la los las un una unos unas y e o u pero porque si cuando mientras aunque que de del "
        "a al en con por para sin sobre entre hasta desde mi tu su mis tus sus nuestro nuestra es "
        "son está están muy más ha han he hemos como"
    ),
    "fr": (
        "le la les un une des du de et ou mais parce que si quand lorsque à au aux en dans avec "
        "sans pour par sur sous entre mon ma mes ton ta tes son sa ses notre votre leur leurs est "
        "sont très plus je tu il elle nous vous ils elles qui ne comme"
    ),
    "de": (
        "der die das den dem des ein eine einen einem einer eines und oder aber weil wenn dass ob "
        "obwohl von zu zum zur mit bei für im in am an auf aus nach über unter zwischen mein "
        "meine dein deine sein seine ihr ihre unser unsere ist sind sehr ich wir er als wie"
    ),
    "pt": (
        "o a os as um uma uns umas e ou mas porque se quando enquanto embora que de do da dos das "
        "em no na nos nas com por para sem sobre entre até desde meu minha seu sua nosso nossa é "
        "são está estão muito mais ao à como"
    ),
    "it": (
        "il lo la i gli le un uno una e o ma perché se quando mentre che di del della dei delle a "
        "al alla in nel nella con per tra fra su sul sulla mio mia tuo tua suo sua nostro nostra "
        "è sono molto più ho hai ha come"
    ),
}
OPEN_WORDS: Final = {language: frozenset(words.split()) for language, words in LISTED.items()}


def is_complete(text: str, language: str) -> bool | None:
    """Tell whether a text is a whole sentence (True), plainly not (False), or unknown (None)."""
    words = text.split()
    if not words:
        return None
    last = words[-1]
    if last.endswith(OPEN_ENDS):
        return False
    if plain(last) in OPEN_WORDS.get(base_of(language), frozenset()) and not last.endswith("?"):
        return False
    if len(words) >= WORDS_AT_LEAST and last.rstrip("\"'”»)").endswith(SENTENCE_ENDS):
        return True
    return None
