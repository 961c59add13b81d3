"""The engines of a node: a preset, words of a command line, or a TOML file.

    default                                   the preset of `lingua models install default`
    asr=whisper:model=small mt=apertium tts=espeak
    engines.toml                              [[engine]] role, name, options; [crew] settings

This module only selects engines; `assembly.py` loads them. `--voice` selects the voices of a
preset; without it, `voices.py` selects them for the machine. An example of a file:

    [[engine]]
    role = "asr"
    name = "whisper"
    options = { model = "small", threads = 2 }

    [crew]
    workers = { asr = 2 }      # processes per stage (asr, nmt, tts, natural); default 1
    memory_mb = 3000           # a worker that uses more is replaced; 0: no limit
    load_s = 120               # time limit for loading
    attempt_s = 30             # time limit of a job that has none of its own (`deadline_ms`)
"""

from __future__ import annotations

import tomllib
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import msgspec
from msgspec import Meta

from lingua_cli.extras import install_command
from lingua_speech import plugins
from lingua_speech.plugins import Spec
from lingua_wire.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lingua_speech.engine import Role
    from lingua_speech.models import ModelStore

Service = Literal["asr", "nmt", "tts", "natural"]
SERVICES: Final[tuple[Service, ...]] = ("asr", "nmt", "tts", "natural")
# The stage that loads an engine; those that process audio share one, so audio is sent once.
STAGE_OF: Final[dict[Role, Service]] = {
    "vad": "asr",
    "asr": "asr",
    "lid": "asr",
    "file": "asr",
    "mt": "nmt",
    "tts": "tts",
}
# A slow voice has workers of its own, so that calls of quick voices do not wait behind it.
OWN_STAGE: Final[dict[str, Service]] = {"kokoro": "natural"}
DEFAULT: Final = "default"
Voice = Literal["natural", "fast"]
VOICES: Final[tuple[Voice, ...]] = ("natural", "fast")
# The voice preferred to those of the default node, and the group of models it needs.
NATURAL_VOICE: Final = "tts=kokoro"
NATURAL: Final = "natural"
# Engines of the default node, and the optional library that one of them needs.
DEFAULT_ENGINES: Final = (
    ("asr=whisper:model=base", ""),
    ("vad=silero", ""),
    ("mt=router", ""),
    ("tts=pico", "ttspico"),
    ("tts=espeak", ""),
)
# Libraries of the extra `engines` that the default node requires.
DEFAULT_LIBRARIES: Final = ("numpy", "onnxruntime", "espeakng_loader", "fxtranslate")
WORKERS_MAX: Final = 64


class WorkerSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of the worker processes."""

    workers: dict[Service, Annotated[int, Meta(ge=1, le=WORKERS_MAX)]] = {}
    memory_mb: Annotated[int, Meta(ge=0)] = 0
    load_s: Annotated[float, Meta(gt=0, le=3600)] = 120.0
    attempt_s: Annotated[float, Meta(ge=5, le=3600)] = 30.0


class EnginePlan(msgspec.Struct, frozen=True):
    """The engines of a node, before they are loaded."""

    specs: tuple[Spec, ...]
    workers: WorkerSettings = WorkerSettings()
    # The groups of models it needs, if it is a preset.
    groups: tuple[str, ...] = ()

    def of(self, service: Service) -> tuple[Spec, ...]:
        """Return the engines of one stage, in their order."""
        return tuple(spec for spec in self.specs if stage_of(spec) == service)

    def with_workers(self, count: int) -> EnginePlan:
        """Return a copy with this many processes in each stage without a setting of its own."""
        counts = dict.fromkeys(SERVICES, count) | self.workers.workers
        return msgspec.structs.replace(
            self, workers=msgspec.structs.replace(self.workers, workers=counts)
        )

    def with_voice(self, spec: Spec) -> EnginePlan:
        """Return a copy with a voice that is preferred to the others."""
        groups = tuple(dict.fromkeys((*self.groups, NATURAL)))
        return msgspec.structs.replace(self, specs=(spec, *self.specs), groups=groups)

    def with_memory(self, memory_mb: int) -> EnginePlan:
        """Return a copy with another memory limit for each worker."""
        workers = msgspec.structs.replace(self.workers, memory_mb=memory_mb)
        return msgspec.structs.replace(self, workers=workers)


def stage_of(spec: Spec) -> Service:
    """Return the stage whose workers load an engine."""
    return OWN_STAGE.get(spec.name, STAGE_OF[spec.role])


def plan_of(words: Sequence[str], voice: Voice | None = None) -> EnginePlan:
    """Parse `--engines` and `--voice`; raises `ConfigError`."""
    if len(words) == 1 and words[0] == DEFAULT:
        return _checked(default_plan(voice))
    if voice is not None:
        raise ConfigError(
            "--voice", "is for the default engines only; with others, name the voice: tts=kokoro"
        )
    if len(words) == 1 and words[0].endswith(".toml"):
        return _checked(_from_file(Path(words[0])))
    return _checked(EnginePlan(tuple(Spec.parse(word) for word in words)))


def default_plan(voice: Voice | None = None) -> EnginePlan:
    """Return the default node; with Pico if its library is installed."""
    lines = [line for line, library in DEFAULT_ENGINES if not library or find_spec(library)]
    plan = EnginePlan(tuple(Spec.parse(line) for line in lines), groups=(DEFAULT,))
    return plan.with_voice(Spec.parse(NATURAL_VOICE)) if voice == "natural" else plan


def translators_of(words: Sequence[str]) -> tuple[Spec, ...]:
    """Return the translators in `--engines`, for commands that translate text only."""
    if len(words) == 1 and (words[0] == DEFAULT or words[0].endswith(".toml")):
        specs = plan_of(words).specs
    else:
        specs = tuple(Spec.parse(word) for word in words)
    found = tuple(spec for spec in specs if spec.role == "mt")
    if not found:
        raise ConfigError("engines", "a translator is needed, such as mt=router")
    for spec in found:
        plugins.check(spec)
    return found


def missing_models(plan: EnginePlan, store: ModelStore) -> tuple[str, ...]:
    """Return the models of a preset that are not installed."""
    needed = store.catalogue.expand(plan.groups)
    return tuple(model.name for model in needed if not store.has(model.name))


def check_libraries(plan: EnginePlan) -> None:
    """Raise `ConfigError` if libraries of a preset are missing, with the command to run."""
    missing = [name for name in DEFAULT_LIBRARIES if plan.groups and not find_spec(name)]
    if missing:
        lacking = f"the default ones need the extra `engines` (missing: {', '.join(missing)})"
        raise ConfigError(
            "engines", f"{lacking}; run: {install_command('lingua-speech', 'engines')}"
        )


def _checked(plan: EnginePlan) -> EnginePlan:
    if not plan.of("asr") or all(spec.role != "asr" for spec in plan.specs):
        raise ConfigError("engines", "a recogniser is needed, such as asr=whisper:model=base")
    for spec in plan.specs:
        plugins.check(spec)
    return plan


class _Engine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An `[[engine]]` of a file."""

    role: str
    name: str
    options: dict[str, str | int | float | bool] = {}

    def spec(self) -> Spec:
        plain = Spec.parse(f"{self.role}={self.name}")
        return Spec(plain.role, plain.name, {key: _text(self.options[key]) for key in self.options})


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file of engines."""

    engine: tuple[_Engine, ...]
    crew: WorkerSettings = WorkerSettings()


def _from_file(path: Path) -> EnginePlan:
    try:
        read = msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), _File)
    except OSError as error:
        raise ConfigError("engines", f"cannot read {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, msgspec.ValidationError) as error:
        raise ConfigError("engines", f"{path}: {error}") from error
    return EnginePlan(tuple(engine.spec() for engine in read.engine), read.crew)


def _text(value: str | float | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
