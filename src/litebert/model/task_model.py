"""An encoder with a fine-tuning head.

Shapes: B sequences, S tokens, H hidden size, C classes.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from litebert.base.errors import ModelError
from litebert.config import EncoderConfig, HeadActivation, Pooling, cost
from litebert.model.encoder import Encoder, EncoderOutput
from litebert.model.heads import ClassifierHead, StateHead, pool


class TaskModel(nn.Module):
    """Logits of C `classes` for every token, (B, S, C), or with `reads_cls` for [CLS], (B, C).

    With no classes there is no classifier, and the logits are the last states, (B, S, H).

    Of [CLS] the head reads the pooled state, or without a pooler the last state through a dense map
    of its own with the activation `dense`: tanh in RoBERTa's code, which makes that map a pooler,
    and gelu in ELECTRA's. In an encoder with `prediction=hidden` all heads begin with a dense map,
    activation and norm instead, and read no pooler; of [CLS] they read the last state, or with
    `pooling="mean"` the mean of all (ModernBERT's code). In another encoder, `pooling="mean"` reads
    the mean of the last states by the classifier alone, and `pooling="unit"` reads that mean scaled
    to length 1, as a linear model of sentence vectors does. With `pooling="apart"` the two texts of
    a pair are rows after each other, and there are logits of each pair, (B / 2, C). No class of
    `transformers` computes these.
    """

    def __init__(
        self,
        config: EncoderConfig,
        reads_cls: bool,
        classes: int,
        dense: HeadActivation | None = None,
        pooling: Pooling = "cls",
    ) -> None:
        inputs = (4 if pooling == "apart" else 1) * config.hidden_size
        cost.require_room({**cost.encoder_parameters(config), "head": cost.linear(inputs, classes)})
        super().__init__()
        predicts = config.prediction == "hidden" and pooling not in ("unit", "apart")
        mapped, mean = dense is not None, pooling != "cls"
        if reads_cls:
            unfit = (config.pooler or mapped) if predicts or mean else config.pooler == mapped
            impossible = unfit or classes == 0
        else:
            impossible = mapped or mean or (predicts and config.pooler)
        if impossible:
            raise ModelError(
                f"no head has {reads_cls=}, {classes=}, {dense=} and {pooling=} on an encoder with "
                f"encoder.pooler={config.pooler} and encoder.prediction={config.prediction}; "
                "TaskModel says which there are"
            )
        self.reads_cls, self.classes, self.dense, self.pooling = reads_cls, classes, dense, pooling
        self.encoder = Encoder(config)
        self.head = (
            ClassifierHead(config, classes, dense, dropout=0.1, predicts=predicts, inputs=inputs)
            if classes
            else StateHead()
        )
        self.state_map: nn.Linear | None = None
        """The map of states or vectors to a teacher's; no part of a finished model."""

    @classmethod
    def of_states(cls, encoder: Encoder) -> TaskModel:
        """The last states of an encoder that exists, whose weights it shares."""
        model = cls.__new__(cls)
        nn.Module.__init__(model)
        model.reads_cls, model.classes, model.dense, model.pooling = False, 0, None, "cls"
        model.encoder, model.head, model.state_map = encoder, StateHead(), None
        return model

    def forward(
        self,
        input_ids: Tensor,
        token_type_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        every: bool = False,
        states: bool = False,
    ) -> Tensor | tuple[Tensor, list[Tensor]]:
        """Logits, (B, C) or (B, S, C); inputs as in `Encoder.forward`. With `every`, after each of
        the L layers, (L, B, C) or (L, B, S, C). With `states`, the logits, and the embedding and
        the state after each layer, (B, S, H) each."""
        if every or states:
            layer_states = list(self.encoder.states(input_ids, token_type_ids, attention_mask))
            read = [
                self.read(state, attention_mask)
                for state in (layer_states[1:] if every else layer_states[-1:])
            ]
            logits = torch.stack(read) if every else read[0]
            logits = self._count_map(logits)
            return (logits, layer_states) if states else logits
        output = self.encoder(input_ids, token_type_ids, attention_mask)
        return self._count_map(self._logits(output, attention_mask))

    def _count_map(self, logits: Tensor) -> Tensor:
        """Return the logits as they are, with a graph that knows `state_map`. DDP sees the forward
        pass alone, and the map is used after it.
        """
        if self.state_map is None or not self.training:
            return logits
        return logits + 0 * sum(parameter.sum() for parameter in self.state_map.parameters())

    def read(self, state_BSH: Tensor, attention_mask: Tensor | None) -> Tensor:
        if self.reads_cls and self.pooling == "cls":
            state_BSH = state_BSH[:, :1]  # the norm of the other tokens would be lost
        return self._logits(self.encoder.read_out(state_BSH), attention_mask)

    def _logits(self, output: EncoderOutput, attention_mask: Tensor | None) -> Tensor:
        read = output.last
        if self.reads_cls and self.pooling != "cls":
            real = read.new_ones(read.shape[:2]) if attention_mask is None else attention_mask
            read = pool(read, real, self.pooling)
        elif self.reads_cls:
            read = output.last[:, 0] if output.pooled is None else output.pooled
        logits: Tensor = self.head(read)
        return logits
