"""Runs the pipeline: `python -m training.translation WORK STEP...`; a step that is done is skipped.

Steps, in order: fetch, split, pieces, synthesise, train:en-es, train:es-en, export, evaluate; or
`all`. The two trainings may run side by side, one core each.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from training.translation import fetch, split, synthesise, vocabulary

# Of one direction on one core; all steps together stay within three hours.
MINUTES: Final = 50.0
DIRECTIONS: Final = ("en-es", "es-en")
STEPS: Final = (
    "fetch", "split", "pieces", "synthesise", "train:en-es", "train:es-en", "export", "evaluate",
)  # fmt: skip


def main() -> None:
    """Run the steps that are asked for."""
    parser = argparse.ArgumentParser(prog="python -m training.translation", description=__doc__)
    parser.add_argument("work", type=Path, help="where everything is put")
    parser.add_argument("steps", nargs="+", choices=("all", *STEPS))
    parser.add_argument("--minutes", type=float, default=MINUTES, help="of each training")
    parser.add_argument("--batch", type=int, default=1200, help="tokens of one step")
    parser.add_argument("--rate", type=float, default=4e-4, help="the highest rate of learning")
    parser.add_argument("--out", type=Path, help="of the models and scores; default WORK/out")
    parser.add_argument("--prompts", type=Path, help="English, tab, Spanish: also scored")
    parser.add_argument("--run", default="run", help="name of the folder of the trained states")
    asked = parser.parse_args()
    asked.out = asked.out or asked.work / "out"
    for step in STEPS if "all" in asked.steps else asked.steps:
        _run(step, asked)


def _run(step: str, asked: argparse.Namespace) -> None:
    work: Path = asked.work
    raw, data, pieces = work / "raw", work / "split", work / "pieces"
    if step == "fetch":
        fetch.fetch(raw)
    elif step == "split":
        split.split(raw, data)
    elif step == "pieces":
        vocabulary.build(raw, data, pieces)
    elif step == "synthesise":
        synthesise.synthesise(raw, data, work / "portuguese.tsv")
    elif step.startswith("train:"):
        _train(step.partition(":")[2], asked)
    elif step == "export":
        _export(asked)
    elif step == "evaluate":
        _evaluate(asked)


def _train(direction: str, asked: argparse.Namespace) -> None:
    # Torch takes seconds to load: only where it is needed.
    import torch  # noqa: PLC0415

    from training.translation import start, train  # noqa: PLC0415

    torch.set_num_threads(1)
    work: Path = asked.work
    folder = work / asked.run
    folder.mkdir(exist_ok=True)
    aligned = synthesise.portuguese_spanish(work / "split", work / "portuguese.tsv")
    model = start.first_model(direction, work / "raw", work / "pieces", aligned)
    pieces = tuple(vocabulary.load(path) for path in start.pieces_of(direction, work / "pieces"))
    # The English encoder is good already; the one that read Portuguese has Spanish to learn.
    resting = 0.3 if direction == "en-es" else 0.0
    plan = train.Plan(60 * asked.minutes, asked.rate, batch_tokens=asked.batch, resting=resting)
    training = train.Training(model, plan, folder / f"{direction}.pt")
    turn = 1 if direction == "en-es" else -1
    pairs, dev = (
        [pair[::turn] for pair in split.read_pairs(work / "split" / f"{part}.tsv")]
        for part in ("train", "dev")
    )
    train.train(training, pairs, pieces, dev)


def _export(asked: argparse.Namespace) -> None:
    from training.translation import export  # noqa: PLC0415

    for direction in DIRECTIONS:
        saved = asked.work / asked.run / f"{direction}.pt"
        export.export(direction, saved, asked.work / "pieces", asked.out / direction)


def _evaluate(asked: argparse.Namespace) -> None:
    from training.translation import evaluate, samples  # noqa: PLC0415

    (asked.out / "eval").mkdir(exist_ok=True)
    fixed = asked.out / "eval" / "everyday-en-es.tsv"
    fixed.write_bytes((asked.work / "split" / "everyday-en-es.tsv").read_bytes())
    evaluate.write(evaluate.evaluate(asked.work, asked.run, asked.out, asked.prompts),
                   asked.out / "results.json")  # fmt: skip
    samples.write(asked.out)


if __name__ == "__main__":
    main()
