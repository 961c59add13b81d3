"""Which engines a node is made of: by name, as words of a command line, or from a TOML file.

    default                                   what `lingua models install default` is for
    asr=whisper:model=small mt=apertium tts=espeak
    engines.toml                              [[engine]] role, name, options; [crew] settings

Only what is to be loaded; loading it is `assembly.py`. Which voices a preset has is chosen by
`--voice`; where nothing is said, `voices.py` looks at the machine. Files look like this:

    [[engine]]
    role = "asr"
    name = "whisper"
    options = { model = "small", threads = 2 }

    [crew]
    workers = { asr = 2 }      # processes per stage (asr, nmt, tts, natural); else 1
    memory_mb = 3000           # a worker that takes more is replaced; 0: no bound
    load_s = 120               # how long loading may take
    attempt_s = 30             # how long a scheduler waits that does not say it (`deadline_ms`)
"""

from __future__ import annotations

import tomllib
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import msgspec
from msgspec import Meta

from lingua_scheduler.errors import ConfigError
from lingua_scheduler.extras import install_command
from lingua_scheduler.speech import plugins
from lingua_scheduler.speech.plugins import Spec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lingua_scheduler.models import Store
    from lingua_scheduler.speech.engine import Role

Service = Literal["asr", "nmt", "tts", "natural"]
SERVICES: Final[tuple[Service, ...]] = ("asr", "nmt", "tts", "natural")
# Which stage's workers load an engine: what listens is together, sound is sent there once.
STAGE_OF: Final[dict[Role, Service]] = {
    "vad": "asr", "asr": "asr", "lid": "asr", "file": "asr", "mt": "nmt", "tts": "tts",
}  # fmt: skip
# A voice that takes seconds has workers of its own: nobody waits behind it for one that does not.
OWN_STAGE: Final[dict[str, Service]] = {"kokoro": "natural"}
DEFAULT: Final = "default"
Voice = Literal["natural", "fast"]
VOICES: Final[tuple[Voice, ...]] = ("natural", "fast")
# The voice that goes before those of the default node, and the group of models it needs.
NATURAL_VOICE: Final = "tts=kokoro"
NATURAL: Final = "natural"
# Engines of the default node, and the library one of them is left out without.
DEFAULT_ENGINES: Final = (
    ("asr=whisper:model=base", ""),
    ("vad=silero", ""),
    ("mt=router", ""),
    ("tts=pico", "ttspico"),
    ("tts=espeak", ""),
)
# What the extra `speech` brings and the default node cannot do without.
DEFAULT_LIBRARIES: Final = ("numpy", "onnxruntime", "espeakng_loader", "fxtranslate")
WORKERS_MAX: Final = 64


class CrewSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How the worker processes are run."""

    workers: dict[Service, Annotated[int, Meta(ge=1, le=WORKERS_MAX)]] = {}
    memory_mb: Annotated[int, Meta(ge=0)] = 0
    load_s: Annotated[float, Meta(gt=0, le=3600)] = 120.0
    attempt_s: Annotated[float, Meta(ge=5, le=3600)] = 30.0


class Plan(msgspec.Struct, frozen=True):
    """The engines a node is to be made of."""

    specs: tuple[Spec, ...]
    crew: CrewSettings = CrewSettings()
    # The groups of models it needs, if it is a preset.
    groups: tuple[str, ...] = ()

    def of(self, service: Service) -> tuple[Spec, ...]:
        """Return the engines of one stage, in their order."""
        return tuple(spec for spec in self.specs if stage_of(spec) == service)

    def with_workers(self, count: int) -> Plan:
        """Return the same with so many processes in the stages that do not say otherwise."""
        workers = dict.fromkeys(SERVICES, count) | self.crew.workers
        return msgspec.structs.replace(
            self, crew=msgspec.structs.replace(self.crew, workers=workers)
        )

    def with_voice(self, spec: Spec) -> Plan:
        """Return the same with a voice that is asked before the others."""
        groups = tuple(dict.fromkeys((*self.groups, NATURAL)))
        return msgspec.structs.replace(self, specs=(spec, *self.specs), groups=groups)

    def with_memory(self, memory_mb: int) -> Plan:
        """Return the same with another bound on the memory of each worker."""
        crew = msgspec.structs.replace(self.crew, memory_mb=memory_mb)
        return msgspec.structs.replace(self, crew=crew)


def stage_of(spec: Spec) -> Service:
    """Return which workers load an engine."""
    return OWN_STAGE.get(spec.name, STAGE_OF[spec.role])


def plan_of(words: Sequence[str], voice: Voice | None = None) -> Plan:
    """Read what `--engines` and `--voice` say; raises `ConfigError`."""
    if len(words) == 1 and words[0] == DEFAULT:
        return _checked(default_plan(voice))
    if voice is not None:
        raise ConfigError("--voice", "goes with the default engines; else name it: tts=kokoro")
    if len(words) == 1 and words[0].endswith(".toml"):
        return _checked(_from_file(Path(words[0])))
    return _checked(Plan(tuple(Spec.parse(word) for word in words)))


def default_plan(voice: Voice | None = None) -> Plan:
    """Return the default node; Pico only where its library is installed."""
    lines = [line for line, library in DEFAULT_ENGINES if not library or find_spec(library)]
    plan = Plan(tuple(Spec.parse(line) for line in lines), groups=(DEFAULT,))
    return plan.with_voice(Spec.parse(NATURAL_VOICE)) if voice == "natural" else plan


def translators_of(words: Sequence[str]) -> tuple[Spec, ...]:
    """Return the translators that `--engines` names, where nothing is heard or said aloud."""
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


def missing_models(plan: Plan, store: Store) -> tuple[str, ...]:
    """Return the models of a preset that are not installed."""
    needed = store.catalogue.expand(plan.groups)
    return tuple(model.name for model in needed if not store.has(model.name))


def check_libraries(plan: Plan) -> None:
    """Raise `ConfigError` if a preset's libraries are not here; says what to run."""
    missing = [name for name in DEFAULT_LIBRARIES if plan.groups and not find_spec(name)]
    if missing:
        lacking = f"the default ones need the extra `speech` (not here: {', '.join(missing)})"
        raise ConfigError("engines", f"{lacking}; run: {install_command('speech')}")


def _checked(plan: Plan) -> Plan:
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
    engine: tuple[_Engine, ...]
    crew: CrewSettings = CrewSettings()


def _from_file(path: Path) -> Plan:
    try:
        read = msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), _File)
    except OSError as error:
        raise ConfigError("engines", f"cannot read {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, msgspec.ValidationError) as error:
        raise ConfigError("engines", f"{path}: {error}") from error
    return Plan(tuple(engine.spec() for engine in read.engine), read.crew)


def _text(value: str | float | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
