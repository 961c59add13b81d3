"""Settings as text: a TOML document of the current ones, rows for the documentation.

Passwords are masked by their type; nothing here can reveal one.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from msgspec import Struct

from lingua_scheduler.config.shape import (
    allowed_text,
    base_of,
    extra_of,
    is_section,
    item_of,
    meta_of,
    variable_of,
    walk,
)
from lingua_scheduler.config.tree import Settings

if TYPE_CHECKING:
    from msgspec.structs import FieldInfo


class SettingRow(Struct, frozen=True, kw_only=True):
    """One setting as the documentation shows it."""

    section: str
    path: str
    variable: str
    allowed: str
    default: str
    unit: str
    description: str


def to_toml(settings: Settings) -> str:
    """Return the settings as a TOML document, passwords masked."""
    top: list[str] = []
    tables: list[str] = []
    for name in settings.__struct_fields__:
        value = getattr(settings, name)
        if isinstance(value, Struct):
            tables.append(_toml_table(f"[{name}]", value))
        elif isinstance(value, tuple) and value:
            tables += [_toml_table(f"[[{name}]]", item) for item in value]
        else:
            top.append(f"{name} = {_toml_value(value)}")
    return "\n".join([*top, *tables]) + "\n"


def describe() -> list[SettingRow]:
    """Return every setting in the order of the tree, for the documentation."""
    return [
        SettingRow(
            section=path.rpartition(".")[0],
            path=path,
            variable=variable_of(path.partition("[")[0]),
            allowed=allowed_text(field.type),
            default=_default_text(field),
            unit=extra_of(field.type, "unit"),
            description=meta_of(field.type).description or "",
        )
        for path, field in walk(Settings)
        if not is_section(field.type)
    ]


def describe_sections() -> dict[str, str]:
    """Return every section, as in `SettingRow.section`, with its description."""
    sections = {"": Settings.__doc__ or ""}
    for path, field in walk(Settings):
        for name, kind in ((path, field.type), (f"{path}[]", item_of(field.type))):
            if is_section(kind):
                sections[name] = base_of(kind).__doc__
    return sections


def _default_text(field: FieldInfo) -> str:
    if extra_of(field.type, "default"):
        return extra_of(field.type, "default")
    return "" if field.required else _toml_value(field.default)


def _toml_table(head: str, struct: Struct) -> str:
    lines = [f"{name} = {_toml_value(getattr(struct, name))}" for name in struct.__struct_fields__]
    return "\n".join(["", head, *lines])


def _toml_value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, tuple):
        return f"[{', '.join(_toml_value(item) for item in value)}]"
    # JSON and TOML have the same escapes, except that TOML also requires one for DEL.
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")
