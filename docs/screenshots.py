"""The pictures of the playground in docs/serving.md, taken from a running service.

    litebert serve tickets=... names=... questions=... --port 8000
    python docs/screenshots.py http://127.0.0.1:8000

The models are the one of docs/tutorials/tickets.md, a tagger, and a reader of questions.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

PICTURES = {  # model, width, height, light or dark
    "playground-class": ("tickets", 1280, 680, "light"),
    "playground-tags": ("names", 1280, 680, "dark"),
    "playground-phone": ("questions", 390, 900, "dark"),
}


def main(url: str) -> None:
    """Take all of them."""
    with sync_playwright() as tool:
        browser = tool.chromium.launch(executable_path=shutil.which("chromium"))
        for name, (model, width, height, scheme) in PICTURES.items():
            page = browser.new_page(
                viewport={"width": width, "height": height},
                color_scheme=scheme,  # type: ignore[arg-type]
            )
            page.goto(url)
            page.select_option("#model", label=model)
            page.click("text=Try it")
            page.wait_for_selector(".facts")
            page.wait_for_timeout(500)  # in which bars grow
            file = Path(__file__).parent / f"{name}.png"
            page.screenshot(path=file)
            Image.open(file).convert("RGB").quantize(96, dither=Image.Dither.NONE).save(
                file, optimize=True
            )
        browser.close()


if __name__ == "__main__":
    main(sys.argv[1])
