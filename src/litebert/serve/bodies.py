"""The bodies of requests and answers. Types refuse unknown fields; `null` leaves a field out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from litebert.serve.limits import PARTS, TOP, Refusal

Text = str
Texts = Annotated[list[Text], Field(min_length=1, fail_fast=True)]
Ids = Annotated[
    list[Annotated[int, Field(ge=0)]], Field(min_length=1, max_length=PARTS, fail_fast=True)
]
"""Tokens of the model's own tokenizer, without special ones."""
Words = Annotated[list[str], Field(fail_fast=True)]
Targets = Annotated[list[str], Field(min_length=1, max_length=TOP, fail_fast=True)]
MODEL = Field(None, description="Name of the model; by default the first that can do this.")
DIMENSIONS = Field(
    None,
    ge=1,
    description="The numbers of a vector that are left, the first ones, before its length is made "
    "1; all by default.",
)
TRUNCATE = Field(True, description="Whether longer texts lose their ends; else they are refused.")


def _example(**body: Any) -> ConfigDict:
    return ConfigDict(json_schema_extra={"examples": [body]})


class Body(BaseModel):
    """A request."""

    model_config = ConfigDict(extra="forbid", strict=True, protected_namespaces=())

    model: str | None = MODEL


class NamedInput(BaseModel):
    """An input with names: a text (and its pair), a question and its context, choices, or words."""

    model_config = ConfigDict(extra="forbid", strict=True)

    text: str | None = None
    pair: str | None = None
    words: Words | None = None
    question: str | None = None
    context: str | None = None
    choices: Words | None = None

    def value(self) -> Any:
        """Return the input as `predict` takes it; None if the names do not belong together."""
        fields = {name: value for name, value in self if value is not None}
        if fields.keys() == {"context", "choices"}:
            fields["question"] = ""
        for form in ("text", "text pair", "words", "question context", "context question choices"):
            if fields.keys() == {*form.split()}:
                values = [fields[name] for name in form.split()]
                return values[0] if len(values) == 1 else values
        return None


Input = (
    str
    | NamedInput
    | Annotated[list[str | Words], Field(min_length=1, max_length=PARTS, fail_fast=True)]
)


class Parameters(BaseModel):
    """Parameters that Hugging Face's `InferenceClient` may send; those of any value are not read,
    because the model has settings of its own for them.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    function_to_apply: Literal["softmax", "sigmoid", "none"] | None = None
    top_k: int | None = Field(None, ge=1)
    targets: Targets | None = None
    aggregation_strategy: Literal["none", "simple", "first", "average", "max"] | None = None
    ignore_labels: Words | None = None
    stride: Any = None
    align_to_words: Any = None
    doc_stride: Any = None
    handle_impossible_answer: Any = None
    max_answer_len: Any = None
    max_question_len: Any = None
    max_seq_len: Any = None


PARAMETERS = Field(
    None, description="What Hugging Face's InferenceClient sends; the answer has its shape, too."
)


class Predict(Body):
    """The body of `POST /predict`."""

    model_config = _example(inputs=["a fine film", "dull"])

    inputs: str | NamedInput | Annotated[list[Input], Field(min_length=1, fail_fast=True)]
    truncate: bool | None = TRUNCATE
    top: int | None = Field(
        None,
        ge=1,
        description="The likeliest labels alone, the likeliest first; by default at most 100.",
    )
    parameters: Parameters | None = PARAMETERS


class FillMask(Body):
    """The body of `POST /fill-mask`."""

    model_config = _example(inputs="Paris is the [MASK] of France.", top=2)

    inputs: Text | Texts
    top: int | None = Field(5, ge=1, le=TOP, description="Predictions for each mask.")
    targets: Targets | None = Field(None, description="Words to give the probabilities of instead.")
    parameters: Parameters | None = PARAMETERS


class Embed(Body):
    """The body of `POST /embed`."""

    model_config = _example(inputs=["a fine film", "dull"])

    inputs: Text | Texts
    normalize: bool | None = Field(True, description="Whether vectors have length 1.")
    truncate: bool | None = TRUNCATE
    truncation_direction: Literal["Right", "right"] | None = "Right"
    dimensions: int | None = DIMENSIONS
    prompt_name: str | None = Field(
        None, description="Prompt of the model before each text; by default as the model says."
    )
    encoding_format: Literal["float"] | None = "float"


class Similarity(Body):
    """The body of `POST /similarity`."""

    model_config = _example(
        inputs={"source_sentence": "a fine film", "sentences": ["a good movie"]}
    )

    class Inputs(BaseModel):
        """A sentence and those it is compared with."""

        model_config = ConfigDict(extra="forbid", strict=True)

        source_sentence: Text
        sentences: Texts

    inputs: Inputs
    parameters: dict[str, Any] | None = Field(None, max_length=0)


class Root(Embed):
    """The body of `POST /`: what Hugging Face's `InferenceClient` sends to the address of a
    service.
    """

    inputs: (  # type: ignore[assignment]
        str | NamedInput | Similarity.Inputs | Annotated[list[Input], Field(min_length=1)]
    )
    top: int | None = Field(None, ge=1)
    targets: Targets | None = None
    parameters: Parameters | None = PARAMETERS


class Document(BaseModel):
    """A text with fields of its own, which are not read."""

    text: Text


class Rerank(Body):
    """The body of `POST /rerank`: `texts`, as of text-embeddings-inference, or `documents`, as of
    Jina and Cohere. Other fields are not read, as in these services.
    """

    model_config = ConfigDict(extra="ignore") | _example(
        query="opening hours", texts=["We open at nine.", "Rain again."]
    )

    query: Text
    texts: Texts | None = None
    documents: Annotated[list[Text | Document], Field(min_length=1, fail_fast=True)] | None = None
    top_n: int | None = Field(None, ge=1, description="The best texts alone; all by default.")
    return_documents: bool | None = False
    raw_scores: bool | None = False
    return_text: bool | None = False
    truncate: bool | None = TRUNCATE
    truncation_direction: Literal["Right", "right"] | None = "Right"


class Tokenize(Body):
    """The body of `POST /tokenize`."""

    model_config = _example(inputs="a fine film")

    inputs: Text | Texts
    add_special_tokens: bool | None = True


class Embeddings(Body):
    """The body of `POST /v1/embeddings`."""

    model_config = _example(input=["a fine film"])

    input: Text | Texts | Ids | Annotated[list[Ids], Field(min_length=1, fail_fast=True)]
    encoding_format: Literal["float", "base64"] | None = "float"
    dimensions: int | None = DIMENSIONS
    user: str | None = None


# ------------------------------------------------------------------------------------------ answers

TOKENS = Field(description="Tokens that the model read, special ones included.")
CUT = Field(
    description="Tokens that were cut off, because the model reads no more; 0 where it read all."
)


class Predictions(BaseModel):
    """The answer of `POST /predict` and `POST /fill-mask`."""

    model: str
    kind: str | None = None
    ms: float
    predictions: list[dict[str, Any]] = Field(
        description="The answer to each input, with `tokens` (read) and `truncated` (tokens that "
        "were cut off)."
    )


class Usage(BaseModel):
    """Tokens that were read."""

    prompt_tokens: int
    total_tokens: int


class Ranks(BaseModel):
    """The answer of `POST /rerank` to `documents`."""

    model: str
    object: Literal["list"]
    results: list[dict[str, Any]]
    usage: Usage


class Rank(BaseModel):
    """A text with its score."""

    index: int
    score: float
    text: str | None = None
    tokens: int = TOKENS
    truncated: int = CUT


class Token(BaseModel):
    """A token."""

    id: int
    text: str
    special: bool
    start: int | None
    stop: int | None


class Vector(BaseModel):
    """A vector with its place."""

    object: Literal["embedding"]
    index: int
    embedding: list[float] | str
    tokens: int = TOKENS
    truncated: int = CUT


class Vectors(BaseModel):
    """The answer of `POST /v1/embeddings`."""

    object: Literal["list"]
    model: str
    data: list[Vector]
    usage: Usage


class Failure(BaseModel):
    """Why a request is not answered."""

    error: str
    error_type: str
    field: str | None


class OpenAIFailure(BaseModel):
    """The same in OpenAI's shape."""

    class Inside(BaseModel):
        """The error."""

        message: str
        type: str
        param: str | None
        code: str | None

    error: Inside


# ------------------------------------------------------------------------------------------ faults

_FIELDS = {
    name
    for kind in (*vars().values(), Similarity.Inputs)
    if isinstance(kind, type) and issubclass(kind, BaseModel)
    for name in kind.model_fields
}


def describe_fault(faults: Sequence[Any]) -> Refusal:
    """Return the refusal of a body's innermost fault, which quotes only an unknown field's name."""

    def rank(fault: Any) -> tuple[Any, ...]:
        """Order faults by how far a form was followed: to an element, and to its value."""
        places = [part for part in fault["loc"] if isinstance(part, int)]
        is_of_type = not fault["type"].endswith("_type")
        return fault["type"] == "too_short", len(fault["loc"]), places, is_of_type

    first: dict[str, Any] = max(faults, key=rank)
    kind, field, names = first["type"], "", [*first["loc"]]
    for depth, name in enumerate(names):
        if isinstance(name, int):
            field += f"[{name}]"
        elif name in _FIELDS or (kind == "extra_forbidden" and depth == len(names) - 1):
            field += f".{name}" if field else name
    form = f"{field} is of the wrong form: {first['msg'][:1].lower()}{first['msg'][1:]}"
    message = {
        "extra_forbidden": f"{field[:60]} is unknown here; leave it out",
        "missing": f"{field} is missing",
        "too_short": f"{field} is empty; give one at least",
    }.get(kind, form)
    if not field:
        message = "the body is not a JSON object; GET /docs shows the fields of each route"
    return Refusal(422, "validation", message, field[:60] or None)
