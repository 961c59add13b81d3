"""Paths, variables and bounds of the settings, derived from the types of the tree.

Reading settings and documenting them both walk the same annotations, so an error message and
docs/config.md cannot disagree about what is allowed.
"""

from __future__ import annotations

import typing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from msgspec import Meta, Struct
from msgspec.structs import FieldInfo, fields

from lingua_scheduler.secret import Secret, SecretUrl

if TYPE_CHECKING:
    from collections.abc import Iterator

ENV_PREFIX = "LINGUA_"


def walk(struct: type[Struct], path: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """Yield every field with its dotted path: a section before its settings."""
    for field in fields(struct):
        where = f"{path}{field.name}"
        yield where, field
        if is_section(field.type):
            yield from walk(base_of(field.type), f"{where}.")
        elif is_section(item_of(field.type)):
            yield from walk(base_of(item_of(field.type)), f"{where}[].")


def variable_of(path: str) -> str:
    """Return the environment variable of a setting."""
    return ENV_PREFIX + path.upper().replace(".", "__")


def base_of(kind: Any) -> Any:
    """Return a type without its annotations."""
    return kind.__origin__ if typing.get_origin(kind) is Annotated else kind


def item_of(kind: Any) -> Any:
    """Return the type of a list's elements, or None if the type is not a list."""
    base = base_of(kind)
    return typing.get_args(base)[0] if typing.get_origin(base) is tuple else None


def is_section(kind: Any) -> bool:
    """Tell whether a type is a table of settings."""
    base = base_of(kind)
    return isinstance(base, type) and issubclass(base, Struct)


def meta_of(kind: Any) -> Meta:
    """Return the bounds and the description of a setting."""
    meta = kind.__metadata__[0]
    assert isinstance(meta, Meta)
    return meta


def extra_of(kind: Any, name: str) -> str:
    """Return the `unit`, `allowed` or `default` text of a setting, or an empty text."""
    return str((meta_of(kind).extra or {}).get(name, "")) if hasattr(kind, "__metadata__") else ""


def allowed_text(kind: Any) -> str:
    """Describe the values that a setting accepts."""
    base = base_of(kind)
    if extra_of(kind, "allowed"):
        return extra_of(kind, "allowed")
    if base is int:
        return f"a whole number from {meta_of(kind).ge} to {meta_of(kind).le}"
    if typing.get_origin(base) is Literal:
        return " or ".join(f'"{choice}"' for choice in typing.get_args(base))
    if typing.get_origin(base) is tuple:
        item = item_of(kind)
        return "a list of tables" if is_section(item) else f"a list, each {allowed_text(item)}"
    words = {bool: "true or false", Path: "a path", SecretUrl: "a URL", Secret: "a secret text"}
    return words.get(base, "text")
