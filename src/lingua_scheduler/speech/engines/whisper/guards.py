"""When not to believe Whisper: circles, credits of subtitles, sounds in brackets, echoes. Pure.

Whisper was trained on subtitles: of noise it makes "Thanks for watching!", of music "[Music]", and
now and then it says the same for ever. Texts that people also say are dropped only when there is
another reason to doubt that anything was said.
"""

from __future__ import annotations

import re
import zlib
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

# A circle of so many tokens has to be gone round so many times to be one; people repeat, too.
SHORT_CIRCLE: Final = 2
SHORT_ROUNDS: Final = 8
MIDDLE_CIRCLE: Final = 8
MIDDLE_ROUNDS: Final = 3
LONG_ROUNDS: Final = 2
# A text that is said as a whole for the third time was said once.
ANEW_AT_LEAST: Final = 3
# Nobody says more tokens than this in a second, and a text has to begin somehow.
TOKENS_PER_S: Final = 14
TOKENS_AT_LEAST: Final = 24
TOKENS_AT_MOST: Final = 224
# Most people say 3 to 5 tokens in a second. With fewer than this a text is not yet whole, so
# what is said twice may have been said twice; with fewer than that something was left out.
ENOUGH_PER_S: Final = 2.6
TOO_FEW_PER_S: Final = 1.2
TOO_FEW_FROM_S: Final = 4.0
# Text that gets so much smaller when compressed says the same over and over.
SQUEEZED: Final = 2.4
SQUEEZED_FROM_BYTES: Final = 60
# An echo is at least so many words of the text before.
ECHO_WORDS: Final = 4

SOUNDS: Final = re.compile(
    r"\[[^\]]*\]|\([^)]*\)|\*[^*]*\*|[♪♫♬]+|\uff08[^\uff09]*\uff09|【[^】]*】"
)
WORDS: Final = re.compile(r"[^\W_]+(?:'[^\W_]+)?")
# Said by nobody in a conversation: credits and farewells of videos.
CREDITS: Final = re.compile(
    r"amara org|subtitles? by|subt[ií]tulos|sous titr|untertitel|sottotitoli|legendas|"
    r"transcri(bed|ption) by|captions? by|copyright|all rights reserved|www |"
    r"(thanks|thank you)( so much| very much)? for (watching|listening|viewing)|"
    r"gracias por ver|merci d'avoir regard|danke fürs zuschauen|grazie per la visione|"
    r"obrigad[oa] por assistir|(like|share) and subscribe|subscribe to|suscr[ií]bete|"
    r"see you (in the )?next (time|video)|nos vemos en el pr[oó]ximo",
)
# What people do say, but noise says more often.
STOCK: Final = frozenset(
    {
        "thank you", "thank you very much", "thank you so much", "thanks", "you", "bye",
        "bye bye", "okay", "ok", "so", "oh", "ah", "hmm", "mm", "mm hmm", "uh", "the", "yeah",
        "i'm sorry", "the end", "all right", "i'll see you next time",
        "gracias", "muchas gracias", "adiós", "sí", "y", "no", "ah sí", "eh", "qué",
        "merci", "danke", "vielen dank", "grazie", "obrigado", "obrigada", "e aí",
        "music", "música", "musique", "musik", "musica", "applause", "aplausos",
    }
)  # fmt: skip


def repeated(tokens: Sequence[int]) -> int:
    """Return how many tokens at the end only repeat what is before them."""
    count = len(tokens)
    for size in range(1, count // 2 + 1):
        rounds = _rounds(size)
        if size * rounds <= count and _is_circle(tokens[count - size * rounds :], size):
            while size * (rounds + 1) <= count and _is_circle(
                tokens[count - size * (rounds + 1) :], size
            ):
                rounds += 1
            return size * (rounds - 1)
    return 0


def said_anew(tokens: Sequence[int]) -> int:
    """Return the length of the text if it was said twice as a whole and begins again."""
    size, rest = divmod(len(tokens) - 1, 2)
    is_anew = not rest and size >= ANEW_AT_LEAST and tokens[-1] == tokens[0]
    return size if is_anew and _is_circle(tokens[:-1], size) else 0


def _is_circle(tokens: Sequence[object], size: int) -> bool:
    return tokens[size:] == tokens[:-size]


def _rounds(size: int) -> int:
    if size <= SHORT_CIRCLE:
        return SHORT_ROUNDS
    return MIDDLE_ROUNDS if size <= MIDDLE_CIRCLE else LONG_ROUNDS


class Room(NamedTuple):
    """How many tokens a sound can hold, and how many it should."""

    most: int
    enough: int


def room(seconds: float) -> Room:
    """Return the room for text in a sound of this length."""
    most = min(TOKENS_AT_MOST, TOKENS_AT_LEAST + int(seconds * TOKENS_PER_S))
    return Room(most, min(most, int(seconds * ENOUGH_PER_S)))


def fell_short(count: int, seconds: float) -> bool:
    """Tell whether so few tokens cannot be all that was said."""
    return seconds >= TOO_FEW_FROM_S and count < seconds * TOO_FEW_PER_S


def is_squeezable(text: str) -> bool:
    """Tell whether a text says the same over and over."""
    raw = text.encode()
    return len(raw) >= SQUEEZED_FROM_BYTES and len(raw) > SQUEEZED * len(zlib.compress(raw))


def without_sounds(text: str) -> str:
    """Return a text without descriptions of sounds in brackets, and without music notes."""
    return " ".join(SOUNDS.sub(" ", text).split())


def words_of(text: str) -> list[str]:
    """Return a text's words in lower case."""
    return WORDS.findall(text.lower().replace("\u2019", "'"))


def is_round(text: str) -> bool:
    """Tell whether the text is the same over and over: people do that, and so does Whisper."""
    words = words_of(text)
    sizes = (size for size in range(1, len(words) // 2 + 1) if len(words) % size == 0)
    return any(_is_circle(words, size) for size in sizes)


def is_credit(text: str) -> bool:
    """Tell whether it is what subtitles say and people do not."""
    return CREDITS.search(" ".join(words_of(text))) is not None


def is_stock(text: str) -> bool:
    """Tell whether it is what Whisper likes to make of noise, or nothing at all."""
    words = " ".join(words_of(text))
    return not words or words in STOCK or is_credit(text)


def is_echo(text: str, before: str) -> bool:
    """Tell whether a text begins by repeating the end of the one before."""
    said, told = words_of(text)[:ECHO_WORDS], words_of(before)
    if len(said) < ECHO_WORDS:
        return False
    return any(told[at : at + ECHO_WORDS] == said for at in range(len(told) - ECHO_WORDS + 1))
