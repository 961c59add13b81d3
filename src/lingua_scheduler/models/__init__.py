"""The model manager: what `lingua models` installs and where engines find it.

`default_store().path("whisper-base")` is all an engine needs. The catalogue with every pinned hash
is `catalogue.toml`; nothing here needs more than the base install, except one preparation step.
"""

from lingua_scheduler.models.archives import UnsafeArchive
from lingua_scheduler.models.catalogue import Catalogue, Model, load_catalogue
from lingua_scheduler.models.checkpoints import UnsafeCheckpoint
from lingua_scheduler.models.errors import (
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
from lingua_scheduler.models.programs import apertium_environment
from lingua_scheduler.models.store import (
    Entry,
    Installed,
    Manifest,
    Stage,
    Store,
    default_root,
    default_store,
)

__all__ = [
    "Catalogue",
    "Entry",
    "Installed",
    "Manifest",
    "Model",
    "ModelCorrupt",
    "ModelError",
    "ModelNeeded",
    "ModelNotInstalled",
    "ModelUnknown",
    "ModelUnsupported",
    "NoSpace",
    "PreparationMissing",
    "SourceUnreachable",
    "Stage",
    "Store",
    "StoreUnreadable",
    "StoreUnwritable",
    "UnsafeArchive",
    "UnsafeCheckpoint",
    "apertium_environment",
    "default_root",
    "default_store",
    "load_catalogue",
]
