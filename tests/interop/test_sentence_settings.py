"""Settings of sentence-transformers act: vectors are equal, also after convert and export."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from huggingface_hub import InferenceClient
from huggingface_hub.errors import HfHubHTTPError

import litebert
from litebert.base.errors import ConfigError, ModelError
from toys.families import build_peer
from toys.refusals import refused
from toys.serving import serving

pytest.importorskip("sentence_transformers")
pytestmark = [pytest.mark.thorough, pytest.mark.filterwarnings("ignore")]
Run = Callable[..., tuple[int, str, str]]

WIDTH = 32
WORDS = "a fine film what dull one word query : d good"
TEXTS = ["A fine FILM", "what a dull one", "word " * 60]


def write_tokenizer(folder: Path, **settings: Any) -> None:
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS.split(), "A", "FILM", "[", "]"]
    (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in tokens))
    settings = {"tokenizer_class": "BertTokenizer", "do_lower_case": False, **settings}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A tiny BERT with a cased tokenizer and a mean of unit length, as of sentence-transformers."""
    folder = tmp_path / "model"
    build_peer("Bert", "backbone", vocab_size=24, max_position_embeddings=64).save_pretrained(
        folder
    )
    write_tokenizer(folder, model_max_length=40)
    kinds = {"Transformer": "", "Pooling": "1_Pooling", "Normalize": "2_Normalize"}
    modules = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (kind, path) in enumerate(kinds.items())
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    pooling = {"word_embedding_dimension": WIDTH, "pooling_mode_mean_tokens": True}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    return folder


SETTINGS: dict[str, dict[str, dict[str, Any]]] = {
    "length of version 6": {},
    "length": {"sentence_bert_config.json": {"max_seq_length": 20}},
    "prompt": {
        "config_sentence_transformers.json": {
            "prompts": {"query": "query : ", "doc": "d "},
            "default_prompt_name": "query",
        }
    },
    "lower case": {"sentence_bert_config.json": {"do_lower_case": True}},
    "numbers left": {"config_sentence_transformers.json": {"truncate_dim": 12}},
    "all": {
        "sentence_bert_config.json": {"do_lower_case": True, "max_seq_length": 24},
        "config_sentence_transformers.json": {
            "prompts": {"query": "query : "},
            "default_prompt_name": "query",
            "truncate_dim": 8,
        },
    },
}


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("name", SETTINGS)
def test_vectors_are_those_of_sentence_transformers(
    name: str, inside: bool, model: Path, tmp_path: Path, run: Run
) -> None:
    from sentence_transformers import SentenceTransformer

    for file, settings in SETTINGS[name].items():
        (model / file).write_text(json.dumps(settings))
    if inside:  # as versions before 2 have it
        (model / "0_Transformer").mkdir()
        for path in list(model.iterdir()):
            if path.is_file() and path.name not in (
                "modules.json",
                "config_sentence_transformers.json",
            ):
                path.rename(model / "0_Transformer" / path.name)
        modules = json.loads((model / "modules.json").read_text())
        modules[0]["path"] = "0_Transformer"
        (model / "modules.json").write_text(json.dumps(modules))
    expected = SentenceTransformer(str(model), device="cpu").encode(TEXTS)
    np.testing.assert_allclose(litebert.load(model).encode(TEXTS), expected, atol=1e-5)
    for verb, *options in (
        ("convert", "--to", "hf"),
        ("convert", "--to", "litebert"),
        ("export", "--format", "onnx", "--head", "backbone"),
    ):
        out = tmp_path / options[-1]
        status, _, err = run(verb, model, "--out", out, *options)
        assert status == 0, err
        np.testing.assert_allclose(litebert.load(out).encode(TEXTS), expected, atol=1e-5)
    theirs = SentenceTransformer(str(tmp_path / "hf"), device="cpu")
    np.testing.assert_allclose(theirs.encode(TEXTS), expected, atol=1e-5)
    length = {"length": 20, "all": 24}.get(name, 40)
    for written in ("hf", "backbone"):
        saved = json.loads((tmp_path / written / "tokenizer_config.json").read_text())
        assert saved["model_max_length"] == length


def test_a_prompt_is_chosen_by_its_name(model: Path, tmp_path: Path, run: Run) -> None:
    from sentence_transformers import SentenceTransformer

    options = SETTINGS["prompt"]["config_sentence_transformers.json"]
    (model / "config_sentence_transformers.json").write_text(json.dumps(options))
    expected = SentenceTransformer(str(model), device="cpu").encode(TEXTS, prompt_name="doc")
    ours = litebert.load(model).encode(TEXTS, prompt_name="doc")
    np.testing.assert_allclose(ours, expected, atol=1e-5)
    (tmp_path / "t.txt").write_text("\n".join(TEXTS))
    words = ("embed", model, "--input", tmp_path / "t.txt", "--out", tmp_path / "v.npy")
    status, _, err = run(*words, "--prompt-name", "doc")
    assert status == 0, err
    np.testing.assert_allclose(np.load(tmp_path / "v.npy"), expected, atol=1e-5)
    status, _, err = run(*words, "--prompt-name", "question")
    assert status == 2
    assert "query, doc" in err
    with refused(ConfigError, "question", "query, doc"):
        litebert.load(model).encode(TEXTS, prompt_name="question")
    by_default = SentenceTransformer(str(model), device="cpu").encode(TEXTS)
    with serving(tmp_path, model) as service:
        client = InferenceClient(f"{service.url}/embed")
        served = client.feature_extraction(TEXTS, prompt_name="doc")
        np.testing.assert_allclose(served, expected, atol=1e-5)
        served = client.feature_extraction(TEXTS)
        np.testing.assert_allclose(served, by_default, atol=1e-5)
        with pytest.raises(HfHubHTTPError, match="422"):
            client.feature_extraction(TEXTS, prompt_name="question")


def test_what_is_not_understood_is_named(model: Path) -> None:
    (model / "sentence_bert_config.json").write_text('{"unheard_of": 1}')
    assert sum("unheard_of" in note for note in litebert.load(model).notes) == 1
    for options, places in (
        ({"truncate_dim": "12"}, ("truncate_dim",)),
        ({"prompts": ["query"]}, ("prompts",)),
        ({"prompts": {"a": "b"}, "default_prompt_name": "c"}, ("default_prompt_name",)),
    ):
        (model / "config_sentence_transformers.json").write_text(json.dumps(options))
        with refused(ModelError, model / "config_sentence_transformers.json", *places):
            litebert.load(model).encode(TEXTS)
    (model / "config_sentence_transformers.json").write_text('{"prompts": {"query": "query : "}}')
    (model / "1_Pooling" / "config.json").write_text(
        '{"pooling_mode": "mean", "include_prompt": false}'
    )
    with refused(ModelError, "include_prompt"):
        litebert.load(model).encode(TEXTS)


def test_texts_are_cut_at_the_side_of_the_tokenizer(model: Path, tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    write_tokenizer(model, model_max_length=8, truncation_side="left")
    long = "a fine film what dull one word query good d"
    theirs = AutoTokenizer.from_pretrained(model)(long, truncation=True, max_length=8)["input_ids"]
    tokenizer = litebert.load(model).tokenizer
    assert tokenizer is not None
    from litebert.tasks.rows import build_row, build_single_rows

    (row,), cut = build_single_rows(tokenizer, [long], 8)
    assert row.ids.tolist() == theirs
    assert cut == 1
    pair = AutoTokenizer.from_pretrained(model)(long, long, truncation=True, max_length=9)
    ids = tokenizer.encode([long])[0]
    assert build_row(tokenizer, ids, ids, 9).ids.tolist() == pair["input_ids"]
    litebert.convert(model, tmp_path / "hf", to="hf")
    saved = json.loads((tmp_path / "hf" / "tokenizer_config.json").read_text())
    assert saved["truncation_side"] == "left"
    np.testing.assert_allclose(
        litebert.load(tmp_path / "hf").encode([long]), litebert.load(model).encode([long])
    )


@pytest.mark.parametrize("special", [True, False])
@pytest.mark.parametrize("layout", ["tokenizer.json", "added_tokens.json", "added_tokens_decoder"])
def test_added_tokens_are_read_as_transformers_reads_them(
    layout: str, special: bool, model: Path, tmp_path: Path
) -> None:
    from transformers import AutoTokenizer

    if layout == "tokenizer.json":
        theirs = AutoTokenizer.from_pretrained(model)
        theirs.add_tokens(["[CUST]", "covid pass"], special_tokens=special)
        theirs.save_pretrained(model)
        (model / "vocab.txt").unlink(missing_ok=True)
    elif layout == "added_tokens.json":
        (model / layout).write_text(json.dumps({"[CUST]": 20, "covid pass": 21}))
        if special:
            marks = {"additional_special_tokens": ["[CUST]", "covid pass"]}
            (model / "special_tokens_map.json").write_text(json.dumps(marks))
    else:
        entries = {
            str(20 + i): {
                "content": token,
                "special": special,
                "normalized": False,
                "lstrip": False,
                "rstrip": False,
                "single_word": False,
            }
            for i, token in enumerate(("[CUST]", "covid pass"))
        }
        write_tokenizer(model, added_tokens_decoder=entries)
    texts = ["[CUST] a fine covid pass film", "a[CUST]film", "covid  pass"]
    theirs = AutoTokenizer.from_pretrained(model)
    expected = [theirs(text, add_special_tokens=False)["input_ids"] for text in texts]
    tokenizer = litebert.load(model).tokenizer
    assert tokenizer is not None
    assert [list(ids) for ids in tokenizer.encode(texts)] == expected
    for to in ("hf", "litebert"):
        litebert.convert(model, tmp_path / to, to=to)
        again = litebert.load(tmp_path / to).tokenizer
        assert again is not None
        assert [list(ids) for ids in again.encode(texts)] == expected
    theirs = AutoTokenizer.from_pretrained(tmp_path / "hf")
    assert [theirs(text, add_special_tokens=False)["input_ids"] for text in texts] == expected
