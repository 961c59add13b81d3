"""Reading the settings: defaults, then a TOML file, then the environment (`LINGUA_REDIS__URL`).

Each source is checked before it is merged, so that an error can name the setting, its value, the
allowed values and the source. Nothing is guessed and no value is dropped.
"""

from __future__ import annotations

import difflib
import json
import tomllib
import typing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import fields

from lingua_scheduler.config.consistency import check_settings
from lingua_scheduler.config.shape import (
    ENV_PREFIX,
    allowed_text,
    base_of,
    is_section,
    item_of,
    variable_of,
    walk,
)
from lingua_scheduler.config.tree import Settings
from lingua_scheduler.secret import Secret, SecretUrl, mask
from lingua_wire.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

FILE_VARIABLE = "LINGUA_CONFIG"
DEFAULT_FILE = Path("lingua.toml")
# Variables with our prefix that are not settings: the path of the file, and those of the tests.
NOT_SETTINGS = frozenset(
    {
        FILE_VARIABLE,
        "LINGUA_MODEL_STEPS",
        "LINGUA_TOKEN",
        "LINGUA_NODE_TOKEN",
        "LINGUA_CA",
        # Those of the model manager.
        "LINGUA_MODELS",
        "LINGUA_NPM_URL",
        "LINGUA_PYPI_URL",
        "LINGUA_DEBIAN_URL",
    }
)


def load_settings(path: Path | None, environ: Mapping[str, str]) -> Settings:
    """Return the settings of this process, or raise `ConfigError` for the first invalid one."""
    tree: dict[str, Any] = {}
    for source, layer in _layers(path, environ):
        _check_table(Settings, layer, "", source)
        _merge(tree, layer)
    settings = msgspec.convert(tree, Settings, dec_hook=_decode_own_type)
    check_settings(settings)
    return settings


def settings_file(path: Path | None, environ: Mapping[str, str]) -> Path | None:
    """Return the file to read: `path`, else `LINGUA_CONFIG`, else ./lingua.toml if it exists."""
    if path is not None:
        return path
    if environ.get(FILE_VARIABLE):
        return Path(environ[FILE_VARIABLE])
    return DEFAULT_FILE if DEFAULT_FILE.is_file() else None


def setting_variables(environ: Mapping[str, str]) -> list[str]:
    """Return the environment variables that are meant as settings, known or not."""
    return sorted(n for n in environ if n.startswith(ENV_PREFIX) and n not in NOT_SETTINGS)


def _layers(path: Path | None, environ: Mapping[str, str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each source's name and its part of the tree, weakest first."""
    if environ.get("XDG_DATA_HOME"):
        yield "XDG_DATA_HOME", {"data_dir": str(Path(environ["XDG_DATA_HOME"]) / "lingua")}
    file = settings_file(path, environ)
    if file is not None:
        yield str(file), _read_toml(file)
    yield from _environment_layers(environ)


def _environment_layers(environ: Mapping[str, str]) -> Iterator[tuple[str, dict[str, Any]]]:
    # The fields of a list's elements have no variable of their own: the list is given as a whole.
    settings = [(path, field.type) for path, field in walk(Settings) if "[" not in path]
    known = {variable_of(path): (path, kind) for path, kind in settings}
    for name in setting_variables(environ):
        if name not in known:
            hint = _did_you_mean(name, [*known, FILE_VARIABLE])
            raise ConfigError(name, f"is not a setting{hint}")
        path, kind = known[name]
        *sections, key = path.split(".")
        layer: dict[str, Any] = {key: _environment_value(kind, environ[name])}
        for section in reversed(sections):
            layer = {section: layer}
        yield name, layer


def _read_toml(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError("", f"cannot read settings file {file}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError("", f"settings file {file} is not TOML: {error}") from error


def _environment_value(kind: Any, raw: str) -> Any:
    """Read text as it is and other types as TOML or JSON; invalid values are refused later."""
    base = base_of(kind)
    if base in (str, Path, Secret, SecretUrl) or typing.get_origin(base) is Literal:
        return raw
    try:
        parsed = tomllib.loads(f"value = {raw}")
    except tomllib.TOMLDecodeError:
        try:
            return json.loads(raw)
        except ValueError:
            return raw
    return parsed["value"] if len(parsed) == 1 else raw


def _check_table(struct: type[Struct], table: Any, path: str, source: str) -> None:
    if not isinstance(table, dict):
        raise ConfigError(path, f"must be a table of settings (from {source})")
    known = {field.name: field for field in fields(struct)}
    for key, value in table.items():
        where = f"{path}.{key}" if path else key
        if key not in known:
            hint = _did_you_mean(where, [name for name, _ in walk(Settings)])
            raise ConfigError(where, f"is not a setting{hint} (from {source})")
        _check_value(known[key].type, value, where, source)
    for field in known.values():
        if field.required and field.name not in table:
            raise ConfigError(f"{path}.{field.name}", f"is needed (from {source})")


def _check_value(kind: Any, value: Any, path: str, source: str) -> None:
    item = item_of(kind)
    if is_section(kind):
        _check_table(base_of(kind), value, path, source)
    elif is_section(item) and isinstance(value, list):
        for index, element in enumerate(value):
            _check_table(base_of(item), element, f"{path}[{index}]", source)
    else:
        try:
            msgspec.convert(value, kind, dec_hook=_decode_own_type)
        except msgspec.ValidationError:
            shown = _shown(kind, value)
            problem = f"must be {allowed_text(kind)}, got: {shown} (from {source})"
            raise ConfigError(path, problem) from None


def _decode_own_type(kind: type, value: object) -> object:
    if not isinstance(value, str):
        raise TypeError
    if kind in (Secret, SecretUrl):
        return kind(value)
    if not value:
        raise ValueError
    try:
        return Path(value).expanduser()
    except RuntimeError as error:
        raise ValueError from error


def _merge(tree: dict[str, Any], layer: dict[str, Any]) -> None:
    for key, value in layer.items():
        if isinstance(value, dict) and isinstance(tree.get(key), dict):
            _merge(tree[key], value)
        else:
            tree[key] = value


def _did_you_mean(name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {close[0]}?" if close else ""


def _shown(kind: Any, value: object) -> str:
    """Return a refused value for display, but never one that may contain a password."""
    if {Secret, SecretUrl} & {base_of(kind), base_of(item_of(kind))}:
        return f"a {type(value).__name__}"
    text = repr(value)
    return mask(text) if "://" in text or "@" in text else text[:80]
