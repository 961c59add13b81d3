"""The model store: installs models for `lingua models` and locates them for engines.

An engine only calls `default_store().path("whisper-base")`. The catalogue with every pinned hash is
`catalogue.toml`. Only some preparation steps need more than the base install.
"""

from lingua_speech.models.archives import UnsafeArchive
from lingua_speech.models.catalogue import Catalogue, Model, load_catalogue
from lingua_speech.models.checkpoints import UnsafeCheckpoint
from lingua_speech.models.errors import (
    ModelCorrupt,
    ModelError,
    ModelNeeded,
    ModelNotInstalled,
    ModelUnknown,
    ModelUnsupported,
    NoSpace,
    PreparationMissing,
    SourceUnreachable,
    StoreUnreadable,
    StoreUnwritable,
)
from lingua_speech.models.programs import apertium_environment
from lingua_speech.models.store import (
    Installed,
    InstallProgress,
    Manifest,
    ModelStore,
    StoreEntry,
    default_root,
    default_store,
)

__all__ = [
    "Catalogue",
    "InstallProgress",
    "Installed",
    "Manifest",
    "Model",
    "ModelCorrupt",
    "ModelError",
    "ModelNeeded",
    "ModelNotInstalled",
    "ModelStore",
    "ModelUnknown",
    "ModelUnsupported",
    "NoSpace",
    "PreparationMissing",
    "SourceUnreachable",
    "StoreEntry",
    "StoreUnreadable",
    "StoreUnwritable",
    "UnsafeArchive",
    "UnsafeCheckpoint",
    "apertium_environment",
    "default_root",
    "default_store",
    "load_catalogue",
]
