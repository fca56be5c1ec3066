"""The pages that are written, in a real browser: nothing runs over the edge of a phone, the console stays empty.

A page has no script of its own, so one is put into a copy, which tells the frame around it what it sees.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from litebert.analysis.report import Chart, HeatMap, Intervals, Series, Table, write

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
SEEN = """<script>
addEventListener("load", () => {
  const edge = document.documentElement.clientWidth;
  const scrolls = (one) => one.closest(".wide") !== null;
  const over = [...document.querySelectorAll("body *")].filter(
    (one) => !scrolls(one) && one.getBoundingClientRect().right > edge + 1);
  const drawn = [...document.querySelectorAll("svg")].filter((one) => one.getBBox().width > 0);
  parent.postMessage(JSON.stringify({over: over.map((one) => one.tagName), edge, drawn: drawn.length,
    requests: performance.getEntriesByType("resource").length}), "*");
});
</script>"""
FRAME = """<!doctype html><title>nothing yet</title>
<script>addEventListener("message", (said) => { document.title = said.data; });</script>
<iframe src="page.html" style="border: 0; width: WIDTHpx; height: 900px"></iframe>"""
"""Narrower than a window of a browser without a screen can be."""


@pytest.mark.slow
@pytest.mark.skipif(BROWSER is None, reason="no Chromium or Chrome is installed")
@pytest.mark.parametrize("width", [390, 1280])
def test_a_page_of_everything(width: int, tmp_path: Path) -> None:
    long = "a variant with a long name, E 128"
    names = (long, "none", "attention")
    lines = tuple(Series(name, tuple(range(20)), tuple(float((i * 7 + k) % 13) for i in range(20)))
                  for k, name in enumerate(names))  # fmt: skip
    cells = tuple(tuple(f"{i}.{j} ± 0.1" for j in range(12)) for i in range(4))
    sections = [
        Table("A wide table", tuple(f"column {i}" for i in range(12)), cells, "a note " * 40),
        Chart("Lines", lines, "step", "nats"),
        Intervals("Means", names, (3.1, 3.2, 3.3), (0.1, 0.0, 0.2), "nats", 3.2),
        HeatMap("Alike", tuple("012345"), tuple("012345"), tuple((0.1, 0.3, 0.5, 0.7, 0.9, 1.0) for _ in range(6)),
                "layer", "layer", 0.0, 1.0),
        Table("Commands", ("command",), (("litebert pretrain " + "a-very-long-path/" * 12,),)),
    ]  # fmt: skip
    page = tmp_path / "page.html"
    write(
        page, "Every kind of section", "A lead with a-name-without-a-space-that-is-far-too-long-for-a-phone.", sections
    )
    page.write_text(page.read_text(encoding="utf-8").replace("</head>", f"{SEEN}</head>"), encoding="utf-8")
    frame = tmp_path / "frame.html"
    frame.write_text(FRAME.replace("WIDTH", str(width)), encoding="utf-8")
    ended = subprocess.run(
        [str(BROWSER), "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--dump-dom",
         "--hide-scrollbars", "--virtual-time-budget=3000", "--window-size=1400,1000", frame.as_uri()],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    said = re.search(r"<title>(\{.*?\})</title>", ended.stdout)
    assert said, ended.stderr[-2000:]
    assert f'"edge":{width}' in said[1], said[1]
    assert '"over":[]' in said[1], said[1]
    assert '"drawn":3' in said[1]
    assert '"requests":0' in said[1]
    assert "CONSOLE" not in ended.stderr
