"""Signed, short-lived tokens that state what a client or a node may do.

A token is a JWT signed with HS256 and nothing else; reading it needs no other service. Keys are
shared secrets from the settings: the first signs, each verifies. So a key is replaced by adding the
new one in front and removing the old one when its tokens have expired. Client and node tokens
differ by key, audience and type, and one is never read as the other. A token ends when it expires,
when its key is removed, or when its id or its subject is on the list of revoked ones
(`state/revocations.py`), which is checked elsewhere. The edge reads tokens, `lingua token` makes
them.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import time
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, get_args

import jwt
import msgspec
from msgspec import Meta, Struct

from lingua_scheduler.errors import InvalidIdentifier
from lingua_scheduler.secret import Secret
from lingua_wire.errors import ConfigError, InvalidInput, InvalidLabel, InvalidLanguage
from lingua_wire.labels import checked_labels
from lingua_wire.languages import language, understands

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

Reason = Literal[
    "missing",
    "malformed",
    "bad_signature",
    "expired",
    "not_yet",
    "wrong_audience",
    "wrong_node",
    "wrong_type",
    "unknown_key",
    "revoked",
]
REASONS: tuple[str, ...] = get_args(Reason)
SCOPES = ("speak", "listen", "captions", "admin")
# What an invitation to a room may allow.
GUEST_SCOPES = ("speak", "listen", "captions")
DEFAULT_SCOPES = frozenset({"speak", "listen"})

CLIENT_AUDIENCE = "lingua:client"
NODE_AUDIENCE = "lingua:node"
CLIENT_TTL_S = 3600
# How long an invitation lasts, and at most.
INVITE_TTL_S = 2 * 3600
INVITE_TTL_S_MAX = 24 * 3600
NODE_TTL_S = 24 * 3600
TTL_S_MAX = 30 * 24 * 3600
MAX_JOBS_MAX = 1024

ALGORITHM = "HS256"
KEY_BYTES_MIN = 32
TOKEN_CHARS_MAX = 4096
NAME_CHARS_MAX = 128
LEEWAY_S = 5
# How long a revoked token is refused: by default as long as any token can live; and at most.
REVOKED_S = TTL_S_MAX
REVOKED_S_MAX = 366 * 24 * 3600
# Three base64url parts; an unsigned token has an empty last part and is refused later.
TOKEN = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*")

# Ids that may be part of a key in the store.
IDENTIFIER = re.compile(r"[A-Za-z0-9_.:-]{1,128}")

# It knows one algorithm only, so that no header can ask for another.
_JWS = jwt.PyJWS(algorithms=[ALGORITHM])


class InvalidToken(InvalidInput):
    """A token that grants nothing; neither the error nor its text contains any part of it."""

    def __init__(self, reason: Reason) -> None:
        self.reason: Reason = reason
        is_missing = reason == "missing"
        super().__init__("no token was given" if is_missing else f"token refused: {reason}")


class ClientGrant(Struct, frozen=True, kw_only=True):
    """What a client token allows."""

    id: str
    tenant: str
    languages: tuple[str, ...] | None  # None: any
    rooms: bool
    scopes: frozenset[str]
    expires_at: float  # seconds since 1970, as in the token
    issued_at: float = 0.0  # the same; 0: the token does not say
    subject: str = ""  # its holder, for revoking; empty: the token does not say
    open_until: float = 0.0  # its sockets may stay open until then; 0: until it expires
    room: str = ""  # the only room that a guest may enter, and speak in; empty: no guest

    @property
    def holds_until(self) -> float:
        """Return when a socket that it opened must end, in seconds since 1970."""
        return max(self.expires_at, self.open_until)

    def allows(self, scope: str) -> bool:
        """Tell whether this scope was granted."""
        return scope in self.scopes

    def allows_language(self, code: str) -> bool:
        """Tell whether this language may be spoken or asked for."""
        return understands(self.languages, code)


class NodeGrant(Struct, frozen=True, kw_only=True):
    """What a node token allows, and to which node."""

    id: str
    node_id: str
    tenant: str  # empty: a node for jobs of all tenants
    max_jobs: int | None  # None: as many as the node declares
    expires_at: float  # seconds since 1970, as in the token
    issued_at: float = 0.0  # the same; 0: the token does not say
    labels: tuple[str, ...] | None = None  # None: those that the node declares

    @property
    def holds_until(self) -> float:
        """Return when a socket that it opened must end, in seconds since 1970."""
        return self.expires_at

    @property
    def subject(self) -> str:
        """Return its holder, for revoking: the node."""
        return self.node_id

    def check_node(self, node_id: str) -> None:
        """Raise `InvalidToken` if the token was made for another node."""
        if node_id != self.node_id:
            raise InvalidToken("wrong_node")


# Up to 9999-12-31: excludes infinity and times that a clock cannot represent.
_Seconds = Annotated[float, Meta(ge=0, le=253_402_300_799)]


class _Claims(Struct, kw_only=True, omit_defaults=True):
    """The claims of both kinds of tokens; unknown ones are ignored."""

    aud: str | list[str] = ""
    typ: str = ""
    exp: _Seconds
    iat: _Seconds = 0.0
    nbf: _Seconds = 0.0
    jti: Annotated[str, Meta(min_length=1, max_length=NAME_CHARS_MAX)]
    tenant: str = ""


class _ClientClaims(_Claims, kw_only=True, omit_defaults=True):
    """The claims of a client token. A missing claim grants nothing; no `languages` means any."""

    languages: list[str] | None = None
    rooms: bool = False
    scopes: list[str] = []
    # Any value: tokens made by other programs may contain it from before it had a meaning.
    sub: Any = ""
    # For tokens that only open sockets: these may stay open after the token has expired.
    open_until: _Seconds = 0.0
    # For guests: everything that is allowed is allowed in this room only.
    room: Annotated[str, Meta(max_length=NAME_CHARS_MAX)] = ""


class _NodeClaims(_Claims, kw_only=True, omit_defaults=True):
    sub: str
    max_jobs: Annotated[int, Meta(ge=1, le=MAX_JOBS_MAX)] | None = None
    labels: list[str] | None = None


_C = TypeVar("_C", bound=_Claims)


class TokenKeys:
    """The keys of one deployment: the first of a kind signs tokens, each of them verifies."""

    __slots__ = ("_clients", "_clock", "_nodes")

    def __init__(
        self,
        client_keys: Iterable[Secret],
        node_keys: Iterable[Secret],
        clock: Callable[[], float] = time.time,
    ) -> None:
        # Key bytes by key id, the signing key first.
        self._clients = _by_id("auth.client_keys", client_keys)
        self._nodes = _by_id("auth.node_keys", node_keys)
        # Wall clock in seconds: tokens are made and read by different machines.
        self._clock = clock

    def __repr__(self) -> str:
        return f"TokenKeys(client={list(self._clients)}, node={list(self._nodes)})"

    @property
    def asks_clients(self) -> bool:
        """Tell whether clients need a token at all."""
        return bool(self._clients)

    @property
    def asks_nodes(self) -> bool:
        """Tell whether nodes need a token at all."""
        return bool(self._nodes)

    def issue_client(
        self,
        *,
        tenant: str = "",
        subject: str = "",
        languages: Iterable[str] | None = None,
        rooms: bool = True,
        scopes: Iterable[str] = DEFAULT_SCOPES,
        ttl_s: float = CLIENT_TTL_S,
    ) -> Secret:
        """Return a new token for clients of a tenant."""
        granted = sorted(set(scopes))
        for scope in granted:
            if scope not in SCOPES:
                raise InvalidInput(f"not a scope: {scope[:40]!r} (there are {', '.join(SCOPES)})")
        claims = _ClientClaims(
            **self._head(CLIENT_AUDIENCE, tenant, ttl_s),
            languages=None if languages is None else [language(code) for code in languages],
            rooms=rooms,
            scopes=granted,
            sub=named("subject", subject) if subject else "",
        )
        return _sign("auth.client_keys", self._clients, claims)

    def issue_secret(self, maker: ClientGrant, ttl_s: float) -> Secret:
        """Return a token for opening a speech socket, with no more rights than its maker's.

        The socket may stay open as long as the maker's token lasts.
        """
        claims = _ClientClaims(
            **self._head(CLIENT_AUDIENCE, maker.tenant, ttl_s),
            languages=None if maker.languages is None else list(maker.languages),
            scopes=["speak"],
            sub=maker.subject,
            open_until=maker.holds_until,
        )
        return _sign("auth.client_keys", self._clients, claims)

    def issue_invite(
        self, maker: ClientGrant, room: str, scopes: Iterable[str], ttl_s: float
    ) -> Secret:
        """Return a token for a guest of one room, with no more rights than its maker's.

        It lasts no longer than its maker's, and is revoked with its maker's subject.
        """
        left_s = maker.expires_at - self._clock()
        claims = _ClientClaims(
            **self._head(CLIENT_AUDIENCE, maker.tenant, max(1, int(min(ttl_s, left_s)))),
            languages=None if maker.languages is None else list(maker.languages),
            rooms=True,
            scopes=sorted(set(scopes)),
            sub=maker.subject,
            room=room,
        )
        return _sign("auth.client_keys", self._clients, claims)

    def issue_node(
        self,
        node_id: str,
        *,
        tenant: str = "",
        max_jobs: int | None = None,
        labels: Iterable[str] | None = None,
        ttl_s: float = NODE_TTL_S,
    ) -> Secret:
        """Return a new token for one node."""
        if max_jobs is not None and not 1 <= max_jobs <= MAX_JOBS_MAX:
            raise InvalidInput(f"max_jobs must be from 1 to {MAX_JOBS_MAX}, got: {max_jobs}")
        claims = _NodeClaims(
            **self._head(NODE_AUDIENCE, tenant, ttl_s),
            sub=_identifier("node id", node_id),
            max_jobs=max_jobs,
            labels=None if labels is None else list(checked_labels(labels)),
        )
        return _sign("auth.node_keys", self._nodes, claims)

    def read_client(self, token: str) -> ClientGrant:
        """Return what a client's token grants now, or raise `InvalidToken`."""
        claims = self._read(token, self._clients, CLIENT_AUDIENCE, _ClientClaims)
        return ClientGrant(
            id=claims.jti,
            tenant=_tenant(claims),
            languages=_languages(claims),
            rooms=claims.rooms,
            scopes=frozenset(claims.scopes),
            expires_at=claims.exp,
            issued_at=claims.iat,
            subject=claims.sub if is_name(claims.sub) else "",
            open_until=claims.open_until,
            room=claims.room,
        )

    def read_node(self, token: str, node_id: str | None) -> NodeGrant:
        """Return what a node's token grants now, or raise `InvalidToken`.

        `node_id` is None during the handshake, before the node has sent its id: the caller must
        then call `check_node` of the grant.
        """
        claims = self._read(token, self._nodes, NODE_AUDIENCE, _NodeClaims)
        grant = NodeGrant(
            id=claims.jti,
            node_id=_readable(claims.sub),
            tenant=_tenant(claims),
            max_jobs=claims.max_jobs,
            expires_at=claims.exp,
            issued_at=claims.iat,
            labels=_labels(claims),
        )
        if node_id is not None:
            grant.check_node(node_id)
        return grant

    def _head(self, audience: str, tenant: str, ttl_s: float) -> dict[str, Any]:
        if not 1 <= ttl_s <= TTL_S_MAX:
            raise InvalidInput(f"a token must live from 1 s to {TTL_S_MAX} s, got: {ttl_s}")
        now = int(self._clock())
        return {
            "aud": audience,
            "typ": _type_of(audience),
            "exp": now + ttl_s,
            "iat": now,
            "jti": secrets.token_urlsafe(16),
            "tenant": _identifier("tenant", tenant) if tenant else "",
        }

    def _read(self, token: str, keys: dict[str, bytes], audience: str, kind: type[_C]) -> _C:
        try:
            claims = msgspec.json.decode(_verified(token, keys), type=kind)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
            raise InvalidToken("malformed") from None
        audiences = [claims.aud] if isinstance(claims.aud, str) else claims.aud
        if audience not in audiences:
            raise InvalidToken("wrong_audience")
        if claims.typ != _type_of(audience):
            raise InvalidToken("wrong_type")
        now = self._clock()
        if claims.exp <= now - LEEWAY_S:
            raise InvalidToken("expired")
        if max(claims.iat, claims.nbf) > now + LEEWAY_S:
            raise InvalidToken("not_yet")
        return claims


def new_key() -> Secret:
    """Return a random key in the form the settings take: 256 bits as base64url text."""
    return Secret(secrets.token_urlsafe(32))


def key_id(key: bytes) -> str:
    """Return the short name of a key that its tokens carry in the clear."""
    return hashlib.sha256(b"lingua token key\0" + key).hexdigest()[:12]


def unverified_claims(token: str) -> dict[str, Any]:
    """Return the claims of a token without verifying them: only for display."""
    try:
        parts = _JWS.decode_complete(_shaped(token), options={"verify_signature": False})
        claims = msgspec.json.decode(parts["payload"], type=dict[str, Any])
    except (jwt.PyJWTError, msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        raise InvalidToken("malformed") from None
    return claims


def _by_id(setting: str, keys: Iterable[Secret]) -> dict[str, bytes]:
    known: dict[str, bytes] = {}
    for index, secret in enumerate(keys):
        key = secret.reveal().encode("utf-8", "surrogateescape")
        if len(key) < KEY_BYTES_MIN:
            problem = f"must have at least {KEY_BYTES_MIN} bytes; `lingua token key` makes one"
            raise ConfigError(f"{setting}[{index}]", problem)
        try:
            _JWS.get_algorithm_by_name(ALGORITHM).prepare_key(key)
        except jwt.InvalidKeyError:
            # A public key is no secret: anybody could sign with it.
            problem = "is a certificate or key file, not a shared key; `lingua token key` makes one"
            raise ConfigError(f"{setting}[{index}]", problem) from None
        known[key_id(key)] = key
    return known


def _sign(setting: str, keys: dict[str, bytes], claims: _Claims) -> Secret:
    if not keys:
        problem = "there is no key to sign with; `lingua token key` makes one"
        raise ConfigError(setting, problem)
    name, key = next(iter(keys.items()))
    token = _JWS.encode(msgspec.json.encode(claims), key, ALGORITHM, headers={"kid": name})
    if len(token) > TOKEN_CHARS_MAX:
        raise InvalidInput(f"the token would exceed {TOKEN_CHARS_MAX} characters: grant less")
    return Secret(token)


def _verified(token: str, keys: dict[str, bytes]) -> bytes:
    """Return the payload of a token that one of these keys has signed."""
    try:
        name = _JWS.get_unverified_header(_shaped(token)).get("kid")
    except (jwt.PyJWTError, RecursionError):
        raise InvalidToken("malformed") from None
    # A token made by another program with a shared key may not name the key.
    candidates = list(keys.values()) if name is None else [keys[name]] if name in keys else []
    if not candidates:
        raise InvalidToken("unknown_key")
    for key in candidates:
        try:
            payload: bytes = _JWS.decode(token, key, algorithms=[ALGORITHM])
        except (jwt.InvalidSignatureError, jwt.InvalidAlgorithmError):
            continue
        except jwt.PyJWTError:
            raise InvalidToken("malformed") from None
        return payload
    raise InvalidToken("bad_signature")


def _shaped(token: str) -> str:
    if len(token) > TOKEN_CHARS_MAX or not TOKEN.fullmatch(token):
        raise InvalidToken("malformed")
    return token


def _type_of(audience: str) -> str:
    return audience.rpartition(":")[2]


def _tenant(claims: _Claims) -> str:
    return _readable(claims.tenant) if claims.tenant else ""


def _readable(value: str) -> str:
    if not IDENTIFIER.fullmatch(value):
        raise InvalidToken("malformed")
    return value


def _identifier(kind: str, value: str) -> str:
    if not IDENTIFIER.fullmatch(value):
        raise InvalidIdentifier(kind, value)
    return value


def is_name(value: Any) -> bool:
    """Tell whether a value can name a token or a subject in the list of revoked ones."""
    return isinstance(value, str) and 1 <= len(value) <= NAME_CHARS_MAX and value.isprintable()


def named(kind: str, value: str) -> str:
    """Return the name of a token or a subject unchanged, or raise if it is not valid."""
    if not is_name(value):
        raise InvalidInput(f"{kind} must be 1 to {NAME_CHARS_MAX} printable characters")
    return value


def until_of(until_s: float | None, now_s: float) -> int:
    """Return until when a token is refused, in ms since 1970; None: as long as any can live."""
    if until_s is None:
        return int((now_s + REVOKED_S + LEEWAY_S) * 1000)
    if not 0 < until_s - now_s <= REVOKED_S_MAX:
        days = REVOKED_S_MAX // 86400
        raise InvalidInput(f"a token is revoked until a time within the next {days} days")
    return int(until_s * 1000)


def _labels(claims: _NodeClaims) -> tuple[str, ...] | None:
    if claims.labels is None:
        return None
    try:
        return checked_labels(claims.labels)
    except InvalidLabel:
        raise InvalidToken("malformed") from None


def _languages(claims: _ClientClaims) -> tuple[str, ...] | None:
    if claims.languages is None:
        return None
    try:
        return tuple(language(code) for code in claims.languages)
    except InvalidLanguage:
        raise InvalidToken("malformed") from None
