"""TensorFlow's checkpoint files, written by hand from the description of their format, and the
names in them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import torch
from torch import Tensor

NUMBERS = {
    "float32": 1,
    "float64": 2,
    "int32": 3,
    "uint8": 4,
    "int16": 5,
    "int8": 6,
    "int64": 9,
    "bool": 10,
    "bfloat16": 14,
    "float16": 19,
}


def _checksum_table() -> list[int]:
    table = []
    for state in range(256):
        for _ in range(8):
            state = state >> 1 ^ (0x82F63B78 if state & 1 else 0)
        table.append(state)
    return table


_TABLE = _checksum_table()


def checksum(data: bytes) -> int:
    """CRC-32C, a byte at a time."""
    state = 0xFFFFFFFF
    for byte in data:
        state = _TABLE[(state ^ byte) & 0xFF] ^ state >> 8
    return state ^ 0xFFFFFFFF


def _mask_checksum(value: int) -> bytes:
    return (((value >> 15 | value << 17) + 0xA282EAD8) & 0xFFFFFFFF).to_bytes(4, "little")


def varint(value: int) -> bytes:
    more = value >> 7
    return bytes([value & 127 | 128]) + varint(more) if more else bytes([value])


def _number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value) if value else b""


def _bytes(field: int, value: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(value)) + value


def _block(items: list[tuple[bytes, bytes]], every: int) -> bytes:
    body, restarts, last = b"", [], b""
    for i, (key, value) in enumerate(items):
        shared = 0
        if i % every == 0:
            restarts.append(len(body))
        else:
            while shared < min(len(last), len(key)) and last[shared] == key[shared]:
                shared += 1
        body += (
            varint(shared) + varint(len(key) - shared) + varint(len(value)) + key[shared:] + value
        )
        last = key
    restarts = restarts or [0]
    return body + b"".join(n.to_bytes(4, "little") for n in (*restarts, len(restarts)))


def table(
    items: Mapping[bytes, bytes], per_block: int = 20, every: int = 4, snappy: bool = False
) -> bytes:
    """A file in LevelDB's table format."""
    data, handles = b"", []

    def append(block: bytes) -> bytes:
        nonlocal data
        kind = b"\1" if snappy else b"\0"
        block = pyarrow.compress(block, codec="snappy", asbytes=True) if snappy else block
        handle = varint(len(data)) + varint(len(block))
        data += block + kind + _mask_checksum(checksum(block + kind))
        return handle

    ordered = sorted(items.items())
    for start in range(0, len(ordered), per_block):
        part = ordered[start : start + per_block]
        handles.append((part[-1][0], append(_block(part, every))))
    footer = append(_block([], every)) + append(_block(handles, every))
    return data + footer.ljust(40, b"\0") + (0xDB4775248B80FB57).to_bytes(8, "little")


def write_bundle(
    prefix: Path,
    tensors: Mapping[str, Tensor],
    shards: int = 1,
    crc: Callable[[bytes], int] = checksum,
    entry: Callable[[str, bytes], bytes] = lambda _, value: value,
    header: bytes = b"",
    **layout: Any,
) -> None:
    """PREFIX.index and its data files; `entry` may change what the index says of a tensor."""
    files, items = (
        [bytearray() for _ in range(shards)],
        {b"": _number(1, shards) + header + _bytes(3, _number(1, 1))},
    )
    for i, (name, tensor) in enumerate(sorted(tensors.items())):
        data, file = (
            tensor.contiguous().flatten().view(torch.uint8).numpy().tobytes(),
            files[i % shards],
        )
        shape = b"".join(_bytes(2, _number(1, side)) for side in tensor.shape)
        items[name.encode()] = entry(
            name,
            _number(1, NUMBERS[str(tensor.dtype).removeprefix("torch.")])
            + _bytes(2, shape)
            + _number(3, i % shards)
            + _number(4, len(file))
            + _number(5, len(data))
            + varint(6 << 3 | 5)
            + _mask_checksum(crc(data)),
        )
        file += data
    prefix.parent.mkdir(parents=True, exist_ok=True)
    prefix.with_name(f"{prefix.name}.index").write_bytes(table(items, **layout))
    for i, file in enumerate(files):
        prefix.with_name(f"{prefix.name}.data-{i:05d}-of-{shards:05d}").write_bytes(file)


# ---------------------------------------------------------------- the names of the papers' own code

_ALBERT = [
    (r"^albert\.", "bert/"),
    (
        r"encoder\.albert_layer_groups\.(\d+)\.albert_layers\.0\.",
        r"encoder/transformer/group_\1/inner_group_0/",
    ),
    (r"attention\.LayerNorm", "LayerNorm"),
    (r"full_layer_layer_norm", "LayerNorm_1"),
    (r"attention\.(query|key|value)", r"attention_1/self/\1"),
    (r"attention\.dense", "attention_1/output/dense"),
    (r"ffn\.", "ffn_1/intermediate/dense."),
    (r"ffn_output\.", "ffn_1/intermediate/output/dense."),
    (r"^bert/pooler", "bert/pooler/dense"),
    (r"^predictions\.bias", "cls/predictions/output_bias"),
    (r"^predictions\.(dense|LayerNorm)", r"cls/predictions/transform/\1"),
    (r"^sop_classifier\.classifier\.weight", "cls/seq_relationship/output_weights"),
    (r"^sop_classifier\.classifier\.bias", "cls/seq_relationship/output_bias"),
]
_BERT = [
    (r"\.layer\.(\d+)\.", r"/layer_\1/"),
    (r"^cls\.predictions\.bias", "cls/predictions/output_bias"),
    (r"^cls\.seq_relationship\.weight", "cls/seq_relationship/output_weights"),
    (r"^cls\.seq_relationship\.bias", "cls/seq_relationship/output_bias"),
]
_ELECTRA = [
    (r"\.layer\.(\d+)\.", r"/layer_\1/"),
    (r"dense_prediction", "dense_1"),
    (r"^generator_lm_head\.bias", "generator_predictions/output_bias"),
]
_HEADS = [
    (r"^classifier\.weight", "output_weights"),
    (r"^classifier\.bias", "output_bias"),
    (r"^qa_outputs\.weight", "cls/squad/output_weights"),
    (r"^qa_outputs\.bias", "cls/squad/output_bias"),
]
_RULES = {"Albert": _ALBERT, "Bert": _BERT, "Electra": _ELECTRA}
_TIED = (
    "decoder.weight",
    "decoder.bias",
    "generator_lm_head.weight",
    "position_ids",
    "token_type_ids",
)


def variables(family: str, state: Mapping[str, Tensor], slots: bool = True) -> dict[str, Tensor]:
    """A state of `transformers` as the variables of the paper's own code, with those of its
    optimizer.
    """
    tensors = {}
    for name, tensor in state.items():
        if name.endswith(_TIED):
            continue
        for pattern, by in [*_RULES[family], *_HEADS]:
            name = re.sub(pattern, by, name)
        name = re.sub(r"LayerNorm(_1)?\.weight$", r"LayerNorm\1/gamma", name)
        name = re.sub(r"LayerNorm(_1)?\.bias$", r"LayerNorm\1/beta", name)
        name = re.sub(r"_embeddings\.weight$", "_embeddings", name)
        if name.endswith(".weight"):
            name, tensor = name.removesuffix("weight") + "kernel", tensor.t()
        tensors[name.replace(".", "/")] = tensor.detach().clone()
    for name in list(tensors) if slots else ():
        tensors |= {
            f"{name}/{slot}": torch.zeros_like(tensors[name]) for slot in ("adam_m", "adam_v")
        }
    return tensors | ({"global_step": torch.tensor(np.int64(1000))} if slots else {})


def write_config(path: Path, model: Any, *keys: str, **changes: Any) -> None:
    """The config file that the paper's own code wrote."""
    usual = (
        "vocab_size",
        "hidden_size",
        "num_hidden_layers",
        "num_attention_heads",
        "intermediate_size",
        "hidden_act",
        "hidden_dropout_prob",
        "attention_probs_dropout_prob",
        "max_position_embeddings",
        "type_vocab_size",
        "initializer_range",
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        json.dumps({**{key: getattr(model.config, key) for key in (*usual, *keys)}, **changes})
    )
