"""A tokenizer that does not know the text: every verb that reads text with a model says so, once,
with the share.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from litebert.tokenizer import Tokenizer
from toys.answers import made
from toys.finetuning import write_table
from toys.folders import save_litebert, tiny

Run = Callable[..., tuple[int, str, str]]
VERBS = {
    "predict": ("tuned", "predict", "{model}", "--input", "{file}"),
    "evaluate": ("tuned", "evaluate", "{model}", "--data", "{file}"),
    "embed": ("tuned", "embed", "{model}", "--input", "{file}", "--out", "{out}.npy"),
    "finetune": (
        "tuned",
        "finetune",
        "{model}",
        "--task",
        "table",
        "--data",
        "{file}",
        "--out",
        "{out}",
        "--steps",
        "1",
        "--length",
        "16",
    ),
    "inspect": ("tuned", "tokenizer", "inspect", "{file}", "--tokenizer", "{model}/tokenizer"),
    "prepare": ("tuned", "prepare", "{file}", "--tokenizer", "{model}/tokenizer", "--out", "{out}"),
}


def share_in(messages: str) -> list[float]:
    """The shares that warnings name, in percent."""
    return [
        float(share)
        for share in re.findall(r"warning: ([\d.]+)% of the tokens are unknown", messages)
    ]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory, tiny_tokenizer: Path) -> Path:
    place = tmp_path_factory.mktemp("models")
    made(
        place / "tuned",
        tiny_tokenizer,
        "sequence",
        2,
        ("no", "yes"),
        task="table",
        problem="classes",
    )
    tokenizer = Tokenizer.load(tiny_tokenizer)
    save_litebert(
        tiny(vocab_size=tokenizer.vocab_size, max_positions=64), tokenizer, place / "pretrained"
    )
    return place


@pytest.mark.thorough
@pytest.mark.parametrize("verb", VERBS)
def test_text_in_another_script_is_told(verb: str, models: Path, tmp_path: Path, run: Run) -> None:
    kind, *words = VERBS[verb]
    foreign = write_table(tmp_path / "foreign.csv", 40)
    readable = foreign.with_name("known.csv")
    readable.write_bytes(foreign.read_bytes())
    header, *rows = foreign.read_text().splitlines()
    foreign.write_text("\n".join([header, *(f"\u0436\u0437 {row}" for row in rows)]) + "\n")
    for file, expected_count in ((foreign, 1), (readable, 0)):
        places = {"model": models / kind, "file": file, "out": tmp_path / file.stem}
        status, _, err = run(*(word.format(**places) for word in words))
        assert status == 0, err
        shares = share_in(err)
        assert len(shares) == expected_count, err
        assert all(3 < share < 60 for share in shares)


def test_fill_tells_the_share_of_all_its_texts(models: Path, run: Run) -> None:
    tokenizer = Tokenizer.load(models / "pretrained/tokenizer")
    texts = ["ba \u0436 [MASK]", "\u0437 de [MASK]"]
    ids = [id_ for text in texts for id_ in tokenizer.encode([text.replace("[MASK]", "")])[0]]
    status, _, err = run("fill-mask", models / "pretrained", *texts)
    assert status == 0, err
    assert share_in(err) == [pytest.approx(100 * ids.count(tokenizer.unk_id) / len(ids), abs=0.05)]
    assert not share_in(run("fill-mask", models / "pretrained", "ba de [MASK]")[2])
