"""OPUS-MT: the University of Helsinki's networks, from the model store (mt=opus).

Licence: Apache-2.0 (French), CC-BY-4.0 (Chinese). English and French in both directions (`lingua
models install french`) and Chinese into English (`chinese`), each as far as it is installed; the
router uses them without being told. A sentence takes a tenth of a second or more, a direction 100
MB of memory. The work is `ctranslate`'s, which also takes one's own folders.

| option | default | what it is |
|---|---|---|
| pairs | | only these of what is installed: `en-fr` |
| threads | 1 | threads of one translation |
| beam | 2 | width of the search, 1 to 16 |
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lingua_scheduler.models import default_store
from lingua_scheduler.speech import plugins
from lingua_scheduler.speech.engine import About, ModelMissing, Watch
from lingua_scheduler.speech.engines import ctranslate
from lingua_scheduler.speech.engines import options as reading

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

KNOWN: Final = {"pairs": "", "threads": "1", "beam": "2"}
MODELS: Final = ("opus-eng-fra", "argos-zho-eng")
MISSING: Final = "no OPUS model is installed; run: lingua models install french (or chinese)"


def make(options: Mapping[str, str]) -> Opus:
    """Load the installed models; raises `ModelMissing` if there are none, or one is damaged."""
    taken = plugins.take(options, KNOWN)
    folders = _folders()
    if wanted := reading.pairs(taken, "pairs"):
        folders = {pair: path for pair, path in folders.items() if pair in wanted}
    if not folders:
        raise ModelMissing(MISSING)
    named = {f"dir.{'>'.join(pair)}": str(path) for pair, path in folders.items()}
    return Opus(ctranslate.make({**named, "threads": taken["threads"], "beam": taken["beam"]}))


def is_installed() -> bool:
    """Tell whether there is anything to load; asks only the disk."""
    store = default_store()
    return any(store.has(name) for name in MODELS)


def _folders() -> dict[tuple[str, str], Path]:
    """Return the folder of every direction that is installed."""
    store = default_store()
    roots = [store.path(name) for name in MODELS if store.has(name)]
    return {
        reading.direction(path.name): path
        for root in roots for path in sorted(root.iterdir()) if (path / "model.bin").is_file()
    }  # fmt: skip


class Opus:
    """Translates with the networks of the model store."""

    def __init__(self, inner: ctranslate.CTranslate) -> None:
        self._inner = inner

    def about(self) -> About:
        """Tell what it is and can do."""
        about = self._inner.about()
        return About(
            engine="opus",
            version=about.version,
            model=about.model,
            licence="Apache-2.0 (French), CC-BY-4.0 (Chinese)",
            pairs=about.pairs,
        )

    def translate(self, text: str, source: str, target: str, watch: Watch) -> str:
        """Say it in another language, sentence by sentence."""
        return self._inner.translate(text, source, target, watch)

    def close(self) -> None:
        """Free the networks."""
        self._inner.close()
