"""Log lines: their form, their limits, and what they must never contain."""

import asyncio
import io
import json
import logging
import re
import subprocess
import sys
from collections.abc import Iterator
from enum import StrEnum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lingua_cli.logs import (
    JOB_LINES_PER_S_MAX,
    LINES_PER_S_MAX,
    VALUE_CHARS_MAX,
    EventHandler,
    EventLog,
    configure_logs,
    error_text,
    is_private,
    plain_words,
)
from lingua_scheduler.errors import InvalidIdentifier, StoreUnavailable
from lingua_scheduler.secret import Secret

pytestmark = pytest.mark.unit

SPOKEN = "SPOKEN-WORDS"


class Clock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Output:
    """The logs of this process in memory, at a time that the test sets."""

    def __init__(self, level: str = "debug", *, as_json: bool = True) -> None:
        self.stream = io.StringIO()
        self.clock = Clock()
        self.handler = configure_logs(self.stream, level, as_json=as_json, clock=self.clock)

    def text(self) -> str:
        return self.stream.getvalue()

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.text().splitlines()]

    def events(self) -> list[str]:
        return [line["event"] for line in self.lines()]


@pytest.fixture(autouse=True)
def _logging_as_before() -> Iterator[None]:
    root, access = logging.getLogger(), logging.getLogger("aiohttp.access")
    levels = root.level, access.level
    yield
    for handler in [handler for handler in root.handlers if isinstance(handler, EventHandler)]:
        root.removeHandler(handler)
        handler.close()
    root.setLevel(levels[0])
    access.setLevel(levels[1])


log = EventLog("test")


class Fate(StrEnum):
    LOST = "lost"


# The form of a line


def test_a_line_is_json_with_utc_time_level_event_and_fields() -> None:
    output = Output()
    log("job.settled", job="j-1", attempt=2, wait_s=0.5, retry=False, node=None, fate=Fate.LOST)
    (line,) = output.lines()
    assert re.fullmatch(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line.pop("time"))
    assert line == {
        "level": "info",
        "event": "job.settled",
        "component": "test",
        "job": "j-1",
        "attempt": 2,
        "wait_s": 0.5,
        "retry": False,
        "node": None,
        "fate": "lost",
    }
    assert output.text().endswith("\n")


def test_a_line_for_a_person_is_short() -> None:
    output = Output(as_json=False)
    log.warning("node.lost", node="n-1", jobs=3, reason="no beat", ok=True, none=None, empty="")
    found = re.fullmatch(r"\d\d:\d\d:\d\d\.\d{3}Z (.*)\n", output.text())
    assert found
    assert found[1] == (
        'warning node.lost node=n-1 jobs=3 reason="no beat" ok=true none=null empty=""'
    )


def test_each_level_has_its_method_and_lower_ones_are_left_out() -> None:
    output = Output("warning")
    for write in (log.debug, log.info, log, log.warning, log.error):
        write("job.settled")
    assert [line["level"] for line in output.lines()] == ["warning", "error"]


def test_a_later_configuration_replaces_the_earlier_one() -> None:
    first = Output()
    second = Output(as_json=False)
    log("job.settled")
    assert first.text() == ""
    assert second.text().count("job.settled") == 1


@given(st.text(), st.booleans())
def test_no_value_breaks_its_line(value: str, as_json: bool) -> None:
    output = Output(as_json=as_json)
    log("job.settled", reason=value)
    text = output.text()
    assert text.isascii()
    assert text.removesuffix("\n").isprintable()
    if as_json and len(value) <= VALUE_CHARS_MAX:
        assert json.loads(text)["reason"] == value


@pytest.mark.parametrize(
    ("value", "shown"),
    [(float("nan"), "nan"), (float("inf"), "inf"), ("\ud800", "?"), ("\x1b[2J", "\x1b[2J")],
)
def test_a_value_json_does_not_know_is_still_json(value: object, shown: str) -> None:
    output = Output()
    log("job.settled", reason=value)
    assert output.lines()[0]["reason"] == shown


# Values that are never logged

PRIVATE = """
    text text_asr asr_text textual TEXT tts_text translated_text audio audio_data tts_audio audios
    token tokens token_id resume_token sdp candidate candidates ice_candidate transcript secret
    client_secret password
"""


@pytest.mark.parametrize("name", PRIVATE.split())
@pytest.mark.parametrize("level", ["debug", "critical"])
def test_no_value_under_a_private_name_gets_out(name: str, level: str) -> None:
    output = Output(level)
    for write in (log, log.debug, log.info, log.warning, log.error):
        with pytest.raises(AssertionError) as caught:
            write("job.settled", job="j-1", **{name: SPOKEN})
        assert SPOKEN not in str(caught.value)
    output.handler.close()
    assert output.text() == ""


@pytest.mark.parametrize("name", ["job", "node", "context_reset", "next_index", "bytes", "reason"])
def test_other_names_are_free(name: str) -> None:
    assert not is_private(name)


@pytest.mark.parametrize(
    "value",
    [
        b"RIFF",
        bytearray(b"RIFF"),
        memoryview(b"RIFF"),
        ["a"],
        ("a",),
        {"text": SPOKEN},
        {1},
        Secret("s"),
        object(),
    ],
)
def test_a_value_that_is_not_plain_is_refused(value: object) -> None:
    output = Output()
    with pytest.raises(AssertionError, match="not a plain value") as caught:
        log("job.settled", reason=value)
    assert SPOKEN not in str(caught.value)
    assert output.text() == ""


def test_a_long_text_is_trimmed() -> None:
    output = Output()
    log("job.settled", reason="x" * VALUE_CHARS_MAX, other="y" * 1_000_000)
    (line,) = output.lines()
    assert line["reason"] == "x" * VALUE_CHARS_MAX
    assert line["other"] == "y" * VALUE_CHARS_MAX + f"...(+{1_000_000 - VALUE_CHARS_MAX})"


@pytest.mark.parametrize(
    "event", ["", "settled", "Job.settled", "job.settled j-1", "job.7", "job.", ".x", "job.a\n"]
)
def test_an_event_is_a_static_name(event: str) -> None:
    with pytest.raises(AssertionError, match="static"):
        log(event)


@pytest.mark.parametrize("name", ["time", "level", "component"])
def test_a_field_cannot_hide_what_every_line_has(name: str) -> None:
    with pytest.raises(AssertionError, match=name):
        log("job.settled", **{name: "x"})


def test_the_refusals_hold_without_assertions() -> None:
    code = (
        "import sys; from lingua_cli.logs import *;"
        "configure_logs(sys.stdout, 'debug', as_json=True);"
        f"EventLog('test')('job.settled', text='{SPOKEN}')"
    )
    done = subprocess.run(
        [sys.executable, "-O", "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert "AssertionError: job.settled: no field may be named text" in done.stderr


# Errors


def raised(error: Exception) -> Exception:
    try:
        raise error
    except type(error) as caught:
        return caught


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        (ValueError(SPOKEN), "ValueError at test_logs.py:"),
        (InvalidIdentifier("job", SPOKEN), "InvalidIdentifier at test_logs.py:"),
        (StoreUnavailable("here", "why"), "StoreUnavailable: store here unavailable: why at test_"),
        (FileNotFoundError(2, "No such file", SPOKEN), "FileNotFoundError: No such file at test_"),
    ],
)
def test_an_error_gives_its_type_and_place_but_no_value_from_outside(
    error: Exception, shown: str
) -> None:
    output = Output()
    log.error("job.broken", error=raised(error))
    assert output.lines()[0]["error"].startswith(shown)
    assert SPOKEN not in output.text()


def test_the_place_of_an_error_goes_from_the_inside_out() -> None:
    def deeper(levels: int) -> None:
        if levels == 0:
            raise KeyError(SPOKEN)
        deeper(levels - 1)

    with pytest.raises(KeyError) as caught:
        deeper(8)
    lines = [int(line) for line in re.findall(r"test_logs\.py:(\d+)", error_text(caught.value))]
    assert len(lines) == 4
    assert lines[0] < lines[1] == lines[2] == lines[3]
    assert error_text(KeyError(SPOKEN)) == "KeyError"


# Lines of other libraries


def test_another_library_comes_out_in_the_same_form_without_values() -> None:
    output = Output()
    other = logging.getLogger("other.library")
    other.warning("Request failed for '%s'\nbody: %s", SPOKEN, SPOKEN)
    other.error("It broke", exc_info=raised(ValueError(SPOKEN)))
    other.info("Two %s", "words", extra={"fields": {"text": SPOKEN}, "component": SPOKEN})
    first, second, third = output.lines()
    assert (first["event"], first["logger"]) == ("log.foreign", "other.library")
    assert first["message"] == "Request failed for"
    assert second["message"] == "It broke"
    assert second["error"].startswith("ValueError at test_logs.py:")
    assert third["message"] == "Two words"
    assert SPOKEN not in output.text()


def test_what_an_event_loop_reports_has_no_values() -> None:
    output = Output("info")

    def callback(said: str) -> None:
        raise ValueError(said)

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        loop.call_soon(callback, SPOKEN)
        await asyncio.sleep(0)
        context = {"message": "Task exception was never retrieved", "exception": KeyError(SPOKEN)}
        loop.default_exception_handler(context)

    asyncio.run(scenario())
    first, second = output.lines()
    assert first["logger"] == "asyncio"
    assert first["message"].startswith("Exception in callback")
    assert first["error"].startswith("ValueError at test_logs.py:")
    assert second["message"] == "Task exception was never retrieved"
    assert SPOKEN not in output.text()


def test_a_mistake_in_another_librarys_line_stays_there() -> None:
    output = Output()
    # Directly to the handler, because pytest's own handler would fail first.
    output.handler.handle(logging.makeLogRecord({"msg": "one %s two %s", "args": (SPOKEN,)}))
    assert output.lines()[0]["message"] == "one %s two %s"


def test_requests_are_not_logged_one_by_one() -> None:
    output = Output()
    logging.getLogger("aiohttp.access").info("GET /livez")
    assert output.text() == ""


# Floods


def test_a_flood_of_one_event_is_cut_and_counted() -> None:
    output = Output()
    for _ in range(10_000):
        log.warning("message.refused", reason="malformed")
    log("job.settled")
    assert output.events() == ["message.refused"] * LINES_PER_S_MAX + ["job.settled"]
    output.clock.now += 1
    log("job.settled")
    told, last = output.lines()[LINES_PER_S_MAX + 1 :]
    assert (told["event"], told["of"], told["count"]) == (
        "log.left_out",
        "message.refused",
        10_000 - LINES_PER_S_MAX,
    )
    assert last["event"] == "job.settled"


def test_of_jobs_more_lines_are_written_because_each_is_another_utterance() -> None:
    output = Output()
    jobs = EventLog("jobs")
    for number in range(JOB_LINES_PER_S_MAX + 3):
        jobs("job.ended", utterance=number)
    assert len(output.lines()) == JOB_LINES_PER_S_MAX
    output.clock.now += 1
    jobs("job.ended", utterance=0)
    assert output.lines()[JOB_LINES_PER_S_MAX]["count"] == 3


@pytest.mark.parametrize(
    ("message", "safe"),
    [
        ("out of memory", "out of memory"),
        ("cannot translate 'good morning'", "cannot translate"),
        ("text=good morning", "text"),
        ("two\nlines", "two"),
        ("", ""),
    ],
)
def test_of_a_strangers_message_only_its_own_words_are_kept(message: str, safe: str) -> None:
    assert plain_words(message) == safe
    assert len(plain_words("x" * 9999)) < 300


def test_after_a_second_lines_are_written_again() -> None:
    output = Output()
    for _ in range(3):
        for _ in range(LINES_PER_S_MAX + 5):
            log("job.settled")
        output.clock.now += 1
    counts = [line["count"] for line in output.lines() if line["event"] == "log.left_out"]
    assert counts == [5, 5]
    assert output.events().count("job.settled") == 3 * LINES_PER_S_MAX


def test_lines_left_out_are_reported_at_the_end_also_to_a_person() -> None:
    output = Output(as_json=False)
    for _ in range(LINES_PER_S_MAX + 7):
        log("job.settled")
    output.handler.close()
    assert output.text().splitlines()[-1].endswith("log.left_out of=job.settled count=7")
    output.handler.close()
    assert output.text().count("log.left_out") == 1


def test_another_library_cannot_flood_either() -> None:
    output = Output()
    for number in range(1000):
        logging.getLogger("other.library").warning("line %d", number)
    assert len(output.lines()) == LINES_PER_S_MAX


def test_a_closed_stream_costs_lines_and_nothing_else() -> None:
    output = Output()
    for _ in range(LINES_PER_S_MAX + 1):
        log("job.settled")
    output.stream.close()
    log("job.other")
    assert isinstance(output.handler, EventHandler)
    assert output.handler.lines_lost == 1
    output.handler.close()
    assert output.handler.lines_lost == 2


@pytest.mark.parametrize("as_json", [True, False])
def test_processes_that_share_a_stream_name_themselves_in_each_line(as_json: bool) -> None:
    stream = io.StringIO()
    configure_logs(stream, "info", as_json=as_json, worker="box-2")
    EventLog("scheduler")("serve.started", port=1)
    logging.getLogger("another.library").warning("a line")
    for line in stream.getvalue().splitlines():
        assert ('"worker":"box-2"' if as_json else " worker=box-2") in line
