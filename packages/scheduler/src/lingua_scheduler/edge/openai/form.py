"""A multipart upload: its checked fields, and its file on disk. Streamed, within bounds.

The file is never completely in memory: threads write it to a temporary file, which is deleted at
the end of the `with` block. Unknown fields are ignored, as clients expect.
"""

from __future__ import annotations

import asyncio
import tempfile
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from aiohttp import BodyPartReader, web
from aiohttp.http_exceptions import BadHttpMessage

from lingua_scheduler.edge.openai.errors import ApiError, invalid
from lingua_wire.errors import InvalidLanguage
from lingua_wire.language_names import are_same, code_of
from lingua_wire.languages import AUTO

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aiohttp import MultipartReader

FIELD_BYTES_MAX = 64 * 1024
FIELDS_MAX = 64
READ_BYTES = 64 * 1024
# Bytes that are collected before a thread writes them to disk.
WRITE_BYTES = 1 << 20
# What aiohttp raises for a malformed multipart body or malformed headers of its parts.
MALFORMED = (ValueError, AssertionError, RuntimeError, web.RequestPayloadError, BadHttpMessage)
# How long a client may send nothing, and the least average rate of an upload.
SILENCE_S = 30.0
BYTES_PER_S_MIN = 16 * 1024
# Fields that are kept; all others are skipped, however long they are.
KNOWN = frozenset(
    [
        "model",
        "language",
        "prompt",
        "response_format",
        "temperature",
        "stream",
        "timestamp_granularities",
        "timestamp_granularities[]",
        "source_language",
        "target_language",
    ]
)
FORMATS = ("json", "text", "srt", "vtt", "verbose_json")
STREAMED_FORMATS = ("json", "text")
GRANULARITIES = ("segment", "word")


@dataclass(frozen=True, slots=True)
class Upload:
    """The fields and the file of an upload."""

    fields: dict[str, list[str]]
    path: Path
    filename: str
    size: int

    def one(self, name: str, default: str = "") -> str:
        """Return a single-valued field; the last value wins."""
        return self.fields.get(name, [default])[-1]


@dataclass(frozen=True, slots=True)
class RecordingRequest:
    """What a client requests for a recording."""

    model: str
    # `auto` if it was not given.
    source: str
    # Empty: no translation, the text in the language of the speech.
    target: str = ""
    prompt: str = ""
    format: str = "json"
    temperature: float = 0.0
    stream: bool = False

    @property
    def is_translated(self) -> bool:
        """Tell whether the text is requested in another language than that of the speech."""
        return bool(self.target) and not are_same(self.target, self.source)


def read_request(upload: Upload, *, translates: bool) -> RecordingRequest:
    """Read the fields of an upload, or raise `ApiError`."""
    model = upload.one("model").strip()
    if not model:
        raise invalid("model", "you must provide a model parameter", "missing_required_parameter")
    shape, stream = upload.one("response_format") or "json", _flag(upload, "stream")
    if shape not in FORMATS:
        raise invalid("response_format", f"must be one of {', '.join(FORMATS)}: {shape[:40]!r}")
    if stream and translates:
        raise invalid("stream", "translations are not streamed", "unsupported_value")
    if stream and shape not in STREAMED_FORMATS:
        raise invalid("stream", f"{shape} is not streamed", "unsupported_value")
    _check_granularities(upload, shape)
    source = _language(upload, "source_language", AUTO)
    return RecordingRequest(
        model=model,
        source=_language(upload, "language", source),
        target=_language(upload, "target_language", "en") if translates else "",
        prompt=upload.one("prompt"),
        format=shape,
        temperature=_temperature(upload),
        stream=stream,
    )


def _language(upload: Upload, name: str, default: str) -> str:
    given = upload.one(name).strip()
    if not given or (given.lower() == AUTO and name != "target_language"):
        return default
    try:
        return code_of(given)
    except InvalidLanguage as problem:
        raise invalid(name, str(problem), "invalid_language") from None


def _flag(upload: Upload, name: str) -> bool:
    given = upload.one(name, "false").lower()
    if given not in ("true", "false", "1", "0", ""):
        raise invalid(name, f"must be true or false: {given[:40]!r}")
    return given in ("true", "1")


def _temperature(upload: Upload) -> float:
    given = upload.one("temperature") or "0"
    try:
        value = float(given)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise invalid("temperature", f"must be a number from 0 to 1: {given[:40]!r}")
    return value


def _check_granularities(upload: Upload, shape: str) -> None:
    name = "timestamp_granularities"
    given = upload.fields.get(f"{name}[]", []) + upload.fields.get(name, [])
    for one in given:
        if one not in GRANULARITIES:
            raise invalid(name, f"must be of {', '.join(GRANULARITIES)}: {one[:40]!r}")
    if given and shape != "verbose_json":
        raise invalid(name, "timestamps need response_format=verbose_json")
    if "word" in given:
        raise invalid(name, "nodes report times of segments, not of words", "unsupported_value")


@asynccontextmanager
async def receive_upload(request: web.Request, bytes_max: int) -> AsyncIterator[Upload]:
    """Read an upload, or raise `ApiError`; its file is deleted at the end of the block."""
    if request.content_type != "multipart/form-data":
        raise invalid(None, "the content type must be multipart/form-data", "invalid_content_type")
    if (request.content_length or 0) > bytes_max + FIELDS_MAX * FIELD_BYTES_MAX:
        raise _too_large(bytes_max)
    with tempfile.TemporaryDirectory(prefix="lingua-upload-") as folder:
        path = Path(folder, "file")
        try:
            async with asyncio.timeout(SILENCE_S + bytes_max / BYTES_PER_S_MIN):
                upload = await _read(request, path, bytes_max)
        except TimeoutError:
            raise ApiError(408, "upload_too_slow", "the file did not arrive in time") from None
        yield upload


async def _read(request: web.Request, path: Path, bytes_max: int) -> Upload:
    fields: dict[str, list[str]] = {}
    count, size, filename = 0, -1, ""
    try:
        reader = await request.multipart()
        while (part := await _next(reader)) is not None:
            count += 1
            if count > FIELDS_MAX:
                raise invalid(None, f"more than {FIELDS_MAX} fields", "too_many_fields")
            if part.name == "file":
                filename = part.filename or ""
                size = await _store(part, path, bytes_max)
            elif part.name in KNOWN:
                fields.setdefault(part.name, []).append(await _text(part))
            else:
                await _skip(part, bytes_max)
    except MALFORMED as problem:
        raise invalid(
            None, "the body is not a valid multipart form", "invalid_multipart"
        ) from problem
    except OSError as gone:
        raise ApiError(400, "client_gone", "the connection was lost") from gone
    if size < 0:
        raise invalid("file", "you must provide a file", "missing_required_parameter")
    if not size:
        raise invalid("file", "the file is empty", "empty_file")
    return Upload(fields, path, filename, size)


async def _next(reader: MultipartReader) -> BodyPartReader | None:
    async with asyncio.timeout(SILENCE_S):
        part = await reader.next()
    if part is None:
        return None
    if not isinstance(part, BodyPartReader):
        raise invalid(None, "a multipart form in another", "invalid_multipart")
    return part


async def _chunks(part: BodyPartReader) -> AsyncIterator[bytes]:
    while True:
        async with asyncio.timeout(SILENCE_S):
            chunk = await part.read_chunk(READ_BYTES)
        if not chunk:
            return
        yield chunk


async def _skip(part: BodyPartReader, bytes_max: int) -> None:
    size = 0
    async for chunk in _chunks(part):
        size += len(chunk)
        if size > bytes_max:
            raise _too_large(bytes_max)


async def _text(part: BodyPartReader) -> str:
    data = bytearray()
    async for chunk in _chunks(part):
        data += chunk
        if len(data) > FIELD_BYTES_MAX:
            raise invalid(part.name, f"longer than {FIELD_BYTES_MAX} bytes", "string_too_long")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise invalid(part.name, "must be UTF-8 text") from None


async def _store(part: BodyPartReader, path: Path, bytes_max: int) -> int:
    """Write the file to disk in a thread, block by block."""
    gathered, size = bytearray(), 0
    file: BinaryIO = await asyncio.to_thread(path.open, "wb")
    try:
        async for chunk in _chunks(part):
            gathered += chunk
            size += len(chunk)
            if size > bytes_max:
                raise _too_large(bytes_max)
            if len(gathered) >= WRITE_BYTES:
                await asyncio.to_thread(file.write, bytes(gathered))
                gathered.clear()
        await asyncio.to_thread(file.write, bytes(gathered))
    finally:
        await asyncio.to_thread(file.close)
    return size


def _too_large(bytes_max: int) -> ApiError:
    return ApiError(
        413, "file_too_large", f"maximum content size limit ({bytes_max}) exceeded", param="file"
    )
