"""Wrong commands: each is refused with status 2, without a traceback, in words that name the place
of blame.

A row is a command as it is typed, in a folder that has one of each good thing and, in bad/, the
broken ones (broken.py), and what the message must name. Variables may stand before the verb, as in
a shell.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable

import pytest

from abuse.wrong_files import FILES
from abuse.wrong_options import OPTIONS
from abuse.wrong_verbs import VERBS
from toys.refusals import names

TABLES = (VERBS, OPTIONS, FILES)
CASES = [
    pytest.param(row[0], row[1:], id=row[0])
    for table in TABLES
    for rows in table.values()
    for row in rows
]


@pytest.mark.thorough
@pytest.mark.parametrize(("command", "places"), CASES)
def test_is_refused_where_it_is_wrong(
    wrong: Callable[..., str],
    command: str,
    places: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    words = shlex.split(command)
    while words[0].isupper() or "=" in words[0]:
        monkeypatch.setenv(*words.pop(0).split("=", 1))
    message = wrong(words)
    assert message.strip()
    for place in places:
        names(" ".join(message.split()), place)  # the parser of options breaks lines
    assert len(message.splitlines()) <= 20
