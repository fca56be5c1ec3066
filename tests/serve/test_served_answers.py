"""The answers of the service: the same as the verbs, in the shapes of other services, to their own
clients.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

import litebert
from litebert.base.errors import ConfigError
from litebert.model.task_model import TaskModel
from litebert.serve.served import Served
from litebert.serve.wire import Group, Row
from litebert.serve.worker import warm
from litebert.tokenizer import Tokenizer
from litebert.tokenizer.training import train_tokenizer
from toys.answers import made, texts
from toys.folders import save_litebert
from toys.points import randomize, shape
from toys.refusals import refused
from toys.serving import Service, serving

LINES = texts(12, most=9)
LABELS = 1100
"""More than 100,000 answers to all lines ten times."""
OPENING: dict[str, Any] = {
    "engine": None,
    "device": "cpu",
    "exit_confidence": "auto",
    "threads": 1,
    "tokens": 4096,
}


def rows(served: Served, operation: str, inputs: list[Any], **options: Any) -> list[Row]:
    return served.answer(Group(operation, tuple(options.items()), inputs))


def close(left: Any, other: Any) -> bool:
    """Equal but for the last digits of numbers."""
    if isinstance(left, dict):
        return left.keys() == other.keys() and all(close(left[key], other[key]) for key in left)
    if isinstance(left, list):
        return len(left) == len(other) and all(map(close, left, other))
    return left == other if isinstance(left, str) else bool(left == pytest.approx(other, abs=2e-5))


def answers(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Predictions without what the service adds: how many tokens were read and cut off."""
    return [
        {name: value for name, value in record.items() if name not in ("tokens", "truncated")}
        for record in records
    ]


def test_predictions_are_those_of_predict(client: httpx.Client, models: Path) -> None:
    answer = client.post("/predict", json={"inputs": LINES}).json()
    assert (answer["model"], answer["kind"]) == ("colors", "classes")
    assert close(answers(answer["predictions"]), litebert.load(models / "colors").predict(LINES))
    single = client.post("/predict", json={"inputs": LINES[0]}).json()
    assert close(single["predictions"], answer["predictions"][:1])
    pair = client.post(
        "/predict", json={"inputs": [LINES[:2], {"text": LINES[0], "pair": LINES[1]}]}
    ).json()
    assert close(
        answers(pair["predictions"]), litebert.load(models / "colors").predict([LINES[:2]]) * 2
    )


@pytest.mark.parametrize(
    ("kind", "classes", "labels", "task", "inputs"),
    [
        ("sequence", 3, ("a", "b", "c"), {"problem": "labels"}, LINES),
        ("sequence", 1, (), {"problem": "number"}, LINES),
        ("tokens", 3, ("O", "B-X", "I-X"), {}, [*LINES, LINES[0].split(), ""]),
        ("span", 2, (), {}, [[LINES[0], text] for text in LINES]),
        ("choice", 1, (), {}, [[LINES[0], LINES[1], LINES[2:5]]]),
    ],
)
def test_every_kind_of_head_answers_as_predict(
    kind: str,
    classes: int,
    labels: tuple[str, ...],
    task: Any,
    inputs: list[Any],
    tiny_tokenizer: Path,
    tmp_path: Path,
) -> None:
    folder = made(tmp_path / "m", tiny_tokenizer, kind, classes, labels, **task)
    served = Served(folder, OPENING)
    records = [json.loads(row.payload) for row in rows(served, "predict", inputs)]
    for record, other in zip(records, litebert.load(folder).predict(inputs), strict=True):
        assert close({name: record[name] for name in other}, other)
    for value, record in zip(inputs, records, strict=True):
        if kind == "tokens":
            text = value if isinstance(value, str) else " ".join(value)
            assert [text[start:end] for start, end in record["offsets"]] == record["words"]
            assert all(
                text[each["start"] : each["end"]] == each["text"] for each in record["entities"]
            )
        if kind == "span" and record["prediction"]:
            assert value[1][record["start"] : record["end"]] == record["prediction"]
    assert served.info()["kind"] == {"sequence": (task or {}).get("problem")}.get(kind, kind)


def test_a_tokenizer_of_another_script_is_told(tiny_tokenizer: Path, tmp_path: Path) -> None:
    korean = [
        "러스트는 안전하고 빠른 언어이다",
        "소유권은 메모리를 지킨다",
        "함수는 값을 돌려준다",
    ] * 20
    train_tokenizer(korean, kind="unigram", vocab_size=46).save(tmp_path / "tokenizer")
    for tokenizer, reads in ((tiny_tokenizer, True), (tmp_path / "tokenizer", False)):
        folder = made(
            tmp_path / str(reads),
            tokenizer,
            "sequence",
            3,
            ("a", "b", "c"),
            problem="classes",
        )
        assert Served(folder, OPENING).info()["reads_english"] is reads


EXITS: dict[str, Any] = {"problem": "classes", "exits": {"patience": 1, "threshold": 0.5}}


def test_nul_is_a_space_as_for_predict(client: httpx.Client) -> None:
    text, spaced = f"{LINES[0]}\0{LINES[1]}", f"{LINES[0]} {LINES[1]}"
    for path, wrap in (
        ("/predict", lambda text: text),
        ("/embed", lambda text: [text]),
        ("/tokenize", lambda text: text),
    ):
        first, second = (
            client.post(path, json={"inputs": wrap(spelling)}).json() for spelling in (text, spaced)
        )
        if isinstance(first, dict):
            first, second = first["predictions"], second["predictions"]
        assert close(first, second), path


def test_texts_leave_early_as_by_predict(tiny_tokenizer: Path, tmp_path: Path) -> None:
    folder = made(tmp_path / "m", tiny_tokenizer, "sequence", 3, ("a", "b", "c"), **EXITS)
    layers, deepest = set(), litebert.load(folder).config.encoder.layers
    for chosen in ("auto", "off", 0.0, 2.0):
        served = Served(folder, {**OPENING, "exit_confidence": chosen})
        records = [json.loads(row.payload) for row in rows(served, "predict", LINES)]
        assert close(answers(records), litebert.load(folder, exit_confidence=chosen).predict(LINES))
        assert served.info()["exits"] == (chosen != "off")
        layers.add(tuple(record.get("layers") for record in records))
    assert {(None,) * len(LINES), (1,) * len(LINES), (deepest,) * len(LINES)} <= layers


def test_exits_and_the_engine_are_options_of_the_service(
    tiny_tokenizer: Path, tmp_path: Path
) -> None:
    folder = made(tmp_path / "m", tiny_tokenizer, "sequence", 3, ("a", "b", "c"), **EXITS)
    with (
        serving(tmp_path, folder, "--engine", "compiled", "--exit-confidence", 0.4) as service,
        service.client() as client,
    ):
        (info,) = client.get("/info").json()["models"]
        assert (info["engine"], info["exits"]) == ("compiled", True)
        predictions = client.post("/predict", json={"inputs": LINES}).json()["predictions"]
        assert close(
            answers(predictions), litebert.load(folder, exit_confidence=0.4).predict(LINES)
        )


EXTENSION = """
from litebert.answer.engines.runtime import Capabilities, Runtime
from litebert.base.registry import ENGINES

class Rounded(Runtime):
    capabilities = Capabilities(dtypes=("float32", "int8"))

    def __init__(self, loaded, device, dtype):
        self._exact, self._rounds = ENGINES["torch"](loaded, device), dtype == "int8"

    def logits(self, rows):
        logits = self._exact.logits(rows)
        return logits.round() if self._rounds else logits

    def vectors(self, rows, pooling, vector_map=None):
        vectors = self._exact.vectors(rows, pooling, vector_map)
        return vectors.round(1) if self._rounds else vectors

ENGINES.add("rounded", Rounded)
"""


@pytest.mark.thorough
def test_an_engine_applies_to_vectors_as_to_labels(models: Path, tmp_path: Path) -> None:
    """And the log says at the start how far it is from float32, for each."""
    (tmp_path / "rounded.py").write_text(EXTENSION)
    path = {"LITEBERT_EXTENSIONS": str(tmp_path / "rounded.py")}
    with (
        serving(
            tmp_path, models / "colors", "--engine", "rounded", "--dtype", "int8", **path
        ) as service,
        service.client() as client,
    ):
        assert client.get("/info").json()["models"][0]["engine"] == "rounded"
        vectors = client.post("/embed", json={"inputs": LINES, "normalize": False}).json()
        exact = litebert.load(models / "colors", engine="torch")
        np.testing.assert_allclose(
            vectors, exact.vectors_by(None, False).encode(LINES).round(1), atol=1e-6
        )
        remarks = [event["event"] for event in service.events() if "int8 differs" in event["event"]]
        assert len(remarks) == 2
        assert "of 16 answers" in remarks[0]
        assert "cosine" in remarks[1]


@pytest.mark.parametrize("engine", ["onnx"])
@pytest.mark.parametrize("folder", ["colors", "base", "x-base"])
def test_served_vectors_are_equal_by_every_engine(
    engine: str, folder: str, models: Path, tmp_path: Path
) -> None:
    pytest.importorskip({"onnx": "onnxruntime"}.get(engine, engine))
    shutil.copytree(models / folder, tmp_path / folder)
    served = Served(tmp_path / folder, {**OPENING, "engine": engine})
    warm(served)
    vectors = [json.loads(row.payload) for row in rows(served, "embed", LINES)]
    wanted = litebert.load(models / folder).encode(LINES)
    wanted /= np.linalg.norm(wanted, axis=1, keepdims=True)
    np.testing.assert_allclose(vectors, wanted, atol=1e-5)


def test_an_input_of_another_form_is_refused_and_the_others_answered(
    tiny_tokenizer: Path, tmp_path: Path
) -> None:
    served = Served(made(tmp_path / "m", tiny_tokenizer, "span", 2), {**OPENING, "tokens": 64})
    secret = "secret words"
    replies = rows(served, "predict", [[LINES[0], LINES[1]], secret, [secret, "ba " * 300]])
    assert [row.kind for row in replies] == ["", "validation", "too_large"]
    assert not any("secret" in row.refusal for row in replies)


def test_vectors_are_those_of_embed(client: httpx.Client, models: Path) -> None:
    plain = client.post("/embed", json={"inputs": LINES, "normalize": False}).json()
    expected = litebert.load(models / "base").encode(LINES)
    assert np.allclose(plain, expected, atol=1e-5)
    unit = np.array(client.post("/embed", json={"inputs": LINES}).json())
    assert np.allclose(unit, expected / np.linalg.norm(expected, axis=1, keepdims=True), atol=1e-5)
    request_body = {"inputs": {"source_sentence": LINES[0], "sentences": LINES}}
    assert np.allclose(
        client.post("/similarity", json=request_body).json(), unit @ unit[0], atol=1e-5
    )
    ranked = client.post(
        "/rerank", json={"query": LINES[0], "texts": LINES, "return_text": True}
    ).json()
    assert ranked[0]["text"] == LINES[0]
    assert [result["score"] for result in ranked] == sorted(
        (result["score"] for result in ranked), reverse=True
    )


def test_vectors_of_a_model_that_normalizes_are_plain_where_asked(
    tiny_tokenizer: Path, tmp_path: Path
) -> None:
    words = Tokenizer.load(tiny_tokenizer)
    model = TaskModel(shape(vocab_size=words.vocab_size, pooler=False), False, 0).eval()
    randomize(model, scale=0.15)
    task = {
        "task": "pairs",
        "kind": "backbone",
        "problem": "similarity",
        "length": 16,
        "pair": True,
        "vectors": {"pooling": "mean", "normalized": True},
    }
    save_litebert(model, words, tmp_path / "own", task=task)
    litebert.export(tmp_path / "own", tmp_path / "exported", head="backbone", format="onnx")
    expected = litebert.load(tmp_path / "own").vectors_by(None, False).encode(LINES)
    assert not np.allclose(np.linalg.norm(expected, axis=1), 1, atol=0.01)
    for name in ("own", "exported"):
        replies = rows(Served(tmp_path / name, OPENING), "embed", LINES, normalize=False)
        assert np.allclose([json.loads(row.payload) for row in replies], expected, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "value"), [("device", "foo"), ("device", "cuda"), ("exit_confidence", 2.0)]
)
def test_an_export_refuses_what_it_does_not_have(models: Path, name: str, value: Any) -> None:
    with refused(ConfigError, f"--{name.replace('_', '-')}", value):
        Served(models / "x-colors", {**OPENING, name: value})


def test_a_model_of_pairs_with_a_number_reranks(several: Service, number: Path) -> None:
    answers = litebert.load(number).predict([[LINES[0], text] for text in LINES])
    expected = np.array([answer["prediction"] for answer in answers])
    body = {"query": LINES[0], "texts": LINES, "model": "number"}
    with several.client() as client:
        raw = client.post("/rerank", json={**body, "raw_scores": True}).json()
        ranked = client.post("/rerank", json=body).json()
    order = np.argsort(-expected, kind="stable").tolist()
    assert [row["index"] for row in raw] == [row["index"] for row in ranked] == order
    assert [row["score"] for row in raw] == pytest.approx(expected[order], abs=1e-4)
    logistic = 1 / (1 + np.exp(-expected[order]))
    assert [row["score"] for row in ranked] == pytest.approx(logistic, abs=1e-4)


def test_masks_are_filled_as_by_fill(client: httpx.Client, models: Path) -> None:
    text = f"{LINES[0]} [MASK] {LINES[1]} ___"
    answer = client.post("/fill-mask", json={"inputs": [text], "top": 3}).json()
    expected = [
        [guess._asdict() for guess in mask]
        for mask in litebert.load(models / "base").fill_mask(text, 3)
    ]
    assert close(answer["predictions"][0]["masks"], expected)
    refused = client.post("/fill-mask", json={"inputs": [text, "ba"]})
    assert (refused.status_code, refused.json()["field"]) == (422, "inputs[1]")


def test_every_answer_says_what_was_cut_off(client: httpx.Client, models: Path) -> None:
    word, long = "ba", "ba " * 70
    tokenizer = Tokenizer.load(models / "base")
    full, most = len(tokenizer.encode([long])[0]) + 2, 64  # positions of the models here
    expected = [(len(tokenizer.encode([word])[0]) + 2, 0), (most, full - most)]
    read, cut = (sum(column) for column in zip(*expected, strict=True))

    def says(records: list[dict[str, Any]]) -> list[tuple[int, int]]:
        return [(record["tokens"], record["truncated"]) for record in records]

    predicted = client.post("/predict", json={"inputs": [word, long]})
    assert says(predicted.json()["predictions"]) == expected
    pair = client.post("/predict", json={"inputs": [[long, long]]}).json()["predictions"]
    assert says(pair) == [(most, 2 * (full - 2) + 3 - most)]
    vectors = client.post("/v1/embeddings", json={"input": [word, long], "model": "base"})
    assert says(vectors.json()["data"]) == expected
    ranked = client.post("/rerank", json={"query": word, "texts": [word, long], "model": "base"})
    assert says(sorted(ranked.json(), key=lambda result: result["index"])) == expected
    plain = client.post("/embed", json={"inputs": [word, long], "model": "base"})
    for answer in (predicted, vectors, ranked, plain):
        assert (answer.headers["x-compute-tokens"], answer.headers["x-truncated-tokens"]) == (
            str(read),
            str(cut),
        )
    filled = client.post("/fill-mask", json={"inputs": f"{word} [MASK]"}).json()["predictions"]
    assert says(filled) == [(expected[0][0] + 1, 0)]


def test_a_question_that_is_cut_says_so(tiny_tokenizer: Path, tmp_path: Path) -> None:
    served = Served(made(tmp_path / "m", tiny_tokenizer, "span", 2), OPENING)
    inputs = [["ba de", LINES[0]], ["ba " * 90, LINES[0]]]
    short, long = (json.loads(row.payload) for row in rows(served, "predict", inputs))
    assert (short["truncated"], long["truncated"] > 0) == (0, True)
    separators = served.tokenizer.pair_separators
    whole = (
        sum(map(len, served.tokenizer.encode([text.strip() for text in inputs[1]])))
        + 2
        + separators
    )
    assert long["tokens"] + long["truncated"] == whole


def test_tokens_have_their_characters(client: httpx.Client) -> None:
    text = f"{LINES[0]}  {LINES[1]}"
    pieces = client.post("/tokenize", json={"inputs": text}).json()[0]
    assert pieces[0]["special"]
    assert pieces[0]["start"] is None
    inner = client.post("/tokenize", json={"inputs": text, "add_special_tokens": False}).json()[0]
    assert inner == pieces[1:-1]
    assert "".join(text[token["start"] : token["stop"]] for token in inner) == text.replace(" ", "")


def test_a_model_is_chosen_by_field_or_path(client: httpx.Client) -> None:
    for answer in (
        client.post("/tokenize", json={"inputs": "ba", "model": "masks"}),
        client.post("/models/masks/tokenize", json={"inputs": "ba"}),
    ):
        assert answer.status_code == 200
    unable = client.post("/models/masks/predict", json={"inputs": "ba"})
    assert (unable.status_code, unable.json()["field"]) == (422, "model")
    unknown = client.post("/predict", json={"inputs": "ba", "model": "mask"})
    assert (unknown.status_code, unknown.json()["error_type"]) == (404, "not_found")
    info = client.get("/info").json()
    assert {model["name"]: model["kind"] for model in info["models"]} == {
        "colors": "classes",
        "base": "similarity",
        "masks": "pretrained",
    }
    assert info["models"][2]["mask"] == "[MASK]"


def test_openais_client_is_answered(service: Service, models: Path) -> None:
    import openai

    with openai.OpenAI(base_url=f"{service.url}/v1", api_key="none", max_retries=0) as client:
        reply = client.embeddings.create(model="base", input=LINES[:3])
        listed = client.embeddings.create(model="base", input=LINES[:3], encoding_format="float")
        assert [model.id for model in client.models.list()] == ["colors", "base", "masks"]
        with pytest.raises(openai.NotFoundError) as unknown:
            client.embeddings.create(model="text-embedding-3-small", input="ba")
        with pytest.raises(openai.APIStatusError) as wrong:
            client.embeddings.create(model="base", input=LINES[0], dimensions=300)
        cut = client.embeddings.create(model="base", input=LINES[0], dimensions=3)
    assert unknown.value.code == "model_not_found"
    assert wrong.value.param == "dimensions"
    expected = litebert.load(models / "base").encode(LINES[:3])
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    for entry, other, vector in zip(reply.data, listed.data, expected, strict=True):
        assert np.allclose(entry.embedding, vector, atol=1e-5)
        assert np.allclose(other.embedding, vector, atol=1e-5)
    first = expected[0, :3] / np.linalg.norm(expected[0, :3])
    assert np.allclose(cut.data[0].embedding, first, atol=1e-5)
    assert reply.usage.total_tokens > 0
    with openai.OpenAI(base_url=f"{service.url}/v1", api_key="none", max_retries=0) as client:
        assert client.models.retrieve("base").id == "base"
        with pytest.raises(openai.NotFoundError):
            client.models.retrieve("other")
        tokenizer = Tokenizer.load(models / "base")
        ids = tokenizer.encode(LINES[:3])
        ends = [[tokenizer.cls_id, *text_ids, tokenizer.sep_id] for text_ids in ids]
        for tokens in (ids, ends):
            by_ids = client.embeddings.create(model="base", input=tokens)
            for vector, same in zip(by_ids.data, reply.data, strict=True):
                assert np.allclose(vector.embedding, same.embedding, atol=1e-6)
        single = client.embeddings.create(model="base", input=ids[0] * 300)
        assert (len(single.data), single.usage.total_tokens) == (1, 64)


def test_hugging_faces_client_is_answered(
    service: Service, models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from huggingface_hub import InferenceClient, constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)  # so that it asks our address
    client = InferenceClient(token="none")
    vector = client.feature_extraction(LINES[0], model=f"{service.url}/embed")
    assert vector.shape == (1, 16)
    assert np.linalg.norm(vector) == pytest.approx(1)
    cosines = client.sentence_similarity(
        LINES[0], other_sentences=LINES[:3], model=f"{service.url}/similarity"
    )
    assert cosines[0] == pytest.approx(1, abs=1e-5)
    likely = litebert.load(models / "colors").predict(LINES[:1])[0]["probabilities"]
    for top in (None, 2):
        labeled = client.text_classification(LINES[0], model=f"{service.url}/predict", top_k=top)
        expected = sorted(likely.items(), key=lambda pair: -pair[1])[:top]
        assert [entry.label for entry in labeled] == [label for label, _ in expected]
        assert [entry.score for entry in labeled] == pytest.approx(
            [score for _, score in expected], abs=2e-5
        )


@pytest.fixture(scope="module")
def number(tiny_tokenizer: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that answers a text, or a pair of texts, with a number."""
    folder = tmp_path_factory.mktemp("several") / "number"
    return made(folder, tiny_tokenizer, "sequence", 1, (), problem="number")


@pytest.fixture(scope="module")
def several(tiny_tokenizer: Path, number: Path) -> Iterator[Service]:
    """A service of a model of each kind that Hugging Face's client has a task for."""
    place = number.parent
    made(place / "tags", tiny_tokenizer, "tokens", 3, ("B-X", "O", "I-X"))
    made(place / "span", tiny_tokenizer, "span", 2)
    labels = tuple(f"label{number}" for number in range(LABELS))
    made(place / "labels", tiny_tokenizer, "sequence", LABELS, labels, problem="labels")
    for name in ("tags", "span", "number", "labels"):  # exports are small to start
        litebert.export(place / name, place / f"x-{name}", format="onnx")
    words = [f"{name}={place / f'x-{name}'}" for name in ("tags", "span", "number", "labels")]
    with serving(place, *words) as service:
        yield service


def test_answers_hold_the_likeliest_labels(client: httpx.Client, several: Service) -> None:
    with several.client() as other:
        for asking, name, count in ((client, "colors", 3), (other, "labels", LABELS)):

            def ask(top: int | None, asking: httpx.Client = asking, name: str = name) -> list[Any]:
                body = {"inputs": LINES, "top": top}
                answers = asking.post(f"/models/{name}/predict", json=body).json()["predictions"]
                return [answer["probabilities"] for answer in answers]

            every = ask(10 * LABELS)
            for top, size in ((1, 1), (3, 3), (50, min(50, count)), (None, min(100, count))):
                for whole, part in zip(every, ask(top), strict=True):
                    likely = sorted(whole.values(), reverse=True)
                    assert [*whole.values()] == likely
                    assert (len(part), part.items() <= whole.items()) == (size, True)
                    assert sorted(part.values(), reverse=True) == likely[:size]
                    assert top is None or [*part.values()] == likely[:size]
        many = other.post("/models/labels/predict", json={"inputs": LINES * 10, "top": LABELS})
        assert (many.status_code, many.json()["field"]) == (413, "top")


def test_hugging_faces_client_asks_the_root(
    service: Service, several: Service, models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from huggingface_hub import InferenceClient, constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)  # so that it asks our address
    text = " ".join(LINES[:3])

    def at(service: Service, name: str = "") -> Any:
        return InferenceClient(model=f"{service.url}{name}", token="none")

    for url in ("", "/"):  # of the first model
        labels = at(service, url).text_classification(text, function_to_apply="none")
        shares = at(service).text_classification(text, function_to_apply="softmax")
        assert [one.score for one in shares] == pytest.approx(
            np.exp([one.score for one in labels]) / np.exp([one.score for one in labels]).sum()
        )
        each = at(service, url).text_classification(text, function_to_apply="sigmoid")
        assert each[0].score == pytest.approx(1 / (1 + np.exp(-labels[0].score)))
    vectors = at(service, "/models/base").feature_extraction(
        text, normalize=True, truncate=True, truncation_direction="right", dimensions=3
    )
    assert vectors.shape == (1, 3)
    with pytest.raises(Exception, match="422"):
        at(service, "/models/base").feature_extraction(text, truncation_direction="left")
    cosines = at(service, "/models/base").sentence_similarity(text, other_sentences=[text, "ba"])
    assert cosines[0] == pytest.approx(1, abs=1e-5)
    model, masked = litebert.load(models / "base"), f"{LINES[0]} [MASK] {LINES[1]}"
    (guesses,) = model.fill_mask(masked, 4)
    found = at(service, "/models/masks").fill_mask(masked, top_k=4)
    assert [one.token for one in found] == [guess.id for guess in guesses]
    assert guesses[0].token in found[0].sequence
    targets = ["ba", "de", model.require_tokenizer().get_token(7)]
    (guesses,) = model.fill_mask(masked, targets=targets)
    found = at(service, "/models/masks/fill-mask").fill_mask(masked, targets=targets, top_k=2)
    assert [(one.token, one.score) for one in found] == [
        (guess.id, pytest.approx(guess.probability, abs=2e-5)) for guess in guesses[:2]
    ]
    tags = at(several).token_classification(
        text, aggregation_strategy="none", ignore_labels=[], stride=2
    )
    assert [one.word for one in tags] == text.split()
    entities = at(several).token_classification(text)
    assert entities
    for one in (*tags, *entities):
        assert text[one.start : one.end] == one.word
    assert at(several).token_classification(text, ignore_labels=["X", "O"]) == []
    answer = at(several, "/models/span").question_answering(
        question="ba", context=text, max_answer_len=9, handle_impossible_answer=True
    )
    assert answer.answer == text[answer.start : answer.end]
    assert 0 <= answer.score <= 1
    (number,) = at(several, "/models/number").text_classification(text)
    with several.client() as client:
        answers = client.post("/models/number/predict", json={"inputs": text}).json()
        plain = answers["predictions"][0]["prediction"]
        assert number.score == pytest.approx(plain, abs=1e-5)
        body = {"inputs": [{"question": "ba", "context": text}], "parameters": {"top_k": 2}}
        ((best, second),) = client.post("/models/span/", json=body).json()
        assert best["score"] >= second["score"]


def test_texts_are_ranked_in_the_shapes_of_jina_and_cohere(client: httpx.Client) -> None:
    plain = client.post("/rerank", json={"query": LINES[0], "texts": LINES, "foo": 1}).json()
    body = {
        "model": "base",
        "query": LINES[0],
        "documents": [*LINES[:6], *({"text": text, "id": 3} for text in LINES[6:])],
        "top_n": 3,
        "return_documents": True,
        "max_chunks_per_doc": 10,
    }
    for path in ("/rerank", "/v1/rerank", "/v2/rerank", "/models/base/v1/rerank"):
        answer = client.post(path, json=body).json()
        assert [
            (rank["index"], rank["relevance_score"], rank["document"]["text"])
            for rank in answer["results"]
        ] == [(rank["index"], rank["score"], LINES[rank["index"]]) for rank in plain[:3]]
        assert answer["usage"]["total_tokens"] == sum(rank["tokens"] for rank in plain)
    cut = client.post("/rerank", json={"query": LINES[0], "texts": LINES, "top_n": 2}).json()
    assert cut == plain[:2]


def test_the_root_reads_top_as_the_routes_do(client: httpx.Client) -> None:
    for top in (0, -1):
        answer = client.post("/", json={"inputs": "ba", "top": top})
        assert (answer.status_code, answer.json()["field"]) == (422, "top")
    (labels,) = client.post("/", json={"inputs": "ba", "top": 2}).json()
    assert len(labels) == 2
    body = {"inputs": "ba [MASK]", "top": 7}
    assert len(client.post("/models/masks", json=body).json()) == 7


def test_vectors_of_named_prompts_are_those_of_encode(models: Path, tmp_path: Path) -> None:
    """And a name that the model does not have is repeated in part."""
    shutil.copytree(models / "base", tmp_path / "asks")
    settings = {"prompts": {"query": "ba de: ", "text": ""}, "truncate_dim": 6}
    modules = [
        {"type": "sentence_transformers.models.Transformer", "path": ""},
        {"type": "sentence_transformers.models.Pooling", "path": "1_Pooling"},
    ]
    (tmp_path / "asks" / "modules.json").write_text(json.dumps(modules))
    (tmp_path / "asks" / "config_sentence_transformers.json").write_text(json.dumps(settings))
    (tmp_path / "asks" / "1_Pooling").mkdir()
    mean = {"word_embedding_dimension": 16, "pooling_mode_mean_tokens": True}
    (tmp_path / "asks" / "1_Pooling" / "config.json").write_text(json.dumps(mean))
    model = litebert.load(tmp_path / "asks")
    with serving(tmp_path, tmp_path / "asks") as service, service.client() as client:
        assert client.get("/info").json()["models"][0]["prompts"] == ["query", "text"]
        for path in ("/embed", "/"):
            for name in (None, "query", "text"):
                for size in (None, 3, 6):
                    body = {"inputs": LINES[:2], "prompt_name": name, "dimensions": size}
                    wanted = model.encode(LINES[:2], prompt_name=name)[:, :size]
                    wanted /= np.linalg.norm(wanted, axis=1, keepdims=True)
                    np.testing.assert_allclose(
                        client.post(path, json=body).json(), wanted, atol=1e-5
                    )
            wide = client.post(path, json={"inputs": "ba", "dimensions": 7})
            assert (wide.status_code, wide.json()["field"]) == (422, "dimensions")
            other = client.post(path, json={"inputs": "ba", "prompt_name": "x" * 5000})
            assert (other.status_code, other.json()["field"]) == (422, "prompt_name")
            assert len(other.text) < 200


def test_the_service_describes_what_each_route_reads(
    client: httpx.Client, models: Path, tiny_tokenizer: Path, tmp_path: Path
) -> None:
    info = client.get("/info").json()
    assert (info["model_dtype"], info["max_input_length"]) == ("float32", 64)
    assert [model["pooling"] for model in info["models"]] == [None, "mean", None]
    folder = made(tmp_path / "short", tiny_tokenizer, "sequence", 2, ("a", "b"))
    (folder / "modules.json").write_text(
        json.dumps(
            [
                {"type": "sentence_transformers.models.Transformer", "path": ""},
                {"type": "sentence_transformers.models.Pooling", "path": "1_Pooling"},
            ]
        )
    )
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 16}')
    (folder / "1_Pooling").mkdir()
    cls = {"word_embedding_dimension": 16, "pooling_mode_cls_token": True}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(cls))
    served = Served(folder, OPENING)
    about, (row,) = served.info(), rows(served, "embed", ["ba " * 40])
    assert (about["lengths"]["embed"], about["length"], row.tokens) == (16, 16, 16)
    assert about["lengths"]["predict"] > 16
    assert about["pooling"] == "cls"
    if importlib.util.find_spec("onnxruntime"):
        litebert.export(
            models / "base", tmp_path / "small", head="backbone", dtype="int8", format="onnx"
        )
        assert Served(tmp_path / "small", OPENING).info()["dtype"] == "int8"


def test_an_export_answers_without_torch(models: Path) -> None:
    import subprocess
    import sys

    program = """
import json, sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        blocked = "torch onnx transformers sklearn scipy pyarrow sentencex matplotlib".split()
        if name.partition(".")[0] in blocked:
            raise ImportError(name)
sys.meta_path.insert(0, Blocked())
from pathlib import Path
from litebert.serve import server
from litebert.serve.served import Served
from litebert.serve.worker import warm
settings = {"engine": None, "device": "auto", "exit_confidence": "auto", "threads": 1, "tokens": 99}
served = Served(Path(sys.argv[1]), settings)
print(served.predict(["ba de fi"])[0].payload.decode())
"""
    done = subprocess.run(
        [sys.executable, "-c", program, models / "x-colors"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert close(
        answers([json.loads(done.stdout)]), litebert.load(models / "colors").predict(["ba de fi"])
    )
