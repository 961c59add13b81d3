"""The tables of the protocol: every field has a type and a meaning."""

import typing

import msgspec
import pytest
from msgspec import inspect

from lingua_wire import shared, tables
from lingua_wire.codes import CloseCode, ErrorCode
from lingua_wire.from_client import AudioChunk, SessionInit
from lingua_wire.tables import DIRECTIONS, MessageTable

pytestmark = pytest.mark.unit

MESSAGES = [struct for union in DIRECTIONS.values() for struct in typing.get_args(union)]
PARTS = [
    kind
    for kind in vars(shared).values()
    if isinstance(kind, type) and issubclass(kind, shared.Part) and kind is not shared.Part
]
STRUCTS = [*MESSAGES, *PARTS]


def struct_name(struct: type) -> str:
    return struct.__name__


def kinds(struct: type[msgspec.Struct]) -> dict[str, str]:
    info = inspect.type_info(struct)
    assert isinstance(info, inspect.StructType)
    return {field.name: tables.kind_in_words(field.type) for field in info.fields}


def table_of(direction: str, name: str) -> MessageTable:
    (table,) = [table for table in tables.messages_of(direction) if table.name == name]
    return table


@pytest.mark.parametrize("struct", STRUCTS, ids=struct_name)
def test_every_field_of_every_message_and_part_has_a_meaning(struct: type[msgspec.Struct]) -> None:
    for field in struct.__struct_fields__:
        meaning = tables.meaning_of(struct.__name__, field)
        assert meaning.endswith("."), f"{struct.__name__}.{field} is not explained by a sentence"


@pytest.mark.parametrize("struct", STRUCTS, ids=struct_name)
def test_every_message_and_part_says_in_a_sentence_what_it_is(struct: type) -> None:
    assert (struct.__doc__ or "").strip().endswith(".")


def test_no_meaning_is_left_of_a_removed_field() -> None:
    used: set[str] = set()
    for struct in STRUCTS:
        for field in struct.__struct_fields__:
            own = f"{struct.__name__}.{field}"
            used.add(own if own in tables.MEANINGS else field)
    assert set(tables.MEANINGS) == used


def test_every_message_is_in_a_table_of_its_direction_and_has_its_wire_name() -> None:
    for direction, union in DIRECTIONS.items():
        names = [table.name for table in tables.messages_of(direction)]
        assert names == [struct.__struct_config__.tag for struct in typing.get_args(union)]


def test_every_part_of_a_message_is_listed_however_deep() -> None:
    assert {table.name for table in tables.shared_parts()} == {part.__name__ for part in PARTS}


def test_a_row_says_what_a_field_takes_and_whether_it_must_be_there() -> None:
    rows = {row.name: row for row in table_of("client-to-server", "session_init").rows}
    assert rows["src_lang"].kind == "text, at most 128 characters"
    assert rows["src_lang"].need == "required"
    assert rows["platform"].need == "optional, default `web`"
    assert rows["trace_id"].need == "optional"
    assert rows["sample_rate"].kind == "whole number, 8000 to 192000"
    assert rows["mode"].kind == "`one_way` or `two_way_auto`"
    assert rows["features"].kind == "[FeatureFlags](#featureflags)"


def test_bounds_are_the_ones_that_hold() -> None:
    longest = int(kinds(SessionInit)["src_lang"].split()[-2])
    most = int(kinds(SessionInit)["tgt_langs"].split(":")[0].split()[-1])
    init = {"type": "session_init", "src_lang": "x" * longest, "tgt_langs": ["en"] * most}
    msgspec.convert(init, SessionInit)
    for beyond in ({"src_lang": "x" * (longest + 1)}, {"tgt_langs": ["en"] * (most + 1)}):
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert({**init, **beyond}, SessionInit)


def test_large_bounds_are_written_as_powers() -> None:
    assert kinds(AudioChunk)["seq"] == "whole number, 0 to 2^40"
    assert kinds(AudioChunk)["client_timestamp_ms"] == "whole number, -2^53 to 2^53"


def test_a_message_that_two_directions_share_is_explained_for_each() -> None:
    asked = {row.name: row.meaning for row in table_of("client-to-server", "webrtc_offer").rows}
    told = {row.name: row.meaning for row in table_of("server-to-client", "webrtc_offer").rows}
    assert asked["to"] != told["to"]


def test_every_error_code_has_a_meaning_and_a_hint() -> None:
    rows = tables.error_rows()
    assert [row[0] for row in rows] == [code.value for code in ErrorCode]
    for code, meaning, _, hint in rows:
        assert meaning.endswith("."), code
        assert hint.endswith("."), code


def test_the_error_table_tells_after_which_reports_another_node_tries() -> None:
    tried = {code: again for code, _, again, _ in tables.error_rows()}
    assert tried["NODE_OVERLOADED"] == "yes"
    assert tried["UNSUPPORTED_FEATURE"] == ""


def test_every_close_code_says_whether_reconnecting_helps() -> None:
    rows = tables.close_rows()
    assert [int(row[0]) for row in rows] == [int(code) for code in CloseCode]
    for number, _, meaning, helps in rows:
        assert meaning.endswith("."), number
        assert helps, number
