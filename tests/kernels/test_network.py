"""Compiled answers against the network itself: every kind of layer and head, rows of any
lengths."""

from __future__ import annotations

import copy
import gc
import os
import signal
import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from litebert.answer.engines.compiled import CompiledRuntime, CompiledWalk
from litebert.base import machine
from litebert.base.errors import ConfigError, DataError
from litebert.base.registry import POSITIONS
from litebert.config import EncoderConfig
from litebert.interop.loaded import LoadedModel
from litebert.kernels import loader
from litebert.kernels import network as kernels
from litebert.kernels.packing import DTYPES, Dtype, pack
from litebert.model.blocks import Attention
from litebert.model.positions import Positions
from litebert.model.task_model import TaskModel
from toys.emulated import Emulated
from toys.folders import load_module
from toys.refusals import refused
from toys.rows import take_rows

pytestmark = pytest.mark.skipif(
    loader.library("answers") is None, reason=f"compiled answers are {loader.describe('answers')}"
)
BYTES, PAIRS = "int8" in kernels.list_dtypes(), "bfloat16" in kernels.list_dtypes()
in_bytes = pytest.mark.skipif(not BYTES, reason="this processor does not multiply bytes in vectors")
in_pairs = pytest.mark.skipif(
    not PAIRS, reason="this processor does not multiply bfloat16 in vectors of AVX-512"
)
PRODUCTS = [
    "float32",
    pytest.param("bfloat16", marks=in_pairs),
    pytest.param("int8", marks=in_bytes),
]

SHAPE: dict[str, Any] = {
    "vocab_size": 50,
    "embedding_size": 16,
    "hidden_size": 48,
    "layers": 3,
    "heads": 3,
    "intermediate_size": 64,
    "max_positions": 64,
}
NETWORKS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "shared": ({}, {}),
    "unshared, erf": ({"sharing": "none", "activation": "gelu", "embedding_size": 48}, {}),
    "groups, relu": ({"sharing": "groups", "groups": 3, "layers": 5, "activation": "relu"}, {}),
    "every token": ({"pooler": False}, {"reads_cls": False}),
    "a dense map, offset, one type": (
        {"pooler": False, "position_offset": 2, "segment_types": 1, "activation": "relu"},
        {"dense": "tanh"},
    ),
    "pre-norm, rotary, gated": (
        {
            "norm": "pre",
            "positions": "rotary",
            "feedforward": "gated",
            "activation": "silu",
            "segment_types": 0,
            "bias": False,
            "embedding_norm": "after",
            "first_norm": False,
        },
        {},
    ),
    "a mean": (
        {
            "pooler": False,
            "prediction": "hidden",
            "norm": "pre",
            "positions": "rotary",
            "hidden_size": 60,
        },
        {"pooling": "mean"},
    ),
    "windows": ({"window": 8, "global_every": 2}, {}),
    "windows with another base, every token": (
        {
            "window": 30,
            "global_every": 2,
            "norm": "pre",
            "positions": "rotary",
            "window_rotary_base": 100.0,
            "pooler": False,
        },
        {"reads_cls": False},
    ),
    "a mean of length 1": ({"pooler": False}, {"pooling": "unit"}),
    "windows in all layers, global tokens": (
        {"window": 5, "global_every": 0, "global_tokens": 2, "pooler": False},
        {"pooling": "mean"},
    ),
}


def network(name: str) -> TaskModel:
    shape, head = NETWORKS[name]
    torch.manual_seed(0)
    model = TaskModel(
        EncoderConfig(**{**SHAPE, **shape}), **{"reads_cls": True, "classes": 4, **head}
    ).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape))
    return model


def opened(model: TaskModel) -> LoadedModel:
    return load_module(model, task={"kind": "sequence" if model.reads_cls else "tokens"})


class Compiled:
    """A network as the compiled engine computes it."""

    def __init__(self, model: TaskModel, dtype: Dtype = "float32", threads: int = 2) -> None:
        self.runtime = CompiledRuntime(opened(model), "cpu", threads, dtype)

    def logits(self, *batch: np.ndarray) -> np.ndarray:
        return self.runtime.logits(take_rows(*batch))

    def walk(self, *batch: np.ndarray) -> CompiledWalk:
        return self.runtime.walk(take_rows(*batch))


def rows(lengths: list[int], seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng, size = np.random.default_rng(seed), max(lengths) + seed % 3
    mask = np.arange(size) < np.array(lengths)[:, None]
    ids = rng.integers(0, 50, mask.shape)
    types = (np.arange(size) > size // 2) * np.ones_like(mask, np.int64)
    return np.where(mask, ids, 0), np.where(mask, types, 0), mask


@torch.no_grad()
def compute_expected(model: TaskModel, batch: tuple[np.ndarray, ...]) -> np.ndarray:
    ids, types, mask = map(torch.from_numpy, batch)
    if model.encoder.config.segment_types < 2:
        types = torch.zeros_like(types)
    logits: Tensor = model(ids, types, mask)
    array: np.ndarray = logits.float().numpy()
    return array if model.reads_cls else np.where(batch[2][..., None], array, 0)


@pytest.mark.parametrize("name", NETWORKS)
def test_it_answers_as_the_network(name: str) -> None:
    compare(name, [[1], [7, 7, 7], [61, 33, 17, 16, 15, 2, 1], [5], [60] * 9])


def compare(name: str, batches: list[list[int]]) -> None:
    """Compare logits with those of the network, of rows of so many tokens."""
    model = network(name)
    answering = Compiled(model)
    for seed, lengths in enumerate(batches):
        batch = rows(lengths, seed)
        if model.encoder.config.segment_types < 2:
            batch[1][:] = 0
        np.testing.assert_allclose(
            answering.logits(*batch), compute_expected(model, batch), rtol=1e-4, atol=2e-5
        )


@in_pairs
@pytest.mark.parametrize("name", NETWORKS)
def test_in_bfloat16_it_is_as_near_to_float32_as_autocast_is(name: str) -> None:
    model, batch = network(name), rows([61, 33, 17, 16, 15, 2, 1])
    if model.encoder.config.segment_types < 2:
        batch[1][:] = 0
    answering = Compiled(model, "bfloat16")
    exact = compute_expected(model, batch)
    with torch.autocast("cpu", torch.bfloat16):
        autocast = compute_expected(model, batch)
    error, apart = np.abs(answering.logits(*batch) - exact), np.abs(autocast - exact)
    assert 0 < error.mean() < 1.2 * apart.mean()
    assert error.max() < 2 * apart.max()


class Rounded(nn.Linear):
    """Both factors rounded to 8 bits in plain PyTorch: weights evenly about 0 by row, states by
    token from the lowest to the highest of them and 0."""

    def forward(self, x: Tensor) -> Tensor:
        low, high = (
            bound.clamp(*ends)[..., None]
            for bound, ends in ((x.amin(-1), (None, 0)), (x.amax(-1), (0, None)))
        )
        grid = (high - low) / 255
        zero = (-low / grid).round()
        nearest = ((x / grid).round() + zero).clamp(0, 255) - zero
        return nn.functional.linear(nearest * grid, round_rows(self.weight), self.bias)


def round_rows(weight: Tensor) -> Tensor:
    step = weight.abs().amax(1, keepdim=True) / 127
    return (weight / step).round() * step


def round_weights(model: TaskModel) -> TaskModel:
    copied = copy.deepcopy(model)
    copied.encoder.embedding.word.weight.data = round_rows(model.encoder.embedding.word.weight)
    for block in (*copied.encoder.attention, *copied.encoder.feedforward):
        for module in block.children():
            if isinstance(module, nn.Linear):
                module.__class__ = Rounded
    return copied


@in_bytes
@pytest.mark.parametrize("name", NETWORKS)
def test_in_8_bits_it_is_the_network_with_both_factors_rounded(name: str) -> None:
    compare_with_rounded(name)


def compare_with_rounded(name: str) -> None:
    """Compare logits in 8 bits with those of the network whose factors PyTorch rounds."""
    model, batch = network(name), rows([61, 33, 17, 16, 15, 2, 1])
    if model.encoder.config.segment_types < 2:
        batch[1][:] = 0
    answering = Compiled(model, "int8")
    actual, wanted, exact = (
        answering.logits(*batch),
        compute_expected(round_weights(model), batch),
        compute_expected(model, batch),
    )
    apart = np.abs(wanted - exact)
    gaps = np.abs(actual - wanted).reshape(len(actual), -1).max(1)
    # A value between two steps, which may be rounded to either, changes the row that it stands in.
    assert (gaps < 1e-4).sum() >= len(gaps) - 2
    # Of random networks, whose outputs partly cancel: 6% of "groups, relu" on one processor.
    assert 0 < apart.mean() < 0.1 * np.abs(exact).mean()


PROCESSORS: dict[str, tuple[str, set[str], int]] = {
    "without AVX2": ("x86-64-v2", {"sse4_2"}, 0),
    "AVX2": ("x86-64-v3", {"avx2", "fma"}, 2),
    "AVX-VNNI": ("alderlake", {"avx2", "avx_vnni"}, 4),
    "AVX-512 without VNNI": ("skylake-avx512", {"avx512bw", "avx512vl"}, 2),
    "AVX-512 VNNI": ("cascadelake", {"avx512_vnni"}, 4),
    "ARM": ("cortex-a53", set(), 4),
    "ARM with dot products": ("cortex-a76", set(), 4),
}
"""Names for the compiler or the emulator, instructions that this processor must have, and products
of bytes that are added at once, by kind of processor."""
ARM = {"ARM": "aarch64", "ARM with dot products": "aarch64-dotprod"}
"""The variants that are emulated."""


@pytest.fixture(params=PROCESSORS)
def processor(request: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The functions as they are compiled for a kind of processor; the products that it adds."""
    name, needed, together = PROCESSORS[request.param]
    if request.param in ARM:
        Emulated(ARM[request.param], name, monkeypatch)
        yield together
        return
    if not needed <= machine.read_instructions():
        pytest.skip(f"this processor lacks {', '.join(needed - machine.read_instructions())}")
    clear_library()
    monkeypatch.setattr(loader, "PROCESSOR", name)
    assert loader.library("answers") is not None, loader.describe("answers")
    yield together
    monkeypatch.undo()
    clear_library()


def clear_library() -> None:
    loader._load_library.cache_clear()
    kernels._constant.cache_clear()


def multiply_by_rounded(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """x (T, I) times weight (O, I), each rounded to 8 bits, with sums in 64 bits."""
    low, high = x.min(1, initial=0)[:, None], x.max(1, initial=0)[:, None]
    rate = np.divide(np.float32(255), high - low, out=np.zeros_like(low), where=high > low)
    zero = np.rint(-low * rate)
    codes = np.minimum(np.rint(x * rate) + zero, 255).astype(np.int64)
    scale = np.abs(weight).max(1) / np.float32(127)
    whole = np.rint(weight / scale[:, None]).astype(np.int64)
    sums = codes @ whole.T - zero.astype(np.int64) * whole.sum(1)
    product: np.ndarray = sums.astype(np.float32) * ((high - low) / np.float32(255) * scale)
    return product


@pytest.mark.thorough
def test_in_8_bits_all_processors_multiply_to_the_same_bit(processor: int) -> None:
    """Sizes are odd but for the inner one, which 4 divides, and numbers reach both ends."""
    assert kernels._constant("multiplies_bytes") == processor
    assert ("int8" in kernels.list_dtypes()) == bool(processor)
    if not processor:
        assert "does not multiply" in kernels.find_refusal(EncoderConfig(**SHAPE), "int8")
        return
    draw = np.random.default_rng(0)
    for tokens, inner, outer in [(1, 4, 1), (13, 1024, 33), *draw.integers(1, 90, (20, 3))]:
        x = draw.normal(draw.normal(), 1, (tokens, 4 * inner)).astype(np.float32)
        x[tokens // 2] = 0
        weight = draw.normal(0, 0.05, (outer, 4 * inner)).astype(np.float32)
        weight[:, :8] = 0.2  # as far from 0 as a weight is, where products are largest
        x[0, :8] = 9.0
        for threads in (1, 3):
            product = kernels.make_product(x, weight, "int8", threads)
            np.testing.assert_array_equal(product(), multiply_by_rounded(x, weight))


@pytest.mark.thorough
@pytest.mark.usefixtures("processor")
@pytest.mark.parametrize("name", NETWORKS)
def test_each_processor_answers_as_the_network(name: str) -> None:
    compare(name, [[1], [61, 33, 17, 16, 15, 2, 1], [60] * 9])


@pytest.mark.thorough
@pytest.mark.parametrize("dtype", DTYPES)
def test_each_processor_reads_a_table_of_any_type(processor: int, dtype: Dtype) -> None:
    """The table of an export is the last map of a masked language model."""
    answering = Compiled(network("every token")).runtime.network
    draw = np.random.default_rng(0)
    table = pack(draw.normal(size=(50, 48)).astype(np.float32), dtype, is_table=True)
    bias = draw.normal(size=50).astype(np.float32)
    batch = take_rows(*rows([5, 17, 1])).end_to_end
    state = answering.head("tokens").of(batch, 2)
    scores = answering.head("tokens", [kernels.Step(table, bias)]).of(batch, 2)
    np.testing.assert_allclose(scores, state @ table.unpack().T + bias, rtol=1e-4, atol=2e-5)


@pytest.mark.thorough
@pytest.mark.parametrize("processor", list(PROCESSORS)[1:], indirect=True)
def test_in_8_bits_each_processor_answers_as_the_rounded_network(processor: int) -> None:
    for name in NETWORKS:
        compare_with_rounded(name)


@in_bytes
def test_in_8_bits_what_is_no_number_stays_none() -> None:
    model = network("shared")
    with torch.no_grad():
        attention(model).output.weight[3, 5] = float("nan")
    answering = Compiled(model, "int8")
    assert np.isnan(answering.logits(*rows([5, 7]))).all()
    word = (model := network("shared")).encoder.embedding.word.weight
    ids, types, mask = rows([5, 7])
    ids[0] = np.where(ids[0] == 9, 8, ids[0])
    ids[1, 0] = 9
    with torch.no_grad():
        word[9] = float("inf")
    answering = Compiled(model, "int8")
    finite = np.isfinite(answering.logits(ids, types, mask))
    assert finite[0].all()
    assert not finite[1].any()


@in_bytes
def test_in_8_bits_sizes_that_4_does_not_divide_are_left_to_others() -> None:
    odd = EncoderConfig(**{**SHAPE, "hidden_size": 54})
    assert "4 divides" in kernels.find_refusal(odd, "int8")
    assert not kernels.find_refusal(odd)


@in_pairs
def test_in_bfloat16_odd_sizes_are_left_to_others() -> None:
    for hidden, inner, fits in ((54, 64, True), (51, 64, False), (48, 63, False)):
        config = EncoderConfig(**{**SHAPE, "hidden_size": hidden, "intermediate_size": inner})
        assert (not kernels.find_refusal(config, "bfloat16")) == fits


@pytest.mark.skipif(
    PAIRS and BYTES, reason="this processor multiplies both types in vectors of AVX-512"
)
def test_types_that_the_processor_does_not_multiply_are_left_to_others() -> None:
    cases: list[tuple[Dtype, bool]] = [("bfloat16", PAIRS), ("int8", BYTES)]
    for dtype, multiplies in cases:
        if not multiplies:
            with refused(ConfigError, dtype, "--dtype"):
                Compiled(network("shared"), dtype)


@pytest.mark.parametrize("products", ["float32", pytest.param("int8", marks=in_bytes)])
@settings(max_examples=25, deadline=None)
@given(lengths=st.lists(st.integers(1, 40), min_size=1, max_size=12))
def test_a_row_has_the_same_logits_in_any_company(products: Dtype, lengths: list[int]) -> None:
    model = network("shared")
    answering = Compiled(model, products)
    batch = rows(lengths)
    together = answering.logits(*batch)
    for i, length in enumerate(lengths):
        alone = answering.logits(*(array[i : i + 1, :length] for array in batch))
        # In 8 bits the last bit of a state may round to the next whole number, a step of its scale.
        step = 2e-5 if products == "float32" else 0.1
        np.testing.assert_allclose(alone[0], together[i], rtol=1e-4, atol=step)


@in_bytes
def test_in_8_bits_nearly_all_rows_have_the_same_logits_in_any_company() -> None:
    answering = Compiled(network("shared"), "int8")
    lengths = [1 + 7 * i % 40 for i in range(100)]
    batch = rows(lengths)
    together = answering.logits(*batch)
    alone = [
        answering.logits(*(array[i : i + 1, :length] for array in batch))[0]
        for i, length in enumerate(lengths)
    ]
    same = np.isclose(np.stack(alone), together, rtol=1e-4, atol=2e-5).all(axis=1)
    assert same.sum() >= 97


@settings(max_examples=60, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 300), min_size=1, max_size=4),
    window=st.integers(2, 160),
    first=st.sampled_from([0, 0, 1, 3, 40, 400]),
    reads_cls=st.booleans(),
    seed=st.integers(0, 99),
)
def test_a_window_is_a_mask_over_all_tokens(
    *, lengths: list[int], window: int, first: int, reads_cls: bool, seed: int
) -> None:
    torch.manual_seed(seed)
    shape = {**SHAPE, "max_positions": 302, "layers": 2, "pooler": reads_cls, "positions": "rotary"}
    config = EncoderConfig(**shape, window=window, global_every=0, global_tokens=first)
    model = TaskModel(config, reads_cls, 3).eval()
    batch, answering = rows(lengths, seed), Compiled(model)
    np.testing.assert_allclose(
        answering.logits(*batch), compute_expected(model, batch), rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("kinds", [0, 1])
def test_the_types_of_pairs_do_not_matter_to_a_model_without_them(kinds: int) -> None:
    torch.manual_seed(0)
    model = TaskModel(EncoderConfig(**{**SHAPE, "segment_types": kinds}), True, 4).eval()
    ids, types, mask = rows([61, 5])
    assert types.any()
    np.testing.assert_allclose(
        Compiled(model).logits(ids, types, mask),
        compute_expected(model, (ids, types, mask)),
        rtol=1e-4,
        atol=2e-5,
    )


class Own(Positions):
    """Positions that compiled calls do not know."""


def test_encoders_of_other_parts_are_left_to_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(POSITIONS._parts, "own", Own)
    config = EncoderConfig(**SHAPE, positions="own")
    assert "encoder.positions=own" in kernels.find_refusal(config)


def test_threads_do_not_share_working_memory() -> None:
    answering = Compiled(network("shared"))
    batches = [rows([5, 17, 30], seed) for seed in range(8)]
    alone = [answering.logits(*batch) for batch in batches]
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda batch: answering.logits(*batch), batches * 10))
    for answer, wanted in zip(answers, alone * 10, strict=True):
        np.testing.assert_allclose(answer, wanted, atol=1e-5)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system forks no processes")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_process_that_is_forked_while_threads_compute_computes_too() -> None:
    answering, batch = Compiled(network("shared"), threads=3), rows([60] * 30)
    wanted, over = answering.logits(*batch), threading.Event()

    def compute() -> None:
        while not over.is_set():
            answering.logits(*batch)

    others = [threading.Thread(target=compute) for _ in range(2)]
    for other in others:
        other.start()
    try:
        for _ in range(8):
            if (process := os.fork()) == 0:
                signal.alarm(30)  # ends what waits for threads that it does not have
                os._exit(0 if np.array_equal(answering.logits(*batch), wanted) else 1)
            assert os.waitpid(process, 0)[1] == 0
    finally:
        over.set()
        for other in others:
            other.join()


def test_a_network_does_not_keep_the_heads_that_nobody_uses() -> None:
    answering = Compiled(network("shared")).runtime.network
    head = weakref.ref(answering.head("first", [kernels.Step(np.ones((3000, 48), np.float32))]))
    gc.collect()
    assert head() is None
    assert not [held for held in answering._held if getattr(held, "nbytes", 0) >= 4 * 3000 * 48]


def test_rows_without_tokens_are_refused() -> None:
    answering = Compiled(network("shared"))
    ids = np.zeros((2, 4), np.int64)
    with refused(DataError, "no tokens"):
        answering.logits(ids, ids, np.arange(4) < np.array([[3], [0]]))
    assert answering.logits(ids[:0], ids[:0], np.zeros((0, 4), bool)).shape == (0, 4)


def attention(model: TaskModel) -> Attention:
    (block,) = model.encoder.attention
    assert isinstance(block, Attention)
    return block


@pytest.mark.parametrize("name", NETWORKS)
def test_more_tokens_than_positions_are_refused(name: str) -> None:
    answering = Compiled(network(name))
    with refused(DataError, 65, 64):
        answering.logits(*rows([65, 3], 3))


@pytest.mark.parametrize("products", PRODUCTS)
@pytest.mark.parametrize("name", NETWORKS)
def test_nothing_is_written_behind_working_memory(
    name: str, products: Dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    guards: list[np.ndarray] = []

    def guard_room(self: kernels.Network, count: int = 0) -> np.ndarray:
        room = np.full(count + 64, 7.0, np.float32)
        guards.append(room[count:])
        return room[:count]

    monkeypatch.setattr(kernels.Network, "room", guard_room)
    model = network(name)
    answering = Compiled(model, products)
    for seed, lengths in enumerate([[1], [5, 17, 30, 4], [61] * 4, [61, 3] * 20, [1] * 1100]):
        batch = rows(lengths, seed)
        if model.encoder.config.segment_types < 2:
            batch[1][:] = 0
        answering.logits(*batch)
    assert guards
    assert all((guard == 7).all() for guard in guards)


@pytest.mark.parametrize("products", PRODUCTS)
def test_what_stays_when_rows_leave_again_and_again_has_the_logits_it_has_alone(
    products: Dtype,
) -> None:
    model, batch = network("groups, relu"), rows([5, 17, 30, 4, 30])

    def each_step(chosen: list[int], leaving: list[list[int]]) -> list[np.ndarray]:
        answering = Compiled(model, products)
        walk, logits = answering.walk(*(array[chosen] for array in batch)), []
        for remaining in [*leaving, [], []]:
            logits.append(walk.step())
            if remaining:
                walk.keep(np.array(remaining), 30)
        return logits

    left, together = [0, 1, 2, 3, 4], each_step([0, 1, 2, 3, 4], [[1, 2, 4], [0, 2], [1]])
    for step, remaining in enumerate([[0, 1, 2, 3, 4], [1, 2, 4], [0, 2], [1], [0]]):
        left = [left[i] for i in remaining]
        for place, row in enumerate(left):
            alone = each_step([row], [[], [], []])[step]
            near = 0.05 if products == "bfloat16" else 1e-4
            np.testing.assert_allclose(together[step][place], alone[0], rtol=1e-4, atol=near)


def test_heads_that_are_gone_leave_nothing_behind() -> None:
    runtime = Compiled(network("a mean")).runtime
    kept = len(runtime.network._held)
    for _ in range(3):
        runtime.network.head("mean", [kernels.Step(np.eye(60, dtype=np.float32))])
    assert len(runtime.network._held) == kept
