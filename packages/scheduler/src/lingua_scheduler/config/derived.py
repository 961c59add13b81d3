"""Values derived from the settings when a process starts: its name and its TLS context."""

from __future__ import annotations

import os
import re
import secrets
import socket
import ssl

from lingua_scheduler.config.consistency import uses_tls
from lingua_scheduler.config.tree import AUTO, Settings
from lingua_wire.errors import ConfigError


def resolve_instance_id(settings: Settings) -> str:
    """Return the configured instance id, or a new one that no other process has."""
    if settings.instance_id != AUTO:
        return settings.instance_id
    host = re.sub(r"[^A-Za-z0-9_.-]", "-", socket.gethostname())[:64] or "host"
    return f"{host}-{os.getpid()}-{secrets.token_hex(4)}"


def ssl_context(settings: Settings) -> ssl.SSLContext | None:
    """Return the TLS context of a `rediss://` connection, or None if the store has no TLS."""
    redis = settings.redis
    if not uses_tls(redis):
        return None
    try:
        context = ssl.create_default_context(cafile=redis.tls_ca_file or None)
    except OSError as error:
        raise ConfigError("redis.tls_ca_file", f"cannot be used: {error}") from error
    if redis.tls_cert_file:
        try:
            context.load_cert_chain(redis.tls_cert_file, redis.tls_key_file)
        except OSError as error:
            raise ConfigError("redis.tls_cert_file", f"cannot be used: {error}") from error
    return context
