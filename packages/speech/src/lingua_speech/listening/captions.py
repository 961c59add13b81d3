"""What is shown of an utterance so far: its text, and its translations into all languages."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from lingua_node import JobFailed
from lingua_speech.host import Urgency
from lingua_speech.listening.caption_translation import CaptionTranslation, sentences_of
from lingua_wire.languages import base_of

if TYPE_CHECKING:
    from lingua_node import Stream
    from lingua_speech.job_languages import JobLanguages
    from lingua_speech.listening.agreement import HeardText
    from lingua_speech.listening.caption_translation import CaptionSentences
    from lingua_speech.stage_calls import StageCalls

# The text does not wait longer for its translations; these follow with the next text.
TRANSLATION_WAIT_S: Final = 0.4


class Captions:
    """The captions of one utterance."""

    def __init__(self, calls: StageCalls, stream: Stream, languages: JobLanguages) -> None:
        self._calls = calls
        self._stream = stream
        self._languages = languages
        # By target language.
        self._translations: dict[str, CaptionTranslation] = {}
        # The last partial.
        self._shown: dict[str, Any] = {}

    async def show(
        self,
        heard: HeardText,
        *,
        upto_ms: int,
        language: str,
        sentence_end_ms: int | None = None,
        is_complete: bool | None = None,
        is_quiet: bool = False,
    ) -> None:
        """Translate the text so far, and report it; `is_quiet`: the speaker pauses."""
        await self._translate(heard, language, is_quiet=is_quiet)
        self._shown = {
            "stable": " ".join(heard.stable),
            "unstable": " ".join(heard.unstable),
            "upto_ms": upto_ms,
            "src_lang": language or None,
            "translations": {
                target: (one.stable, one.unstable) for target, one in self._translations.items()
            },
            "sentence_end_ms": sentence_end_ms,
            "is_complete": is_complete,
        }
        await self._stream.partial(**self._shown)

    async def hint(self, sentence_end_ms: int) -> None:
        """Report the same text again, now with the end of a sentence in it."""
        await self._stream.partial(**self._shown | {"sentence_end_ms": sentence_end_ms})

    async def _translate(self, heard: HeardText, language: str, *, is_quiet: bool) -> None:
        if not language or not self._stream.open.pipeline.use_nmt:
            return
        parts = sentences_of(heard)
        tasks = {
            asyncio.create_task(self._translate_into(target, parts, language, is_quiet=is_quiet))
            for target in self._targets(language)
        }
        if not tasks:
            return
        try:
            await asyncio.wait(tasks, timeout=TRANSLATION_WAIT_S)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        for task in tasks:
            if not task.cancelled() and task.exception() is not None:
                task.result()

    def _targets(self, language: str) -> list[str]:
        """Return the languages into which a translator of this node translates."""
        wanted = (self._languages.target_of(language), *self._stream.open.tgt_langs)
        if self._languages.two_way:
            wanted = wanted[:1]
        return [
            target
            for target in dict.fromkeys(wanted)
            if base_of(target) != base_of(language)
            and self._calls.abilities.route(language, target) is not None
        ]

    async def _translate_into(
        self, target: str, parts: CaptionSentences, language: str, *, is_quiet: bool
    ) -> None:
        shown = self._translations.setdefault(target, CaptionTranslation())
        try:
            for sentence in parts.whole[shown.sentences :]:
                shown.add_sentence(await self._translated(sentence, language, target))
            translated = await self._translated(parts.open, language, target)
            shown.set_open(translated, is_quiet=is_quiet)
        except JobFailed:
            # A more urgent text was translated instead; the next caption has all of it.
            return

    async def _translated(self, words: str, language: str, target: str) -> str:
        route = self._calls.abilities.route(language, target)
        if route is None or not words:
            return ""
        terms = self._stream.open.glossary
        rendered = await self._calls.translate(route, words, terms, target, Urgency.CAPTION)
        return rendered.text
