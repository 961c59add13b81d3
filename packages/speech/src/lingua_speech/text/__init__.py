"""Text between the stages: cleaned after recognition, prepared for translation and for speech."""

from lingua_speech.text.cleanup import cleaned, for_speech, for_translation, join_slice, sentences

__all__ = ["cleaned", "for_speech", "for_translation", "join_slice", "sentences"]
