"""py3langid: identifies the language of a text, among about a hundred (lid=langid).

Licence: BSD-3-Clause. Needs `pip install 'lingua-speech[langid]'`; the model (4.5 MB) is in the
package. 0.1 ms per text. For recognisers that do not report the language. On short phrases a
recogniser's own scores are better, and a restriction to a pair of languages helps considerably.

| option | default | what it is |
|---|---|---|
| languages | | only these (`en+es+fr`), whatever a request allows; empty: all it knows |
"""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final

from lingua_speech import plugins
from lingua_speech.engine import About, Watch
from lingua_speech.engines import options as reading
from lingua_speech.engines import sentences
from lingua_wire.errors import ConfigError
from lingua_wire.languages import base_of

if TYPE_CHECKING:
    from collections.abc import Mapping

KNOWN: Final = {"languages": ""}


def make(options: Mapping[str, str]) -> LangId:
    """Load the model."""
    chosen = reading.listed(plugins.take(options, KNOWN), "languages")
    inner = reading.library("py3langid.langid", extra="langid")
    identifier = inner.LanguageIdentifier.from_model_file(inner.MODEL_FILE, norm_probs=True)
    unknown = sorted(set(chosen) - set(identifier.labels))
    if unknown:
        raise ConfigError("engines", f"langid does not know the language {unknown[0]!r}")
    return LangId(identifier, frozenset(chosen or identifier.labels))


class LangId:
    """Identifies the language of texts."""

    def __init__(self, identifier: Any, known: frozenset[str]) -> None:
        self._identifier = identifier
        self._known = known

    def about(self) -> About:
        """Return the description of the engine."""
        return About(
            engine="langid",
            version=version("py3langid"),
            model="py3langid",
            licence="BSD-3-Clause",
            languages=tuple(sorted(self._known)),
        )

    def identify(self, text: str, allowed: tuple[str, ...], watch: Watch) -> dict[str, float]:
        """Return the probability of each language; empty for a text without words."""
        watch.check()
        # Requested code -> the identifier's language: `en` for `en-us`.
        asked = {code: base for code in allowed if (base := base_of(code)) in self._known}
        wanted = set(asked.values()) if allowed else self._known
        if not wanted or not sentences.is_speakable(text):
            return {}
        self._identifier.set_languages(sorted(wanted))
        found = dict(self._identifier.rank(text))
        return {code: found[base] for code, base in asked.items()} if allowed else found

    def close(self) -> None:
        """Do nothing: no resource is held."""
