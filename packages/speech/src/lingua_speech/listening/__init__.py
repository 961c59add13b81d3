"""Speech while it goes on: its text so far for those who read, and a head start for its job.

    stream ──> ear ──> listener ──> passes of the recogniser (stage_calls)
                          ├──> agreement, sentence_ends, completeness ──> partial: text and hints
                          ├──> caption_translation                    ──> partial: translations
                          └──> head_start <── pipeline, when the job of the utterance arrives

All of it is optional: a job has its whole audio, and is done in the same way without it.
"""
