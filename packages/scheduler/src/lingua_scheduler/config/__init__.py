"""The settings of one instance: one frozen, typed tree, read once, before anything is started.

    tree ← shape ← load → consistency        derived   show
    what   types   TOML,   rules between     id, TLS   TOML,
    exists as data env     settings                    docs rows

An unknown key or an impossible value is a `ConfigError`; the rest of the package sees only a
`Settings` that is complete and consistent. Import from here, not from the parts.
"""

from lingua_scheduler.config.consistency import check_settings
from lingua_scheduler.config.derived import resolve_instance_id, resolve_workers, ssl_context
from lingua_scheduler.config.load import load_settings, setting_variables, settings_file
from lingua_scheduler.config.show import SettingRow, describe, describe_sections, to_toml
from lingua_scheduler.config.tree import (
    AUTO,
    WORKERS_MAX,
    AuthSettings,
    JobSettings,
    LogSettings,
    ModelSettings,
    NodeSettings,
    RedisSettings,
    RoomSettings,
    SegmentationSettings,
    ServerSettings,
    SessionSettings,
    Settings,
    StreamSettings,
    Tenant,
)

__all__ = [
    "AUTO",
    "WORKERS_MAX",
    "AuthSettings",
    "JobSettings",
    "LogSettings",
    "ModelSettings",
    "NodeSettings",
    "RedisSettings",
    "RoomSettings",
    "SegmentationSettings",
    "ServerSettings",
    "SessionSettings",
    "SettingRow",
    "Settings",
    "StreamSettings",
    "Tenant",
    "check_settings",
    "describe",
    "describe_sections",
    "load_settings",
    "resolve_instance_id",
    "resolve_workers",
    "setting_variables",
    "settings_file",
    "ssl_context",
    "to_toml",
]
