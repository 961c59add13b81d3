"""Values derived from the settings when a process starts: name, number of workers, TLS context."""

from __future__ import annotations

import os
import re
import secrets
import socket
import ssl
from pathlib import Path

from lingua_scheduler.config.consistency import uses_tls
from lingua_scheduler.config.tree import AUTO, WORKERS_MAX, Settings
from lingua_wire.errors import ConfigError

# The CPU time that the control group of this process may use in a period, in microseconds.
CPU_QUOTA = Path("/sys/fs/cgroup/cpu.max")


def resolve_instance_id(settings: Settings) -> str:
    """Return the configured instance id, or a new one that no other process has."""
    if settings.instance_id != AUTO:
        return settings.instance_id
    host = re.sub(r"[^A-Za-z0-9_.-]", "-", socket.gethostname())[:64] or "host"
    return f"{host}-{os.getpid()}-{secrets.token_hex(4)}"


def resolve_workers(settings: Settings) -> int:
    """Return the configured number of workers, or the number of usable cores for `auto`."""
    workers = settings.server.workers
    return min(usable_cores(), WORKERS_MAX) if workers == AUTO else int(workers)


def usable_cores(quota_file: Path = CPU_QUOTA) -> int:
    """Return the number of cores that this process may use, also inside a container."""
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    try:
        quota, period = quota_file.read_text(encoding="ascii").split()
        return max(1, min(cores, round(int(quota) / int(period))))
    except (OSError, ValueError):
        return cores  # no control group, or `max`


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
