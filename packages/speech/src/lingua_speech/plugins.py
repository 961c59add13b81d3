"""The available engines by name, and how an engine is created from a spec.

Built-in engines are in a table. A package adds its own by an entry point of the group
`lingua_speech.engines` (`name = "package.module:factory"`); the factory takes the options as a
mapping of texts and returns the loaded engine. A built-in name cannot be replaced. An engine is
imported only when it is created: its libraries are extras.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Final, cast

import msgspec

from lingua_cli.extras import install_command
from lingua_speech.engine import METHODS, ROLES, Engine, ModelMissing, Role
from lingua_wire.errors import ConfigError

GROUP: Final = "lingua_speech.engines"
HERE: Final = "lingua_speech.engines"
SPEC = re.compile(r"(?P<role>[a-z]+)=(?P<name>[A-Za-z0-9_.-]+)(?::(?P<options>.*))?", re.DOTALL)

Factory = Callable[[Mapping[str, str]], Engine]

# Name -> module and factory, and the role.
BUILT_IN: Final[Mapping[str, tuple[str, Role]]] = {
    "whisper": (f"{HERE}.whisper:make", "asr"),
    "moonshine": (f"{HERE}.moonshine:make", "asr"),
    "faster-whisper": (f"{HERE}.faster_whisper:make", "asr"),
    "openai-asr": (f"{HERE}.openai_server:make_asr", "asr"),
    "router": (f"{HERE}.router:make", "mt"),
    "bergamot": (f"{HERE}.bergamot:make", "mt"),
    "small": (f"{HERE}.small:make", "mt"),
    "opus": (f"{HERE}.opus:make", "mt"),
    "apertium": (f"{HERE}.apertium:make", "mt"),
    "ctranslate2": (f"{HERE}.ctranslate:make", "mt"),
    "openai-mt": (f"{HERE}.openai_server:make_mt", "mt"),
    "pico": (f"{HERE}.pico:make", "tts"),
    "espeak": (f"{HERE}.espeak:make", "tts"),
    "kokoro": (f"{HERE}.kokoro:make", "tts"),
    "piper": (f"{HERE}.piper:make", "tts"),
    "openai-tts": (f"{HERE}.openai_server:make_tts", "tts"),
    "silero": (f"{HERE}.silero:make", "vad"),
    "langid": (f"{HERE}.langid:make", "lid"),
}

# Engines whose libraries are in an extra of their own; those of the others are in `engines`.
EXTRAS: Final = frozenset(
    {"moonshine", "faster-whisper", "ctranslate2", "pico", "piper", "langid"},
)


class Spec(msgspec.Struct, frozen=True, array_like=True):
    """One engine of a node, written as `asr=whisper:model=base,threads=2`."""

    role: Role
    name: str
    options: dict[str, str] = {}

    @classmethod
    def parse(cls, text: str) -> Spec:
        """Parse a spec; raises `ConfigError`."""
        found = SPEC.fullmatch(text.strip())
        if found is None:
            raise ConfigError("engines", f"{text!r} is not like asr=whisper:model=base,threads=1")
        role = found["role"]
        if role not in ROLES:
            raise ConfigError("engines", f"{role!r} is not one of {', '.join(ROLES)}")
        return cls(cast("Role", role), found["name"], _options(text, found["options"] or ""))

    def __str__(self) -> str:
        options = ",".join(f"{key}={value}" for key, value in self.options.items())
        return f"{self.role}={self.name}" + (f":{options}" if options else "")


# Loaded with every recogniser.
FILES: Final = Spec("file", "files")
INTERNAL: Final[Mapping[str, tuple[str, Role]]] = {
    **BUILT_IN,
    "files": (f"{HERE}.files:make", "file"),
}


def _options(text: str, listed: str) -> dict[str, str]:
    options = {}
    for part in filter(None, listed.split(",")):
        key, equals, value = part.partition("=")
        if not equals or not key.strip():
            raise ConfigError("engines", f"{part!r} in {text!r} is not like key=value")
        if key.strip() in options:
            raise ConfigError("engines", f"{key.strip()!r} is given twice in {text!r}")
        options[key.strip()] = value.strip()
    return options


def names() -> dict[str, str]:
    """Return the name and origin of every engine."""
    found = {point.name: point.value for point in _points()}
    return found | {name: where for name, (where, _) in BUILT_IN.items()}


def check(spec: Spec) -> None:
    """Raise `ConfigError` unless an engine of that name exists and fits the role."""
    if spec.name in INTERNAL:
        role = INTERNAL[spec.name][1]
        if role != spec.role:
            raise ConfigError("engines", f"{spec.name} is for {role}, not for {spec.role}")
        return
    found = [point.value for point in _points() if point.name == spec.name]
    if not found:
        raise ConfigError(
            "engines", f"no engine {spec.name!r}; the engines are {', '.join(names())}"
        )
    if len(set(found)) > 1:
        raise ConfigError("engines", f"{spec.name!r} is claimed by {' and '.join(found)}")


def _install_hint(name: str) -> str:
    """Return how to install the libraries of a built-in engine."""
    if name not in BUILT_IN:
        return ""
    return f"; run: {install_command('lingua-speech', name if name in EXTRAS else 'engines')}"


def make(spec: Spec) -> Engine:
    """Load an engine; raises `ModelMissing` if its library or model is missing."""
    check(spec)
    try:
        engine = _factory(spec.name)(spec.options)
    except ImportError as error:
        problem = f"{spec.name} needs a library that is missing: {error}{_install_hint(spec.name)}"
        raise ModelMissing(problem) from error
    for method in (METHODS[spec.role], "about", "close"):
        if not callable(getattr(engine, method, None)):
            raise ConfigError(
                "engines", f"{spec.name} has no {method}(), which {spec.role} requires"
            )
    return engine


def _factory(name: str) -> Factory:
    if name in INTERNAL:
        module, _, function = INTERNAL[name][0].partition(":")
        return cast("Factory", getattr(importlib.import_module(module), function))
    point = next(point for point in _points() if point.name == name)
    return cast("Factory", point.load())


def _points() -> tuple[EntryPoint, ...]:
    return tuple(entry_points(group=GROUP))


def take(options: Mapping[str, str], known: Mapping[str, str]) -> dict[str, str]:
    """Return an engine's options with defaults; raises `ConfigError` for an unknown one."""
    unknown = sorted(set(options) - set(known))
    if unknown:
        raise ConfigError(
            "engines", f"unknown option {unknown[0]!r}; the options are {', '.join(known)}"
        )
    return {**known, **options}
