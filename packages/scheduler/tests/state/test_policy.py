"""The numbers that the scripts use: from the settings, in two groups, with the same names."""

from __future__ import annotations

import re
from importlib.resources import files

import msgspec
import pytest

from lingua_scheduler.config import (
    JobSettings,
    LogSettings,
    ModelSettings,
    NodeSettings,
    RoomSettings,
    SessionSettings,
    Settings,
)
from lingua_scheduler.state.policy import CAPTIONS_MIN, CLAIM_MS, FleetPolicy, Policy
from lingua_scheduler.state.room_scripts import RoomPolicy

pytestmark = pytest.mark.unit

# Every number another than its default, and no two alike.
UNUSUAL = Settings(
    jobs=JobSettings(
        attempt_ms=30_001, ack_ms=2_002, attempts_max=4, pending_ms=10_003, pending_jobs_max=1_004,
        binding_ms=90_005, in_flight_max=9, outbox_max=1_006, gap_ms=10_007, reserve_ms=2_008,
        lease_grace_ms=5_009, refuse_unserved_pairs=True, spread=True, spread_ms=30_010,
        sticky_pools=False,
    ),
    nodes=NodeSettings(
        good_beats=2, bad_beats=5, bad_beats_window=6, warmup_ms=60_011, stale_ms=600_012
    ),
    models=ModelSettings(
        unavailable_ms=60_013, debounce_ms=5_014, rate_window_ms=10_015, rate_max=31
    ),
    sessions=SessionSettings(resume_ms=120_016),
    rooms=RoomSettings(
        kept_bytes_max=1_000_017, captions_kept=218, caption_bytes_max=262_019
    ),
    log=LogSettings(jobs="all"),
)  # fmt: skip
# What jobs need of other sections.
NO_SETTING = {"explains", "hear_at_once", "captions_max"}
ELSEWHERE = {"resume_ms": "sessions", "kept_bytes_max": "rooms", "caption_bytes_max": "rooms"}


def test_without_settings_the_defaults_of_the_settings_hold() -> None:
    assert Policy() == Policy.of(Settings())
    assert FleetPolicy() == FleetPolicy.of(Settings())


@pytest.mark.parametrize("name", set(Policy.__struct_fields__) - ELSEWHERE.keys() - NO_SETTING)
def test_every_number_about_jobs_is_the_setting_of_that_name(name: str) -> None:
    expected = getattr(UNUSUAL.jobs, name)
    assert expected != getattr(Settings().jobs, name)
    assert getattr(Policy.of(UNUSUAL), name) == expected
    assert getattr(FleetPolicy.of(UNUSUAL), name) == expected


@pytest.mark.parametrize("name", ELSEWHERE)
def test_a_number_of_another_section_is_the_setting_of_that_name(name: str) -> None:
    expected = getattr(getattr(UNUSUAL, ELSEWHERE[name]), name)
    assert expected != getattr(getattr(Settings(), ELSEWHERE[name]), name)
    assert getattr(Policy.of(UNUSUAL), name) == expected
    assert getattr(FleetPolicy.of(UNUSUAL), name) == expected


@pytest.mark.parametrize(
    ("section", "name"),
    [
        ("nodes", "good_beats"),
        ("nodes", "bad_beats"),
        ("nodes", "bad_beats_window"),
        ("nodes", "warmup_ms"),
        ("nodes", "stale_ms"),
        ("models", "unavailable_ms"),
        ("models", "debounce_ms"),
        ("models", "rate_window_ms"),
        ("models", "rate_max"),
    ],
)
def test_every_other_number_is_the_setting_of_that_name(section: str, name: str) -> None:
    expected = getattr(getattr(UNUSUAL, section), name)
    assert expected != getattr(getattr(Settings(), section), name)
    assert getattr(FleetPolicy.of(UNUSUAL), name) == expected


def test_placements_explain_themselves_where_all_of_jobs_is_logged() -> None:
    assert Policy.of(UNUSUAL).explains
    assert FleetPolicy.of(UNUSUAL).explains
    assert not Policy.of(Settings()).explains


def test_the_time_a_claim_lasts_is_no_setting() -> None:
    assert FleetPolicy.of(UNUSUAL).claim_ms == CLAIM_MS


def test_every_number_was_looked_at_above() -> None:
    assert len(FleetPolicy.__struct_fields__) == len(Policy.__struct_fields__) + 10


def test_the_hot_path_is_given_only_what_it_needs() -> None:
    policy = FleetPolicy.of(UNUSUAL).for_jobs()
    assert type(policy) is Policy
    assert policy == Policy.of(UNUSUAL)


def test_numbers_are_packed_under_their_names() -> None:
    packed = msgspec.msgpack.decode(msgspec.msgpack.encode(FleetPolicy(attempts_max=7)))
    assert packed.keys() == set(FleetPolicy.__struct_fields__)
    assert packed["attempts_max"] == 7
    assert packed["spread"] is False


def test_the_scripts_read_no_number_that_is_not_there_and_every_one_that_is() -> None:
    lua = files("lingua_scheduler.state").joinpath("lua")
    entries = [*lua.iterdir(), *lua.joinpath("includes").iterdir()]
    texts = [entry.read_text() for entry in entries if entry.name.endswith(".lua")]
    read = {name for text in texts for name in re.findall(r"\bpolicy\.([a-z_]+)", text)}
    assert read == {*FleetPolicy.__struct_fields__, *RoomPolicy.__struct_fields__}


def test_some_captions_are_kept_for_readers_that_lost_their_connection() -> None:
    assert Policy.of(UNUSUAL).captions_max == 218
    assert Policy.of(Settings(rooms=RoomSettings(captions_kept=0))).captions_max == CAPTIONS_MIN
