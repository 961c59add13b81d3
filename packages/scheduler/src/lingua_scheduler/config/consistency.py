"""Rules about several settings: each value is valid alone, but together they contradict.

The first broken rule raises a `ConfigError` that names the setting to change; only the settings
that are missing for listening beyond loopback are reported all at once. URLs are checked here too,
because their allowed form depends on the deployment mode. `load_settings` is the caller.
"""

from __future__ import annotations

import re
from ipaddress import ip_address
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from lingua_wire.errors import ConfigError
from lingua_wire.labels import LABEL, LABELS_MAX

if TYPE_CHECKING:
    from lingua_scheduler.config.tree import RedisSettings, Settings, Tenant
    from lingua_scheduler.secret import SecretUrl

KEY_LENGTH_MIN = 32

# (setting, times, must be less than this setting, because)
_MUST_EXCEED = (
    ("jobs.ack_ms", 1, "jobs.attempt_ms", "an attempt must outlast its acknowledgement"),
    ("jobs.reserve_ms", 1, "jobs.attempt_ms", "a reserved slot must not outlast its attempt"),
    ("redis.call_timeout_ms", 1, "jobs.reserve_ms", "a reserved slot must outlast one call"),
    ("jobs.pending_ms", 1, "jobs.binding_ms", "a waiting job must be found by a repeated request"),
    ("jobs.sweep_interval_ms", 2, "sessions.lease_ms", "a sweep may be late once"),
    ("server.ping_ms", 1, "server.dead_ms", "a silent client is pinged before it is dropped"),
    ("server.node_ping_ms", 1, "server.node_dead_ms", "a silent node is pinged first"),
    ("nodes.silence_ms", 1, "nodes.stale_ms", "a node goes offline before it is forgotten"),
)


def check_settings(settings: Settings) -> None:
    """Raise `ConfigError` if valid settings contradict each other."""
    if settings.deployment_mode == "local":
        _check_local(settings.redis)
    else:
        _check_external(settings.redis)
    _check_tls(settings.redis)
    _check_order(settings)
    _check_tenants(settings)
    _check_listening(settings)


def uses_tls(redis: RedisSettings) -> bool:
    """Tell whether the store is reached over TLS."""
    return any(_scheme(url) == "rediss" for url in (redis.url, *redis.urls))


def _check_local(redis: RedisSettings) -> None:
    given = {"url": redis.url, "urls": redis.urls, "mode": redis.mode != "single"}
    for name, is_given in given.items():
        if is_given:
            raise ConfigError(
                f"redis.{name}",
                "is set, but deployment_mode is `local`: set deployment_mode to "
                f"`cross_instance`, or remove redis.{name}",
            )


def _check_external(redis: RedisSettings) -> None:
    needed, unused = ("urls", "url") if redis.mode == "cluster" else ("url", "urls")
    if not getattr(redis, needed):
        problem = f"is needed with deployment_mode `cross_instance` and redis.mode `{redis.mode}`"
        raise ConfigError(f"redis.{needed}", problem)
    if getattr(redis, unused):
        problem = f"is not used with redis.mode `{redis.mode}`: set redis.{needed} instead"
        raise ConfigError(f"redis.{unused}", problem)
    if redis.mode == "single":
        _check_url("redis.url", redis.url)
    for index, url in enumerate(redis.urls):
        _check_cluster_url(f"redis.urls[{index}]", url)
    if len({_scheme(url) for url in redis.urls}) > 1:
        raise ConfigError("redis.urls", "must all be redis:// or all be rediss://")


def _check_url(path: str, url: SecretUrl) -> None:
    try:
        is_valid = _is_store_url(url.reveal())
    except ValueError:
        is_valid = False
    # Raised here and not chained: the text of that error quotes parts of the URL.
    if not is_valid:
        raise ConfigError(
            path,
            "must be redis://[user:password@]host[:port][/database], the same with rediss:// for "
            "TLS, or unix:///path, special characters in the password percent-encoded; "
            f"got: {url}",
        )


def _is_store_url(text: str) -> bool:
    # `urlsplit` drops line ends without a word; the client would not.
    if re.search(r"[\s?#]", text):
        return False
    parts = urlsplit(text)
    if parts.scheme == "unix":
        return not parts.hostname and len(parts.path) > 1
    has_host = bool(parts.hostname) and parts.port != 0
    has_database = re.fullmatch(r"(/[0-9]{0,5})?", parts.path) is not None
    return parts.scheme in {"redis", "rediss"} and has_host and has_database


def _check_cluster_url(path: str, url: SecretUrl) -> None:
    _check_url(path, url)
    if _scheme(url) == "unix":
        raise ConfigError(path, f"a cluster cannot be reached by a Unix socket, got: {url}")
    if urlsplit(url.reveal()).path.strip("/"):
        raise ConfigError(path, f"a cluster has no database numbers, remove it: {url}")


def _check_tls(redis: RedisSettings) -> None:
    if bool(redis.tls_cert_file) != bool(redis.tls_key_file):
        missing = "tls_key_file" if redis.tls_cert_file else "tls_cert_file"
        raise ConfigError(f"redis.{missing}", "is needed: certificate and key go together")
    for name in ("tls_ca_file", "tls_cert_file"):
        if getattr(redis, name) and not uses_tls(redis):
            raise ConfigError(f"redis.{name}", "is set, but no URL is rediss://: TLS would be off")


def _check_order(settings: Settings) -> None:
    for low_path, times, high_path, why in _MUST_EXCEED:
        low, high = _at(settings, low_path), _at(settings, high_path)
        if high <= times * low:
            limit = f"{low_path} = {low}" if times == 1 else f"{times} x {low_path} = {times * low}"
            raise ConfigError(high_path, f"must be greater than {limit}, got: {high} ({why})")
    window, beats = settings.nodes.bad_beats_window, settings.nodes.bad_beats
    if window < beats:
        problem = f"must be at least nodes.bad_beats = {beats}, got: {window}"
        raise ConfigError("nodes.bad_beats_window", problem)


def _check_tenants(settings: Settings) -> None:
    seen: set[str] = set()
    for index, tenant in enumerate(settings.tenants):
        if tenant.id in seen:
            raise ConfigError(f"tenants[{index}].id", f"is given twice: {tenant.id}")
        seen.add(tenant.id)
        _check_pins(f"tenants[{index}]", tenant)
        if tenant.cells > settings.cells:
            problem = f"must be at most cells = {settings.cells}, got: {tenant.cells}"
            raise ConfigError(f"tenants[{index}].cells", problem)


def _check_pins(path: str, tenant: Tenant) -> None:
    for entry in tenant.pools:
        if not LABEL.match(entry):
            problem = (
                "are labels of nodes now (set tenants[].labels, and `lingua node --label`), "
                f"and this is none: {entry!r}"
            )
            raise ConfigError(f"{path}.pools", problem)
    if len(tenant.pinned) > LABELS_MAX:
        problem = f"are at most {LABELS_MAX}, got: {len(tenant.pinned)}"
        raise ConfigError(f"{path}.labels", problem)


def _check_listening(settings: Settings) -> None:
    server, auth = settings.server, settings.auth
    if bool(server.tls_cert_file) != bool(server.tls_key_file):
        missing = "tls_key_file" if server.tls_cert_file else "tls_cert_file"
        raise ConfigError(f"server.{missing}", "is needed: certificate and key go together")
    for name in ("client_keys", "node_keys"):
        if any(len(key.reveal()) < KEY_LENGTH_MIN for key in getattr(auth, name)):
            problem = f"each must have at least {KEY_LENGTH_MIN} characters"
            raise ConfigError(f"auth.{name}", f"{problem}: `lingua token key` makes one")
    if not is_loopback(server.host):
        _check_open(settings)


def _check_open(settings: Settings) -> None:
    """Raise if others than this machine could come in unasked or unheard; names all that lacks."""
    server, auth = settings.server, settings.auth
    lacks = []
    for name, who in (("client_keys", "clients"), ("node_keys", "nodes")):
        if not getattr(auth, name):
            todo = f"a key that the tokens of {who} are signed with; `lingua token key` makes one"
            lacks.append((f"auth.{name}", todo))
    if not server.tls_cert_file and not server.behind_proxy:
        todo = (
            "a certificate, with its key in server.tls_key_file; or set server.behind_proxy = true "
            "if a proxy in front ends TLS"
        )
        lacks.append(("server.tls_cert_file", todo))
    if lacks:
        lines = "".join(f"\n  {path}: {todo}" for path, todo in lacks)
        raise ConfigError(
            lacks[0][0],
            f"is needed to listen on {server.host}; all that is missing:{lines}\n"
            "`lingua init` makes all of it, with a settings file for `lingua serve --config FILE`",
        )


def is_loopback(host: str) -> bool:
    """Tell whether an address to listen on is reachable from this machine only."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _scheme(url: SecretUrl) -> str:
    return url.reveal().partition("://")[0].lower()


def _at(settings: Settings, path: str) -> int:
    section, _, name = path.partition(".")
    value = getattr(getattr(settings, section), name)
    assert isinstance(value, int)
    return value
