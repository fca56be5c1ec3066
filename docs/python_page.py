"""docs/reference/python.md: the functions and classes of `litebert`, each with its first sentence.

generate.py writes it. The site shows the whole docstrings below it.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import litebert
from litebert.answer.model import Model
from litebert.cli import VERBS

OBJECTS = (
    *(f"litebert.{name}" for name in litebert.__all__ if name.islower() and name != "replace"),
    "litebert.answer.model.Model",
    "litebert.sklearn",
    *(f"litebert.{name}" for name in litebert.__all__ if not name.islower()),
)
"""What the site documents: the public face, the model that `load` returns, and the estimators.
`replace` is that of `dataclasses`."""
HEAD = """\
# Python

Use litebert from Python. `help(litebert.load)` shows every argument.

```python
from litebert import load

model = load("classifier")
model.predict(["Der Bildschirm bleibt schwarz."])
```
"""


def format_python_page() -> str:
    return "\n".join([HEAD, *_list_names("Functions", False), *_list_names("Classes", True)])


def _list_names(title: str, classes: bool) -> Iterator[str]:
    yield f"## {title}\n"
    if not classes:
        verbs = ", ".join(f"`{name}`" for name in litebert.__all__ if name in VERBS)
        yield f"These do what the verbs of the command line do: {verbs}. Beside them:\n"
    for name in litebert.__all__:
        value = getattr(litebert, name)
        if inspect.isclass(value) == classes and name not in VERBS:
            yield f"- `litebert.{name}`: {_first_sentence(value)}"
    if classes:
        yield f"- `litebert.answer.model.Model`: {_first_sentence(Model)}"
    yield ""


def _first_sentence(value: object) -> str:
    paragraph = (inspect.getdoc(value) or "").split("\n\n")[0]
    return " ".join(paragraph.split())
