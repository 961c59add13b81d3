"""The job of an utterance into one language: identity, turn, padding, flags, trace."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lingua_scheduler.config import SegmentationSettings
from lingua_scheduler.jobs.profile import Profile
from lingua_scheduler.runtime.job import LiveJob, decode_body, trace_in
from lingua_scheduler.runtime.job_builder import (
    build_job,
    others_of,
    padding_of,
    spec_after,
    spec_for_readers,
    spec_of_owner,
    trace_of,
    traceparent_of,
)
from lingua_scheduler.runtime.session import LiveSession
from lingua_scheduler.runtime.session_state import SessionRecord
from lingua_scheduler.runtime.utterance import PendingUtterance
from lingua_scheduler.session.utterance import StreamPosition, Target
from lingua_scheduler.state.records import JobSpec
from lingua_wire.from_client import SessionInit
from lingua_wire.shared import FeatureFlags, PipelineConfig, Term
from lingua_wire.to_node import JobAssign
from runtime.stand_ins import EPOCH, KeepingOutlet, Scene, context_of, profile_of

pytestmark = pytest.mark.unit

CUTS = SegmentationSettings(padding_auto_ms=11, padding_manual_ms=22)
EN, DE = Target("en", "en"), Target("de", "de")
W3C = re.compile(r"00-(?P<trace>[0-9a-f]{32})-(?P<parent>[0-9a-f]{16})-01")


def utterance(scene: Scene, *targets: Target, **given: Any) -> PendingUtterance:
    """Return an utterance."""
    plain: dict[str, Any] = {
        "index": 4,
        "audio": b"sound",
        "profile": scene.session.languages.profile,
        "targets": targets or (EN,),
        "trace_id": "t1",
        "trigger": "manual",
        "speech_end_ms": 1.0,
        "cut_ms": 2.0,
        "turn_id": "s1-t0",
    }
    return PendingUtterance(**(plain | given))


def made(
    scene: Scene,
    of: PendingUtterance,
    target: Target | None = None,
    *,
    retain_audio: bool = False,
    session: LiveSession | None = None,
) -> LiveJob:
    context = context_of(session or scene.session, retain_audio=retain_audio)
    return build_job(context, of, target or of.targets[0], CUTS)


# Identity.


def test_the_same_utterance_into_the_same_language_is_the_same_job() -> None:
    scene = Scene()
    assert made(scene, utterance(scene)).id == made(scene, utterance(scene, audio=b"other")).id


@pytest.mark.parametrize(
    "other", [{"index": 5}, {"trace_id": "t2"}, {"targets": (DE,)}, {"request_id": "r1"}], ids=str
)
def test_another_utterance_language_trace_or_request_is_another_job(other: dict[str, Any]) -> None:
    scene = Scene()
    assert made(scene, utterance(scene)).id != made(scene, utterance(scene, **other)).id


def test_a_request_id_of_the_client_is_the_identity() -> None:
    scene = Scene()
    first = made(scene, utterance(scene, request_id="r1"))
    assert made(scene, utterance(scene, request_id="r1", index=9, trace_id="t9")).id == first.id
    assert made(scene, utterance(scene, request_id="r2")).id != first.id


def test_a_request_id_has_one_job_for_each_language() -> None:
    scene = Scene()
    both = utterance(scene, EN, DE, request_id="r1")
    assert made(scene, both, EN).id != made(scene, both, DE).id
    assert made(scene, both, EN).id == made(scene, utterance(scene, EN, DE, request_id="r1"), EN).id


def test_the_first_language_of_a_request_is_found_without_knowing_the_others() -> None:
    scene = Scene()
    both = utterance(scene, EN, DE, request_id="r1", sound="abc")
    one = utterance(scene, EN, request_id="r1", sound="abc")
    assert made(scene, both, EN).id == made(scene, one, EN).id
    assert made(scene, both, EN).spec.also == ("de",)
    assert made(scene, both, DE).spec.also == made(scene, one, EN).spec.also == ()
    # A client cannot choose an id that is another language of this request.
    assert made(scene, both, DE).id != made(scene, utterance(scene, request_id="r1:de")).id


def test_a_request_id_is_the_sessions_own_where_there_is_no_tenant() -> None:
    scene = Scene()
    other = scene.enter("s2", KeepingOutlet())
    mine = utterance(scene, request_id="r1")
    assert made(scene, mine).id != made(scene, mine, session=other).id


def of_tenant(record: SessionRecord, tenant: str) -> None:
    """Make a session one of a tenant, as if it had been opened by it."""
    record.tenant, record.scope = tenant, replace(record, tenant=tenant).scope


def test_a_request_id_is_the_tenants() -> None:
    scene = Scene()
    other = scene.enter("s2", KeepingOutlet())
    of_tenant(scene.session.record, "acme")
    of_tenant(other.record, "acme")
    mine, without = utterance(scene, request_id="r1"), utterance(scene)
    assert made(scene, mine).id == made(scene, mine, session=other).id
    assert made(scene, without).id != made(scene, without, session=other).id
    of_tenant(other.record, "other")
    assert made(scene, mine).id != made(scene, mine, session=other).id


# The spec for the store.


def test_the_store_is_told_what_places_and_orders_the_job() -> None:
    scene = Scene()
    scene.session.record.own(EPOCH, 3)
    scene.session.admission.parts.progress.index_submitted(4)
    job = made(scene, utterance(scene))
    assert job.spec == JobSpec(
        session="s1",
        index=4,
        lane="en",
        demand=scene.session.languages.profile.demand_of("en"),
        fence=3,
        top=5,
    )
    assert (job.home, job.owner, job.lanes) == (scene.session.record.home, scene.session, 1)


def test_a_pairing_prefers_its_node() -> None:
    init = SessionInit(src_lang="zh", tgt_lang="en")
    paired = Profile.of(init, tenant="", labels=(), paired="node-a")
    scene = Scene()
    assert made(scene, utterance(scene, profile=paired)).spec.preferred == "node-a"


@pytest.mark.parametrize("retain_audio", [True, False])
def test_audio_is_kept_in_the_store_only_where_that_is_wanted(retain_audio: bool) -> None:
    scene = Scene()
    job = made(scene, utterance(scene), retain_audio=retain_audio)
    assert job.is_audio_kept is retain_audio
    assert job.audio == b"sound"
    assert job.assign.audio == b""


@pytest.mark.parametrize("targets", [(EN,), (EN, DE)])
def test_audio_is_kept_by_its_only_job_or_for_all_of_them(targets: tuple[Target, ...]) -> None:
    scene = Scene()
    spec = made(scene, utterance(scene, targets=targets), retain_audio=True).spec
    assert (spec.audio, spec.own_audio) == (len(targets) > 1, len(targets) == 1)


@pytest.mark.parametrize(
    ("of_utterance", "turn", "is_slice", "closes"),
    [
        ({}, "", False, False),
        ({"in_turn": True, "is_slice": True}, "s1-t0", True, False),
        ({"in_turn": True}, "s1-t0", False, True),
        ({"targets": (EN, DE)}, "s1-t0", False, True),
    ],
    ids=["alone", "a slice", "the closing part", "several languages"],
)
def test_what_belongs_together_shares_a_turn_until_the_closing_utterance(
    of_utterance: dict[str, Any], turn: str, is_slice: bool, closes: bool
) -> None:
    scene = Scene()
    job = made(scene, utterance(scene, **of_utterance))
    assert (job.spec.turn, job.spec.is_slice, job.spec.closes_turn) == (turn, is_slice, closes)
    assert job.assign.turn_id == "s1-t0"


def test_a_lane_may_be_told_what_it_never_hears_of() -> None:
    scene = Scene()
    spec = made(scene, utterance(scene)).spec
    later = spec_after(spec, 2)
    assert (later.unwanted_from, later.index, later.demand) == (2, 4, spec.demand)
    assert spec.unwanted_from == -1


def test_a_job_made_under_a_former_owner_is_submitted_as_the_present_one() -> None:
    scene = Scene()
    spec = made(scene, utterance(scene)).spec
    assert spec_of_owner(spec, spec.fence) is spec
    later = spec_of_owner(spec, 7)
    assert (later.fence, later.heard, later.heard_ms) == (7, -1, 0)
    assert (later.index, later.demand) == (spec.index, spec.demand)


def test_the_job_that_completes_an_utterance_says_up_to_where_it_was_heard() -> None:
    scene = Scene()
    heard = StreamPosition(11, 1100, 900)
    context = context_of(scene.session)
    built = build_job(context, utterance(scene), EN, CUTS, unwanted_from=2, heard=heard).spec
    assert built.unwanted_from == 2
    whole = spec_of_owner(built, 2)
    assert (whole.fence, whole.heard, whole.heard_ms, whole.speech) == (2, 11, 1100, 900)
    # Submitted again by the same session under a later fence, it still completes the utterance.
    again = spec_of_owner(whole, 3)
    assert (again.fence, again.heard, again.heard_ms) == (3, 11, 1100)


def test_the_store_keeps_of_a_job_what_any_instance_needs_to_push_it() -> None:
    scene = Scene()
    job = made(scene, utterance(scene, EN, DE), DE)
    body = decode_body(job.body())
    assert (body.assign, body.lanes) == (job.assign, 2)
    assert body.assign.audio == b""
    assert trace_in(job.body()) == job.assign.trace_id


def test_a_private_store_keeps_the_trace_of_a_job_alone() -> None:
    scene = Scene()
    job = made(scene, utterance(scene, EN), EN)
    assert trace_in(job.bare_body()) == job.assign.trace_id
    assert len(job.bare_body()) < len(job.assign.trace_id) + 3


# The message to the node.


def test_a_node_is_told_what_the_session_asks_for() -> None:
    features = FeatureFlags(emotion_detection=True)
    pipeline = PipelineConfig(use_asr=True, use_nmt=True, use_tts=False)
    scene = Scene(
        src_lang="auto",
        auto_langs=("zh", "ja"),
        dialect="wu",
        features=features,
        pipeline=pipeline,
        audio_format="pcm16",
        sample_rate=8000,
        enable_streaming_asr=False,
        partial_update_interval_ms=250,
    )
    job = made(scene, utterance(scene))
    assert job.assign == JobAssign(
        job_id=job.id,
        attempt_id=0,
        session_id="s1",
        utterance_index=4,
        src_lang="auto",
        tgt_lang="en",
        dialect="wu",
        features=features,
        pipeline=pipeline,
        audio=b"",
        audio_format="pcm16",
        sample_rate=8000,
        auto_langs=("zh", "ja"),
        enable_streaming_asr=False,
        partial_update_interval_ms=250,
        trace_id="t1",
        padding_ms=22,
        is_manual_cut=True,
        turn_id="s1-t0",
        traceparent=traceparent_of("t1", job.id),
    )


def test_both_languages_of_a_two_way_session_are_told() -> None:
    scene = Scene(src_lang="auto", mode="two_way_auto", lang_a="zh", lang_b="en")
    (target,) = scene.session.languages.profile.own_targets()
    job = made(scene, utterance(scene, target))
    assign = job.assign
    assert (assign.mode, assign.lang_a, assign.lang_b) == ("two_way_auto", "zh", "en")
    assert (assign.src_lang, assign.tgt_lang, job.spec.lane) == ("auto", "en", "en~zh")


def test_what_was_said_before_is_offered_as_context() -> None:
    scene = Scene()
    assert made(scene, utterance(scene)).assign.context_text is None
    scene.session.deliverer.groups.begin_with("User: ni hao")
    assert made(scene, utterance(scene)).assign.context_text == "User: ni hao"


def test_an_utterances_own_profile_counts_not_the_sessions() -> None:
    scene = Scene()
    own = profile_of(src_lang="ja", tgt_lang="de")
    job = made(scene, utterance(scene, DE, profile=own))
    assert (job.assign.src_lang, job.assign.tgt_lang, job.spec.lane) == ("ja", "de", "de")
    assert job.spec.demand == own.demand_of("de")


def test_marks_begin_with_the_end_of_speech() -> None:
    scene = Scene()
    job = made(scene, utterance(scene, first_client_ts_ms=7))
    assert (job.times.speech_end, job.times.cut) == (1.0, 2.0)
    assert job.first_client_ts_ms == 7


def test_who_hears_each_language_and_who_reads_stands_in_the_spec() -> None:
    scene = Scene()
    for_en, for_de = Target("en", "en", "c0/s2 c1/s3"), Target("de", "de", "c0/s4")
    spoken = utterance(scene, for_en, for_de, readers="c0/s5")
    found = [made(scene, spoken, target).spec for target in (for_en, for_de)]
    assert [spec.audience for spec in found] == ["c0/s2 c1/s3", "c0/s4"]
    assert {(spec.readers, spec.readers_from, spec.lanes) for spec in found} == {("c0/s5", -1, 2)}
    assert spec_for_readers(found[0], 3).readers_from == 3


def test_of_a_refused_job_the_store_is_told_who_hears_of_it() -> None:
    spec = JobSpec(session="s", index=0, lane="en", demand="", audience="c0/a", lanes=2)
    assert others_of(JobSpec(session="s", index=0, lane="en", demand="")) == b""
    assert msgspec.msgpack.decode(others_of(spec)) == {"audience": "c0/a", "lanes": 2}
    read = msgspec.structs.replace(spec, readers="c0/b", readers_from=4)
    assert msgspec.msgpack.decode(others_of(read)) == {
        "audience": "c0/a",
        "lanes": 2,
        "readers": "c0/b",
        "readers_from": 4,
    }


def test_where_the_time_went_is_known_to_whoever_pushes_a_job_for_listeners() -> None:
    scene = Scene()
    scene.clock.at_ms = 500.0
    own = made(scene, utterance(scene))
    assert decode_body(own.body()).cut_at_ms == 0
    job = made(scene, utterance(scene, Target("en", "en", "c0/s2")))
    ago_ms = scene.clock.wall_ms() - 500
    body = decode_body(job.body())
    assert (body.speech_end_at_ms, body.cut_at_ms) == (ago_ms + 1, ago_ms + 2)


@pytest.mark.parametrize(
    ("trigger", "is_slice", "padding_ms", "flag"),
    [
        ("manual", False, 22, "is_manual_cut"),
        ("timeout", False, 11, "is_timeout_triggered"),
        ("max_duration", True, 11, "is_max_duration_triggered"),
        ("max_bytes", True, None, "is_max_duration_triggered"),
        ("session_close", False, 11, None),
        ("whole", False, None, None),
    ],
)
def test_each_trigger_has_its_padding_and_its_flag(
    trigger: str, is_slice: bool, padding_ms: int | None, flag: str | None
) -> None:
    scene = Scene()
    assign = made(scene, utterance(scene, trigger=trigger, is_slice=is_slice)).assign
    flags = (
        "is_manual_cut",
        "is_pause_triggered",
        "is_timeout_triggered",
        "is_max_duration_triggered",
    )
    assert [name for name in flags if getattr(assign, name)] == ([flag] if flag else [])
    assert assign.padding_ms == padding_ms == padding_of(trigger, CUTS)


# The trace.


@pytest.mark.parametrize(
    "trace_id",
    [
        "4bf92f3577b34da6a3ce929d0e0e4736",
        "4BF92F3577B34DA6A3CE929D0E0E4736",
        "4bf92f35-77b3-4da6-a3ce-929d0e0e4736",
    ],
)
def test_a_clients_own_trace_id_is_kept(trace_id: str) -> None:
    assert trace_of(trace_id) == "4bf92f3577b34da6a3ce929d0e0e4736"


def test_a_short_number_is_filled_up() -> None:
    assert trace_of("abc") == "abc".rjust(32, "0")


def test_other_words_make_a_trace_of_their_own_that_is_always_the_same() -> None:
    assert trace_of("my trace") == trace_of("my trace")
    assert trace_of("my trace") != trace_of("my other trace")


@pytest.mark.parametrize("trace_id", ["0", "00000000-0000-0000-0000-000000000000", "0" * 32])
def test_a_trace_of_zeros_which_w3c_forbids_is_never_made(trace_id: str) -> None:
    assert trace_of(trace_id).strip("0")


@given(st.text(max_size=128).filter(lambda text: text.strip("0-_ +xX")), st.integers(0))
def test_any_trace_id_and_job_make_a_lawful_traceparent(trace_id: str, number: int) -> None:
    job = f"job-{number % (1 << 128):032x}"
    found = W3C.fullmatch(traceparent_of(trace_id, job))
    assert found is not None
    assert found["parent"] == job[-16:]


def test_all_jobs_of_an_utterance_share_its_trace_and_each_has_its_own_span() -> None:
    scene = Scene()
    both = utterance(scene, EN, DE)
    spans = [
        W3C.fullmatch(made(scene, both, target).assign.traceparent or "") for target in (EN, DE)
    ]
    assert spans[0] is not None
    assert spans[1] is not None
    assert spans[0]["trace"] == spans[1]["trace"] == trace_of("t1")
    assert spans[0]["parent"] != spans[1]["parent"]


def test_a_job_carries_its_part_of_the_glossary_and_its_record_grows_by_no_more() -> None:
    scene = Scene()
    called = {"en": "x", "es": "y" * 99}
    terms = tuple(Term(term=f"term {at}", translations=called) for at in range(9))
    init = SessionInit(src_lang="zh", tgt_lang="en")
    profile = Profile.of(init, tenant="", labels=(), paired="", glossary=terms)
    job, plain = made(scene, utterance(scene, profile=profile)), made(scene, utterance(scene))
    assert [one.translations for one in job.assign.glossary] == [{"en": "x"}] * 9
    assert plain.assign.glossary == ()
    assert b"glossary" not in plain.body()
    assert len(job.body()) - len(plain.body()) < 9 * 40
    assert decode_body(job.body()).assign == job.assign
