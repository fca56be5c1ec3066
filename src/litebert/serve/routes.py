"""The application of the service: its routes as in docs/reference/http.md, pages and errors."""

from __future__ import annotations

import json
import os
import re
import time
from base64 import b64encode
from collections.abc import Callable, Sequence
from functools import cache
from hashlib import sha256
from html import escape
from importlib.metadata import version
from importlib.resources import files
from typing import Any, get_type_hints

from pydantic import TypeAdapter, ValidationError
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from litebert.serve import bodies
from litebert.serve.batching import count_masks
from litebert.serve.limits import SCORES, TOP, Limits, Refusal, invalid, shorten_name
from litebert.serve.logs import resident
from litebert.serve.pool import Pool
from litebert.serve.service import ABOUT, Service
from litebert.serve.wire import Row

FAILURES = {
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
}
JSON = "application/json"


def _answer(value: bytes, rows: Sequence[Row] = ()) -> Response:
    """Make a response of JSON; for rows, headers count the tokens read (as in
    text-embeddings-inference) and cut off.
    """
    headers = {
        "x-compute-tokens": str(sum(row.tokens for row in rows)),
        "x-truncated-tokens": str(sum(row.truncated for row in rows)),
    }
    return Response(value, headers=headers if rows else None, media_type=JSON)


def _list(rows: Sequence[Row], alone: bool = False) -> bytes:
    return rows[0].payload if alone else b"[" + b",".join(row.payload for row in rows) + b"]"


def _inputs(value: Any, field: str = "inputs") -> tuple[list[Any], str]:
    """Return the inputs of a body, and the name of each with {} for its index."""
    return (value, f"{field}[{{}}]") if isinstance(value, list) else ([value], field)


class Routes:
    """The routes of a service."""

    def __init__(self, service: Service, root_path: str) -> None:
        self._service, self._root_path = service, root_path

    async def respond(self, request: Request) -> Response:
        """Answer a request, or raise a `Refusal`."""
        method, path = request.method, request.scope["path"]
        if path.startswith("/v1/models/") and path.count("/") == 3:
            request.scope["route"] = path = "/v1/models/{name}"
        if method == "POST" and path in COMPUTING:
            answer = COMPUTING[path][0]
            body = await _read_body(request, self._service.limits, FORMS[path])
            response: Response = await answer(self, request, body)
        elif method == "GET" and path in TELLING:
            response = await TELLING[path][0](self, request)
        elif method == "GET" and path in PAGES:
            response = PAGES[path][0](self._root_path)
        elif path in COMPUTING or path in TELLING or path in PAGES:
            read = ["GET"] if path in TELLING or path in PAGES else []
            allowed = ", ".join([*read, *(["POST"] if path in COMPUTING else [])])
            refusal = Refusal(405, "method_not_allowed", f"this route answers to {allowed}")
            response = _refuse(request, refusal)
            response.headers["allow"] = allowed
        else:
            raise Refusal(404, "not_found", "there is no such route; /docs lists them")
        return response

    async def answer(self, request: Request, body: bodies.Root) -> Response:
        name = request.scope[ABOUT].get("named") or body.model or next(iter(self._service.pools))
        if name not in self._service.pools:
            raise self._service.refuse_name(name)
        asked: Any = body
        asked.model, routes = name, self._service.pools[name].info["routes"]
        if isinstance(body.inputs, bodies.Similarity.Inputs):
            return await self.similarity(request, asked)
        is_plain = "embed" in routes and body.parameters is None
        asked.parameters = body.parameters or bodies.Parameters.model_construct()
        if "predict" in routes:
            return await self.predict(request, asked)
        texts = body.inputs if isinstance(body.inputs, list) else [body.inputs]
        if not all(isinstance(text, str) for text in texts):
            raise invalid("inputs must be texts for this model", "inputs")
        route = self.fill_mask if "fill-mask" in routes and not is_plain else self.embed
        return await route(request, asked)

    async def predict(self, request: Request, body: bodies.Predict) -> Response:
        pool = self._service.choose(request, body.model, "predict")
        inputs, field = _inputs(body.inputs)
        values = [_plain(value, field.format(index)) for index, value in enumerate(inputs)]
        sent, top, options = body.parameters, body.top, dict[str, Any]()
        if sent is not None:
            options = {"listed": True, "function": sent.function_to_apply}
            options["by_word"] = sent.aggregation_strategy == "none" or None
            options["ignored"] = None if sent.ignore_labels is None else tuple(sent.ignore_labels)
            top = top or sent.top_k
        if sent is None or pool.info["kind"] in ("classes", "labels"):
            top = _count_labels(pool.info, top, len(values))
        options |= {"truncate": body.truncate, "top": top}
        rows = await self._service.ask(request, pool, "predict", values, field, **options)
        if sent is None:
            return _wrap(request, pool.name, rows, kind=pool.info["kind"])
        alone = pool.info["kind"] in ("tokens", "span") and not isinstance(body.inputs, list)
        return _answer(_list(rows, alone), rows)

    async def fill_mask(self, request: Request, body: bodies.FillMask) -> Response:
        pool = self._service.choose(request, body.model, "fill-mask")
        inputs, field = _inputs(body.inputs)
        sent = body.parameters
        targets = (sent.targets if sent is not None else None) or body.targets
        top = len(targets) if targets else body.top
        if sent is not None and not targets:
            top = min(sent.top_k or top or 5, TOP)
        masks = sum(map(count_masks, inputs))
        _check_scores(f"{top or 5} predictions of each of {masks:,} masks", masks * (top or 5))
        options: dict[str, Any] = {"top": top, "targets": tuple(targets) if targets else None}
        options["listed"] = None if sent is None else min(sent.top_k or TOP, TOP)
        rows = await self._service.ask(request, pool, "fill-mask", inputs, field, **options)
        if sent is None:
            return _wrap(request, pool.name, rows)
        return _answer(_list(rows, alone=not isinstance(body.inputs, list)), rows)

    async def embed(self, request: Request, body: bodies.Embed) -> Response:
        pool = self._service.choose(request, body.model, "embed")
        inputs, field = _inputs(body.inputs)
        _check_dimensions(body.dimensions, pool.info["width"])
        if body.prompt_name is not None and body.prompt_name not in pool.info["prompts"]:
            has = ", ".join(pool.info["prompts"]) or "none"
            message = f"the model has no prompt {shorten_name(body.prompt_name)!r}; it has {has}"
            raise invalid(message, "prompt_name")
        names = ("normalize", "truncate", "dimensions", "prompt_name")
        options = {name: getattr(body, name) for name in names}
        rows = await self._service.ask(request, pool, "embed", inputs, field, **options)
        return _answer(_list(rows), rows)

    async def similarity(self, request: Request, body: bodies.Similarity) -> Response:
        pool = self._service.choose(request, body.model, "similarity")
        pairs = [(body.inputs.source_sentence, sentence) for sentence in body.inputs.sentences]
        rows = await self._service.ask(request, pool, "cosine", pairs, "inputs.sentences[{}]")
        return _answer(_list(rows), rows)

    async def rerank(self, request: Request, body: bodies.Rerank) -> Response:
        pool = self._service.choose(request, body.model, "rerank")
        if (body.texts is None) == (body.documents is None):
            field = "texts" if body.texts is None else "documents"
            message = f"{field} is {'missing' if body.texts is None else 'there beside texts'}"
            raise invalid(f"{message}; give texts or documents", field)
        field = "texts" if body.documents is None else "documents"
        texts = [
            part.text if isinstance(part, bodies.Document) else part
            for part in body.texts or body.documents or ()
        ]
        pairs = [(body.query, text) for text in texts]
        pairs_to_number = pool.info["kind"] == "number" and pool.info["pair"] is not False
        options = {"truncate": body.truncate, "raw": body.raw_scores if pairs_to_number else None}
        operation = "score" if pairs_to_number else "cosine"
        rows = await self._service.ask(request, pool, operation, pairs, f"{field}[{{}}]", **options)
        scores = [float(row.payload) for row in rows]
        best = sorted(range(len(rows)), key=lambda index: -scores[index])[: body.top_n]
        found: Any = []
        for index in best:
            if body.documents is None:
                tokens, cut = rows[index].tokens, rows[index].truncated
                rank = {"index": index, "score": scores[index], "tokens": tokens, "truncated": cut}
                text: Any = {"text": texts[index]} if body.return_text else {}
            else:
                rank = {"index": index, "relevance_score": scores[index]}
                text = {"document": {"text": texts[index]}} if body.return_documents else {}
            found.append(rank | text)
        if body.documents is not None:
            tokens = sum(row.tokens for row in rows)
            usage = {"prompt_tokens": tokens, "total_tokens": tokens}
            found = {"model": pool.name, "object": "list", "results": found, "usage": usage}
        return _answer(json.dumps(found).encode(), rows)

    async def tokenize(self, request: Request, body: bodies.Tokenize) -> Response:
        pool = self._service.choose(request, body.model, "tokenize")
        inputs, field = _inputs(body.inputs)
        rows = await self._service.ask(
            request, pool, "tokenize", inputs, field, special=body.add_special_tokens
        )
        return _answer(_list(rows), rows)

    async def embeddings(self, request: Request, body: bodies.Embeddings) -> Response:
        pool = self._service.choose(request, body.model, "embed")
        _check_dimensions(body.dimensions, pool.info["width"])
        inputs, field = _inputs(body.input, "input")
        if isinstance(inputs[0], int):  # the tokens of a single input
            inputs, field = [inputs], "input"
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

    async def info(self, request: Request) -> Response:
        service = self._service
        models = [{"name": name, **pool.info} for name, pool in service.pools.items()]
        first, limits = models[0], service.limits
        ranks = first["kind"] == "number" and first["pair"] is not False
        model_type: dict[str, Any] = {first["kind"]: {}}
        if first["kind"] in ("classes", "labels"):
            labels = dict(enumerate(first["labels"]))
            ids = {label: number for number, label in labels.items()}
            model_type = {"classifier": {"id2label": labels, "label2id": ids}}
        elif first["pooling"] is not None and first["kind"] in ("pretrained", "similarity"):
            model_type = {"embedding": {"pooling": first["pooling"]}}
        elif ranks:
            model_type = {"reranker": {"id2label": {}, "label2id": {}}}
        content = {
            "version": version("litebert"),
            "model_id": first["name"],
            "model_sha": None,
            "model_dtype": first["dtype"],
            "model_type": model_type,
            "max_input_length": first["length"],
            "max_client_batch_size": limits.rows,
            "max_batch_tokens": limits.tokens,
            "auto_truncate": True,
            "models": models,
            "limits": vars(limits),
        }
        return _answer(json.dumps(content).encode())

    async def models(self, request: Request) -> Response:
        data = list(map(_listing, self._service.pools))
        return _answer(json.dumps({"object": "list", "data": data}).encode())

    async def model(self, request: Request) -> Response:
        name = request.scope["path"].rpartition("/")[2]
        if name not in self._service.pools:
            raise self._service.refuse_name(name)
        return _answer(json.dumps(_listing(name)).encode())

    async def health(self, request: Request) -> Response:
        service = self._service
        well = not service.draining and all(pool.healthy for pool in service.pools.values())
        body = {"status": "ok" if well else "unavailable"}
        return Response(json.dumps(body), 200 if well else 503, media_type=JSON)

    async def metrics(self, request: Request) -> Response:
        of_models: tuple[tuple[str, str, Callable[[Pool], float]], ...] = (
            ("litebert_queue_rows", "Inputs that wait.", lambda pool: pool.queue.rows),
            ("litebert_workers", "Workers that live.", lambda pool: len(pool.pids)),
            ("litebert_worker_restarts", "Workers replaced.", lambda pool: pool.restarts),
            ("litebert_worker_resident_bytes", "Their memory.", lambda pool: resident(pool.pids)),
        )
        pools = self._service.pools
        gauges = [
            (name, about, {key: float(of(pool)) for key, pool in pools.items()})
            for name, about, of in of_models
        ]
        memory = {"": resident([os.getpid()])}
        gauges.append(("litebert_resident_bytes", "Memory of this process.", memory))
        text = self._service.metrics.text(gauges)
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")


_FOUND, _RANKS = list[Any] | dict[str, Any], list[bodies.Rank] | bodies.Ranks
COMPUTING: dict[str, tuple[Callable[..., Any], Any, str]] = {
    "/predict": (Routes.predict, bodies.Predictions | _FOUND, "Answers of a fine-tuned model"),
    "/fill-mask": (Routes.fill_mask, bodies.Predictions | _FOUND, "Guesses for masked words"),
    "/embed": (Routes.embed, list[list[float]], "Sentence vectors"),
    "/similarity": (Routes.similarity, list[float], "Cosines of a sentence with others"),
    "/rerank": (Routes.rerank, _RANKS, "Texts by how well they fit a query"),
    "/v1/rerank": (Routes.rerank, _RANKS, "The same"),
    "/v2/rerank": (Routes.rerank, _RANKS, "The same"),
    "/tokenize": (Routes.tokenize, list[list[bodies.Token]], "Tokens with their characters"),
    "/v1/embeddings": (Routes.embeddings, bodies.Vectors, "Vectors in OpenAI's shape"),
    "/": (Routes.answer, _FOUND, "What the first model does, for Hugging Face's client"),
}
"""What answers a POST to a path, what it gives, and a line about it."""
FORMS: dict[str, type[bodies.Body]] = {
    path: get_type_hints(answer)["body"] for path, (answer, _, _) in COMPUTING.items()
}
"""What their bodies are."""
TELLING: dict[str, tuple[Callable[..., Any], str, dict[int, str]]] = {
    "/info": (Routes.info, "Models, limits and version", {}),
    "/v1/models": (Routes.models, "Models in OpenAI's shape", {}),
    "/v1/models/{name}": (Routes.model, "A model in OpenAI's shape", {404: "No such model"}),
    "/health": (Routes.health, "Whether every model has a living worker", {503: "One has none"}),
    "/metrics": (Routes.metrics, "Prometheus text", {}),
}
"""What answers a GET to a path, a line about it, and how it fails."""


async def _read_body(request: Request, limits: Limits, form: type[bodies.Body]) -> bodies.Body:
    """Read the body of a request; what is beyond the limits is refused before it is validated."""
    content = await request.body()
    limits.check_values(content)
    try:
        value = json.loads(content) if content else None
        limits.check_shape(value)
        return form.model_validate(value)
    except ValidationError as error:
        faults = error.errors(include_url=False, include_context=False)[:100]
        raise bodies.describe_fault(faults) from None
    except json.JSONDecodeError:
        message = "the body is no JSON; check its quotes and commas"
        raise Refusal(400, "bad_request", message) from None
    except UnicodeDecodeError:
        raise Refusal(400, "bad_request", "the body is no JSON in UTF-8") from None
    except RecursionError:
        message = "the body is nested too deeply; GET /docs shows the form of each route"
        raise Refusal(400, "bad_request", message) from None
    except ValueError:
        message = "the body has a number of too many digits; send a smaller number"
        raise Refusal(400, "bad_request", message) from None


def _wrap(request: Request, model: str, rows: Sequence[Row], **more: Any) -> Response:
    """Make the response of predictions, with the model and the milliseconds so far."""
    spent = round(1000 * (time.monotonic() - request.scope[ABOUT]["start"]), 2)
    head = json.dumps({"model": model, **more, "ms": spent})
    payload = head[:-1].encode() + b', "predictions": ' + _list(rows) + b"}"
    return _answer(payload, rows)


def _count_labels(info: dict[str, Any], top: int | None, inputs: int) -> int | None:
    """Count the likeliest labels that each answer holds; None for all in the model's order."""
    count = len(info["labels"])
    if info["kind"] not in ("classes", "labels"):
        if top is not None:
            message = "top is for models of classes or labels; leave it out"
            raise invalid(message, "top")
        return None
    few = min(count, TOP if top is None else top)
    _check_scores(f"{few:,} labels of each of {inputs:,} inputs", few * inputs)
    return few if few < count or top is not None else None


def _check_scores(asked: str, count: int) -> None:
    if count > SCORES:
        message = f"top asks for {asked}, and an answer holds at most {SCORES:,}"
        raise Refusal(413, "too_large", f"{message}; give a smaller top or fewer inputs", "top")


def _check_dimensions(dimensions: int | None, width: int) -> None:
    if dimensions is not None and dimensions > width:
        message = f"dimensions is {dimensions}, and vectors have {width}; give {width} or fewer"
        raise invalid(message, "dimensions")


def _plain(value: Any, field: str) -> Any:
    if not isinstance(value, bodies.NamedInput):
        return value
    if (plain := value.value()) is None:
        forms = "text; text and pair; words; question and context; or context, question and choices"
        message = f"{field} has fields that do not belong together; give {forms}"
        raise invalid(message, field)
    return plain


def _listing(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "litebert"}


STYLE = """
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif }
body { max-width: 52rem; margin: 2rem auto; padding: 0 1rem }
pre { overflow-x: auto; padding: .7rem; border: 1px solid #8886; border-radius: .4rem }
code, pre { font-family: ui-monospace, monospace; font-size: .9rem }
"""


def _refuse(request: Request, refusal: Refusal) -> Response:
    return Response(refusal.body(request.url.path), refusal.status, refusal.headers, JSON)


def make_application(service: Service, root_path: str = "") -> tuple[Any, list[str]]:
    """Make the application of a service, and list the paths of its routes, without its pages."""
    routes = Routes(service, root_path)

    async def application(scope: Any, receive: Any, send: Any) -> None:
        request = Request(scope, receive)
        try:
            response = await routes.respond(request)
        except Refusal as refusal:
            response = _refuse(request, refusal)
        await response(scope, receive, send)

    return application, [*COMPUTING, *TELLING]


def make_schema(root_path: str = "") -> dict[str, Any]:
    """Describe the routes and the types of all fields in OpenAPI 3.1."""
    types: list[tuple[Any, Any, TypeAdapter[Any]]] = [
        (kind, "serialization", TypeAdapter(kind))
        for kind in (bodies.Failure, bodies.OpenAIFailure)
    ]
    for path, (_, given, _) in COMPUTING.items():
        types.append((path, "validation", TypeAdapter(FORMS[path])))
        types.append((path, "serialization", TypeAdapter(given)))
    made, shared = TypeAdapter.json_schemas(types, ref_template="#/components/schemas/{model}")

    def describe(what: str, schema: Any, kind: str = JSON) -> dict[str, Any]:
        return {"description": what, "content": {kind: {"schema": schema}}}

    def name(answer: Callable[..., Any], path: str, method: str) -> str:
        return re.sub(r"\W", "_", f"{answer.__name__}{path}_{method}")

    paths: dict[str, dict[str, Any]] = {}
    for path, (answer, _, summary) in COMPUTING.items():
        of_openai = path.startswith("/v1/")
        failure = made[bodies.OpenAIFailure if of_openai else bodies.Failure, "serialization"]
        responses = {"200": describe("The answer", made[path, "serialization"])}
        responses |= {str(status): describe(what, failure) for status, what in FAILURES.items()}
        body = {"content": {JSON: {"schema": made[path, "validation"]}}, "required": True}
        about = {"summary": summary, "operationId": name(answer, path, "post")}
        paths[path] = {"post": {**about, "requestBody": body, "responses": responses}}
    record = {"type": "object", "additionalProperties": True}
    for path, (answer, summary, failures) in TELLING.items():
        plain = describe("The answer", {"type": "string"}, "text/plain")
        responses = {"200": plain if path == "/metrics" else describe("The answer", record)}
        for status, what in failures.items():
            failure = made[bodies.OpenAIFailure, "serialization"] if status == 404 else record
            responses[str(status)] = describe(what, failure)
        about = {"summary": summary, "operationId": name(answer, path, "get")}
        paths[path] = {"get": {**about, "responses": responses}}
        if "{name}" in path:
            parameter = {"name": "name", "in": "path", "required": True}
            paths[path]["get"]["parameters"] = [{**parameter, "schema": {"type": "string"}}]
    return {
        "openapi": "3.1.0",
        "info": {"title": "litebert", "version": version("litebert")},
        **({"servers": [{"url": root_path}]} if root_path else {}),
        "paths": paths,
        "components": {"schemas": shared["$defs"]},
    }


def _show_playground(root_path: str) -> Response:
    html, policy = playground()
    headers = {"content-security-policy": policy, "referrer-policy": "no-referrer"}
    return HTMLResponse(html, headers=headers)


def _show_docs(root_path: str) -> Response:
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    html = _describe(make_schema(root_path))
    return HTMLResponse(html, headers={"content-security-policy": policy})


def _show_schema(root_path: str) -> Response:
    return Response(json.dumps(make_schema(root_path)), media_type=JSON)


PAGES: dict[str, tuple[Callable[[str], Response], str]] = {
    "/": (_show_playground, "The playground"),
    "/docs": (_show_docs, "All routes, for a browser"),
    "/openapi.json": (_show_schema, "All routes and the type of every field"),
}
"""What shows a page, for the path that a proxy offers the service under, and a line about it."""


@cache
def playground() -> tuple[str, str]:
    """Return the HTML of the page where a person tries the models, and its Content-Security-Policy.

    It allows the page's script and style, by their hashes, and its origin; nothing in a text runs.
    """
    html, hashes = files("litebert.serve").joinpath("playground.html").read_text("utf-8"), []
    for tag in ("script", "style"):
        (inner,) = re.findall(f"<{tag}>(.*?)</{tag}>", html, re.DOTALL)
        hashes.append(f"'sha256-{b64encode(sha256(inner.encode()).digest()).decode()}'")
    return html, (
        f"default-src 'none'; script-src {hashes[0]}; style-src {hashes[1]}; connect-src 'self'; "
        "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'"
    )


def _describe(schema: dict[str, Any]) -> str:
    title = escape(f"{schema['info']['title']} {schema['info']['version']}")
    page = (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{STYLE}</style><h1>{title}</h1>"
        '<p>The schema for programs is <a href="openapi.json">openapi.json</a>.</p>'
    )
    routes = [(path, *one) for path, each in schema["paths"].items() for one in each.items()]
    for path, method, about in routes:
        page += f"<h2><code>{method.upper()} {escape(path)}</code></h2>"
        page += f"<p>{escape(about.get('summary', ''))}</p>"
        content = about.get("requestBody", {}).get("content", {}).get(JSON, {})
        name = content.get("schema", {}).get("$ref", "").rpartition("/")[2]
        body = schema.get("components", {}).get("schemas", {}).get(name, {})
        for example in body.get("examples", []):
            page += f"<pre>{escape(json.dumps(example, ensure_ascii=False))}</pre>"
        if fields := body.get("properties"):
            page += f"<p>Fields: {', '.join(f'<code>{escape(key)}</code>' for key in fields)}</p>"
    return f"{page}</html>"
