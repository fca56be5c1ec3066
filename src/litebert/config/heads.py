"""The heads that a model folder may hold, by name. Free of torch, so that the command line can offer them."""

from __future__ import annotations

from typing import Literal

HeadName = Literal["backbone", "mlm", "pretraining", "discriminator", "sequence", "tokens", "span", "choice"]
"""`pretraining` is mlm with a sentence objective; the last four are what fine-tuned models have."""
