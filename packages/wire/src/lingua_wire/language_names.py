"""The English names of languages, as Whisper defines them, and their codes.

OpenAI's API documents codes and also accepts names, so programs use them. Everything else uses
codes only. Pure; used by the OpenAI-compatible API and by the command line.
"""

from __future__ import annotations

from lingua_wire.languages import language

# In the order of Whisper's list, with its alternative names at the end.
NAMES = (
    "en english,zh chinese,de german,es spanish,ru russian,ko korean,fr french,ja japanese,"
    "pt portuguese,tr turkish,pl polish,ca catalan,nl dutch,ar arabic,sv swedish,it italian,"
    "id indonesian,hi hindi,fi finnish,vi vietnamese,he hebrew,uk ukrainian,el greek,ms malay,"
    "cs czech,ro romanian,da danish,hu hungarian,ta tamil,no norwegian,th thai,ur urdu,"
    "hr croatian,bg bulgarian,lt lithuanian,la latin,mi maori,ml malayalam,cy welsh,sk slovak,"
    "te telugu,fa persian,lv latvian,bn bengali,sr serbian,az azerbaijani,sl slovenian,kn kannada,"
    "et estonian,mk macedonian,br breton,eu basque,is icelandic,hy armenian,ne nepali,mn mongolian,"
    "bs bosnian,kk kazakh,sq albanian,sw swahili,gl galician,mr marathi,pa punjabi,si sinhala,"
    "km khmer,sn shona,yo yoruba,so somali,af afrikaans,oc occitan,ka georgian,be belarusian,"
    "tg tajik,sd sindhi,gu gujarati,am amharic,yi yiddish,lo lao,uz uzbek,fo faroese,"
    "ht haitian creole,ps pashto,tk turkmen,nn nynorsk,mt maltese,sa sanskrit,lb luxembourgish,"
    "my myanmar,bo tibetan,tl tagalog,mg malagasy,as assamese,tt tatar,haw hawaiian,ln lingala,"
    "ha hausa,ba bashkir,jw javanese,su sundanese,yue cantonese,"
    "my burmese,ca valencian,nl flemish,ht haitian,lb letzeburgesch,ps pushto,pa panjabi,"
    "ro moldavian,ro moldovan,si sinhalese,es castilian,zh mandarin"
)
CODES = {name: code for code, _, name in (one.partition(" ") for one in NAMES.split(","))}


def code_of(given: str) -> str:
    """Return the code of a language given by code or name; raises `InvalidLanguage`."""
    return CODES.get(given.strip().lower()) or language(given)


def are_same(one: str, other: str) -> bool:
    """Tell whether two codes mean the same language, ignoring a region that only one has."""
    return one == other or one.startswith(f"{other}-") or other.startswith(f"{one}-")
