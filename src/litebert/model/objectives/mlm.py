"""Masked language modeling: predict the tokens behind the masks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from litebert.config import EncoderConfig, cost, replace
from litebert.model.objectives.objective import Context, Curves, Score, TokenPrediction

if TYPE_CHECKING:
    from torch import Tensor, nn

    from litebert.data.batches import Batch
    from litebert.model.encoder import EncoderOutput

LOGITS = "generator_logits"
"""The key in `Batch.added` of a generator's guesses, (K, V) with a gradient."""


GUESSES = "guesses"
"""The key in `Context.shared` of the guesses at the masked positions, (K, V)."""


class MaskedLanguageModeling(TokenPrediction):
    """Predict the masked tokens (BERT section 3.1). The vocabulary projection runs on those
    positions only.

    Where the config has a generator, it reads the masked text in the encoder's place (ELECTRA
    section 3.1).

    Shapes: B sequences, S tokens, H hidden, V vocabulary, K predicted positions, which `count`
    counts.
    """

    shown = (
        TokenPrediction.shown[0],
        Score("perplexity", "{NAME} perplexity", ".1f"),
        TokenPrediction.shown[1],
    )
    curves = (
        Curves.of_loss("Loss on masked tokens", "cross entropy, nats", unigram_entropy=True),
        Curves("Accuracy on masked tokens"),
    )
    foreign_part = "mlm"

    @property
    def _reader(self) -> EncoderConfig:
        return self.config.generator or self.config.encoder

    @property
    def network_name(self) -> str:
        return super().network_name if self.config.generator is None else "generator"

    def parameters(self) -> dict[str, int]:
        """Count the generator without what it borrows, and the head, whose table may be tied."""
        shape = self._reader
        hidden = shape.hidden_size
        embedding = shape.embedding_size
        after = shape.embedding_norm == "after"
        width, bias = (hidden, shape.bias) if shape.prediction == "hidden" else (embedding, True)
        head = cost.linear(hidden, width, bias) + cost.norm(width, bias) + shape.vocab_size
        if shape.untied:
            head += embedding * (
                shape.vocab_size
                + (hidden if shape.prediction == "hidden" and shape.projects else 0)
            )
        if self.config.generator is None:
            return {"mlm head": head}
        types = shape.segment_types * embedding
        norm = cost.norm(hidden if after else embedding, shape.bias)
        unshared = (
            types + norm
            if self.config.rtd.generator_embeddings == "tables"
            else norm
            if after
            else 0
        )
        tables = {"embeddings": unshared}
        return {
            "generator": sum((cost.encoder_parameters(shape) | tables).values()),
            "mlm head": head,
        }

    def flops(self, length: int) -> float:
        shape = self._reader
        hidden, embedding = shape.hidden_size, shape.embedding_size
        mapped = hidden * embedding if shape.prediction == "embedding" or shape.projects else 0
        head = (
            mapped
            + (hidden * hidden if shape.prediction == "hidden" else 0)
            + embedding * shape.vocab_size
        )
        return self.config.masking.rate * 2 * head

    def head(self) -> nn.Module:
        from litebert.model.heads import VocabularyHead

        return VocabularyHead(self._reader)

    def build(self) -> nn.ModuleDict:
        from torch import nn

        from litebert.model.encoder import Encoder

        if self.config.generator is None:
            return super().build()
        generator = Encoder(self.config.generator, self.config.rtd.generator_embeddings)
        return nn.ModuleDict({"generator": generator, **super().build()})

    def read(self, context: Context, *inputs: Tensor | None) -> EncoderOutput:
        """The pass over masked text, by the generator if there is one; inputs as to `Encoder`."""
        reader = getattr(context.network, "generator", context.encoder)
        output: EncoderOutput = reader(
            *inputs, layers=context.layers, lender=context.encoder.embedding
        )
        return output

    def guesses(self, last_BSH: Tensor, positions_K: Tensor, context: Context) -> Tensor:
        """(K, V) logits at flat positions of (B, S)."""
        table = context.encoder.embedding.word.weight
        reader = getattr(context.network, "generator", context.encoder)
        logits: Tensor = context.network.head(
            last_BSH.flatten(0, 1)[positions_K], table, reader.embedding.map
        )
        return logits

    def corrupt(self, batch: Batch, context: Context) -> Batch:
        """Add a generator's guesses to the batch, where there is one."""
        if "generator" not in context.network:
            return batch
        read = self.read(context, batch.input_ids, batch.token_type_ids, batch.attention_mask)
        guesses = self.guesses(read.last, batch.masked_positions, context)
        return replace(batch, added={**batch.added, LOGITS: guesses})

    def logits(
        self, output: EncoderOutput, batch: Batch, context: Context
    ) -> tuple[Tensor, Tensor]:
        """(K, V) and (K,)."""
        logits = batch.added.get(LOGITS)
        if logits is None:
            logits = self.guesses(output.last, batch.masked_positions, context)
        context.shared[GUESSES] = logits
        return logits, batch.masked_labels

    def count(self, batch: Batch) -> int:
        return batch.masked_labels.numel()
