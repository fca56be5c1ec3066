"""A pass without padding: the real tokens of a batch lie one behind the other, and attention knows
where each sequence begins.

On a GPU, PyTorch's `torch.nn.attention.varlen` reads them so; a mask of padding would rule out its
fast kernel. Elsewhere each sequence attends by itself, the reference in the tests.

Shapes: B sequences, S tokens, T real tokens of all sequences, H hidden size, A heads, D head size.
"""

from __future__ import annotations

import logging
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from litebert.config import EncoderConfig
from litebert.model.attention_positions import AttentionPositions

log = logging.getLogger("litebert")

_LARGEST_HEAD, _HEAD_STEP = 256, 8
"""The kernel takes heads of at most this size, in steps of eight features."""
_TOLERANCE = 0.02
"""Most that the kernel may differ from the reference, in bfloat16, on numbers of deviation 1."""


class Packing(NamedTuple):
    index_T: Tensor
    """int64 (T,): their places in the batch of B x S tokens."""
    place_T: Tensor
    """int64 (T,): the position of each in its sequence."""
    starts: Tensor
    """int32 (B + 1,): where each sequence begins among them, and T."""
    longest: int

    def pack(self, x_BSH: Tensor) -> Tensor:
        """The real tokens as one sequence, (1, T, H)."""
        return x_BSH.flatten(0, 1).index_select(0, self.index_T)[None]

    def unpack(self, x_1TH: Tensor, batch: int, length: int) -> Tensor:
        """The tokens at their places in the batch, (B, S, H), and zeros on the padding."""
        out = x_1TH.new_zeros(batch * length, x_1TH.shape[-1])
        return out.index_copy(0, self.index_T, x_1TH[0]).view(batch, length, -1)


def make_packing(real_BS: Tensor) -> Packing:
    """Find the real tokens, true in `real_BS`, of a batch. The host waits for the device once."""
    index_T = real_BS.flatten().nonzero().squeeze(1)
    counts_B = real_BS.sum(dim=1, dtype=torch.int32)
    place_T = index_T % real_BS.shape[1]
    starts = F.pad(counts_B.cumsum(0, dtype=torch.int32), (1, 0))
    # The width of the batch is an upper bound, which needs no wait for the device.
    return Packing(index_T, place_T, starts, real_BS.shape[1])


class PackedPositions:
    def __init__(self, positions: AttentionPositions, place_T: Tensor) -> None:
        self._tables = positions.tables()
        self._place_T = place_T

    def rotate(self, x_BASD: Tensor) -> Tensor:
        """Rotate queries or keys, (1, A, T, D), each by its position in its own sequence."""
        if self._tables is None:
            return x_BASD
        cos_TD, sin_TD = (
            table.index_select(0, self._place_T).to(x_BASD.dtype) for table in self._tables
        )
        first, second = x_BASD.chunk(2, dim=-1)
        return torch.addcmul(x_BASD * cos_TD, torch.cat((second, first), dim=-1), sin_TD)

    def tables(self) -> None:
        """None: a table by position does not fit tokens of several sequences."""


class Unpadded(NamedTuple):
    """How a block attends over packed sequences."""

    packing: Packing
    reach: int
    """Tokens on each side that a token reads; -1 for all."""


def attend_unpadded(q: Tensor, k: Tensor, v: Tensor, unpadded: Unpadded) -> Tensor:
    """Attention of each sequence within itself, without dropout; (1, A, T, D) in and out."""
    packing, reach = unpadded
    if q.device.type != "cuda":
        return _attend_each(q, k, v, packing, reach)
    from torch.nn.attention.varlen import varlen_attn

    q_TAD, k_TAD, v_TAD = (x[0].transpose(0, 1).contiguous() for x in (q, k, v))
    length, window = packing.longest, (reach, reach)
    y_TAD: Any = varlen_attn(
        *(q_TAD, k_TAD, v_TAD, packing.starts, packing.starts, length, length), window_size=window
    )
    return y_TAD.transpose(0, 1)[None]  # type: ignore[no-any-return]


def _attend_each(q: Tensor, k: Tensor, v: Tensor, packing: Packing, reach: int) -> Tensor:
    sizes: list[int] = packing.starts.diff().tolist()
    parts = []
    for rows in zip(*(torch.split(x, sizes, dim=2) for x in (q, k, v)), strict=True):
        places = torch.arange(rows[0].shape[2], device=q.device)
        near = (places - places[:, None]).abs() <= reach if reach >= 0 else None
        parts.append(F.scaled_dot_product_attention(rows[0], rows[1], rows[2], attn_mask=near))
    return torch.cat(parts, dim=2)


def can_unpad(config: EncoderConfig) -> bool:
    """Say whether a pass without padding computes it: no biased scores, no global tokens."""
    head = config.hidden_size // config.heads
    fits = head <= _LARGEST_HEAD and head % _HEAD_STEP == 0
    return fits and config.positions in ("learned", "rotary") and not config.global_tokens


def is_faster_unpadded(
    config: EncoderConfig, device: torch.device, dtype: torch.dtype | None
) -> bool:
    """Return True where passes without padding compute an encoder, and the device has a kernel with
    the reference's numbers; `dtype` is that of autocast, None in float32.
    """
    return (
        device.type == "cuda"
        and dtype in (torch.bfloat16, torch.float16)
        and can_unpad(config)
        and _is_kernel_right(device, dtype)
    )


@cache
def _is_kernel_right(device: torch.device, dtype: torch.dtype) -> bool:
    """Compare the kernel with the reference on three short sequences, its gradients too."""
    generator = torch.Generator().manual_seed(1)
    real_BS = torch.arange(40)[None] < torch.tensor([[40], [3], [17]])
    first, second = make_packing(real_BS.to(device)), make_packing(real_BS)
    tokens = len(second.index_T)
    numbers = [torch.randn(1, 2, tokens, 32, generator=generator) for _ in range(4)]
    answers = []
    try:
        for place, packing in ((device, first), (torch.device("cpu"), second)):
            *leaves, given = (x.to(place, dtype) for x in numbers)
            q, k, v = (x.detach().requires_grad_() for x in leaves)
            out = attend_unpadded(q, k, v, Unpadded(packing, -1))
            answers.append([out.detach(), *torch.autograd.grad(out, (q, k, v), given)])
    except (ImportError, RuntimeError, NotImplementedError, TypeError) as error:
        log.info(
            f"padding is computed, because attention without it fails on this device ({error})"
        )
        return False
    far = max(
        float((x.cpu().float() - y.float()).abs().max()) for x, y in zip(*answers, strict=True)
    )
    if far > _TOLERANCE:
        log.warning(
            "padding is computed, because attention without it differs from the reference by "
            f"{far:.2g}"
        )
    return far <= _TOLERANCE
