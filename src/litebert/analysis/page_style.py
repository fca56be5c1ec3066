"""The frame and the style of the pages that `report` writes: light or dark, on a desk or a
phone."""

from __future__ import annotations

from pathlib import Path

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<main>
<header><h1>{title}</h1><p>{lead}</p></header>
{body}
</main>
</body>
</html>
"""

STYLE = Path(__file__).with_name("page.css").read_text(encoding="utf-8")
