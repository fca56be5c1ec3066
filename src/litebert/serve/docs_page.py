"""The page at /docs: the routes with an example each, made from the OpenAPI schema. It loads
nothing from elsewhere.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from html import escape
from typing import Any

STYLE = """
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif }
body { max-width: 52rem; margin: 2rem auto; padding: 0 1rem }
pre { overflow-x: auto; padding: .7rem; border: 1px solid #8886; border-radius: .4rem }
code, pre { font-family: ui-monospace, monospace; font-size: .9rem }
"""
POLICY = "default-src 'none'; style-src 'unsafe-inline'"
"""The Content-Security-Policy of the page."""


def page(schema: dict[str, Any]) -> str:
    """Return the HTML of the page."""
    title = escape(f"{schema['info']['title']} {schema['info']['version']}")
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{STYLE}</style><h1>{title}</h1>"
        '<p>The schema for programs is <a href="openapi.json">openapi.json</a>.</p>'
        f"{''.join(_routes(schema))}</html>"
    )


def _routes(schema: dict[str, Any]) -> Iterator[str]:
    for path, methods in schema["paths"].items():
        for method, about in methods.items():
            yield (
                f"<h2><code>{method.upper()} "
                f"{escape(path)}</code></h2><p>{escape(about.get('summary', ''))}</p>"
            )
            content = about.get("requestBody", {}).get("content", {}).get("application/json", {})
            name = content.get("schema", {}).get("$ref", "").rpartition("/")[2]
            body = schema.get("components", {}).get("schemas", {}).get(name, {})
            for example in body.get("examples", []):
                yield f"<pre>{escape(json.dumps(example, ensure_ascii=False))}</pre>"
            if fields := body.get("properties"):
                yield f"<p>Fields: {', '.join(f'<code>{escape(key)}</code>' for key in fields)}</p>"
