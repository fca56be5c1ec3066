"""The application: routes, errors in one shape, and the guard around them."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse

from litebert.serve import bodies, docs_page, playground
from litebert.serve.refusals import Refusal
from litebert.serve.routes import AboutRoutes, ComputingRoutes
from litebert.serve.service import Service

_FIELDS = {
    name
    for kind in vars(bodies).values()
    if isinstance(kind, type) and issubclass(kind, BaseModel)
    for name in kind.model_fields
} | {"source_sentence", "sentences"}
_KINDS = {400: "bad_request", 404: "not_found", 405: "method_not_allowed"}


def make_application(service: Service, root_path: str = "") -> tuple[FastAPI, list[str]]:
    """Make the application of a service: its routes, its pages and its refusals.

    Returns:
        The application, and the paths of its routes, without those of pages.
    """
    app = FastAPI(
        title="litebert",
        version=version("litebert"),
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        servers=[{"url": root_path}] if root_path else None,
    )
    routers = ComputingRoutes(service).router(), AboutRoutes(service).router()
    for router in routers:
        app.include_router(router)

    @app.get("/", include_in_schema=False)
    async def play() -> HTMLResponse:
        html, policy = playground.page()
        return HTMLResponse(
            html, headers={"content-security-policy": policy, "referrer-policy": "no-referrer"}
        )

    @app.get("/docs", include_in_schema=False)
    async def docs() -> HTMLResponse:
        return HTMLResponse(
            docs_page.page(app.openapi()), headers={"content-security-policy": docs_page.POLICY}
        )

    @app.exception_handler(Refusal)
    async def refuse(request: Request, error: Refusal) -> Response:
        return _response(request, error)

    @app.exception_handler(RequestValidationError)
    async def refuse_body(request: Request, error: RequestValidationError) -> Response:
        return _response(request, _describe_fault(error))

    @app.exception_handler(HTTPException)
    async def refuse_route(request: Request, error: HTTPException) -> Response:
        messages = {
            404: "there is no such route; /docs lists them",
            405: "this route has another method",
            400: "the body is no JSON in UTF-8",
        }
        message = messages.get(error.status_code, "the request cannot be answered")
        response = _response(
            request,
            Refusal(error.status_code, _KINDS.get(error.status_code, "bad_request"), message),
        )
        response.headers.update(error.headers or {})
        return response

    # The schema names them too, and takes 50 ms to make.
    return app, [str(getattr(route, "path", "")) for router in routers for route in router.routes]


def _response(request: Request, error: Refusal) -> Response:
    return Response(error.body(request.url.path), error.status, error.headers, "application/json")


def _describe_fault(error: RequestValidationError) -> Refusal:
    """Return the refusal of the innermost fault.

    It quotes nothing that the client wrote, except the name of an unknown field.
    """

    def rank(fault: Any) -> tuple[Any, ...]:
        """Order faults by how far a form was followed: to an element, and to its value."""
        places = [part for part in fault["loc"] if isinstance(part, int)]
        is_of_type = not fault["type"].endswith("_type")
        return fault["type"] == "too_short", len(fault["loc"]), places, is_of_type

    first: dict[str, Any] = max(error.errors()[:100], key=rank)
    if first["type"] == "json_invalid":
        return Refusal(400, "bad_request", "the body is no JSON; check its quotes and commas")
    field, names = "", [*first["loc"][1:]]
    for depth, name in enumerate(names):
        if isinstance(name, int):
            field += f"[{name}]"
        elif name in _FIELDS or (first["type"] == "extra_forbidden" and depth == len(names) - 1):
            field += f".{name}" if field else name
    message = {
        "extra_forbidden": f"{field[:60]} is unknown here; leave it out",
        "missing": f"{field} is missing",
        "too_short": f"{field} is empty; give one at least",
    }.get(
        first["type"], f"{field} is of the wrong form: {first['msg'][:1].lower()}{first['msg'][1:]}"
    )
    if not field:
        message = "the body is not a JSON object; GET /docs shows the fields of each route"
    return Refusal(422, "validation", message, field[:60] or None)
