"""Our language codes -> the codes of NLLB (FLORES-200: `spa_Latn`), with the usual script.

A language with two scripts is distinguished by its region or script: `zh-tw` and `zh-hant` are
traditional. The languages of a model are read from its vocabulary, not from this table.
"""

from __future__ import annotations

from typing import Final

from lingua_wire.languages import base_of

_LATIN: Final = (
    "af:afr sq:als ast:ast ay:ayr az:azj bm:bam ca:cat ceb:ceb cs:ces da:dan de:deu en:eng eo:epo "
    "es:spa et:est eu:eus ee:ewe fo:fao fi:fin fr:fra fur:fur ff:fuv ga:gle gd:gla gl:glg gn:grn "
    "ht:hat ha:hau hr:hrv hu:hun id:ind ig:ibo is:isl it:ita jv:jav ki:kik kab:kab rw:kin kg:kon "
    "ku:kmr lb:ltz lg:lug li:lim lij:lij lmo:lmo ln:lin lt:lit ltg:ltg lv:lvs mg:plt mi:mri ms:zsm "
    "mt:mlt nb:nob nl:nld nn:nno no:nob ny:nya oc:oci om:gaz pap:pap pl:pol pt:por qu:quy ro:ron "
    "rn:run sc:srd scn:scn sg:sag sk:slk sl:slv sm:smo sn:sna so:som st:sot su:sun sv:swe sw:swh "
    "szl:szl tk:tuk tl:tgl tn:tsn to:ton tr:tur ts:tso uz:uzn vec:vec vi:vie war:war wo:wol xh:xho "
    "yo:yor zu:zul cy:cym bs:bos"
)
_OTHER: Final = (
    "am:amh_Ethi ar:arb_Arab as:asm_Beng ba:bak_Cyrl be:bel_Cyrl bg:bul_Cyrl bn:ben_Beng "
    "bo:bod_Tibt ckb:ckb_Arab el:ell_Grek fa:pes_Arab gu:guj_Gujr he:heb_Hebr hi:hin_Deva "
    "hy:hye_Armn ja:jpn_Jpan ka:kat_Geor kk:kaz_Cyrl km:khm_Khmr kn:kan_Knda ko:kor_Hang "
    "ky:kir_Cyrl lo:lao_Laoo mk:mkd_Cyrl ml:mal_Mlym mn:khk_Cyrl mr:mar_Deva my:mya_Mymr "
    "ne:npi_Deva or:ory_Orya pa:pan_Guru ps:pbt_Arab ru:rus_Cyrl sa:san_Deva sd:snd_Arab "
    "si:sin_Sinh sr:srp_Cyrl ta:tam_Taml te:tel_Telu tg:tgk_Cyrl th:tha_Thai ti:tir_Ethi "
    "tt:tat_Cyrl ug:uig_Arab uk:ukr_Cyrl ur:urd_Arab yi:ydd_Hebr yue:yue_Hant zh:zho_Hans "
    "zh-hans:zho_Hans zh-hant:zho_Hant zh-tw:zho_Hant zh-hk:zho_Hant"
)

NAMES: Final = {
    **{code: f"{name}_Latn" for code, name in (item.split(":") for item in _LATIN.split())},
    **dict(item.split(":") for item in _OTHER.split()),
}


def flores(code: str) -> str:
    """Return the code of a language in NLLB; empty if it has none."""
    return NAMES.get(code) or NAMES.get(base_of(code), "")
