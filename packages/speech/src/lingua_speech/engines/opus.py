"""OPUS-MT: the University of Helsinki's networks, from the model store (mt=opus).

Licence: Apache-2.0 (French), CC-BY-4.0 (Chinese). English and French in both directions (`lingua
models install french`) and Chinese into English (`chinese`), as far as they are installed; the
router uses them by default. A sentence takes a tenth of a second or more, a direction 100 MB of
memory. Translation is done by `ctranslate`, which also accepts other folders.

| option | default | what it is |
|---|---|---|
| pairs | | only these of the installed directions: `en-fr` |
| threads | 1 | threads of one translation |
| beam | 2 | width of the search, 1 to 16 |
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lingua_speech import plugins
from lingua_speech.engine import About, ModelMissing, Watch
from lingua_speech.engines import ctranslate
from lingua_speech.engines import options as reading
from lingua_speech.models import default_store

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

KNOWN: Final = {"pairs": "", "threads": "1", "beam": "2"}
MODELS: Final = ("opus-eng-fra", "argos-zho-eng")
MISSING: Final = "no OPUS model is installed; run: lingua models install french (or chinese)"


def make(options: Mapping[str, str]) -> Opus:
    """Load the installed models; raises `ModelMissing` if there is none or one is damaged."""
    taken = plugins.take(options, KNOWN)
    folders = _folders()
    if wanted := reading.pairs(taken, "pairs"):
        folders = {pair: path for pair, path in folders.items() if pair in wanted}
    if not folders:
        raise ModelMissing(MISSING)
    named = {f"dir.{'>'.join(pair)}": str(path) for pair, path in folders.items()}
    return Opus(ctranslate.make({**named, "threads": taken["threads"], "beam": taken["beam"]}))


def is_installed() -> bool:
    """Tell whether a model is installed; only reads the disk."""
    store = default_store()
    return any(store.has(name) for name in MODELS)


def _folders() -> dict[tuple[str, str], Path]:
    """Return the folder of every installed direction."""
    store = default_store()
    roots = [store.path(name) for name in MODELS if store.has(name)]
    return {
        reading.direction(path.name): path
        for root in roots
        for path in sorted(root.iterdir())
        if (path / "model.bin").is_file()
    }


class Opus:
    """Translates with the networks of the model store."""

    def __init__(self, inner: ctranslate.CTranslate) -> None:
        self._inner = inner

    def about(self) -> About:
        """Return the description of the engine."""
        about = self._inner.about()
        return About(
            engine="opus",
            version=about.version,
            model=about.model,
            licence="Apache-2.0 (French), CC-BY-4.0 (Chinese)",
            pairs=about.pairs,
        )

    def translate(self, text: str, source: str, target: str, watch: Watch) -> str:
        """Translate a text sentence by sentence."""
        return self._inner.translate(text, source, target, watch)

    def close(self) -> None:
        """Free the networks."""
        self._inner.close()
