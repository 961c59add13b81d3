"""The network: a transformer that can start from Bergamot's weights and ends in CTranslate2.

The layers are those of Bergamot's models, so that their weights fit, with one exception: the
target's layers have self-attention instead of the recurrent unit, which CTranslate2 cannot run.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import torch
from torch import Tensor, nn
from torch.nn import functional

if TYPE_CHECKING:
    from training.translation.bergamot import Weights

# Positions that the tables hold. The product cuts a source at 500 tokens, and lets a translation
# be three times as long and a little more.
MOST_POSITIONS: Final = 1536
EPSILON: Final = 1e-5
NEVER: Final = -1e9


@dataclass(frozen=True)
class Shape:
    """The sizes of a network."""

    source_size: int
    target_size: int
    width: int = 256
    inner: int = 1536
    heads: int = 8
    source_layers: int = 6
    target_layers: int = 2
    # A few passes over the data do not overfit; dropout would only cost time.
    dropout: float = 0.0


def positions(size: int, width: int) -> Tensor:
    """Return Marian's position table: all sines, then all cosines."""
    half = width // 2
    rates = torch.exp(torch.arange(half) * -(math.log(10000.0) / (half - 1)))
    angles = torch.arange(size)[:, None] * rates[None]
    return torch.cat([angles.sin(), angles.cos()], dim=1).float()


def present(lengths: Tensor, size: int) -> Tensor:
    """Return the mask of a batch: nothing where there is a token, minus infinity after the end."""
    absent = torch.arange(size)[None] >= lengths[:, None]
    return torch.zeros(absent.shape).masked_fill(absent, NEVER)[:, None, None]


def past(size: int) -> Tensor:
    """Return the mask that lets a position see itself and what is before it."""
    return torch.full((size, size), NEVER).triu(1)


class Attention(nn.Module):
    """Attention with several heads, added to its input and normalised."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.heads = shape.heads
        self.query, self.key, self.value, self.output = (
            nn.Linear(shape.width, shape.width) for _ in range(4)
        )
        self.norm = nn.LayerNorm(shape.width, EPSILON)
        self.dropout = nn.Dropout(shape.dropout)

    def forward(self, x: Tensor, memory: Tensor, mask: Tensor) -> Tensor:
        """Attend from x to memory; the mask is added to the scores of attention.

        Written out, since torch's fused attention is twice as slow on a CPU with sentences.
        """
        query, key, value = (
            part.view(*part.shape[:2], self.heads, -1).transpose(1, 2)
            for part in (self.query(x), self.key(memory), self.value(memory))
        )
        scores = (query * query.shape[-1] ** -0.5) @ key.transpose(2, 3) + mask
        found = torch.softmax(scores, dim=-1).to(value.dtype) @ value
        joined = found.transpose(1, 2).reshape(x.shape)
        return self.norm(x + self.dropout(self.output(joined)))


class FeedForward(nn.Module):
    """Two linear layers for each position, added to their input and normalised."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.first = nn.Linear(shape.width, shape.inner)
        self.second = nn.Linear(shape.inner, shape.width)
        self.norm = nn.LayerNorm(shape.width, EPSILON)
        self.dropout = nn.Dropout(shape.dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Change every position by itself."""
        return self.norm(x + self.dropout(self.second(functional.relu(self.first(x)))))


class SourceLayer(nn.Module):
    """One layer over the source."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.own, self.feed = Attention(shape), FeedForward(shape)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Let every position look at all others."""
        return self.feed(self.own(x, x, mask))


class TargetLayer(nn.Module):
    """One layer over what is translated so far."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.own, self.cross, self.feed = Attention(shape), Attention(shape), FeedForward(shape)

    def forward(self, x: Tensor, memory: Tensor, mask: Tensor) -> Tensor:
        """Let every position look at those before it, and at the source."""
        x = self.own(x, x, past(x.shape[1]))
        return self.feed(self.cross(x, memory, mask))


class Translator(nn.Module):
    """From source tokens and the target so far to scores of the next target token."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self._is_resting = False
        self.source = nn.Embedding(shape.source_size, shape.width)
        self.target = nn.Embedding(shape.target_size, shape.width)
        self.bias = nn.Parameter(torch.zeros(shape.target_size))
        self.source_layers = nn.ModuleList(SourceLayer(shape) for _ in range(shape.source_layers))
        self.target_layers = nn.ModuleList(TargetLayer(shape) for _ in range(shape.target_layers))
        self.dropout = nn.Dropout(shape.dropout)
        self.register_buffer("positions", positions(MOST_POSITIONS, shape.width), persistent=False)
        for table in (self.source, self.target):
            nn.init.normal_(table.weight, std=shape.width**-0.5)

    def rest_source(self, resting: bool) -> None:
        """Keep the source's side as it is for a while: that step is half the work."""
        if resting != self._is_resting:
            self._is_resting = resting
            for part in (self.source, self.source_layers):
                part.requires_grad_(not resting)

    def encode(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Return one vector for every source token; mask as of `present`."""
        x = self._embedded(self.source, tokens)
        for layer in self.source_layers:
            x = layer(x, mask)
        return x

    def decode(self, tokens: Tensor, memory: Tensor, mask: Tensor) -> Tensor:
        """Return the vectors from which the next token of every position is told."""
        x = self._embedded(self.target, tokens)
        for layer in self.target_layers:
            x = layer(x, memory, mask)
        return x

    def scores(self, hidden: Tensor) -> Tensor:
        """Return the scores of all target tokens."""
        return functional.linear(hidden, self.target.weight, self.bias)

    def _embedded(self, table: nn.Embedding, tokens: Tensor) -> Tensor:
        x = table(tokens) * math.sqrt(self.shape.width)
        return self.dropout(x + self.positions[: tokens.shape[1]])


def start_from(model: Translator, weights: Weights) -> None:
    """Take all layers from Bergamot's weights (not the tables of tokens)."""
    with torch.no_grad():
        for number, layer in enumerate(model.source_layers, 1):
            _attention(layer.own, weights, f"encoder_l{number}_self")
            _feed(layer.feed, weights, f"encoder_l{number}_ffn")
        for number, layer in enumerate(model.target_layers, 1):
            _recurrent(layer.own, weights, f"decoder_l{number}_rnn")
            _attention(layer.cross, weights, f"decoder_l{number}_context")
            _feed(layer.feed, weights, f"decoder_l{number}_ffn")


def _linear(linear: nn.Linear, weights: Weights, weight: str, bias: str) -> None:
    linear.weight.copy_(torch.from_numpy(weights[weight].T))
    linear.bias.copy_(torch.from_numpy(weights[bias][0]))


def _norm(norm: nn.LayerNorm, weights: Weights, name: str) -> None:
    norm.weight.copy_(torch.from_numpy(weights[f"{name}_ln_scale"][0]))
    norm.bias.copy_(torch.from_numpy(weights[f"{name}_ln_bias"][0]))


def _attention(attention: Attention, weights: Weights, name: str) -> None:
    for letter, linear in zip(
        "qkvo", (attention.query, attention.key, attention.value, attention.output), strict=True
    ):
        _linear(linear, weights, f"{name}_W{letter}", f"{name}_b{letter}")
    _norm(attention.norm, weights, f"{name}_Wo")


def _feed(feed: FeedForward, weights: Weights, name: str) -> None:
    _linear(feed.first, weights, f"{name}_W1", f"{name}_b1")
    _linear(feed.second, weights, f"{name}_W2", f"{name}_b2")
    _norm(feed.norm, weights, f"{name}_ffn")


def _recurrent(attention: Attention, weights: Weights, name: str) -> None:
    """Start self-attention near the recurrent unit: a mean of the past, half of it let through."""
    attention.value.weight.copy_(torch.from_numpy(weights[f"{name}_W"].T))
    attention.output.weight.copy_(torch.eye(attention.output.in_features) / 2)
    for linear in (attention.value, attention.output):
        nn.init.zeros_(linear.bias)
    _norm(attention.norm, weights, f"{name}_ffn")
