"""Step 6: train one direction, for as long as it is given.

Batches hold a number of tokens, not of sentences, all of nearly one length. Every few minutes the
state is saved; a run that is stopped goes on from there. The result is the mean of the last
weights, which is better than any of them.
"""

from __future__ import annotations

import random
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import torch
from torch.nn import functional

from training.translation import examples
from training.translation.model import MOST_POSITIONS, Translator, present

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from sentencepiece import SentencePieceProcessor
    from torch import Tensor

SEED: Final = 1
SMOOTHING: Final = 0.1
CLIP: Final = 1.0
LONGEST: Final = min(160, MOST_POSITIONS)
# Examples that are sorted by length together.
POOL: Final = 6000
REPORT_STEPS: Final = 100
# The decay of the running mean of the weights.
MEAN_DECAY: Final = 0.998

Example = tuple[list[int], list[int]]


@dataclass(frozen=True)
class Plan:
    """How to train."""

    seconds: float
    rate: float = 5e-4
    warmup: int = 200
    batch_tokens: int = 1200
    # The share of the time, at the end, in which the rate falls to nothing.
    cooldown: float = 0.4
    # The share of the time, at the beginning, in which the source's layers stay as they are.
    resting: float = 0.0
    save_seconds: float = 180.0


class Training:
    """The state of a run: all that is saved, and needed to go on."""

    def __init__(self, model: Translator, plan: Plan, saved: Path) -> None:
        self.model, self.plan, self._saved = model, plan, saved
        self.optimizer = torch.optim.Adam(
            model.parameters(), lr=plan.rate, betas=(0.9, 0.98), eps=1e-9, fused=True
        )
        self.mean = {name: value.clone() for name, value in model.state_dict().items()}
        self.step, self.epoch, self.spent = 0, 0, 0.0
        if saved.is_file():
            self._load(torch.load(saved, weights_only=True))

    @property
    def is_done(self) -> bool:
        """Whether its time is over."""
        return self.spent >= self.plan.seconds

    def learn(self, batch: Sequence[Example]) -> float:
        """Make one step; return the loss of a token."""
        for group in self.optimizer.param_groups:
            group["lr"] = self._rate()
        self.model.rest_source(self.spent < self.plan.resting * self.plan.seconds)
        loss = loss_of(self.model, batch, SMOOTHING)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), CLIP)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.step += 1
        self._average()
        return float(loss.detach())

    def save(self) -> None:
        """Save the state, so that at any moment one whole state is there."""
        state = {
            "model": self.model.state_dict(), "mean": self.mean,
            "optimizer": self.optimizer.state_dict(),
            "step": self.step, "epoch": self.epoch, "spent": self.spent,
        }  # fmt: skip
        new = self._saved.with_suffix(".new")
        torch.save(state, new)
        new.replace(self._saved)

    def _load(self, state: dict[str, Any]) -> None:
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.mean = state["mean"]
        self.step, self.epoch, self.spent = state["step"], state["epoch"], state["spent"]

    def _rate(self) -> float:
        """Warm up, then stay, then fall in a line: it fits any length of run."""
        left = (1.0 - self.spent / self.plan.seconds) / self.plan.cooldown
        warm = (self.step + 1) / self.plan.warmup
        return self.plan.rate * max(0.02, min(1.0, warm, left))

    def _average(self) -> None:
        # Early weights must not stay in the mean.
        decay = min(MEAN_DECAY, self.step / (self.step + 10))
        with torch.no_grad():
            for name, value in self.model.state_dict().items():
                self.mean[name].lerp_(value, 1.0 - decay)


def train(
    training: Training,
    pairs: Sequence[examples.Pair],
    pieces: tuple[SentencePieceProcessor, SentencePieceProcessor],
    dev: Sequence[examples.Pair],
) -> None:
    """Train until the time is over, telling how it goes."""
    torch.manual_seed(SEED + training.step)
    held = list(batches(encoded(dev, pieces), 4096, random.Random(SEED)))  # noqa: S311
    last = saved = time.monotonic()
    while not training.is_done:
        # With the step in the seed, a run that goes on does not see the same beginning again.
        shown = encoded(examples.epoch(pairs, SEED + training.step), pieces)
        training.model.train()
        order = random.Random(training.step)  # noqa: S311
        for batch in batches(shown, training.plan.batch_tokens, order):
            loss = training.learn(batch)
            now = time.monotonic()
            # A pause from outside (the process was stopped) is no training time.
            training.spent += min(now - last, 20.0)
            last = now
            if training.step % REPORT_STEPS == 0:
                _tell(training, f"loss {loss:.3f}")
            if now - saved > training.plan.save_seconds:
                _tell(training, f"dev {dev_loss(training.model, held):.4f}")
                training.save()
                last = saved = time.monotonic()
            if training.is_done:
                break
        else:
            training.epoch += 1
    training.save()


def _tell(training: Training, what: str) -> None:
    state = f"step {training.step} epoch {training.epoch} {training.spent:.0f} s"
    sys.stderr.write(f"{state} {what}\n")
    sys.stderr.flush()


def encoded(
    pairs: Iterable[examples.Pair], pieces: tuple[SentencePieceProcessor, SentencePieceProcessor]
) -> Iterator[Example]:
    """Yield the token numbers of both sides, without the end."""
    for source, target in pairs:
        one, other = pieces[0].encode(source), pieces[1].encode(target)
        if 0 < len(one) < LONGEST and 0 < len(other) < LONGEST:
            yield one, other


def batches(
    shown: Iterable[Example], tokens: int, chance: random.Random
) -> Iterator[list[Example]]:
    """Yield batches of about so many tokens a side, of examples of nearly one length."""
    pool: list[Example] = []
    for example in shown:
        pool.append(example)
        if len(pool) == POOL:
            yield from _shuffled(pool, tokens, chance)
            pool = []
    yield from _shuffled(pool, tokens, chance)


def _shuffled(pool: list[Example], tokens: int, chance: random.Random) -> list[list[Example]]:
    pool.sort(key=lambda example: (len(example[1]), len(example[0])))
    found: list[list[Example]] = []
    size = tokens + 1
    for example in pool:
        longest = max(map(len, example)) + 1
        if size + longest > tokens:
            found.append([])
            size = 0
        found[-1].append(example)
        size += longest
    chance.shuffle(found)
    return found


def loss_of(model: Translator, batch: Sequence[Example], smoothing: float) -> Tensor:
    """Return the mean loss of the target tokens of a batch."""
    start = model.shape.target_size - 1
    source, lengths = _padded([[*one, 0] for one, _ in batch])
    before, _ = _padded([[start, *other] for _, other in batch])
    after, ends = _padded([[*other, 0] for _, other in batch])
    real = torch.arange(after.shape[1])[None] < ends[:, None]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        mask = present(lengths, source.shape[1])
        hidden = model.decode(before, model.encode(source, mask), mask)
        scores = model.scores(hidden[real])
    return functional.cross_entropy(scores.float(), after[real], label_smoothing=smoothing)


def dev_loss(model: Translator, held: Sequence[Sequence[Example]]) -> float:
    """Return the loss on sentences that are not trained on."""
    model.eval()
    with torch.no_grad():
        losses = [float(loss_of(model, batch, 0.0)) for batch in held]
    model.train()
    return sum(losses) / len(losses)


def _padded(rows: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    lengths = torch.tensor([len(row) for row in rows])
    full = torch.zeros(len(rows), int(lengths.max()), dtype=torch.long)
    for number, row in enumerate(rows):
        full[number, : len(row)] = torch.tensor(row)
    return full, lengths
