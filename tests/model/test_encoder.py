"""The one encoder: every kind of block against plain formulas, positions, masks, depth,
initialization.
"""

from __future__ import annotations

import math
import weakref
from itertools import islice
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from litebert.config import EncoderConfig, replace
from litebert.model import fused
from litebert.model.attention_positions import AttentionPositions
from litebert.model.encoder import Encoder
from toys.points import PIECES, batch, randomize, shape

# -------------------------------------------------------------------- blocks against plain formulas

SCALARS = {
    "gelu": lambda x: 0.5 * x * (1 + math.erf(x / math.sqrt(2))),
    "gelu_tanh": lambda x: (
        0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    ),
    "relu": lambda x: max(x, 0.0),
    "silu": lambda x: x / (1 + math.exp(-x)),
}


def activate(name: str, x: Tensor) -> Tensor:
    return torch.tensor(
        [SCALARS[name](value) for value in x.flatten().tolist()], dtype=x.dtype
    ).view(x.shape)


def normalize(state: dict[str, Tensor], name: str, x: Tensor, eps: float) -> Tensor:
    centered = x - x.mean(-1, keepdim=True)
    scaled = centered / (centered.square().mean(-1, keepdim=True) + eps).sqrt()
    return scaled * state[f"{name}.weight"] + state.get(f"{name}.bias", torch.zeros(()))


def linear(state: dict[str, Tensor], name: str, x: Tensor) -> Tensor:
    return x @ state[f"{name}.weight"].T + state.get(f"{name}.bias", torch.zeros(()))


def rotate(x: Tensor, base: float) -> Tensor:
    """(S, D): feature i and i + D/2 are one complex number, turned by position / base^(2i/D)."""
    half = x.shape[-1] // 2
    place = torch.arange(x.shape[0], dtype=torch.float64)[:, None]
    angle = place / base ** (2 * torch.arange(half, dtype=torch.float64) / x.shape[-1])
    turned = torch.complex(x[:, :half], x[:, half:]) * torch.exp(1j * angle)
    return torch.cat([turned.real, turned.imag], dim=-1)


def attend(
    state: dict[str, Tensor], name: str, x: Tensor, config: EncoderConfig, layer: int
) -> Tensor:
    within = config.window_map()[layer]
    base = config.window_rotary_base if within else config.rotary_base
    far = (torch.arange(len(x)) - torch.arange(len(x))[:, None]).abs() > config.window // 2
    far[:, : config.global_tokens] = far[: config.global_tokens] = False
    hidden, size = config.hidden_size, config.hidden_size // config.heads
    q, k, v = linear(state, f"{name}.qkv", x).split(hidden, dim=-1)  # type: ignore[no-untyped-call]
    heads = []
    for start in range(0, hidden, size):
        query, key, value = (part[:, start : start + size] for part in (q, k, v))
        if config.positions == "rotary":
            query, key = rotate(query, base), rotate(key, base)
        scores = (query @ key.T / math.sqrt(size)).exp()
        scores = scores.masked_fill(far, 0.0) if within else scores
        weights = scores / scores.sum(-1, keepdim=True)
        heads.append(weights @ value)
    return linear(state, f"{name}.output", torch.cat(heads, dim=-1))


def feed_forward(
    state: dict[str, Tensor], name: str, x: Tensor, config: EncoderConfig, layer: int
) -> Tensor:
    inner = linear(state, f"{name}.input", x)
    if config.feedforward == "gated":
        gate, value = inner[:, : config.intermediate_size], inner[:, config.intermediate_size :]
        inner = activate(config.activation, gate) * value
    else:
        inner = activate(config.activation, inner)
    return linear(state, f"{name}.output", inner)


def reference(encoder: Encoder, ids: Tensor, types: Tensor) -> list[Tensor]:
    """One sequence (S,) through the formulas of the papers, in double precision: embeddings, then
    every layer.
    """
    config = encoder.config
    state = {name: tensor.double() for name, tensor in encoder.state_dict().items()}
    x = state["embedding.word.weight"][ids]
    if config.positions == "learned":
        x = x + state["embedding.position.weight"][: len(ids)]
    if config.segment_types:
        x = x + state["embedding.token_type.weight"][types]
    if config.embedding_norm == "before":
        x = normalize(state, "embedding.norm", x, config.norm_eps)
    if config.projects:
        x = linear(state, "embedding.project", x)
    if config.embedding_norm == "after":
        x = normalize(state, "embedding.norm", x, config.norm_eps)
    states = [x]
    for layer, (a, f) in enumerate(
        zip(config.attention_of(), config.feedforward_of(), strict=True)
    ):
        for name, block in ((f"attention.{a}", attend), (f"feedforward.{f}", feed_forward)):
            if layer == 0 and block is attend and not config.first_norm:
                x = x + block(state, name, x, config, layer)
            elif config.norm == "pre":
                x = x + block(
                    state, name, normalize(state, f"{name}.norm", x, config.norm_eps), config, layer
                )
            else:
                x = normalize(
                    state, f"{name}.norm", x + block(state, name, x, config, layer), config.norm_eps
                )
        states.append(x)
    return states


BLOCKS: list[dict[str, Any]] = [
    {},
    {"norm": "pre"},
    {"feedforward": "gated"},
    {"positions": "rotary"},
    {"bias": False},
    {"segment_types": 0},
    {"embedding_size": 16},
    {"embedding_size": 16, "always_project": True},
    {"norm_eps": 0.1},
    *({"activation": name} for name in SCALARS),
    {
        "norm": "pre",
        "feedforward": "gated",
        "positions": "rotary",
        "bias": False,
        "activation": "silu",
    },
    {"sharing": "groups", "groups": 3, "norm": "pre"},
    {"embedding_norm": "after"},
    {"embedding_norm": "after", "embedding_size": 16},
    {"norm": "pre", "first_norm": False},
    {"norm": "pre", "first_norm": False, "sharing": "none"},
    {"norm": "pre", "first_norm": False, "sharing": "groups", "groups": 4},
    {"window": 5, "global_every": 2},
    {"window": 5, "global_every": 2, "sharing": "groups", "groups": 3},
    {
        "window": 2,
        "global_every": 3,
        "positions": "rotary",
        "rotary_base": 500.0,
        "window_rotary_base": 30.0,
    },
    {"window": 4, "global_every": 9, "positions": "rotary", "rotary_base": 500.0},
    {"window": 4, "global_every": 0, "global_tokens": 1},
    {
        "window": 2,
        "global_every": 2,
        "global_tokens": 3,
        "positions": "rotary",
        "window_rotary_base": 30.0,
    },
    {"window": 2, "global_every": 2, "global_tokens": 30},
]


@pytest.mark.parametrize("changes", BLOCKS, ids=str)
def test_every_state_follows_the_formulas(changes: dict[str, Any]) -> None:
    encoder = Encoder(shape(**changes)).double().eval()
    randomize(encoder)
    ids = torch.randint(5, PIECES, (10,), generator=torch.Generator().manual_seed(0))
    types = torch.arange(10) // 5
    output = encoder(ids[None], types[None])
    expected = reference(encoder, ids, types)
    # Rotation tables are kept in single precision.
    tolerance = 1e-5 if encoder.config.positions == "rotary" else 1e-10
    for hidden, wanted in zip(encoder.states(ids[None], types[None]), expected, strict=True):
        assert (hidden[0] - wanted).abs().max() < tolerance
    state = {name: tensor.double() for name, tensor in encoder.state_dict().items()}
    last = expected[-1]
    if encoder.config.norm == "pre":
        last = normalize(state, "norm", last, encoder.config.norm_eps)
    assert (output.last[0] - last).abs().max() < tolerance
    assert output.pooled is not None
    assert (output.pooled[0] - torch.tanh(linear(state, "pooler", last[0]))).abs().max() < tolerance


# ---------------------------------------------------------------------------- masks and token types


MODERN: dict[str, Any] = {
    "positions": "rotary",
    "window": 4,
    "global_every": 3,
    "rotary_base": 160000.0,
    "embedding_norm": "after",
    "norm": "pre",
    "first_norm": False,
    "feedforward": "gated",
    "bias": False,
    "segment_types": 0,
    "prediction": "hidden",
}


@pytest.mark.parametrize(
    "changes", [{}, {"norm": "pre", "positions": "rotary", "feedforward": "gated"}, MODERN]
)
def test_padding_changes_nothing(changes: dict[str, Any]) -> None:
    encoder = Encoder(shape(**changes)).eval()
    randomize(encoder)
    made = batch()
    output = encoder(made.input_ids, made.token_type_ids, made.attention_mask)
    assert made.attention_mask is not None
    for row, length in enumerate(made.attention_mask.sum(1).tolist()):
        alone = encoder(
            made.input_ids[row : row + 1, :length], made.token_type_ids[row : row + 1, :length]
        )
        assert torch.allclose(output.last[row, :length], alone.last[0], atol=1e-5)
        assert output.pooled is not None
        assert alone.pooled is not None
        assert torch.allclose(output.pooled[row], alone.pooled[0], atol=1e-5)


def test_no_mask_is_a_full_mask_of_any_type() -> None:
    encoder = Encoder(shape()).eval()
    randomize(encoder)
    made = batch(padded=False)
    bare = encoder(made.input_ids, made.token_type_ids).last
    for dtype in (torch.bool, torch.long, torch.float32):
        mask = torch.ones(made.input_ids.shape, dtype=dtype)
        assert torch.allclose(
            bare, encoder(made.input_ids, made.token_type_ids, mask).last, atol=1e-6
        )


@pytest.mark.parametrize("positions", ["learned", "rotary"])
def test_without_padding_attention_gets_no_mask_and_rows_it_need_not_copy(
    positions: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The flash kernel of a GPU asks for this: no mask, one dtype, and the features of a head side
    by side.
    """
    seen: list[tuple[Tensor, ...]] = []
    attend: Any = F.scaled_dot_product_attention

    def spy(*inputs: Tensor, attn_mask: Tensor | None, dropout_p: float) -> Any:
        assert attn_mask is None
        seen.append(inputs)
        return attend(*inputs, attn_mask=attn_mask, dropout_p=dropout_p)

    monkeypatch.setattr(F, "scaled_dot_product_attention", spy)
    encoder = Encoder(shape(positions=positions))
    with torch.autocast("cpu", dtype=torch.bfloat16), torch.no_grad():
        encoder(batch(padded=False).input_ids)
    assert seen
    for inputs in seen:
        assert {tensor.dtype for tensor in inputs} == {torch.bfloat16}
        assert all(tensor.stride(-1) == 1 for tensor in inputs)


def test_no_token_types_are_zeros() -> None:
    encoder = Encoder(shape()).eval()
    randomize(encoder)
    ids = torch.arange(5, 15)[None]
    assert torch.equal(encoder(ids).last, encoder(ids, torch.zeros_like(ids)).last)
    assert not torch.allclose(encoder(ids).last, encoder(ids, torch.ones_like(ids)).last)


# -------------------------------------------------------------------------------------------- depth


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_a_walk_may_stop_after_any_layer(norm: Any) -> None:
    encoder = Encoder(shape(norm=norm)).eval()
    randomize(encoder)
    ids = torch.arange(5, 15)[None]
    applied: list[Tensor] = []
    encoder.feedforward[0].register_forward_hook(
        lambda module, inputs, output: applied.append(output)
    )
    full = list(encoder.states(ids))
    assert len(full) == len(applied) + 1 == 5
    for depth in (1, 2, 3):
        part = encoder(ids, layers=depth)
        applied.clear()
        *_, state = islice(encoder.states(ids), depth + 1)
        assert len(applied) == depth, "a layer nobody asked for was computed"
        assert torch.equal(state, full[depth])
        read = encoder.read_out(state)
        assert torch.allclose(read.last, encoder.norm(state), rtol=1e-5, atol=1e-6)
        assert torch.equal(read.last, part.last)
        assert read.pooled is not None
        assert part.pooled is not None
        assert torch.equal(read.pooled, part.pooled)
    assert len(list(encoder.states(ids, layers=9))) == 10  # shared layers may go deeper too


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"positions": "rotary", "norm": "pre", "window": 4, "global_every": 2, "sharing": "none"},
        {"position_offset": 3},
        {"positions": "rotary", "window": 4, "global_every": 3},
        {"window": 4, "global_every": 0, "global_tokens": 2},
    ],
)
def test_a_walk_may_go_on_with_some_sequences(changes: dict[str, Any]) -> None:
    """The rest of the walk is as if they alone had come, unpadded where the longest of them allows
    it.
    """
    encoder = Encoder(shape(**changes)).eval()
    randomize(encoder)
    draw = torch.Generator().manual_seed(1)
    lengths = torch.tensor([16, 7, 12, 9, 5])
    mask = torch.arange(16) < lengths[:, None]
    ids = torch.randint(5, PIECES, (5, 16), generator=draw).masked_fill(~mask, 0)
    walk = encoder.states(ids, None, mask)
    states = [
        next(walk),
        next(walk),
        walk.send((torch.tensor([1, 2, 3]), 12)),
        walk.send((torch.tensor([0, 2]), 9)),
    ]
    rest = [*states, *walk]
    assert [tuple(state.shape[:2]) for state in rest] == [(5, 16), (5, 16), (3, 12), (2, 9), (2, 9)]
    for row, place in ((1, 0), (3, 1)):
        alone = list(encoder.states(ids[row : row + 1, : lengths[row]]))
        assert torch.allclose(rest[-1][place, : lengths[row]], alone[-1][0], atol=1e-4)


@torch.no_grad()
def test_no_state_is_kept_that_nobody_asked_for() -> None:
    encoder = Encoder(shape(layers=9)).eval()
    ids, born, most = torch.arange(5, 15)[None], list[weakref.ref[Tensor]](), 0

    def count(module: torch.nn.Module, inputs: Any, output: Tensor) -> None:
        nonlocal most
        born.append(weakref.ref(output))
        most = max(most, sum(ref() is not None for ref in born))

    encoder.feedforward[0].register_forward_hook(count)
    last = encoder(ids).last
    assert (len(born), most) == (9, 2), "a layer's input and its output"
    assert [ref() for ref in born[:8]] == [None] * 8
    assert born[8]() is last


def test_the_depth_of_a_parameter_is_that_of_the_highest_layer_that_reads_it() -> None:
    encoder = Encoder(shape(sharing="groups", groups=2, norm="pre"))
    depths, names = encoder.depths(), dict(encoder.named_parameters())
    expected = {
        "embedding": 0,
        "attention.0": 2,
        "feedforward.0": 2,
        "attention.1": 4,
        "feedforward.1": 4,
        "norm": 5,
        "pooler": 5,
    }
    assert len(depths) == len(names)
    for name, parameter in names.items():
        assert depths[parameter] == next(
            depth for start, depth in expected.items() if name.startswith(f"{start}.")
        )


# --------------------------------------------------------------- dropout, gradients, initialization


@pytest.mark.parametrize("name", ["hidden_dropout", "attention_dropout"])
def test_dropout_in_training_only(name: str) -> None:
    encoder = Encoder(shape(**{name: 0.5}))
    randomize(encoder)
    ids = torch.arange(5, 15)[None]
    encoder.train()
    assert not torch.equal(encoder(ids).last, encoder(ids).last)
    encoder.eval()
    assert torch.equal(encoder(ids).last, encoder(ids).last)


def test_hidden_dropout_falls_on_embeddings_and_both_sublayers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fused, "library", lambda: None)  # whose passes call no module
    encoder = Encoder(shape(hidden_dropout=0.5)).train()
    randomize(encoder)
    dropped: list[str] = []
    for name, module in encoder.named_modules():
        if isinstance(module, torch.nn.Dropout):
            module.register_forward_hook(
                lambda module, inputs, output, name=name: (
                    dropped.append(name) if (output == 0).any() else None
                )
            )
    encoder(torch.arange(5, 21).view(2, 8), layers=1)
    assert dropped == ["embedding.dropout", "attention.0.dropout", "feedforward.0.dropout"]


@pytest.mark.parametrize("changes", BLOCKS, ids=str)
def test_every_parameter_gets_a_gradient(changes: dict[str, Any]) -> None:
    encoder = Encoder(shape(**{"activation": "gelu", **changes}))
    randomize(encoder)
    made = batch()
    output = encoder(made.input_ids, made.token_type_ids, made.attention_mask)
    assert output.pooled is not None
    weights = torch.randn(output.last.shape, generator=torch.Generator().manual_seed(0))
    ((output.last * weights).sum() + output.pooled.sum()).backward()
    silent = [
        name
        for name, p in encoder.named_parameters()
        if p.grad is None or not p.grad.abs().max() > 0
    ]
    assert silent == []


def test_without_pooler() -> None:
    encoder = Encoder(shape(pooler=False))
    assert encoder(torch.ones(1, 8, dtype=torch.long)).pooled is None


@pytest.mark.parametrize(("init", "deviation"), [("truncated_normal", 0.0176), ("normal", 0.02)])
@torch.no_grad()
def test_initialization(init: Any, deviation: float) -> None:
    """A normal cut at two deviations keeps 0.8796 of its deviation."""
    torch.manual_seed(0)
    encoder = Encoder(
        shape(vocab_size=3000, embedding_size=32, hidden_size=64, intermediate_size=256, init=init)
    )
    for name, parameter in encoder.named_parameters():
        if name.endswith("bias"):
            assert parameter.abs().max() == 0, name
        elif "norm" in name:
            assert torch.equal(parameter, torch.ones_like(parameter)), name
        elif parameter.numel() > 1000:
            # Four standard errors of a standard deviation.
            assert abs(float(parameter.std()) - deviation) < 4 * deviation / math.sqrt(
                2 * parameter.numel()
            ), name
            assert abs(float(parameter.mean())) < 4 * deviation / math.sqrt(parameter.numel()), name
    largest = float(encoder.embedding.word.weight.abs().max())
    assert largest <= 0.04 if init == "truncated_normal" else largest > 0.06
    other = Encoder(replace(encoder.config, init_std=0.1))
    assert float(other.embedding.word.weight.std()) == pytest.approx(5 * deviation, rel=0.03)


def test_fused_attention_is_the_plain_one() -> None:
    """A mask that hides everything but the first token leaves its value alone."""
    encoder = Encoder(shape(layers=1)).eval()
    randomize(encoder)
    ids = torch.arange(5, 15)[None]
    mask = torch.arange(10)[None] < 1
    block: Any = encoder.attention[0]
    x = next(encoder.states(ids))
    value = block.qkv(x)[..., -16:]
    expected = block.norm(x + block.output(value[:, :1].expand_as(x)))
    assert torch.allclose(
        block(x, mask[:, None, None, :], AttentionPositions()), expected, atol=1e-6
    )
    assert F.mse_loss(encoder(ids).last, encoder(ids, None, mask).last) > 1e-3


@pytest.mark.thorough
@pytest.mark.parametrize(
    "changes",
    [
        {"position_offset": 2},
        {"positions": "rotary", "norm": "pre"},
        {"window": 4, "global_every": 3},
    ],
)
def test_an_encoder_exports_with_any_batch_and_every_length_it_has_positions_for(
    changes: dict[str, Any],
) -> None:
    class Last(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = Encoder(shape(**changes)).eval()

        def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
            last: Tensor = self.encoder(ids, None, mask).last
            return last

    model, ids = Last(), torch.randint(5, PIECES, (3, 24))
    randomize(model)
    dynamic = {0: torch.export.Dim("B"), 1: torch.export.Dim("S", max=24)}
    sample = (ids[:2, :10].contiguous(), torch.ones(2, 10))
    exported = torch.export.export(model, sample, dynamic_shapes=(dynamic, dynamic)).module()
    for length in (9, 24):
        mask = torch.arange(length).expand(3, -1) < 7
        assert torch.allclose(
            exported(ids[:, :length], mask.float()), model(ids[:, :length], mask.float()), atol=1e-6
        )
