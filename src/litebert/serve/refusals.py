"""Why a request is not answered, in the shape its client reads: text-embeddings-inference's, or
OpenAI's under /v1.
"""

from __future__ import annotations

import json

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
        """The headers of the answer."""
        headers = {} if self.retry is None else {"retry-after": str(self.retry)}
        return headers | ({"www-authenticate": "Bearer"} if self.status == 401 else {})

    def body(self, path: str) -> bytes:
        """Return the JSON for a route."""
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


STOPPED = Refusal(503, "unavailable", "the service is stopping; send the request again", retry=1)
"""Why a request has no answer when the service ends."""
