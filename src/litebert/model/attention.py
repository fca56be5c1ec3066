"""Multi-head self-attention with one fused q, k, v product, owning the layer norm of its residual sum.

Shapes: B sequences, S tokens, H hidden size, A heads, D = H / A head size.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from litebert.config import EncoderConfig
from litebert.model.embedding import Rotary


class Attention(nn.Module):
    """One attention block (BERT section 3). Layers that share attention hold the same instance."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.heads = config.heads
        self.pre_norm = config.norm == "pre"
        self.qkv = nn.Linear(config.hidden_size, 3 * config.hidden_size, bias=config.bias)
        self.output = nn.Linear(config.hidden_size, config.hidden_size, bias=config.bias)
        self.norm = nn.LayerNorm(config.hidden_size, eps=config.norm_eps, bias=config.bias)
        self.dropout = nn.Dropout(config.hidden_dropout)
        self.attention_dropout = config.attention_dropout

    def forward(self, x_BSH: Tensor, mask: Tensor | None, rotary: Rotary | None) -> Tensor:
        """Attend, add and normalise.

        Shapes:
            x_BSH: (B, S, H)
            mask: bool (B, 1, 1, S), True where a key may be read; None where nothing is padded
            returns: (B, S, H)
        """
        if self.pre_norm:
            return x_BSH + self._attend(self.norm(x_BSH), mask, rotary)
        normed: Tensor = self.norm(x_BSH + self._attend(x_BSH, mask, rotary))
        return normed

    def _attend(self, x_BSH: Tensor, mask: Tensor | None, rotary: Rotary | None) -> Tensor:
        batch, length, hidden = x_BSH.shape
        qkv = self.qkv(x_BSH).view(batch, length, 3, self.heads, hidden // self.heads)
        q_BASD, k_BASD, v_BASD = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        if rotary is not None:
            q_BASD, k_BASD = rotary(q_BASD), rotary(k_BASD)
        dropout = self.attention_dropout if self.training else 0.0
        y_BASD = scaled_dot_product(q_BASD, k_BASD, v_BASD, mask, dropout)
        out: Tensor = self.dropout(self.output(y_BASD.transpose(1, 2).reshape(batch, length, hidden)))
        return out


def scaled_dot_product(q_BASD: Tensor, k_BASD: Tensor, v_BASD: Tensor, mask: Tensor | None, dropout: float) -> Tensor:
    """softmax(q k^T / sqrt(D)) v (BERT section 3), in the dtype of q; `mask` as `Attention.forward` takes it.

    What a CPU learns from in bfloat16 is two matrix products: the backward of PyTorch's fused kernel is
    slow there (docs/decisions.md).
    """
    if not (q_BASD.dtype == torch.bfloat16 and q_BASD.device.type == "cpu" and torch.is_grad_enabled()):
        return F.scaled_dot_product_attention(q_BASD, k_BASD, v_BASD, attn_mask=mask, dropout_p=dropout)
    scores_BASS = (q_BASD * q_BASD.shape[-1] ** -0.5) @ k_BASD.transpose(-1, -2)
    if mask is not None:
        lowest = torch.finfo(scores_BASS.dtype).min
        scores_BASS += torch.zeros_like(mask, dtype=scores_BASS.dtype).masked_fill_(~mask, lowest)
    with torch.autocast("cpu", enabled=False):  # which would take the softmax to float32 and back
        weights_BASS = scores_BASS.softmax(-1)
    return F.dropout(weights_BASS, dropout) @ v_BASD
