"""What attention and feed-forward blocks have in common; a layer of the encoder is one of each."""

from __future__ import annotations

from torch import nn


class Block(nn.Module):
    """A part of a layer, owning the layer norm of its residual sum. Layers that share it hold the same instance."""

    def matrices(self) -> list[nn.Parameter]:
        """The matrices between hidden states, which Muon takes: every parameter of two dimensions."""
        return [parameter for parameter in self.parameters() if parameter.ndim == 2]
