"""The page at `/` in a real browser: what it shows, by keyboard alone, on a phone and a screen,
light and dark.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import torch

from litebert.config import Config, EncoderConfig, SequenceConfig
from litebert.model.pretrainer import Pretrainer
from litebert.model.task_model import TaskModel
from litebert.tokenizer import Tokenizer
from toys.folders import save_litebert

httpx, uvicorn = pytest.importorskip("httpx"), pytest.importorskip("uvicorn")
pytest.importorskip("starlette")
from litebert.serve.batching import Queue  # noqa: E402
from litebert.serve.http import configure  # noqa: E402
from litebert.serve.logs import Metrics  # noqa: E402
from litebert.serve.pool import Pool, Worker  # noqa: E402
from litebert.serve.routes import playground  # noqa: E402
from litebert.serve.server import Settings  # noqa: E402
from litebert.serve.service import Service  # noqa: E402
from litebert.serve.worker import _open  # noqa: E402

pytestmark = pytest.mark.thorough


SHAPE: dict[str, Any] = {
    "embedding_size": 8,
    "hidden_size": 16,
    "layers": 3,
    "heads": 2,
    "intermediate_size": 32,
    "max_positions": 64,
}
EXAMPLES = [
    {"text": "a fine film, quiet and funny", "label": "good"},
    {"text": "a dull film", "label": "bad"},
]
ANSWER = "[role=tabpanel]:not([hidden]) .result"


def randomize_weights(model: Any, seed: int = 3) -> Any:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.4 * torch.randn(parameter.shape, generator=generator))
    return model


@pytest.fixture(scope="module")
def service(tiny_tokenizer: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A service of a classifier that leaves early, a tagger, a reader of questions and a pretrained
    model.
    """
    place, words = tmp_path_factory.mktemp("served"), Tokenizer.load(tiny_tokenizer)
    shape = EncoderConfig(vocab_size=words.vocab_size, **SHAPE)
    exits = {"patience": 1, "threshold": 1.0}
    classifier = randomize_weights(TaskModel(shape, True, 3))
    save_litebert(
        classifier,
        words,
        place / "reviews",
        labels=("bad", "so-so", "good"),
        task={"kind": "sequence", "length": 64, "exits": exits},
    )
    (place / "reviews" / "examples.json").write_text(json.dumps({"examples": EXAMPLES}))
    without = EncoderConfig(vocab_size=words.vocab_size, pooler=False, **SHAPE)
    tags = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")
    save_litebert(
        randomize_weights(TaskModel(without, False, 5)),
        words,
        place / "names",
        labels=tags,
        task={"kind": "tokens", "length": 64},
    )
    save_litebert(
        randomize_weights(TaskModel(without, False, 2)),
        words,
        place / "questions",
        task={"kind": "span", "length": 64},
    )
    whole = Config(
        name="base", encoder=shape, sequences=SequenceConfig(length=64), objectives=("mlm", "sop")
    )
    save_litebert(randomize_weights(Pretrainer(whole)), words, place / "base")
    with run_service(*(place / name for name in ("reviews", "names", "questions", "base"))) as url:
        yield url


class Here(Worker):
    """A worker without a process of its own, which would take seconds to begin."""

    async def start(self) -> Any:
        self.ready, self.ended = True, asyncio.get_running_loop().create_future()
        self._served, ready = _open(self._settings)
        return ready

    @property
    def pid(self) -> int | None:
        return os.getpid()

    async def compute(self, groups: Any, step: float = 0.0) -> Any:
        return [self._served.answer(group) for group in groups], 0.001

    async def stop(self) -> None:
        pass


@contextmanager
def run_service(*folders: Path, root_path: str = "") -> Iterator[str]:
    """The address of a service in a thread of this process."""
    models = {folder.name: folder for folder in folders}
    settings = Settings(models, threads=1, root_path=root_path)
    opening = {
        "engine": "compiled",
        "device": "cpu",
        "exit_confidence": "auto",
        "threads": 1,
        "tokens": settings.limits.tokens,
    }
    ready, servers = threading.Event(), []

    async def run() -> None:
        pools = {}
        try:
            for name, path in settings.models.items():
                queue = Queue(settings.batch_characters, 0, 60)
                pools[name] = Pool(name, {**opening, "path": str(path)}, queue, 1, 60)
                await pools[name].start()
            servers.append(
                uvicorn.Server(configure(settings, Service(pools, settings.limits, Metrics())))
            )
        finally:
            ready.set()
        await servers[0].serve(sockets=[listening])
        for pool in pools.values():
            await pool.stop()

    with socket.create_server(("127.0.0.1", 0)) as listening, pytest.MonkeyPatch.context() as patch:
        patch.setattr("litebert.serve.pool.Worker", Here)
        thread = threading.Thread(target=lambda: asyncio.run(run()))
        thread.start()
        ready.wait()
        try:
            assert servers, "a model could not be opened"
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            for server in servers:
                server.should_exit = True
            thread.join()


@contextmanager
def proxy(url: str, prefix: str, strips: bool) -> Iterator[tuple[str, list[str]]]:
    """The address of a proxy that offers a service under a prefix, and what it was asked for
    outside of that.
    """
    outside = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if not self.path.startswith(prefix):
                outside.append(self.path)
            path = self.path.removeprefix(prefix) if strips else self.path
            content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            headers = {key: value for key, value in self.headers.items() if key != "Connection"}
            answer = httpx.request(self.command, url + path, content=content, headers=headers)
            self.send_response(answer.status_code)
            for key, value in answer.headers.items():
                if key not in ("transfer-encoding", "connection"):
                    self.send_header(key, value)
            self.end_headers()
            self.wfile.write(answer.content)

        do_POST = do_GET

        def log_message(self, *words: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}{prefix}", outside
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize("strips", [True, False])
def test_the_page_and_the_routes_work_behind_a_prefix(
    browser: Any, tiny_tokenizer: Path, tmp_path: Path, strips: bool
) -> None:
    words = Tokenizer.load(tiny_tokenizer)
    shape = EncoderConfig(vocab_size=words.vocab_size, **SHAPE)
    model, task = TaskModel(shape, True, 3), {"kind": "sequence", "length": 64}
    save_litebert(model, words, tmp_path / "m", labels=("bad", "so-so", "good"), task=task)
    with (
        run_service(tmp_path / "m", root_path="/lite.bert/x") as url,
        proxy(url, "/lite.bert/x", strips) as (address, outside),
        browser.new_context() as context,
    ):
        for end in ("/", "", "/models/m/"):
            page = context.new_page()
            page.goto(address + end)
            page.fill("#predict-text", "a fine folder")
            page.click("text=Try it")
            assert "good" in read_answer(page)
            page.click("summary")
            command = page.inner_text("details pre")
            assert f"{address}{end.rstrip('/')}/predict" in command
            page.click("#routes")
            page.wait_for_url(f"{address}{end.rstrip('/')}/docs")
        page.click("text=openapi.json")
        page.wait_for_url(f"{address}/models/m/openapi.json")
        schema = httpx.get(f"{address}/openapi.json").json()
        assert schema["servers"] == [{"url": "/lite.bert/x"}]
        assert {*outside} <= {"/favicon.ico"}, "browsers ask for that on their own"


@pytest.fixture
def open_page(browser: Any, service: str) -> Iterator[Callable[..., Any]]:
    """Open the page; at the end, nothing may have been complained of, and nobody else asked for
    anything.
    """
    contexts, heard, requests = [], [], []

    def open_fresh(route: Callable[[Any], None] | None = None) -> Any:
        context = browser.new_context(
            viewport={"width": 390, "height": 844}, reduced_motion="reduce"
        )
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(120_000)  # on a machine with much else to do
        page.on("console", lambda message: heard.append(message.text))
        page.on("pageerror", lambda error: heard.append(str(error)))
        page.on("request", lambda request: requests.append(request.url))
        if route is not None:
            page.route("**/*", route)
        page.goto(service + "/")
        return page

    yield open_fresh
    for context in contexts:
        context.close()
    assert not [text for text in heard if "Failed to load resource" not in text], heard
    assert all(url.startswith((f"{service}/", "data:")) for url in requests), requests


CONTRAST = """() => {
  const parts = text => text.match(/[\\d.]+/g).map(Number);
  const linear = c => c <= .03928 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4;
  const light = ([r, g, b]) =>
    .2126 * linear(r / 255) + .7152 * linear(g / 255) + .0722 * linear(b / 255);
  const behind = node => {
    for (let at = node; at; at = at.parentElement) {
      const found = parts(getComputedStyle(at).backgroundColor);
      if (found.length === 3 || found[3] === 1) return found;
    }
    return [255, 255, 255];
  };
  const poor = [];
  for (const node of document.querySelectorAll("body *")) {
    const own = [...node.childNodes].some(one => one.nodeType === 3 && one.data.trim());
    if (!(own || node.matches("input, textarea, select")) || !node.checkVisibility()) continue;
    if (node.matches("script, style, option, .unseen")) continue;
    const style = getComputedStyle(node), size = parseFloat(style.fontSize);
    const [a, b] = [light(parts(style.color)), light(behind(node))].sort((x, y) => y - x);
    const ratio = (a + .05) / (b + .05);
    const least = size >= 24 || (size >= 18.66 && style.fontWeight >= 700) ? 3 : 4.5;
    if (ratio < least) poor.push([node.tagName, node.className, style.color, ratio]);
  }
  return poor;
}"""
"""The elements whose text has less contrast than WCAG 2.2 asks for at level AA."""


def read_focus(page: Any) -> dict[str, str]:
    focus: dict[str, str] = page.evaluate(
        "() => { const at = document.activeElement; return { id: at.id, tag: at.tagName, "
        "text: at.textContent }; }"
    )
    return focus


def reach(page: Any, wanted: Callable[[dict[str, str]], bool]) -> None:
    """Press Tab until it is reached, as someone without a mouse does."""
    for _ in range(25):
        page.keyboard.press("Tab")
        if wanted(read_focus(page)):
            return
    raise AssertionError(f"Tab does not lead there, but to {read_focus(page)}")


def read_answer(page: Any) -> str:
    """The answer, once it is there."""
    page.wait_for_selector(f"{ANSWER}:not([aria-busy]) .facts, {ANSWER}:not([aria-busy]) .error")
    text: str = page.inner_text(ANSWER)
    return text


def well_laid_out(page: Any) -> None:
    """On a phone and on a screen, light and dark: nothing stands beyond the edge, and all of it can
    be read.
    """
    for width in (390, 1280):
        page.set_viewport_size({"width": width, "height": 844})
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), width
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            assert page.evaluate(CONTRAST) == [], scheme


def test_every_view_by_keyboard_alone(open_page: Callable[..., Any]) -> None:
    page = open_page()
    page.wait_for_selector("[role=tab]")
    seen: dict[str, str] = {}
    for model in ("reviews", "names", "questions", "base"):
        page.evaluate("document.activeElement.blur()")
        reach(page, lambda at: at["id"] == "model")
        if model != "reviews":
            page.keyboard.press("ArrowDown")
        assert page.locator("#model option:checked").inner_text() == model
        page.keyboard.press("Tab")
        tabs = page.locator("[role=tab]").all_inner_texts()
        for i, tab in enumerate(tabs):
            assert read_focus(page)["text"] == tab
            assert page.get_attribute("[role=tab][aria-selected=true]", "id") == f"tab-{i}"
            if tab not in seen:  # every model has some of the same
                page.keyboard.press("Tab")
                assert read_focus(page)["tag"] in ("TEXTAREA", "INPUT")
                page.keyboard.press("Control+Enter")
                seen[tab] = read_answer(page)
                assert "error" not in page.inner_html(ANSWER), seen[tab]
                well_laid_out(page)
                while read_focus(page)["id"] != f"tab-{i}":
                    page.keyboard.press("Shift+Tab")
            page.keyboard.press("ArrowRight")
    assert all(label in seen["Class"] for label in ("bad", "so-so", "good", "ms", "%"))
    assert "layer" in seen["Class"]  # at which it left
    assert any(tag in seen["Tags"] for tag in ("PER", "LOC"))
    assert "The library opened" in seen["Answer"]
    assert seen["Fill masks"].count("%") == 10
    assert "We waited an hour" in seen["Similar sentences"]
    assert "We open at nine" in seen["Rank texts"]
    assert "[CLS]" in seen["Tokens"]


def test_answers_are_those_of_the_service(open_page: Callable[..., Any], service: str) -> None:
    page, text = open_page(), "a fine folder"
    page.fill("#predict-text", text)
    page.click("text=Try it")
    shown = read_answer(page)
    answer = httpx.post(f"{service}/predict", json={"inputs": text, "model": "reviews"})
    prediction = answer.json()["predictions"][0]
    assert shown.startswith(prediction["prediction"])
    for label, share in prediction["probabilities"].items():
        assert f"{100 * share:.1f}%" in shown, label
    widths = page.locator(f"{ANSWER} .track i").evaluate_all(
        "all => all.map(one => parseFloat(one.style.width))"
    )
    assert widths == pytest.approx(
        sorted((100 * share for share in prediction["probabilities"].values()), reverse=True),
        abs=0.01,
    )
    page.click("summary")
    assert json.dumps(text) in page.inner_text("details pre")


def test_the_words_that_decided_are_marked(open_page: Callable[..., Any], service: str) -> None:
    """The page's numbers are the differences of the answers that the service gives."""
    page, words = open_page(), ["a", "fine", "folder"]
    page.fill("#predict-text", " ".join(words))
    page.click("text=Try it")
    read_answer(page)
    page.click("text=Which words decided?")
    page.wait_for_selector(f"{ANSWER} .words")
    assert page.locator(f"{ANSWER} mark.word").all_inner_texts() == words
    without = ["{} {}".format(*words[:i], *words[i + 1 :]) for i in range(3)]
    spaced = [" fine folder", "a  folder", "a fine "]  # as the page leaves a word out
    assert [" ".join(text.split()) for text in spaced] == without
    inputs = [" ".join(words), *spaced]
    answer = httpx.post(f"{service}/predict", json={"inputs": inputs, "model": "reviews"}).json()
    likely = [row["probabilities"] for row in answer["predictions"]]
    best = max(likely[0], key=likely[0].__getitem__)
    odds = [math.log(row[best] / (1 - row[best])) for row in likely]
    titles = page.locator(f"{ANSWER} mark.word").evaluate_all("all => all.map(one => one.title)")
    shown = [float(title.replace("\N{MINUS SIGN}", "-")) for title in titles]
    assert shown == pytest.approx([odds[0] - other for other in odds[1:]], abs=0.011)
    assert best in page.inner_text(f"{ANSWER} .words")
    well_laid_out(page)


def test_examples_of_the_model_are_offered_and_labels_named(
    open_page: Callable[..., Any], service: str
) -> None:
    page = open_page()
    page.wait_for_selector(f"{ANSWER} .chips li")  # the page asks the service for them first
    assert page.locator(f"{ANSWER} .chips li").all_inner_texts() == ["bad", "so-so", "good"]
    assert page.input_value("#predict-text") == EXAMPLES[0]["text"]
    offered = page.locator("[role=tabpanel]:not([hidden]) .samples button")
    assert offered.count() == len(EXAMPLES)
    assert EXAMPLES[1]["label"] in offered.nth(1).inner_text()
    offered.nth(1).click()
    shown = read_answer(page)
    assert page.input_value("#predict-text") == EXAMPLES[1]["text"]
    answer = httpx.post(
        f"{service}/predict", json={"inputs": EXAMPLES[1]["text"], "model": "reviews"}
    ).json()
    assert shown.startswith(answer["predictions"][0]["prediction"])
    well_laid_out(page)
    page.select_option("#model", label="names")
    assert page.locator(f"{ANSWER} .chips li").all_inner_texts() == ["PER", "LOC"]
    assert page.locator("[role=tabpanel]:not([hidden]) .samples").count() == 0, (
        "a model without examples"
    )


def test_a_model_of_another_script_begins_with_empty_fields(open_page: Callable[..., Any]) -> None:
    def route(request: Any) -> None:
        if request.request.url.endswith("/info"):
            info = request.fetch().json()
            for model in info["models"]:
                assert model["reads_english"]
                model["reads_english"] = False
            request.fulfill(json=info)
        else:
            request.continue_()

    page = open_page(route)
    page.select_option("#model", label="base")
    assert page.input_value("#fill-mask-text") == ""
    page.keyboard.press("Tab")
    assert page.input_value("#similarity-sentences") == ""


def test_what_was_typed_stays_over_a_change_of_model(open_page: Callable[..., Any]) -> None:
    page = open_page()
    page.fill("#predict-text", "Ada met Charles")
    page.select_option("#model", label="names")
    assert page.input_value("#predict-text") == "Ada met Charles"
    page.click("[role=tab]:has-text('Tokens')")
    page.fill("#tokenize-text", "kept")
    page.select_option("#model", label="reviews")
    assert page.locator("[role=tab][aria-selected=true]").inner_text() == "Tokens", (
        "the tab stays too"
    )
    assert page.input_value("#tokenize-text") == "kept"


def test_a_text_that_is_cut_is_said_to_be(open_page: Callable[..., Any], service: str) -> None:
    page, text = open_page(), "a fine folder " * 400
    page.fill("#predict-text", text)
    page.click("text=Try it")
    shown = read_answer(page)
    (answer,) = httpx.post(
        f"{service}/predict", json={"inputs": [text], "model": "reviews"}
    ).json()["predictions"]
    whole = answer["tokens"] + answer["truncated"]
    assert (answer["tokens"], whole > 1000) == (64, True)
    assert f"read 64 of {whole:,} tokens" in shown
    page.fill("#predict-text", "a fine folder")
    page.click("text=Try it")
    page.wait_for_function("() => !document.querySelector('.notice')")
    assert "read 64 of" not in read_answer(page)
    page.click("[role=tab]:has-text('Rank')")
    page.fill("#rerank-query", "a folder")
    page.fill("#rerank-texts", f"{text}\nshort")
    page.keyboard.press("Control+Enter")
    assert "tokens of the texts were cut off" in read_answer(page)


def test_ranks_are_those_of_the_service(open_page: Callable[..., Any], service: str) -> None:
    page, texts = open_page(), ["a folder", "the window opens", "a fine film"]
    page.click("[role=tab]:has-text('Rank')")
    page.fill("#rerank-query", "an open window")
    page.fill("#rerank-texts", "\n".join(texts))
    page.keyboard.press("Control+Enter")
    read_answer(page)
    body = {"query": "an open window", "texts": texts, "model": "reviews"}
    ranked = httpx.post(f"{service}/rerank", json=body).json()
    shown = page.locator(f"{ANSWER} .bars .name > :first-child").all_inner_texts()
    assert shown == [texts[rank["index"]] for rank in ranked]


def test_a_missing_mask_is_explained_in_plain_words(open_page: Callable[..., Any]) -> None:
    page = open_page()
    page.select_option("#model", label="base")
    page.fill("#fill-mask-text", "no mask")
    page.keyboard.press("Control+Enter")
    assert "Write [MASK] where a word is missing" in read_answer(page)
    page.fill("#fill-mask-text", "[MASK] folder " * 400)
    page.keyboard.press("Control+Enter")
    shown = read_answer(page)
    assert shown.startswith("The text has")
    assert "nputs" not in shown


def test_masks_of_all_forms_are_filled_in_the_text(open_page: Callable[..., Any]) -> None:
    page = open_page()
    page.select_option("#model", label="base")
    page.fill("#fill-mask-text", "ba ___ de [MASK] fi <mask>!")
    page.keyboard.press("Control+Enter")
    read_answer(page)
    passage = page.locator(f"{ANSWER} .passage")
    assert passage.locator("mark").count() == 3
    passage.locator("mark").evaluate_all(
        "marks => marks.forEach(mark => { mark.textContent = '*'; })"
    )
    assert passage.inner_text() == "ba * de * fi *!"


def test_texts_are_shown_as_texts(open_page: Callable[..., Any]) -> None:
    page, text = open_page(), "𝒜da <img src=x onerror=alert(1)> & <b>bold</b> 𝒜"
    page.select_option("#model", label="names")
    page.fill("#predict-text", text)
    page.keyboard.press("Control+Enter")
    read_answer(page)
    assert page.locator(f"{ANSWER} img, {ANSWER} .passage b b").count() == 0
    shown = page.evaluate(
        "selector => { const copy = document.querySelector(selector).cloneNode(true); "
        "copy.querySelectorAll('mark > b').forEach(one => one.remove()); return "
        "copy.textContent; }",
        f"{ANSWER} .passage",
    )
    assert shown == text  # places count characters, not halves of them


def test_what_goes_wrong_is_said(open_page: Callable[..., Any]) -> None:
    fails: dict[str, Any] = {}

    def route(request: Any) -> None:
        if request.request.url.endswith("/predict") and fails:
            if "status" in fails:
                request.fulfill(**fails)
            else:
                request.abort()
        else:
            request.continue_()

    page = open_page(route)
    page.fill("#predict-text", "  ")
    page.keyboard.press("Control+Enter")
    assert "Type a text" in read_answer(page)
    page.fill("#predict-text", "a folder")
    fails.update(
        status=429,
        headers={"Retry-After": "3"},
        json={"error": "the queue is full", "error_type": "overloaded"},
    )
    page.keyboard.press("Control+Enter")
    page.wait_for_selector("text=The queue is full. Try again in 3 seconds.")
    assert page.get_attribute(f"{ANSWER} .error", "role") == "alert"
    fails.clear()
    fails["abort"] = True
    page.keyboard.press("Control+Enter")
    page.wait_for_selector("text=does not answer")
    fails.clear()
    page.keyboard.press("Control+Enter")
    page.wait_for_selector(f"{ANSWER} .facts")


def test_a_key_is_asked_for(open_page: Callable[..., Any]) -> None:
    def route(request: Any) -> None:
        locked = (
            request.request.url.endswith("/info")
            and request.request.headers.get("authorization") != "Bearer right"
        )
        if locked:
            request.fulfill(
                status=401,
                json={"error": "the key is missing or wrong", "error_type": "unauthorized"},
            )
        else:
            request.continue_()

    page = open_page(route)
    page.wait_for_selector("#unlock:not([hidden])")
    assert read_focus(page)["id"] == "key"
    for key, then in (("wrong", "#trouble:not([hidden])"), ("right", "[role=tab]")):
        page.fill("#key", key)
        page.keyboard.press("Enter")
        page.wait_for_selector(then)


def test_the_policy_lets_nothing_in(browser: Any, service: str) -> None:
    html, policy = playground()
    from playwright.sync_api import Error

    with browser.new_context() as context:
        page = context.new_page()
        page.goto(service)
        with pytest.raises(Error, match="TrustedHTML"):
            page.evaluate("document.body.innerHTML = '<i>no</i>'")
    assert "unsafe" not in policy
    assert policy.startswith("default-src 'none'")
    assert not any(
        part in html
        for part in ("http://" + "fonts", "https://", "innerHTML", " style=", "onclick")
    )
