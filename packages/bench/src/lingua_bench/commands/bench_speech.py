"""`lingua bench speech`: real recordings through real engines; errors, quality, delay, memory.

Starts a scheduler and a node of its own. The tables are for people; `--json` prints one object per
measurement and, on the last line, the numbers to quote. Progress goes to stderr.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import msgspec
import uvloop

from lingua_cli.table import render_table

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from lingua_bench.speech.chaos_report import ChaosReport
    from lingua_bench.speech.report import SpeechReport
    from lingua_bench.speech.voices import VoiceReport

HEARD = (
    "talk",
    "utterances",
    "speech",
    "WER",
    "first audio p50",
    "p95",
    "asr p50",
    "mt",
    "tts",
    "scheduler p99",
    "RTF",
    "lost",
)
CAPTIONS = ("captions of", "behind the voice p50", "p95", "translated p50", "words taken back")
TRANSLATED = ("direction", "prompts", "chrF", "plain", "unseen half", "plain", "p50", "p95")
LONG = (
    "continuous",
    "slices",
    "words",
    "one pass",
    "missing at borders",
    "elsewhere",
    "WER",
    "one pass",
    "in order",
    "covered",
    "spoken after",
    "heard after",
)
CHAOS = (
    "round",
    "utterances",
    "outcomes",
    "delivered",
    "silent",
    "failed",
    "lost",
    "twice",
    "order",
    "same text",
    "WER",
)
VOICES = ("voice", "language", "sentences", "WER", "RTF", "first audio p50", "speech")


def add_speech(benches: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `lingua bench speech`."""
    speech = benches.add_parser("speech", help="real recordings through real engines")
    speech.add_argument("--quick", action="store_true", help="a shorter run, in under 50 s")
    speech.add_argument("--json", action="store_true", help="print JSON, one object a line")
    speech.add_argument(
        "--engines",
        nargs="+",
        default=["default"],
        metavar="ROLE=NAME",
        help="engines of the node (default: default)",
    )
    speech.add_argument(
        "--long", type=int, default=0, metavar="S", help="only continuous speech, so much of it"
    )
    speech.add_argument(
        "--chaos",
        action="store_true",
        help="kill engines, nodes and schedulers while people speak; the default engines "
        "(with --quick: in under 90 s)",
    )
    speech.add_argument(
        "--voices",
        nargs="*",
        metavar="tts=NAME",
        help="only how well voices are recognised (default: kokoro, pico and espeak)",
    )
    speech.add_argument(
        "--captions",
        action="store_true",
        help="only captions: how late, how stable, and how soon a result follows the voice",
    )
    speech.add_argument(
        "--speakers", type=int, default=1, metavar="N", help="with --captions: speakers at once (1)"
    )
    speech.set_defaults(run=run_speech)


def run_speech(args: argparse.Namespace) -> int:
    """Measure and print; speech that was lost ends it with exit code 1."""
    # Only here: the other benchmarks need no models.
    from lingua_bench.speech.run import GROUP, SpeechBenchmarkPlan, measure_speech  # noqa: PLC0415
    from lingua_speech.commands.models import progress_on  # noqa: PLC0415
    from lingua_speech.models import default_store  # noqa: PLC0415

    with progress_on(sys.stderr) as progress:
        default_store().install(GROUP, progress)
    if args.chaos:
        return run_chaos(args)
    if args.voices is not None:
        return run_voices(args)
    if args.captions:
        return run_captions(args)
    plan = SpeechBenchmarkPlan(tuple(args.engines), is_quick=args.quick, long_s=args.long)
    report = uvloop.run(measure_speech(plan, _tell))
    if args.json:
        print("\n".join(msgspec.json.encode(row).decode() for row in report.objects()))
    else:
        print(page(report))
    return 1 if any(one.unaccounted_ms or one.failed for one in report.heard) else 0


def run_chaos(args: argparse.Namespace) -> int:
    """Speak under faults and print; a broken promise ends it with exit code 1."""
    from lingua_bench.speech.chaos import FULL, QUICK, play  # noqa: PLC0415

    report = uvloop.run(play(QUICK if args.quick else FULL, _tell))
    if args.json:
        print("\n".join(msgspec.json.encode(row).decode() for row in report.objects()))
    else:
        print(chaos_page(report))
    return 1 if report.problems else 0


def run_voices(args: argparse.Namespace) -> int:
    """Let voices speak and print how they were recognised; exit code 1 if one is not available."""
    from lingua_bench.speech.voices import VOICES as ALL  # noqa: PLC0415
    from lingua_bench.speech.voices import measure_voices  # noqa: PLC0415

    voices = args.voices or ALL
    report = uvloop.run(measure_voices(voices, _tell, is_quick=args.quick))
    for spec, why in report.left_out.items():
        print(f"lingua: left out: {spec}: {why}", file=sys.stderr)
    if args.json:
        print("\n".join(msgspec.json.encode(row).decode() for row in report.objects()))
    else:
        print(voices_page(report))
    return 1 if report.left_out else 0


def run_captions(args: argparse.Namespace) -> int:
    """Speak into the handlers of a node and print how its captions were."""
    from lingua_bench.speech.live_captions import (  # noqa: PLC0415
        SpokenCaptionPlan,
        measure_captions,
    )

    plan = SpokenCaptionPlan(
        tuple(args.engines), prompts=0 if args.quick else 12, speakers=max(1, args.speakers)
    )
    report = uvloop.run(measure_captions(plan))
    if args.json:
        print("\n".join(msgspec.json.encode(row).decode() for row in report.objects()))
    else:
        print(report.page())
    return 0


def _tell(what: str) -> None:
    print(f"  {what} …", file=sys.stderr, flush=True)


def page(report: SpeechReport) -> str:
    """Return the tables for people."""
    parts = []
    if report.heard:
        parts = [
            render_table(HEARD, _heard(report)),
            render_table(CAPTIONS, _captions(report)),
            render_table(TRANSLATED, _translated(report)),
        ]
    if report.long:
        parts.append(render_table(LONG, _long(report)))
    memory = f"memory of the node with its engines: {report.rss_mb:.0f} MB"
    return "\n\n".join([*parts, f"{memory}; ready after {report.start_s:.1f} s"])


def chaos_page(report: ChaosReport) -> str:
    """Return the tables of speech under faults for people."""
    rounds = (("undisturbed", report.undisturbed), ("under fire", report.under_fire))
    rows = [
        (
            name,
            one.utterances,
            one.outcomes,
            one.delivered,
            one.silent,
            one.failed,
            one.lost,
            one.duplicates,
            one.inversions,
            f"{100 * one.same_text:.0f} %",
            f"{100 * one.wer:.1f} %",
        )
        for name, one in rounds
    ]
    faults = [
        (one.kind.replace("_", " "), one.target, f"{one.until - one.at:.1f} s")
        for one in report.faults
    ]
    hit = report.under_fire
    after = (
        "From the end of an utterance to its outcome, undisturbed: p50 "
        f"{report.undisturbed.took_p50_s:.2f} s; of {hit.affected} that were open while something\n"
        f"was broken: p50 {hit.affected_p50_s:.2f} s, at most {hit.affected_max_s:.2f} s. "
        f"{hit.hits} of {len(report.faults)} faults met work.\n"
        f"Sessions resumed {hit.resumes}, workers replaced {report.restarts}, processes left over "
        f"{report.left_over}; {report.wall_s:.0f} s in all"
    )
    parts = [render_table(CHAOS, rows), render_table(("fault", "where", "healed after"), faults)]
    changed = [f"another text: {text}" for text in hit.changed]
    return "\n\n".join([*parts, "\n".join([after, *changed, *report.problems])])


def voices_page(report: VoiceReport) -> str:
    """Return the tables of voices for people."""
    rows = [
        (
            one.voice,
            one.language,
            one.sentences,
            f"{100 * one.wer:.1f} %",
            f"{one.rtf:.3f}",
            f"{one.first_audio_p50_ms:.0f} ms",
            f"{one.speech_s:.0f} s",
        )
        for one in report.rows
    ]
    return render_table(VOICES, rows)


def _heard(report: SpeechReport) -> Sequence[Sequence[str | int]]:
    return [
        (
            one.name,
            one.utterances,
            f"{one.speech_s:.1f} s",
            f"{100 * one.wer:.1f} %",
            f"{one.first_audio_p50_s:.2f} s",
            f"{one.first_audio_p95_s:.2f} s",
            f"{one.asr_p50_ms:.0f} ms",
            f"{one.mt_p50_ms:.0f} ms",
            f"{one.tts_p50_ms:.0f} ms",
            f"{one.scheduler_p99_ms:.0f} ms",
            f"{one.rtf:.3f}",
            f"{one.unaccounted_ms} ms",
        )
        for one in report.heard
    ]


def _captions(report: SpeechReport) -> Sequence[Sequence[str | int]]:
    return [
        (
            one.name,
            f"{one.caption_lag_p50_s:.2f} s",
            f"{one.caption_lag_p95_s:.2f} s",
            f"{one.translated_lag_p50_s:.2f} s",
            f"{100 * one.erasure:.0f} %",
        )
        for one in report.heard
    ]


def _translated(report: SpeechReport) -> Sequence[Sequence[str | int]]:
    return [
        (
            one.direction,
            one.prompts,
            f"{one.chrf:.1f}",
            f"{one.chrf_plain:.1f}",
            f"{one.chrf_held_out:.1f}",
            f"{one.chrf_held_out_plain:.1f}",
            f"{one.p50_ms:.1f} ms",
            f"{one.p95_ms:.1f} ms",
        )
        for one in report.translated
    ]


def _long(report: SpeechReport) -> Sequence[Sequence[str | int]]:
    return [
        (
            f"{one.speech_s:.0f} s",
            one.slices,
            one.words_sliced,
            one.words_one_pass,
            one.missing_at_borders,
            one.missing_elsewhere,
            f"{100 * one.wer_sliced:.1f} %",
            f"{100 * one.wer_one_pass:.1f} %",
            "yes" if one.in_order else "NO",
            f"{one.covered_percent:.1f} %",
            f"{one.arrived_lag_mean_s:.2f} s",
            f"{one.heard_lag_mean_s:.2f} s",
        )
        for one in report.long
    ]
