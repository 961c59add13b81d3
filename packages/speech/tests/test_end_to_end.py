"""Commands with real engines and real recordings, without any test double."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import wave
from pathlib import Path
from urllib.request import urlopen

import pytest

from lingua_speech.models import default_store

pytestmark = pytest.mark.speech

LIMIT_S = 240


@pytest.fixture(scope="module", autouse=True)
def models() -> None:
    default_store().install("bench")


def lingua(*words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "lingua_cli", *words],
        cwd=cwd,
        env={**os.environ, "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )


def opened_demo(folder: Path) -> str:
    """Run `lingua demo --open`, look at its page, and end it as Ctrl-C does; returns its output."""
    words = [sys.executable, "-m", "lingua_cli", "demo", "--open", "--out", str(folder)]
    environ = {**os.environ, "NO_COLOR": "1", "PYTHONUNBUFFERED": "1"}
    shown = ""
    with subprocess.Popen(words, env=environ, stdout=subprocess.PIPE, text=True) as demo:
        assert demo.stdout is not None
        for line in demo.stdout:
            shown += line
            if found := re.search(r"open (http://\S+) and press", line):
                with urlopen(found[1], timeout=LIMIT_S) as page:
                    assert b"<title>Lingua" in page.read()
                demo.send_signal(signal.SIGINT)
        assert demo.wait(LIMIT_S) == 0, shown
    assert "open http" in shown, shown
    return shown


def test_the_demo_translates_a_real_recording_and_writes_what_it_spoke(tmp_path: Path) -> None:
    shown = opened_demo(tmp_path / "out")
    assert "leisure to consider how much" in shown
    assert "failed 0 ms, skipped 0 ms" in shown
    with wave.open(str(tmp_path / "out" / "sensibility.es.wav")) as spoken:
        assert spoken.getframerate() == 16_000
        assert spoken.getnframes() > 10 * 16_000
    captions = (tmp_path / "out" / "sensibility.es.srt").read_text(encoding="utf-8")
    assert captions.count("-->") >= 5


def test_a_recording_is_translated_with_a_glossary(tmp_path: Path) -> None:
    root = default_store().path("recordings-librivox-en")
    rows = (root / "transcripts.tsv").read_text(encoding="utf-8").splitlines()
    [key] = [row.split("\t")[0] for row in rows if "leisure" in row]
    [recording] = [path for path in root.rglob("*.wav") if path.stem == key]
    (tmp_path / "ours.toml").write_text('leisure = { es = "Tiempo Libre" }\n')
    done = lingua(
        "translate",
        str(recording),
        "--from",
        "en",
        "--to",
        "es",
        "--private",
        "--fast",
        "--glossary",
        "ours.toml",
        "--json",
        "out.json",
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    said = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))["utterances"]
    assert any("leisure" in one["text"] for one in said)
    assert "Tiempo Libre" in json.dumps(said, ensure_ascii=False)


def test_in_a_room_two_listeners_hear_everything_in_their_languages() -> None:
    done = lingua("demo", "--room")
    assert done.returncode == 0, done.stderr + done.stdout
    spanish = [line for line in done.stdout.splitlines() if line.startswith("  Ben [es]")]
    french = [line for line in done.stdout.splitlines() if line.startswith("  Cleo [fr]")]
    assert len(spanish) == len(french) >= 5
    assert "5 sentences, heard by both" in done.stdout


def test_the_benchmark_reaches_what_was_promised_of_quality() -> None:
    done = lingua("bench", "speech", "--quick", "--json")
    assert done.returncode == 0, done.stderr + done.stdout
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    last = rows[-1]
    assert last["wer_en"] <= 0.03
    assert last["chrf_en_es"] > 47.7
    assert last["chrf_es_en"] > 46.5
    assert {"first_audio_p50_s", "first_audio_p95_s", "rtf", "rss_mb"} <= last.keys()
    for row in rows[:-1]:
        if row["kind"] == "translated":
            assert row["chrf_held_out"] > row["chrf_held_out_plain"]
        if row["kind"] == "heard":
            assert (row["unaccounted_ms"], row["failed"]) == (0, 0)
