from __future__ import annotations

import pytest

from lingua_scheduler.edge import answers
from lingua_scheduler.edge.sibling_pages import one_history, one_page, one_statistic
from lingua_wire.shared import Coverage, Timeline

pytestmark = pytest.mark.unit

NOTHING = Coverage(admitted_ms=0, delivered_ms=0, silent_ms=0, failed_ms=0, skipped_ms=0)


def session(name: str) -> answers.SessionAnswer:
    return answers.SessionAnswer(
        id=name,
        tenant="",
        source="en",
        targets=("es",),
        two_way=None,
        audio="pcm16 16000",
        opened_at_ms=0,
        age_ms=0,
        connected=True,
        open_utterances=0,
        backlog=0,
        next_index=0,
        coverage=NOTHING,
        room=None,
        cell="c0",
    )


def page(*names: str, following: str | None = None) -> answers.SessionPage:
    sessions = tuple(session(name) for name in names)
    return answers.SessionPage(instance="w", sessions=sessions, next=following)


def ids(found: answers.SessionPage) -> list[str]:
    return [one.id for one in found.sessions]


def test_pages_of_workers_are_one_page_by_id() -> None:
    found = one_page([page("b", "d"), page("a", "c")], "sessions", 10, "service")
    assert (found.instance, ids(found), found.next) == ("service", ["a", "b", "c", "d"], None)


def test_a_page_that_is_cut_says_where_the_next_begins() -> None:
    found = one_page([page("b", "d"), page("a", "c")], "sessions", 3, "service")
    assert (ids(found), found.next) == (["a", "b", "c"], "c")
    # One worker has more than it sent: the rest is on the next page, with those behind it.
    found = one_page([page("a", "b", following="b"), page("d", "e")], "sessions", 2, "service")
    assert (ids(found), found.next) == (["a", "b"], "b")


def test_no_worker_with_sessions_is_an_empty_page() -> None:
    assert one_page([page(), page()], "sessions", 10, "service").next is None


def story(timeline: Timeline | None) -> answers.JobStory:
    return answers.JobStory(
        id="job-1",
        session="s-1",
        utterance_index=0,
        lane="es",
        trace="t",
        state="completed",
        attempt=1,
        node="n1",
        age_ms=5,
        cell="c0",
        timeline=timeline,
        created_at_ms=1,
        deadline_at_ms=None,
        outcome="completed",
        reason="",
        ended_at_ms=6,
        attempts=(),
    )


@pytest.mark.parametrize("is_first", [True, False])
def test_of_a_job_the_worker_that_knows_its_times_tells_the_history(is_first: bool) -> None:
    known = story(Timeline(total_ms=5))
    stories = [known, story(None)] if is_first else [story(None), known]
    histories = [answers.HistoryAnswer(instance="w", jobs=(one,)) for one in stories]
    assert one_history(histories, "service").jobs == (known,)


def stats(users: int, nodes: int, state: str) -> answers.StatsAnswer:
    use = answers.LanguageUse(as_source=users, as_target=0, total=users)
    return answers.StatsAnswer(
        instance="w",
        web_clients=answers.ClientStats(
            active_users=users, top_languages=(), language_usage={"en": use}
        ),
        nodes=answers.NodeStats(
            connected_nodes=nodes, ready_nodes=nodes, slots=4 * nodes, type_node_counts={"asr": 1}
        ),
        jobs=answers.JobStats(in_flight=1, by_state={state: 1}),
    )


def test_the_counts_of_workers_are_summed() -> None:
    found = one_statistic([stats(2, 1, "pending"), stats(3, 2, "assigned")], "service")
    assert found.instance == "service"
    assert found.web_clients.active_users == 5
    assert found.web_clients.language_usage["en"].total == 5
    assert [(top.language, top.count) for top in found.web_clients.top_languages] == [("en", 5)]
    assert (found.nodes.connected_nodes, found.nodes.slots) == (3, 12)
    assert found.nodes.type_node_counts == {"asr": 2}
    assert found.jobs == answers.JobStats(in_flight=2, by_state={"pending": 1, "assigned": 1})
