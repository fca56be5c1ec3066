"""The routes: bodies in, answers out, in the shapes of docs/reference/http.md."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from importlib.metadata import version
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.routing import APIRoute

from litebert.serve import bodies
from litebert.serve.costs import count_masks
from litebert.serve.limits import SCORES, TOP
from litebert.serve.metrics import resident
from litebert.serve.refusals import Refusal
from litebert.serve.service import ABOUT, Service
from litebert.serve.wire import Row

FAILURES: dict[int | str, dict[str, Any]] = {
    status: {"model": bodies.Failure, "description": what}
    for status, what in {
        400: "No JSON, or no UTF-8",
        401: "The key is missing or wrong",
        403: "This Host or Origin is not served",
        404: "No such model",
        408: "The body came too slowly",
        413: "Beyond a limit",
        415: "Not application/json",
        422: "A field is wrong",
        429: "The queue is full",
        431: "The headers are too large",
        500: "An input could not be answered",
        501: "An unknown Transfer-Encoding",
        503: "The worker died, or the service stops",
        504: "No answer in time",
    }.items()
}
OPENAI_FAILURES = {
    status: {**shape, "model": bodies.OpenAIFailure} for status, shape in FAILURES.items()
}
JSON = "application/json"


def _answer(value: bytes, rows: Sequence[Row] = ()) -> Response:
    """Make a response of JSON. For rows, the headers count the tokens that were read (as in
    text-embeddings-inference) and cut off.
    """
    headers = {
        "x-compute-tokens": str(sum(row.tokens for row in rows)),
        "x-truncated-tokens": str(sum(row.truncated for row in rows)),
    }
    return Response(value, headers=headers if rows else None, media_type=JSON)


def _join_payloads(rows: Sequence[Row]) -> bytes:
    """Return the JSON list of the payloads of rows."""
    return b"[" + b",".join(row.payload for row in rows) + b"]"


def _inputs(value: Any, field: str = "inputs") -> tuple[list[Any], str]:
    """Return the inputs of a body, and the name of each with {} for its index."""
    return (value, f"{field}[{{}}]") if isinstance(value, list) else ([value], field)


async def _parse_json(request: Request) -> Any:
    """Parse the body of a request.

    Raises:
        ValueError: it is no JSON in UTF-8.
        Refusal: it is JSON that Python does not read.
    """
    try:
        return await request.json()
    except RecursionError:
        message = "the body is nested too deeply; GET /docs shows the form of each route"
        raise Refusal(400, "bad_request", message) from None
    except ValueError as error:
        if isinstance(error, (json.JSONDecodeError, UnicodeDecodeError)):
            raise
        message = "the body has a number of too many digits; send a smaller number"
        raise Refusal(400, "bad_request", message) from None


class ComputingRoutes:
    """The routes that compute."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def router(self) -> APIRouter:
        """Make the router, whose bodies are looked at before they are validated."""
        router = APIRouter(responses=FAILURES, route_class=_checking_route(self._service))
        add = router.post
        add(
            "/predict",
            response_model=bodies.Predictions | list[list[bodies.Labeled]],
            summary="Answers of a fine-tuned model",
        )(self.predict)
        add(
            "/fill-mask", response_model=bodies.Predictions, summary="Predictions for masked words"
        )(self.fill_mask)
        add("/embed", response_model=list[list[float]], summary="Sentence vectors")(self.embed)
        add("/similarity", response_model=list[float], summary="Cosines of a sentence with others")(
            self.similarity
        )
        add(
            "/rerank",
            response_model=list[bodies.Rank],
            response_model_exclude_none=True,
            summary="Texts by how well they fit a query",
        )(self.rerank)
        add(
            "/tokenize",
            response_model=list[list[bodies.Token]],
            summary="Tokens with their characters",
        )(self.tokenize)
        add(
            "/v1/embeddings",
            response_model=bodies.Vectors,
            responses=OPENAI_FAILURES,
            summary="Sentence vectors in OpenAI's shape",
        )(self.embeddings)
        return router

    async def predict(self, request: Request, body: bodies.Predict) -> Response:
        pool = self._service.choose(request, body.model, "predict")
        inputs, field = _inputs(body.inputs)
        values = [_plain(value, field.format(index)) for index, value in enumerate(inputs)]
        listed, top = body.parameters is not None, body.top
        if body.parameters is not None:
            _check_parameters(body.parameters, pool.info["kind"])
            top = top or body.parameters.top_k
        rows = await self._service.ask(
            request,
            pool,
            "predict",
            values,
            field,
            truncate=body.truncate,
            top=_count_labels(pool.info, top, len(values)),
            listed=listed or None,
        )
        if listed:
            return _answer(_join_payloads(rows), rows)
        return _wrap(request, pool.name, rows, kind=pool.info["kind"])

    async def fill_mask(self, request: Request, body: bodies.FillMask) -> Response:
        pool = self._service.choose(request, body.model, "fill-mask")
        inputs, field = _inputs(body.inputs)
        _check_masks(inputs, body.top or 5)
        rows = await self._service.ask(request, pool, "fill-mask", inputs, field, top=body.top)
        return _wrap(request, pool.name, rows)

    async def embed(self, request: Request, body: bodies.Embed) -> Response:
        pool = self._service.choose(request, body.model, "embed")
        inputs, field = _inputs(body.inputs)
        rows = await self._service.ask(
            request, pool, "embed", inputs, field, normalize=body.normalize, truncate=body.truncate
        )
        return _answer(_join_payloads(rows), rows)

    async def similarity(self, request: Request, body: bodies.Similarity) -> Response:
        pool = self._service.choose(request, body.model, "similarity")
        pairs = [(body.inputs.source_sentence, sentence) for sentence in body.inputs.sentences]
        rows = await self._service.ask(request, pool, "cosine", pairs, "inputs.sentences[{}]")
        return _answer(_join_payloads(rows), rows)

    async def rerank(self, request: Request, body: bodies.Rerank) -> Response:
        pool = self._service.choose(request, body.model, "rerank")
        pairs = [(body.query, text) for text in body.texts]
        pairs_to_number = pool.info["kind"] == "number" and pool.info["pair"] is not False
        options = {"truncate": body.truncate, "raw": body.raw_scores if pairs_to_number else None}
        operation = "score" if pairs_to_number else "cosine"
        rows = await self._service.ask(request, pool, operation, pairs, "texts[{}]", **options)
        ranks: list[dict[str, Any]] = [
            {
                "index": index,
                "score": float(row.payload),
                "tokens": row.tokens,
                "truncated": row.truncated,
            }
            for index, row in enumerate(rows)
        ]
        ranks.sort(key=lambda rank: -rank["score"])
        if body.return_text:
            ranks = [{**rank, "text": body.texts[rank["index"]]} for rank in ranks]
        return _answer(json.dumps(ranks).encode(), rows)

    async def tokenize(self, request: Request, body: bodies.Tokenize) -> Response:
        pool = self._service.choose(request, body.model, "tokenize")
        inputs, field = _inputs(body.inputs)
        rows = await self._service.ask(
            request, pool, "tokenize", inputs, field, special=body.add_special_tokens
        )
        return _answer(_join_payloads(rows), rows)

    async def embeddings(self, request: Request, body: bodies.Embeddings) -> Response:
        pool = self._service.choose(request, body.model, "embed")
        width = pool.info["width"]
        if body.dimensions is not None and body.dimensions > width:
            raise Refusal(
                422,
                "validation",
                f"dimensions is {body.dimensions}, and vectors have {width}; give {width} or fewer",
                "dimensions",
            )
        inputs, field = _tokens_or_texts(body.input)
        is_base64 = body.encoding_format == "base64"
        options = {"base": is_base64, "dimensions": body.dimensions}
        rows = await self._service.ask(request, pool, "embed", inputs, field, **options)
        tokens = sum(row.tokens for row in rows)
        entries = [
            b'{"object": "embedding", "index": %d, "embedding": %b, "tokens": %d, "truncated": %d}'
            % (index, row.payload, row.tokens, row.truncated)
            for index, row in enumerate(rows)
        ]
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        tail = json.dumps({"model": pool.name, "usage": usage})
        data = b"[" + b",".join(entries) + b"]"
        return _answer(b'{"object": "list", "data": ' + data + b", " + tail[1:].encode(), rows)


def _checking_route(service: Service) -> type[APIRoute]:
    """Make the class of routes whose bodies are looked at before they are validated."""

    class CheckingRoute(APIRoute):
        """A route that refuses a body beyond the limits before it is validated."""

        def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
            handle = super().get_route_handler()

            async def check_and_handle(request: Request) -> Response:
                service.limits.check_values(await request.body())
                with suppress(json.JSONDecodeError, UnicodeDecodeError):  # the handler refuses it
                    service.limits.check_shape(await _parse_json(request))
                return await handle(request)

            return check_and_handle

    return CheckingRoute


def _wrap(request: Request, model: str, rows: Sequence[Row], **more: Any) -> Response:
    """Make the response of predictions, with the model and the milliseconds so far."""
    spent = round(1000 * (time.monotonic() - request.scope[ABOUT]["start"]), 2)
    head = json.dumps({"model": model, **more, "ms": spent})
    payload = head[:-1].encode() + b', "predictions": ' + _join_payloads(rows) + b"}"
    return _answer(payload, rows)


def _tokens_or_texts(value: Any) -> tuple[list[Any], str]:
    """Return the inputs of `/v1/embeddings`: texts or lists of token ids. A single input may stand
    alone.
    """
    if isinstance(value, list) and not isinstance(value[0], (str, list)):
        return [value], "input"
    return _inputs(value, "input")


def _count_labels(info: dict[str, Any], top: int | None, inputs: int) -> int | None:
    """Count the labels that each answer holds, the likeliest first.

    None stands for all labels in the order of the model, and for answers that hold no labels.

    Raises:
        Refusal: the answer would be too large, or the model has no labels.
    """
    count = len(info["labels"])
    if info["kind"] not in ("classes", "labels"):
        if top is not None:
            raise Refusal(
                422, "validation", "top is for models of classes or labels; leave it out", "top"
            )
        return None
    few = min(count, TOP if top is None else top)
    if few * inputs > SCORES:
        message = (
            f"top asks for {few:,} labels of each of {inputs:,} inputs, and an answer holds "
            f"at most {SCORES:,}"
        )
        raise Refusal(413, "too_large", f"{message}; give a smaller top or fewer inputs", "top")
    return few if few < count or top is not None else None


def _check_masks(texts: list[str], top: int) -> None:
    """Refuse masks whose predictions would be too large an answer.

    Raises:
        Refusal: the answer would be too large.
    """
    masks = sum(map(count_masks, texts))
    if masks * top > SCORES:
        message = (
            f"top asks for {top} predictions of each of {masks:,} masks, and an answer holds "
            f"at most {SCORES:,}"
        )
        raise Refusal(413, "too_large", f"{message}; give a smaller top or fewer masks", "top")


def _check_parameters(parameters: bodies.Parameters, kind: str) -> None:
    """Refuse parameters of Hugging Face's `text_classification` that this model does not compute.

    Raises:
        Refusal: the model has no classes or labels, or computes another function of its logits.
    """
    if kind not in ("classes", "labels"):
        raise Refusal(
            422,
            "validation",
            "parameters are for models of classes or labels; leave them out",
            "parameters",
        )
    function = {"classes": "softmax", "labels": "sigmoid"}[kind]
    if parameters.function_to_apply not in (None, function):
        field = "parameters.function_to_apply"
        raise Refusal(
            422, "validation", f"{field} must be {function} for this model; leave it out", field
        )


def _plain(value: Any, field: str) -> Any:
    """Return an input of `/predict` in the form that a task takes.

    Raises:
        Refusal: its names do not belong together.
    """
    if not isinstance(value, bodies.NamedInput):
        return value
    if (plain := value.value()) is None:
        forms = "text; text and pair; words; question and context; or context, question and choices"
        raise Refusal(
            422,
            "validation",
            f"{field} has fields that do not belong together; give {forms}",
            field,
        )
    return plain


class AboutRoutes:
    """The routes that tell about the service."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def router(self) -> APIRouter:
        """Make the router."""
        router = APIRouter()
        add = router.get
        add("/info", response_model=dict[str, Any], summary="Models, limits and version")(self.info)
        add("/v1/models", response_model=dict[str, Any], summary="Models in OpenAI's shape")(
            self.models
        )
        add(
            "/v1/models/{name}",
            response_model=dict[str, Any],
            responses={404: {"model": bodies.OpenAIFailure}},
            summary="A model in OpenAI's shape",
        )(self.model)
        add(
            "/health",
            response_model=dict[str, str],
            responses={503: {"model": dict[str, str]}},
            summary="Whether every model has a living worker",
        )(self.health)
        add(
            "/metrics",
            response_class=Response,
            summary="Prometheus text",
            responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
        )(self.metrics)
        return router

    async def info(self) -> Response:
        service = self._service
        models = [{"name": name, **pool.info} for name, pool in service.pools.items()]
        first, limits = models[0], service.limits
        content = {
            "version": version("litebert"),
            "model_id": first["name"],
            "model_sha": None,
            "model_dtype": "float32",
            "model_type": _model_type(first),
            "max_input_length": first["length"],
            "max_client_batch_size": limits.rows,
            "max_batch_tokens": limits.tokens,
            "auto_truncate": True,
            "models": models,
            "limits": vars(limits),
        }
        return _answer(json.dumps(content).encode())

    async def models(self) -> Response:
        data = list(map(_listing, self._service.pools))
        return _answer(json.dumps({"object": "list", "data": data}).encode())

    async def model(self, name: str) -> Response:
        if name not in self._service.pools:
            raise self._service.refuse_name(name)
        return _answer(json.dumps(_listing(name)).encode())

    async def health(self) -> Response:
        service = self._service
        well = not service.draining and all(pool.healthy for pool in service.pools.values())
        body = {"status": "ok" if well else "unavailable"}
        return Response(json.dumps(body), 200 if well else 503, media_type=JSON)

    async def metrics(self) -> Response:
        pools = self._service.pools
        gauges: dict[str, tuple[str, dict[str, float]]] = {
            "litebert_queue_rows": (
                "Inputs that wait.",
                {name: pool.queue.rows for name, pool in pools.items()},
            ),
            "litebert_workers": (
                "Workers that live.",
                {name: len(pool.pids) for name, pool in pools.items()},
            ),
            "litebert_worker_restarts": (
                "Workers replaced.",
                {name: pool.restarts for name, pool in pools.items()},
            ),
            "litebert_worker_resident_bytes": (
                "Memory of the workers.",
                {name: resident(pool.pids) for name, pool in pools.items()},
            ),
            "litebert_resident_bytes": (
                "Memory of this process.",
                {"": resident([os.getpid()])},
            ),
        }
        text = self._service.metrics.text(gauges)
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")


def _listing(name: str) -> dict[str, Any]:
    """Describe a model as OpenAI's clients read it."""
    return {"id": name, "object": "model", "created": 0, "owned_by": "litebert"}


def _model_type(model: dict[str, Any]) -> dict[str, Any]:
    """Describe a model's kind as text-embeddings-inference does."""
    if model["kind"] in ("classes", "labels"):
        labels = dict(enumerate(model["labels"]))
        return {
            "classifier": {
                "id2label": labels,
                "label2id": {label: i for i, label in labels.items()},
            }
        }
    return {"embedding": {"pooling": "mean"}}
