"""Log lines: JSON for machines, one compact line for a terminal; never speech, never secrets.

A line is a static event name (`job.settled`) and fields: ids, counts, reasons. Transcripts, audio,
tokens and connection descriptions are refused by the name and type of the field, at any level. It
is based on the standard library's `logging`, so that lines of other libraries have the same form,
without the values that they quote. Not for the hot path: one line per change of state.
"""

from __future__ import annotations

import json
import logging
import math
import re
import time
import traceback
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from lingua_wire.errors import InvalidInput, LinguaError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LOGGER_PREFIX = "lingua"
LINES_PER_S_MAX = 20
# Each line of a job is about another utterance: with `log.jobs = "all"`, all of a busy instance.
JOBS = "jobs"
JOB_LINES_PER_S_MAX = 1000
VALUE_CHARS_MAX = 200
ERROR_FRAMES_MAX = 4

EVENT = re.compile(r"[a-z][a-z_]*(\.[a-z][a-z_]*)+")
# Refused at the beginning of a name and of any word in it: `text_asr`, `asr_text`, `tokens`.
PRIVATE_WORDS = ("text", "audio", "token", "sdp", "candidate", "transcript", "secret", "password")
RESERVED_NAMES = frozenset({"time", "level", "event", "component", "worker"})
# Values that need no quotes on a terminal.
PLAIN = re.compile(r"[A-Za-z0-9_.:/@+*,-]+")
# Where the message of another library may begin to quote values.
QUOTING = re.compile(r"[\n('\"<=\[{]")
# The attribute of a record with our fields: a name that no other library uses.
FIELDS = "lingua_fields"
# The attribute with the process that wrote the line, among several that share the stream.
WORKER = "lingua_worker"

Value = str | int | float | bool | None


class EventLog:
    """Writes the events of one component; calling it is the same as `info`."""

    def __init__(self, component: str) -> None:
        self._logger = logging.getLogger(f"{LOGGER_PREFIX}.{component}")
        self._component = component

    def __call__(self, event: str, **fields: object) -> None:
        """Write an ordinary event."""
        self._write(logging.INFO, event, fields)

    info = __call__

    def debug(self, event: str, **fields: object) -> None:
        """Write an event that is useful only when a problem is investigated."""
        self._write(logging.DEBUG, event, fields)

    def warning(self, event: str, **fields: object) -> None:
        """Write an event that an operator should look at some time."""
        self._write(logging.WARNING, event, fields)

    def error(self, event: str, **fields: object) -> None:
        """Write an event that an operator should look at now."""
        self._write(logging.ERROR, event, fields)

    def _write(self, level: int, event: str, fields: dict[str, object]) -> None:
        # First, so that an invalid field is found at any level.
        checked = checked_fields(event, fields)
        logger = self._logger
        if logger.isEnabledFor(level):
            # Built here: finding the caller would cost more than everything else.
            record = logger.makeRecord(
                name=logger.name,
                level=level,
                fn="",
                lno=0,
                msg=event,
                args=(),
                exc_info=None,
            )
            record.__dict__.update({FIELDS: checked, "component": self._component})
            logger.handle(record)


def configure_logs(
    stream: TextIO,
    level: str,
    *,
    as_json: bool,
    clock: Callable[[], float] = time.monotonic,
    worker: str = "",
) -> logging.Handler:
    """Send all log lines of this process to a stream; a later call replaces an earlier one.

    Processes that share a stream give their name as `worker`, which is then in each line.
    """
    root = logging.getLogger()
    for handler in [handler for handler in root.handlers if isinstance(handler, EventHandler)]:
        root.removeHandler(handler)
        handler.close()
    made = EventHandler(stream, json_line if as_json else plain_line, clock, worker)
    root.addHandler(made)
    root.setLevel(level.upper())
    # HTTP requests are counted by metrics.
    logging.getLogger("aiohttp.access").setLevel(logging.WARNING)
    return made


def checked_fields(event: str, fields: dict[str, object]) -> dict[str, Value]:
    """Return the fields to write; AssertionError, also under `-O`, if one is not allowed."""
    if not EVENT.fullmatch(event):
        raise AssertionError("an event's name is static, such as job.settled")
    checked: dict[str, Value] = {}
    for name, value in fields.items():
        if is_private(name) or name in RESERVED_NAMES:
            raise AssertionError(f"{event}: no field may be named {name}")
        checked[name] = _checked_value(event, name, value)
    return checked


@lru_cache(maxsize=1024)
def is_private(name: str) -> bool:
    """Tell whether a field of this name could contain speech or a secret."""
    lowered = name.lower()
    return any(word.startswith(PRIVATE_WORDS) for word in (lowered, *lowered.split("_")))


def error_text(error: BaseException) -> str:
    """Return an error's type and place, and its message unless that may quote input."""
    frames = traceback.extract_tb(error.__traceback__)[: -ERROR_FRAMES_MAX - 1 : -1]
    places = " < ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in frames)
    if isinstance(error, OSError):
        message = f": {error.strerror}"
    elif isinstance(error, LinguaError) and not isinstance(error, InvalidInput):
        message = f": {error}"
    else:
        message = ""
    return f"{type(error).__name__}{message}{' at ' if places else ''}{places}"


def plain_words(message: str) -> str:
    """Return the safe part of another library's message: up to where it quotes a value."""
    return _trimmed(QUOTING.split(message, 1)[0].rstrip())


class EventHandler(logging.Handler):
    """Writes records to a stream, with a limit per second for each name."""

    def __init__(
        self,
        stream: TextIO,
        form: Callable[[logging.LogRecord], str],
        clock: Callable[[], float],
        worker: str = "",
    ) -> None:
        super().__init__()
        # The process among those that share the stream; empty if it is alone.
        self._worker = worker
        self._stream = stream
        self._form = form
        self._clock = clock
        # Lines written in the current second, by name; and those left out, until reported.
        self._second = 0
        self._written: dict[str, int] = {}
        self._left_out: dict[str, int] = {}
        # Lines that could not be written: the stream or its reader was closed.
        self.lines_lost = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record, or count it as left out; `logging` holds the handler's lock."""
        try:
            self._turn_second()
            of_jobs = record.__dict__.get("component") == JOBS
            most = JOB_LINES_PER_S_MAX if of_jobs else LINES_PER_S_MAX
            if self._admits(_name_of(record), most):
                self._write(record)
                self._stream.flush()
        except (OSError, ValueError):
            # Counted, not printed as the standard library does: that would quote values.
            self.lines_lost += 1

    def close(self) -> None:
        """Report what was left out since the last line; the stream stays open."""
        self.acquire()
        try:
            self._report_left_out()
        except (OSError, ValueError):
            self.lines_lost += 1
        finally:
            self.release()
            super().close()

    def _turn_second(self) -> None:
        second = math.floor(self._clock())
        if second != self._second:
            self._second = second
            self._written.clear()
            self._report_left_out()

    def _admits(self, name: str, most: int) -> bool:
        count = self._written.get(name, 0)
        if count >= most:
            self._left_out[name] = self._left_out.get(name, 0) + 1
            return False
        self._written[name] = count + 1
        return True

    def _report_left_out(self) -> None:
        left_out, self._left_out = self._left_out, {}
        for name, count in left_out.items():
            record = logging.makeLogRecord({"levelno": logging.WARNING, "msg": "log.left_out"})
            record.__dict__.update({FIELDS: {"of": name, "count": count}, "component": "logs"})
            self._write(record)

    def _write(self, record: logging.LogRecord) -> None:
        # One call for the whole line: lines of other processes stay apart.
        record.__dict__[WORKER] = self._worker
        self._stream.write(self._form(record))


def json_line(record: logging.LogRecord) -> str:
    """Return a record as one line of JSON, in ASCII for any encoding of the stream."""
    return json.dumps(dict(_parts(record)), separators=(",", ":"), allow_nan=False) + "\n"


def plain_line(record: logging.LogRecord) -> str:
    """Return a record as a line for a person: time of day, level, event, fields."""
    parts = dict(_parts(record))
    at, level, event = (str(parts.pop(name)) for name in ("time", "level", "event"))
    parts.pop("component")
    fields = "".join(f" {name}={_plain(value)}" for name, value in parts.items())
    return f"{at[11:]} {level:<7} {event}{fields}\n"


def _parts(record: logging.LogRecord) -> Iterator[tuple[str, Value]]:
    fields: dict[str, Value] | None = record.__dict__.get(FIELDS)
    at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
    yield "time", at.replace("+00:00", "Z")
    yield "level", logging.getLevelName(record.levelno).lower()
    if fields is None:
        yield from _foreign_parts(record)
        return
    yield "event", record.msg
    yield "component", record.__dict__["component"]
    yield from _worker_part(record)
    yield from fields.items()


def _worker_part(record: logging.LogRecord) -> Iterator[tuple[str, Value]]:
    if worker := record.__dict__.get(WORKER):
        yield "worker", worker


def _foreign_parts(record: logging.LogRecord) -> Iterator[tuple[str, Value]]:
    """Give the safe parts of another library's line: its message without quoted values."""
    yield "event", "log.foreign"
    yield "component", "python"
    yield from _worker_part(record)
    yield "logger", record.name
    yield "message", plain_words(_message_of(record))
    if record.exc_info and record.exc_info[1] is not None:
        yield "error", _trimmed(error_text(record.exc_info[1]))


def _message_of(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except (TypeError, ValueError, KeyError):
        # Arguments that do not fit are an error of that library and must not raise here.
        return str(record.msg)


def _name_of(record: logging.LogRecord) -> str:
    return str(record.msg) if FIELDS in record.__dict__ else record.name


def _checked_value(event: str, name: str, value: object) -> Value:
    if isinstance(value, BaseException):
        return _trimmed(error_text(value))
    if isinstance(value, str):
        return _trimmed(str(value))
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or isinstance(value, bool | int | float):
        return value
    raise AssertionError(f"{event}: {name} is a {type(value).__name__}, not a plain value")


def _trimmed(text: str) -> str:
    if len(text) > VALUE_CHARS_MAX:
        text = f"{text[:VALUE_CHARS_MAX]}...(+{len(text) - VALUE_CHARS_MAX})"
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _plain(value: Value) -> str:
    if isinstance(value, str):
        # Quoted and escaped, so that a value cannot move the cursor or begin a line.
        return value if PLAIN.fullmatch(value) else json.dumps(value)
    return json.dumps(value)
