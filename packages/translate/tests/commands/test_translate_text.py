"""`lingua translate --text` as it is typed: lines in, lines out, by the real translators."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from lingua_process import environment, run
from lingua_speech.models import default_store

pytestmark = pytest.mark.speech

BOUND_S = 120
NEURAL = ["--engines", "mt=router:use=bergamot"]
EN_PT = ["--from", "en", "--to", "pt"]
ODD = [
    "",
    "x",
    "Hello.",
    "   ",
    "https://example.com/a?b=1&c=2",
    "bob@example.com",
    "@maria_99 #yes",
    "😀😀😀",
    "Это русский текст.",
    "我爱你。",
    "the the the the the the the the",
    "12 34 56",
    "def f(x): return x**2  # code",
    "a" * 900,
    "word " * 400,
    "\t tabs \t and\u2028breaks\x0b.",
    "He paid $1,234.50 on 12/05/2024.",
    "\\0 <s> </s> >>es<< zqxaz XQ1",
    "¿¡…!?",
    "NULL\0byte",
]


@pytest.fixture(name="models", scope="module")
def installed() -> dict[str, str]:
    default_store().install("default")
    return {"LINGUA_MODELS": str(default_store().root)}


def translated(
    words: list[str], folder: Path, models: dict[str, str], text: bytes = b""
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "lingua_cli", "translate", "--text", *words],
        cwd=folder,
        env=environment(folder, **models),
        input=text,
        capture_output=True,
        timeout=BOUND_S,
        check=False,
    )


def test_a_text_gives_one_line_and_nothing_else(tmp_path: Path, models: dict[str, str]) -> None:
    done = translated(["Where is the pharmacy?", *EN_PT, *NEURAL], tmp_path, models)
    assert (done.returncode, done.stdout.decode()) == (0, "Onde está a farmácia?\n")


def test_the_default_engines_translate_and_say_which_way(
    tmp_path: Path, models: dict[str, str]
) -> None:
    words = ["Good\n morning.", "--from", "en", "--to", "es", "--show-route"]
    done = translated(words, tmp_path, models)
    assert (done.returncode, done.stdout.decode()) == (0, "Buenos días.\n")
    assert ">es" in done.stderr.decode().splitlines()[-1]


def test_every_line_gives_exactly_one_line(tmp_path: Path, models: dict[str, str]) -> None:
    text = "\n".join(ODD).encode() + b"\r\n\xff\xfe no UTF-8\nlast without an end"
    done = translated(["-", *EN_PT, *NEURAL], tmp_path, models, text)
    lines = done.stdout.decode().split("\n")
    assert done.returncode == 0, done.stderr
    assert len(lines) == len(ODD) + 2 + 1
    assert lines[-1] == ""
    assert (lines[0], lines[1], lines[2], lines[3]) == ("", "x", "Olá.", "")
    assert lines[4:6] == ODD[4:6]
    assert lines[ODD.index("我爱你。")] == "我爱你。"


def test_lines_stream(tmp_path: Path, models: dict[str, str]) -> None:
    words = [sys.executable, "-m", "lingua_cli", "translate", "--text", "-", *EN_PT, *NEURAL]
    with subprocess.Popen(
        words,
        cwd=tmp_path,
        env=environment(tmp_path, **models),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"Hello.\n")
        process.stdin.flush()
        # Answered while the input is still open.
        assert process.stdout.readline().decode() == "Olá.\n"
        began = time.monotonic()
        out, _ = process.communicate(b"Hello.\n\n" * 1000, timeout=BOUND_S)
        assert out.decode() == "Olá.\n\n" * 1000
        assert time.monotonic() - began < BOUND_S
    assert process.returncode == 0


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["x"], "needs --from LANG and one --to LANG"),
        (["x", "--from", "en", "--to", "pt", "--to", "es"], "one --to LANG"),
        (["x", "--from", "auto", "--to", "es"], "must be a language"),
        (["x", "--from", "en", "--to", "en-us"], "en-us is the language of the text"),
        (["x", "--from", "en", "--to", "spanish"], "did you mean es?"),
        (["x", "talk.wav", "--from", "en", "--to", "es"], "cannot be combined with FILE"),
        (["x", "--from", "en", "--to", "es", "--play"], "cannot be combined with --play"),
        (["x", "--from", "en", "--to", "es", "--voice", "fast"], "cannot be combined with --voice"),
        (["x", *EN_PT, "--engines", "asr=whisper"], "a translator is needed"),
        (["x", *EN_PT, "--engines", "mt=nobody"], "no engine 'nobody'"),
    ],
)
def test_what_does_not_go_is_told_before_anything_starts(
    words: list[str], problem: str, tmp_path: Path
) -> None:
    done = run(["translate", "--text", *words], tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert problem in done.stderr


def test_without_a_source_it_says_what_may_be_one(tmp_path: Path) -> None:
    done = run(["translate", "--from", "en", "--to", "es"], tmp_path)
    assert done.returncode == 2
    assert "give what to translate" in done.stderr


def test_a_language_that_nobody_serves_is_told_with_what_helps(
    tmp_path: Path, models: dict[str, str]
) -> None:
    done = translated(["x", "--from", "en", "--to", "it", *NEURAL], tmp_path, models)
    told = done.stderr.decode()
    assert (done.returncode, done.stdout) == (2, b"")
    assert "nothing here translates en into it, only en into pt" in told
    assert "lingua models install apertium-eng-spa apertium-spa-ita" in told
    done = translated(["x", "--from", "en", "--to", "zz", *NEURAL], tmp_path, models)
    assert "lingua models install" not in done.stderr.decode()


def test_without_models_it_says_what_to_install(tmp_path: Path) -> None:
    words = ["translate", "--text", "x", *EN_PT, *NEURAL]
    done = run(words, tmp_path, LINGUA_MODELS=str(tmp_path / "none"))
    assert (done.returncode, done.stdout) == (1, "")
    assert "lingua models install bergamot-eng-por" in done.stderr


def test_a_glossary_is_kept_to(tmp_path: Path, models: dict[str, str]) -> None:
    (tmp_path / "ours.toml").write_text('"Acme Cloud" = {}\nledger = { pt = "livro-razão" }\n')
    words = ["The ledger of Acme Cloud is new.", *EN_PT, *NEURAL, "--glossary", "ours.toml"]
    done = translated(words, tmp_path, models)
    assert (done.returncode, done.stderr) == (0, b"")
    assert "livro-razão" in done.stdout.decode()
    assert "Acme Cloud" in done.stdout.decode()


@pytest.mark.parametrize("source", [["--text", "Hi."], ["talk.wav"]])
@pytest.mark.parametrize(
    ("content", "problem"), [("", ""), ("a = 1", "glossary: 'a'"), ("?", "is not TOML")]
)
def test_a_glossary_that_is_none_ends_it(
    tmp_path: Path, source: list[str], content: str, problem: str
) -> None:
    if content:
        (tmp_path / "ours.toml").write_text(content)
    done = run(["translate", *source, *EN_PT, "--glossary", "ours.toml"], tmp_path)
    assert done.returncode == 2
    assert "lingua: --glossary: " in done.stderr
    assert (problem or "cannot read ours.toml: No such file") in done.stderr
