"""The page at `/`, where a person tries the models: one file, which asks this service alone.

Its policy lets the browser run the one script and the one style in it, known by their hashes, and
fetch from the page's own origin; nothing a text or an answer contains can be run.
"""

from __future__ import annotations

import re
from base64 import b64encode
from functools import cache
from hashlib import sha256
from importlib.resources import files


@cache
def page() -> tuple[str, str]:
    """The HTML, and its Content-Security-Policy."""
    html = files("litebert.serve").joinpath("playground.html").read_text("utf-8")
    script, style = (_hash(html, tag) for tag in ("script", "style"))
    return html, (
        f"default-src 'none'; script-src {script}; style-src {style}; connect-src 'self'; "
        "img-src data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'"
    )


def _hash(html: str, tag: str) -> str:
    """Hash the text between a tag and its end, as a policy names it."""
    (inner,) = re.findall(f"<{tag}>(.*?)</{tag}>", html, re.DOTALL)
    return f"'sha256-{b64encode(sha256(inner.encode()).digest()).decode()}'"
