"""Write the trained student as a litebert folder: python runs/encoder/folder.py WORK OUT"""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path

from safetensors.numpy import load_file

from litebert.config.serialization import to_json
from litebert.interop import files
from litebert.interop.loaded import VectorMap
from litebert.interop.sentence_modules import write_dense
from litebert.recipes import albert_next
from litebert.tokenizer import Tokenizer

CARD = Path(__file__).parent.parent / "demo_cards/vectors.md"
LENGTH = 256


def main() -> None:
    work, out = Path(sys.argv[1]), Path(sys.argv[2])
    weights = load_file(work / "student.safetensors")
    map_ = VectorMap(weights.pop("map.weight"), weights.pop("map.bias"))
    vocabulary, embedding = weights["encoder.embedding.word.weight"].shape
    inner, hidden = weights["encoder.feedforward.0.input.weight"].shape
    layers = sum(name.endswith("qkv.weight") for name in weights)
    config = albert_next.albert_next_tiny()
    encoder = replace(
        config.encoder,
        vocab_size=vocabulary,
        embedding_size=embedding,
        hidden_size=hidden,
        layers=layers,
        heads=hidden // 32,
        intermediate_size=inner // 2,
        sharing="none",
        max_positions=512,
        pooler=False,
    )
    sequences = replace(config.sequences, length=LENGTH)
    config = replace(
        config,
        name="vectors",
        encoder=encoder,
        sequences=sequences,
        objectives=("mlm",),
        train=type(config.train)(),
    )
    task = {
        "task": "pairs",
        "kind": "backbone",
        "problem": "similarity",
        "length": LENGTH,
        "pair": True,
        "columns": {"text": "text", "pair": None, "label": None},
        "vectors": {"pooling": "mean", "normalized": True, "map": "2_Dense"},
        "classes": 0,
        "dense": None,
        "labels": [],
    }
    with files.new_folder(out) as partial:
        shutil.copytree(work / "tokenizer", partial / "tokenizer")
        fingerprint = Tokenizer.load(partial / "tokenizer").fingerprint
        files.write_arrays(
            partial / "model.safetensors", weights, {"tokenizer_fingerprint": fingerprint}
        )
        write_dense(partial / "2_Dense", map_)
        (partial / "recipe.json").write_text(to_json(config), encoding="utf-8")
        (partial / "task.json").write_text(json.dumps(task, indent=2) + "\n", encoding="utf-8")
        shutil.copy(CARD, partial / "README.md")
    print(f"{out}: {sum(array.size for array in weights.values()) + map_.weight.size:,} parameters")


if __name__ == "__main__":
    main()
