"""Checks of Whisper's output: loops, credits of subtitles, sounds in brackets, echoes. Pure.

Whisper was trained on subtitles. From noise it produces "Thanks for watching!", from music
"[Music]", and sometimes it repeats a text endlessly. A text that people also say is dropped only if
there is another reason to doubt that anything was said.
"""

from __future__ import annotations

import re
import zlib
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

# How often a phrase must repeat to count as a loop, by its number of tokens: people repeat short
# phrases as well, so these may repeat more often before they are cut.
SHORT_LOOP: Final = 2
SHORT_ROUNDS: Final = 8
MIDDLE_LOOP: Final = 8
MIDDLE_ROUNDS: Final = 3
LONG_ROUNDS: Final = 2
# A whole text of at least so many tokens that begins for the third time was spoken once.
REPEATED_WHOLE_AT_LEAST: Final = 3
# The most tokens that can be spoken in a second, added to a minimum for very short sounds.
TOKENS_PER_S: Final = 14
TOKENS_AT_LEAST: Final = 24
TOKENS_AT_MOST: Final = 224
# Most people speak 3 to 5 tokens in a second. Below the first rate a text is not complete, so a
# repetition in it may be genuine; below the second, part of the speech is missing from the text:
# 170 recordings of 4 s and more have 2.17 and more, 85 of 3 to 4 s 2.23, and a sentence that was
# said twice in a row and recognised once 1.5 to 1.8. Shorter ones may have 1.4.
ENOUGH_PER_S: Final = 2.6
TOO_FEW_PER_S: Final = 1.9
TOO_FEW_FROM_S: Final = 3.0
# A text that compresses by more than this factor repeats itself.
COMPRESSION_RATIO: Final = 2.4
COMPRESSION_FROM_BYTES: Final = 60
# An echo repeats at least so many words of the text before.
ECHO_WORDS: Final = 4

SOUNDS: Final = re.compile(
    r"\[[^\]]*\]|\([^)]*\)|\*[^*]*\*|[♪♫♬]+|\uff08[^\uff09]*\uff09|【[^】]*】"
)
WORDS: Final = re.compile(r"[^\W_]+(?:'[^\W_]+)?")
# Not part of a conversation: credits and farewells of videos.
CREDITS: Final = re.compile(
    r"amara org|subtitles? by|subt[ií]tulos|sous titr|untertitel|sottotitoli|legendas|"
    r"transcri(bed|ption) by|captions? by|copyright|all rights reserved|www |"
    r"(thanks|thank you)( so much| very much)? for (watching|listening|viewing)|"
    r"gracias por ver|merci d'avoir regard|danke fürs zuschauen|grazie per la visione|"
    r"obrigad[oa] por assistir|(like|share) and subscribe|subscribe to|suscr[ií]bete|"
    r"see you (in the )?next (time|video)|nos vemos en el pr[oó]ximo",
)
# Texts that people say, but that noise produces more often.
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
    """Return how many tokens at the end only repeat the tokens before them."""
    count = len(tokens)
    for size in range(1, count // 2 + 1):
        rounds = _rounds(size)
        if size * rounds <= count and _is_loop(tokens[count - size * rounds :], size):
            while size * (rounds + 1) <= count and _is_loop(
                tokens[count - size * (rounds + 1) :], size
            ):
                rounds += 1
            return size * (rounds - 1)
    return 0


def repeated_whole(tokens: Sequence[int]) -> int:
    """Return the length of the text if all of it occurs twice and begins again, else 0."""
    size, rest = divmod(len(tokens) - 1, 2)
    is_repeated = not rest and size >= REPEATED_WHOLE_AT_LEAST and tokens[-1] == tokens[0]
    return size if is_repeated and _is_loop(tokens[:-1], size) else 0


def _is_loop(tokens: Sequence[object], size: int) -> bool:
    return tokens[size:] == tokens[:-size]


def _rounds(size: int) -> int:
    if size <= SHORT_LOOP:
        return SHORT_ROUNDS
    return MIDDLE_ROUNDS if size <= MIDDLE_LOOP else LONG_ROUNDS


class TokenBudget(NamedTuple):
    """The most tokens that a sound can contain, and how many make a complete text."""

    most: int
    enough: int


def token_budget(seconds: float) -> TokenBudget:
    """Return the budget of a sound of this length."""
    most = min(TOKENS_AT_MOST, TOKENS_AT_LEAST + int(seconds * TOKENS_PER_S))
    return TokenBudget(most, min(most, int(seconds * ENOUGH_PER_S)))


def has_too_few_tokens(count: int, seconds: float) -> bool:
    """Tell whether a text has too few tokens to be all of the speech."""
    return seconds >= TOO_FEW_FROM_S and count < seconds * TOO_FEW_PER_S


def is_compressible(text: str) -> bool:
    """Tell whether a text compresses so well that it must repeat itself."""
    raw = text.encode()
    return len(raw) >= COMPRESSION_FROM_BYTES and len(raw) > COMPRESSION_RATIO * len(
        zlib.compress(raw)
    )


def without_sounds(text: str) -> str:
    """Return a text without descriptions of sounds in brackets, and without music notes."""
    return " ".join(SOUNDS.sub(" ", text).split())


def words_of(text: str) -> list[str]:
    """Return the words of a text in lower case."""
    return WORDS.findall(text.lower().replace("\u2019", "'"))


def is_loop(text: str) -> bool:
    """Tell whether the whole text is one phrase repeated, by a person or by Whisper."""
    words = words_of(text)
    sizes = (size for size in range(1, len(words) // 2 + 1) if len(words) % size == 0)
    return any(_is_loop(words, size) for size in sizes)


def is_credit(text: str) -> bool:
    """Tell whether a text occurs in subtitles but not in conversations."""
    return CREDITS.search(" ".join(words_of(text))) is not None


def is_stock_phrase(text: str) -> bool:
    """Tell whether a text is empty, or one that Whisper often produces from noise."""
    words = " ".join(words_of(text))
    return not words or words in STOCK or is_credit(text)


def is_echo(text: str, before: str) -> bool:
    """Tell whether a text begins by repeating the end of the one before."""
    words, earlier = words_of(text)[:ECHO_WORDS], words_of(before)
    if len(words) < ECHO_WORDS:
        return False
    return any(
        earlier[at : at + ECHO_WORDS] == words for at in range(len(earlier) - ECHO_WORDS + 1)
    )
