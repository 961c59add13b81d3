"""The pages for people and the browser SDK: the files of `lingua_web`, served as they are.

The files are read once, when the instance starts: a request cannot name a path outside of them.
Each is compressed at its first request and kept. Nothing here needs a token: the pages hold no
data, and what they do is done over the session socket and the HTTP API, which ask for one.
"""

from __future__ import annotations

import gzip
import hashlib
import mimetypes
from typing import TYPE_CHECKING, Annotated, Final

from aiohttp import web
from msgspec import Meta, Struct

from lingua_scheduler.edge import answers
from lingua_scheduler.edge.routes import ApiRoute
from lingua_scheduler.edge.tcp_listener import refusal_of_another
from lingua_web import STATIC
from lingua_wire import __version__
from lingua_wire.language_names import NAMES

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from lingua_scheduler.auth.gate import TokenGate
    from lingua_scheduler.edge.api_call import ApiCall
    from lingua_scheduler.edge.guard import Guard
    from lingua_scheduler.jobs.placement import PoolView
    from lingua_scheduler.runtime.instance import Instance

HTML: Final = "text/html; charset=utf-8"
# Not everywhere in the system's own table.
TYPES: Final = {
    ".js": "text/javascript; charset=utf-8",
    ".ts": "text/plain; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".html": HTML,
    ".svg": "image/svg+xml",
    ".json": "application/json",
    ".webmanifest": "application/manifest+json",
}
POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "connect-src 'self'",
        "img-src 'self' data: blob:",
        "media-src 'self' blob:",
        "worker-src 'self'",
        "manifest-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "Referrer-Policy": "no-referrer",
    "Permissions-Policy": "microphone=(self), camera=(), geolocation=()",
    "Cross-Origin-Opener-Policy": "same-origin",
    # Asked for again each time, but not sent again while the tag is the same.
    "Cache-Control": "no-cache",
    "Vary": "Accept-Encoding",
}
# The SDK is for pages of other origins too: whoever may connect is decided at the socket.
SDK_HEADERS: Final = {"Access-Control-Allow-Origin": "*"}
# Below this size compression saves no packet.
COMPRESSED_FROM_BYTES: Final = 512
# The page of a person, under all the paths that it has.
MAIN, CONSOLE = "index.html", "console/index.html"
PAGES: Final = (
    ("/", MAIN, "The page on which people speak, read and listen."),
    ("/room/{code}", MAIN, "The same page, in a room."),
    ("/room/{code}/stage", "stage.html", "The captions of a room, large, for a projector."),
    ("/room/{code}/overlay", "stage.html", "The captions of a room on a transparent background."),
    ("/console", CONSOLE, "The operators' page."),
)
# An instance that stops is replaced by another one soon.
RESTART_S: Final = 2
# A fleet that serves everything is told as such, not as a list of all pairs.
PAIRS_MAX: Final = 2000
LANGUAGE_NAMES: Final = dict(
    reversed([(code, name) for code, _, name in (one.partition(" ") for one in NAMES.split(","))])
)


class WebConfigQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """The origin of the page that asks, as it would open a socket."""

    origin: Annotated[str, Meta(max_length=256)] = ""


class StaticFile:
    """One file as it goes over the wire."""

    def __init__(self, path: Path) -> None:
        self.body = path.read_bytes()
        self.etag = f'"{hashlib.sha256(self.body).hexdigest()[:20]}"'
        guessed = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
        self.content_type = TYPES.get(path.suffix, guessed)
        self._compressed: bytes | None = None

    def response(self, request: web.Request, more: dict[str, str] | None = None) -> web.Response:
        """Answer a request: the file, compressed if the caller takes that, or 304."""
        headers = {**HEADERS, **(more or {}), "ETag": self.etag}
        known = {tag.strip() for tag in request.headers.get("If-None-Match", "").split(",")}
        # A proxy that compresses by itself makes the tag a weak one.
        if {self.etag, f"W/{self.etag}"} & known:
            return web.Response(status=304, headers=headers)
        headers["Content-Type"] = self.content_type
        body = self.body
        takes_gzip = "gzip" in request.headers.get("Accept-Encoding", "")
        if takes_gzip and len(body) >= COMPRESSED_FROM_BYTES:
            if self._compressed is None:
                self._compressed = gzip.compress(body, 9, mtime=0)
            body = self._compressed
            headers["Content-Encoding"] = "gzip"
        return web.Response(body=body, headers=headers)


class WebPages:
    """The pages, the files they load, and what they ask before a session."""

    def __init__(self, instance: Instance, gate: TokenGate, guard: Guard) -> None:
        self._instance = instance
        self._gate = gate
        self._guard = guard
        self._files = {
            path.relative_to(STATIC).as_posix(): StaticFile(path)
            for path in sorted(STATIC.rglob("*"))
            if path.is_file()
        }
        config = ApiRoute(
            path="/web/config.json",
            summary="What the page needs to know before it opens a session.",
            handler=self.config,
            access="open",
            query=WebConfigQuery,
            answer=answers.WebConfig,
        )
        self.routes = (*(self._page_route(*page) for page in PAGES), config)

    def add_files(self, router: web.UrlDispatcher) -> None:
        """Serve the files that the pages load; they are no part of the API."""
        router.add_get("/assets/{name:.+}", self._asset)
        router.add_get("/sdk/{name:.+}", self._sdk_file)

    async def config(self, call: ApiCall) -> answers.WebConfig:
        """Return the languages that nodes serve now, and what a socket needs."""
        sockets, retry_after_s = self._sockets(call)
        return web_config(
            self._instance.fleet.pools,
            tokens_required=self._gate.asks_clients,
            sockets=sockets,
            retry_after_s=retry_after_s,
        )

    def _sockets(self, call: ApiCall) -> tuple[answers.Sockets, int]:
        if self._instance.lifecycle.is_draining:
            return "draining", RESTART_S
        if call.query.origin and not self._guard.allows_page(call.request, call.query.origin):
            return "origin_not_allowed", 0
        refusal = refusal_of_another(call.request)
        if refusal is None:
            return "open", 0
        retry_after_s = int(refusal.headers["Retry-After"])
        return ("full_for_address" if refusal.status == 429 else "full"), retry_after_s

    def _page_route(self, path: str, name: str, summary: str) -> ApiRoute:
        async def page(call: ApiCall) -> web.Response:
            return self._files[name].response(call.request)

        return ApiRoute(path=path, summary=summary, handler=page, access="open", content_type=HTML)

    async def _asset(self, request: web.Request) -> web.Response:
        return self._found(request.match_info["name"]).response(request)

    async def _sdk_file(self, request: web.Request) -> web.Response:
        file = self._found(f"sdk/{request.match_info['name']}")
        return file.response(request, SDK_HEADERS)

    def _found(self, name: str) -> StaticFile:
        file = self._files.get(name)
        if file is None:
            raise web.HTTPNotFound
        return file


def web_config(
    pools: Iterable[PoolView],
    *,
    tokens_required: bool,
    sockets: answers.Sockets = "open",
    retry_after_s: int = 0,
) -> answers.WebConfig:
    """Return what everyone may know of the fleet: the languages that public nodes serve."""
    public = [pool.can for pool in pools if not pool.can.owner]
    serves_any = any(can.serves_any for can in public)
    pairs: set[str] = set()
    for can in public:
        made = (f"{src}>{tgt}" for src in can.sources or () for tgt in can.targets or ())
        pairs.update(can.pairs if can.pairs is not None else made)
    codes = {code for pair in pairs for code in pair.split(">") if code}
    if serves_any:
        codes |= LANGUAGE_NAMES.keys()
    return answers.WebConfig(
        version=__version__,
        tokens_required=tokens_required,
        serves_any=serves_any,
        languages=tuple(
            answers.WebLanguage(code=code, name=LANGUAGE_NAMES.get(code, code).title())
            for code in sorted(codes)
        ),
        pairs=tuple(sorted(pairs))[:PAIRS_MAX],
        sockets=sockets,
        retry_after_s=retry_after_s,
    )
