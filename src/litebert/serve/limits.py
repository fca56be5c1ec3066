"""The limits of a request and of any work's time, each an option of `litebert serve`, and why a
request is refused.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from litebert.base.errors import require

OPENAI = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
}
"""OpenAI's names of errors that are not `invalid_request_error`, or from 500 on `server_error`."""


class Refusal(Exception):
    """A request that is answered with an error."""

    def __init__(
        self,
        status: int,
        kind: str,
        message: str,
        field: str | None = None,
        retry: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.kind, self.message = status, kind, message
        self.field, self.retry = field, retry

    @property
    def headers(self) -> dict[str, str]:
        headers = {} if self.retry is None else {"retry-after": str(self.retry)}
        return headers | ({"www-authenticate": "Bearer"} if self.status == 401 else {})

    def body(self, path: str) -> bytes:
        """Return the JSON that a route's clients read: text-embeddings-inference's, or OpenAI's."""
        if path.startswith("/v1/"):
            kind = OPENAI.get(
                self.status, "invalid_request_error" if self.status < 500 else "server_error"
            )
            code = "model_not_found" if self.field == "model" and self.status == 404 else None
            shape: dict[str, object] = {
                "error": {"message": self.message, "type": kind, "param": self.field, "code": code}
            }
        else:
            shape = {"error": self.message, "error_type": self.kind, "field": self.field}
        return json.dumps(shape).encode()


def invalid(message: str, field: str | None = None) -> Refusal:
    """Return the refusal of what a body holds."""
    return Refusal(422, "validation", message, field)


STOPPED = Refusal(503, "unavailable", "the service is stopping; send the request again", retry=1)
"""Why a request has no answer when the service ends."""

HEADERS = 10.0
"""Seconds in which the head of a request must be there."""
HEAD = 64 << 10
"""Bytes of a head, and of what may follow a body in the same form."""
LARGE_HEAD = Refusal(
    431, "too_large", f"the headers have more than {HEAD:,} bytes; send less in them"
)
BODY = 20.0
"""Seconds in which its body must be there."""
SENDING = 30.0
"""Seconds for which a client may leave an answer unread."""
NAMES = 20
"""Fields of an object in a body."""
PARTS = 10_000
"""Elements of an array within an input, such as words."""
VALUES = 100_000
"""Values of a body, in all its arrays and objects together."""
SCORES = 100_000
"""Probabilities of an answer, over all its inputs."""
TOP = 100
"""Labels of an answer whose request does not say how many."""
QUOTED = 60
"""Characters of a name that an error repeats."""
_BLANKS = re.compile("_+")


@dataclass(frozen=True)
class Limits:
    """The limits of a request."""

    rows: int = 256
    characters: int = 200_000
    """Characters of all its texts."""
    tokens: int = 8192
    """Tokens of an input, after truncation."""
    body_bytes: int = 4 << 20
    timeout_seconds: float = 30.0

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            require(
                math.isfinite(value) and value > 0,
                f"{name.replace('_', ' ')} is {value}; give more than 0",
            )

    def check_values(self, body: bytes) -> None:
        """Refuse a body of more values than any route reads before it is parsed, which would stop
        the whole service.

        Brackets and commas outside of texts count; the time grows with the bytes alone.
        """
        # In UTF-16, other characters hold the bytes of quotes, and Python's parser reads it.
        if not json.detect_encoding(body).startswith("utf-8"):
            raise Refusal(400, "bad_request", "the body is no JSON in UTF-8")
        if _count_values(body) <= VALUES:
            return
        plain = body.replace(rb"\\", b"").replace(rb"\"", b"")
        quotes = plain.count(b'"')
        if quotes > 2 * VALUES or _count_values(b"".join(plain.split(b'"')[::2])) > VALUES:
            message = f"the body holds more than {VALUES:,} values in its arrays and objects"
            raise Refusal(413, "too_large", f"{message}; send several requests", "body")

    def check_shape(self, body: Any) -> None:
        """Refuse JSON with more lists or names than a route reads: validation would take long."""
        for name, value in body.items() if isinstance(body, dict) and len(body) <= NAMES else ():
            is_tokens = name == "input" and value and isinstance(value, list)
            if isinstance(value, list) and not (is_tokens and isinstance(value[0], int)):
                self._check_rows(shorten_name(name), value)
        waiting = [body] if isinstance(body, (dict, list)) else []
        while waiting:
            value = waiting.pop()
            if isinstance(value, dict) and len(value) > NAMES:
                known = f"and no route knows more than {NAMES}; GET /docs shows them"
                message = f"an object in the body has {len(value):,} fields, {known}"
                raise invalid(message)
            if isinstance(value, list) and len(value) > max(PARTS, self.rows):
                message = f"an array in the body has {len(value):,} elements, and the limit is"
                raise Refusal(413, "too_large", f"{message} {PARTS:,}; send less")
            parts = value.values() if isinstance(value, dict) else value
            waiting += [part for part in parts if isinstance(part, (dict, list))]

    def check(self, field: str, inputs: Sequence[Any], query: str = "") -> None:
        """Refuse inputs, and a query with all of them, beyond the limits."""
        self._check_rows(field, inputs)
        total = len(query)
        for index, value in enumerate(inputs):
            total += count_characters(value)
            if total > self.characters:
                name = f"{field}[{index}]"
                limit = f"and the limit is {self.characters:,}"
                message = f"up to {name} there are {total:,} characters, {limit}; send less text"
                raise Refusal(413, "too_large", message, name)

    def _check_rows(self, field: str, inputs: Sequence[Any]) -> None:
        if len(inputs) > self.rows:
            limit = f"and the limit is {self.rows:,}; send several requests"
            message = f"{field} has {len(inputs):,} inputs, {limit}"
            raise Refusal(413, "too_large", message, field)


def _count_values(body: bytes) -> int:
    return body.count(b"[") + body.count(b"{") + body.count(b",")


def shorten_name(name: str) -> str:
    """Shorten a name for an error that repeats it."""
    return name if len(name) <= QUOTED else f"{name[:QUOTED]}…"


def count_characters(value: Any) -> int:
    """Count the characters of a text, or of all texts in lists; a token counts as four.

    Texts before a list of choices are read with each choice, which also fills each blank of the
    last of these texts.
    """
    if isinstance(value, str):
        return len(value)
    if isinstance(value, int):
        return 4
    choices = choices_of(value)
    texts = [part for part in value if not isinstance(part, list)]
    plain, blanks = sum(map(count_characters, texts)), 0
    if choices and texts and isinstance(texts[-1], str):
        blanks = len(_BLANKS.findall(texts[-1]))
    return max(1, len(choices)) * plain + (1 + blanks) * sum(map(count_characters, choices))


def choices_of(value: Any) -> list[Any]:
    """Return the members of the lists in an input: the choices of a question."""
    return [choice for part in value if isinstance(part, list) for choice in part]
