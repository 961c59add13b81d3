"""Reads and checks the options of engines, and imports their libraries.

Options are numbers within bounds, words, lists, and families such as `voice.es=…`. Each engine
defines the names and defaults of its options; `plugins.take` refuses unknown ones. A bad option is
a `ConfigError`; a missing library is a `ModelMissing` whose text says how to install it.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lingua_cli.extras import install_command
from lingua_speech.engine import ModelMissing
from lingua_wire.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping


def library(name: str, extra: str) -> Any:
    """Import a library that only an extra of the package installs."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        hint = f"run: {install_command('lingua-speech', extra)}"
        raise ModelMissing(f"the library {name} cannot be loaded ({error}); {hint}") from error


def folder(options: Mapping[str, str], key: str, *files: str) -> Path:
    """Return an option that names a folder with these files in it."""
    if not options[key]:
        raise ConfigError("engines", f"{key}=FOLDER is needed")
    path = Path(options[key]).expanduser()
    if not path.is_dir():
        raise ModelMissing(f"{key}={options[key]} is not a folder; nothing is fetched from a hub")
    for file in files:
        if not (path / file).is_file():
            raise ModelMissing(f"{path} has no {file}")
    return path


def whole(options: Mapping[str, str], key: str, least: int, most: int) -> int:
    """Return an option that is a whole number from least to most."""
    return int(_number(options, key, least, most, kind=int))


def real(options: Mapping[str, str], key: str, least: float, most: float) -> float:
    """Return an option that is a number from least to most."""
    return _number(options, key, least, most, kind=float)


def one_of(options: Mapping[str, str], key: str, choices: tuple[str, ...]) -> str:
    """Return an option that is one of a few words."""
    if options[key] not in choices:
        raise ConfigError("engines", f"{key}={options[key]!r} is not one of {', '.join(choices)}")
    return options[key]


def listed(options: Mapping[str, str], key: str) -> tuple[str, ...]:
    """Return an option that is a list: `en+es+fr` (commas separate options)."""
    return tuple(part.strip() for part in options[key].split("+") if part.strip())


def pairs(options: Mapping[str, str], key: str) -> tuple[tuple[str, str], ...]:
    """Return an option that is a list of directions: `en-es+es-en`, `en>pt-br` with a region."""
    return tuple(direction(part) for part in listed(options, key))


def direction(text: str) -> tuple[str, str]:
    """Read one direction: `en-es`, or `en>pt-br` where a code contains a hyphen."""
    source, sign, target = text.partition(">") if ">" in text else text.partition("-")
    if not sign or not source or not target or (sign == "-" and "-" in target):
        raise ConfigError(
            "engines", f"{text!r} is not a direction: en-es, or en>pt-br with a region"
        )
    return source.strip().lower(), target.strip().lower()


def family(options: Mapping[str, str], name: str) -> tuple[dict[str, str], dict[str, str]]:
    """Separate the options `name.member=value`; return the others, and member -> value."""
    start = f"{name}."
    members = {key[len(start) :]: value for key, value in options.items() if key.startswith(start)}
    return {key: value for key, value in options.items() if not key.startswith(start)}, members


def _number(
    options: Mapping[str, str], key: str, least: float, most: float, kind: type[float]
) -> float:
    problem = f"{key}={options[key]!r} is not a number from {least} to {most}"
    try:
        value = kind(options[key])
    except ValueError as error:
        raise ConfigError("engines", problem) from error
    if not least <= value <= most:
        raise ConfigError("engines", problem)
    return value
