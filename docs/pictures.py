r"""The pictures of a report, of a plan and of a study in the pages, light and dark.

    litebert quickstart
    litebert study dropout --shards novels1000 --scale claim --budget '1200 steps' --seeds 5 \
        --out dropout
    python docs/pictures.py quickstart/report.html dropout/report.html

docs/screenshots.py takes those of the playground.
"""

from __future__ import annotations

import html
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, sync_playwright

FOLDER = Path(__file__).parent
RECIPE = "albert-next-mini"
TERMINAL = "<style>body {{ margin: 0; padding: 24px; background: {}; color: {}; }}</style>"
COLORS = {"light": ("#ffffff", "#1f2328"), "dark": ("#15181c", "#d8dee4")}
"""Background and text of a terminal."""


def take(browser: Browser, name: str, address: str, scheme: str, size: tuple[int, int]) -> None:
    """Save the first screen of a page, in few colors."""
    page = browser.new_page(
        viewport={"width": size[0], "height": size[1]},
        color_scheme=scheme,  # type: ignore[arg-type]
    )
    page.goto(address)
    page.wait_for_timeout(500)
    file = FOLDER / f"{name}-{scheme}.png"
    page.screenshot(path=file)
    page.close()
    picture = Image.open(file).convert("RGB").quantize(64, dither=Image.Dither.NONE)
    picture.save(file, optimize=True)


def write_terminal(folder: Path, scheme: str) -> Path:
    """A page with what `litebert plan` prints."""
    command = [sys.executable, "-m", "litebert", "plan", RECIPE]
    settings = {**os.environ, "COLUMNS": "80"}
    done = subprocess.run(command, env=settings, check=True, capture_output=True, text=True)
    text = html.escape(f"$ litebert plan {RECIPE}\n{done.stdout}")
    page = folder / f"plan-{scheme}.html"
    page.write_text(
        f"<meta charset=utf-8>{TERMINAL.format(*COLORS[scheme])}"
        f'<pre style="font: 15px/1.35 monospace">{text}</pre>',
        encoding="utf-8",
    )
    return page


def main(files: Sequence[str]) -> None:
    """Take all of them, from the report of a quickstart and the report of a study."""
    report, study = (Path(file).resolve() for file in files)
    with sync_playwright() as tool:
        browser = tool.chromium.launch(executable_path=shutil.which("chromium"))
        for scheme in COLORS:
            take(browser, "report", report.as_uri(), scheme, (1000, 760))
            take(browser, "study", study.as_uri(), scheme, (1000, 760))
            page = write_terminal(report.parent, scheme)
            take(browser, "plan", page.as_uri(), scheme, (820, 600))
            page.unlink()
        browser.close()


if __name__ == "__main__":
    main(sys.argv[1:])
