"""What engines need to start: their options read and checked, their library found.

Options are numbers within bounds, words, lists, and families such as `voice.es=…`. What one is
called and what it defaults to is said by each engine; `plugins.take` refuses the unknown ones. A
bad option is a `ConfigError`, a library that is not there a `ModelMissing` that says how to get it.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lingua_scheduler.errors import ConfigError
from lingua_scheduler.extras import install_command
from lingua_scheduler.speech.engine import ModelMissing

if TYPE_CHECKING:
    from collections.abc import Mapping


def library(name: str, extra: str) -> Any:
    """Import a library that only one extra of the package brings."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        hint = f"run: {install_command(extra)}"
        raise ModelMissing(f"the library {name} cannot be loaded ({error}); {hint}") from error


def folder(options: Mapping[str, str], key: str, *files: str) -> Path:
    """Return an option that is a folder with these files in it."""
    if not options[key]:
        raise ConfigError("engines", f"{key}=FOLDER is needed")
    path = Path(options[key]).expanduser()
    if not path.is_dir():
        raise ModelMissing(f"{key}={options[key]} is no folder here; nothing is fetched from a hub")
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
        raise ConfigError("engines", f"{key}={options[key]!r} is none of {', '.join(choices)}")
    return options[key]


def listed(options: Mapping[str, str], key: str) -> tuple[str, ...]:
    """Return an option that is a list: `en+es+fr` (the comma parts options)."""
    return tuple(part.strip() for part in options[key].split("+") if part.strip())


def pairs(options: Mapping[str, str], key: str) -> tuple[tuple[str, str], ...]:
    """Return an option that is a list of directions: `en-es+es-en`, `en>pt-br` with a region."""
    return tuple(direction(part) for part in listed(options, key))


def direction(text: str) -> tuple[str, str]:
    """Read one direction: `en-es`, or `en>pt-br` where a code has a hyphen of its own."""
    source, sign, target = text.partition(">") if ">" in text else text.partition("-")
    if not sign or not source or not target or (sign == "-" and "-" in target):
        raise ConfigError("engines", f"{text!r} is no direction: en-es, or en>pt-br with a region")
    return source.strip().lower(), target.strip().lower()


def family(options: Mapping[str, str], name: str) -> tuple[dict[str, str], dict[str, str]]:
    """Part `name.member=value` from the other options: the others, then member -> value."""
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
