"""Names of languages, as servers report them (`english`) and as instructions use them."""

from __future__ import annotations

from typing import Any, Final

from lingua_wire.errors import InvalidLanguage
from lingua_wire.languages import base_of, language

_LISTED: Final = (
    "af afrikaans|am amharic|ar arabic|as assamese|az azerbaijani|ba bashkir|be belarusian|"
    "bg bulgarian|bn bengali|bo tibetan|br breton|bs bosnian|ca catalan|cs czech|cy welsh|"
    "da danish|de german|el greek|en english|es spanish|et estonian|eu basque|fa persian|"
    "fi finnish|fo faroese|fr french|ga irish|gl galician|gu gujarati|ha hausa|haw hawaiian|"
    "he hebrew|hi hindi|hr croatian|ht haitian creole|hu hungarian|hy armenian|id indonesian|"
    "is icelandic|it italian|ja japanese|jv javanese|ka georgian|kk kazakh|km khmer|kn kannada|"
    "ko korean|la latin|lb luxembourgish|ln lingala|lo lao|lt lithuanian|lv latvian|mg malagasy|"
    "mi maori|mk macedonian|ml malayalam|mn mongolian|mr marathi|ms malay|mt maltese|my myanmar|"
    "ne nepali|nl dutch|nn nynorsk|no norwegian|oc occitan|pa punjabi|pl polish|ps pashto|"
    "pt portuguese|ro romanian|ru russian|sa sanskrit|sd sindhi|si sinhala|sk slovak|sl slovenian|"
    "sn shona|so somali|sq albanian|sr serbian|su sundanese|sv swedish|sw swahili|ta tamil|"
    "te telugu|tg tajik|th thai|tk turkmen|tl tagalog|tr turkish|tt tatar|uk ukrainian|ur urdu|"
    "uz uzbek|vi vietnamese|yi yiddish|yo yoruba|yue cantonese|zh chinese"
)
NAMES: Final = dict(entry.split(" ", 1) for entry in _LISTED.split("|"))
CODES: Final = {name: code for code, name in NAMES.items()} | {"jw": "jv"}


def code_of(spoken: Any) -> str:
    """Return the code of a language that a server reports by name or code; empty if unknown."""
    if not isinstance(spoken, str):
        return ""
    name = spoken.strip().lower()
    try:
        return CODES.get(name) or _known(base_of(language(name)))
    except InvalidLanguage:
        return ""


def _known(code: str) -> str:
    return code if code in NAMES else ""


def name_of(code: str) -> str:
    """Return the name of a language with its code, for an instruction: `Spanish (es-mx)`."""
    name = NAMES.get(base_of(code), "")
    return f"{name.title()} ({code})" if name else f"the language with the code {code}"
