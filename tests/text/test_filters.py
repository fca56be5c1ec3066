"""Filters: every rule drops a text that breaks it, and leaves one that just does not."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from litebert.text import filters
from litebert.text.filters import FILTERS, LINE_RULES, RULES, apply_filters

NAMES = [f"w{chr(97 + i // 26)}{chr(97 + i % 26)}ord" for i in range(26 * 26)]


def make_words(count: int, first: int = 0) -> list[str]:
    """Different words of five letters, with two stop words among the first ten."""
    words = NAMES[first : first + count]
    words[3:3], words[7:7] = ["the"], ["and"]
    return words[:count]


def make_text(count: int, first: int = 0) -> str:
    return " ".join(make_words(count, first))


def make_lines(count: int, end: str = ".", words: int = 10) -> list[str]:
    return [make_text(words, words * i) + end for i in range(count)]


def repeat_run(length: int, times: int, others: int) -> str:
    """Different words, among which a run of words stands several times, never twice in a row."""
    run, rest = NAMES[-length:], make_words(others)
    step = others // times
    pieces = [piece for i in range(times) for piece in (*rest[i * step : (i + 1) * step], *run)]
    return " ".join([*pieces, *rest[times * step :]])


def repeat_runs(length: int, count: int) -> str:
    """Sixty different words, and several runs of words that each stand twice."""
    runs = [NAMES[-length * (i + 1) :][:length] for i in range(count)]
    again = [word for run in reversed(runs) for word in run]
    return " ".join([*(word for run in runs for word in run), *make_words(60), *again])


PAGE = make_lines(10)
CASES: list[tuple[str, str, str]] = [
    ("gopher-word-count", make_text(49), make_text(50)),
    ("gopher-word-count", make_text(500) + " wo" * 99_501, ""),
    ("gopher-word-length", "to be " + "ab " * 60, ""),
    ("gopher-word-length", "to be " + " ".join(NAMES[i] * 3 for i in range(60)), ""),
    ("gopher-hash-signs", make_text(60) + " #" * 7, make_text(60) + " #" * 6),
    ("gopher-ellipses", make_text(60) + " a..." * 7, make_text(66) + " a..." * 7 + " end"),
    ("gopher-ellipses", make_text(60) + " a…" * 7, make_text(66) + " a…" * 7 + " end"),
    (
        "gopher-bullets",
        "\n".join(f"- {line}" for line in make_lines(10)),
        "\n".join([*(f"• {line}" for line in PAGE[:9]), PAGE[9]]),
    ),
    (
        "gopher-ellipsis-lines",
        "\n".join([*(f"{line}.." for line in PAGE[:4]), *PAGE[4:]]),
        "\n".join([*(f"{line}.." for line in PAGE[:3]), *PAGE[3:]]),
    ),
    (
        "gopher-letters",
        make_text(60) + " 12345" * 16,
        " ".join([make_text(60), *map(str, range(1000, 1015))]),
    ),
    ("gopher-stop-words", " ".join(NAMES[:60]) + " the", " ".join(NAMES[:60]) + " the to"),
    (
        "gopher-duplicate-lines",
        "\n".join([*make_lines(6, words=12), *["Short."] * 5]),
        "\n".join([*make_lines(6, words=12), *["Short."] * 3]),
    ),
    (
        "gopher-duplicate-line-characters",
        "\n".join([*PAGE, *PAGE[:3]]),
        "\n".join([*make_lines(20), "A short line.", "A short line."]),
    ),
    (
        "gopher-duplicate-paragraphs",
        "\n\n".join([*("\n".join(make_lines(3, words=12 + i)) for i in range(3)), *["A\nB"] * 3]),
        "",
    ),
    ("gopher-top-2-gram", make_text(60) + " longer words end" * 13, ""),
    ("gopher-top-2-gram", repeat_run(2, 20, 60), repeat_run(2, 8, 60)),
    ("gopher-top-3-gram", repeat_run(3, 7, 70), repeat_run(3, 5, 70)),
    ("gopher-top-4-gram", repeat_run(4, 5, 70), repeat_run(4, 2, 70)),
    ("gopher-duplicate-5-grams", repeat_runs(5, 6), repeat_runs(5, 2)),
    ("gopher-duplicate-10-grams", repeat_runs(10, 1), repeat_runs(9, 1)),
    ("c4-lorem-ipsum", "Lorem Ipsum dolor. " * 6, ""),
    ("c4-curly-bracket", "\n".join([*PAGE, "if (a) { return b; }"]), "\n".join(PAGE)),
    ("fineweb-line-ends", "\n".join([*make_lines(22, ""), *PAGE[:3]]), ""),
    ("fineweb-line-ends", "", "\n".join([*make_lines(21, ""), *PAGE[:3]])),
    (
        "fineweb-duplicate-lines",
        "\n".join([*PAGE[:9], PAGE[0]]),
        "\n".join([*PAGE, "A line of its own here.", PAGE[0]]),
    ),
    (
        "fineweb-short-lines",
        "\n".join([*PAGE[:3], *(f"{NAMES[i]} here." for i in range(7))]),
        "\n".join([*PAGE[:4], *(f"{NAMES[i]} here." for i in range(6))]),
    ),
]
"""A rule, a text that it drops, and one that just passes; "" for none."""


@pytest.mark.parametrize(("rule", "broken", "fine"), CASES)
def test_a_rule_drops_a_text_that_breaks_it(rule: str, broken: str, fine: str) -> None:
    name = rule.partition("-")[0]
    verdicts = apply_filters([broken, PAGE[0], fine], [name], "en")
    if broken:
        assert verdicts[0].rule == rule
    if fine:
        assert not verdicts[2].rule


def test_every_rule_on_pages_has_a_case() -> None:
    rules = {f"{name}-{rule}" for name in RULES for rule in RULES[name]}
    middle = {f"gopher-duplicate-{n}-grams" for n in range(6, 10)}
    # A repeated paragraph is a repeated line, which is found first. Sentences come with prepare.
    later = {"gopher-duplicate-paragraph-characters", "c4-sentences"}
    assert rules - middle - later == {rule for rule, _, _ in CASES}


def test_stop_words_count_in_english_only() -> None:
    text = " ".join(NAMES[:60])
    assert [
        apply_filters([text], ["gopher"], language)[0].rule for language in ("de", "en-GB")
    ] == ["", "gopher-stop-words"]


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        ("About us | Home | Contact", "line-ends"),
        ("Sign in.", "line-words"),
        ("Please enable JavaScript in your browser.", "javascript"),
        ("By reading on you accept our Privacy Policy.", "policies"),
        ("This site uses cookies to work.", "policies"),
        ('"We are here," she said, "at last."', ""),
        ("“Wo ist er jetzt geblieben?”", ""),
        ("これは 二つ目の 文です。", ""),
    ],
)
def test_c4_removes_lines(line: str, rule: str) -> None:
    verdict = apply_filters(["\n".join([PAGE[0], line, PAGE[1]])], ["c4"], "en")[0]
    assert verdict.lines == ({f"c4-{rule}": [line]} if rule else {})
    assert verdict.text.split("\n") == [PAGE[0], *([] if rule else [line]), PAGE[1]]
    assert not rule or rule in LINE_RULES["c4"]


def test_c4_removes_citation_marks() -> None:
    text = "It was built in 1889.[1][citation needed] It is 330 [sic] metres high [edit]."
    verdict = apply_filters([text], ["c4"], "en")[0]
    assert verdict.text == "It was built in 1889. It is 330 [sic] metres high ."


def make_pages(seed: int, count: int) -> list[str]:
    """Pages of all kinds, from good to bad, without blank lines and lonely punctuation."""
    draw = random.Random(seed)
    pages = []
    for number in range(count):
        lines = make_lines(draw.randint(1, 14), words=draw.randint(2, 40))
        if number % 8 == 1:
            lines += lines[: draw.randint(1, len(lines))]
        if number % 8 == 2:
            lines = [line[: draw.randint(3, 60)].strip() for line in lines]
        if number % 8 == 3:
            lines = [f"- {line}" if draw.random() < 0.95 else line for line in lines]
        if number % 8 == 4:
            lines = [f"{line}.." if draw.random() < 0.4 else line for line in lines]
        if number % 8 == 5:
            lines = [
                " ".join(word if draw.random() < 0.8 else "123" for word in line.split())
                for line in lines
            ]
        if number % 8 == 6:
            lines = [" ".join(line.split()[:12] * draw.randint(1, 3)) for line in lines]
        if number % 8 == 7:
            lines = [
                " ".join(word + ("#" if draw.random() < 0.1 else "") for word in line.split())
                for line in lines
            ]
        pages.append("\n".join(lines))
    return pages


@pytest.mark.parametrize("together", [1, 1000])
def test_company_changes_no_verdict(together: int) -> None:
    pages = make_pages(1, 64)
    for name in FILTERS:
        whole = apply_filters(pages, [name], "en")
        assert whole == [
            verdict
            for first in range(0, len(pages), together)
            for verdict in apply_filters(pages[first : first + together], [name], "en")
        ]


@pytest.mark.parametrize("name", FILTERS)
def test_datatrove_drops_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where words, sentences and marks are defined alike. Runs that overlap are counted once here,
    and skipped there, so a text near a border may differ."""
    pages = make_pages(2, 1000)
    judge = make_reference(name, monkeypatch)
    verdicts = apply_filters(pages, [name], "en")
    answers = [judge(page) for page in pages]
    differing = [
        (verdict.rule, reason)
        for verdict, (reason, text) in zip(verdicts, answers, strict=True)
        if bool(verdict.rule) != bool(reason) or (not reason and verdict.text != text)
    ]
    changed = [text != page for page, (_, text) in zip(pages, answers, strict=True)]
    assert sum(changed) > 150
    assert all("gram" in rule or "gram" in reason for rule, reason in differing)
    assert len(differing) <= 10


def make_reference(name: str, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], tuple[str, str]]:
    """The filter of datatrove with words between white space: its reason, and what stays."""
    document_type = pytest.importorskip("datatrove.data").Document
    published = pytest.importorskip("datatrove.pipeline.filters")
    module = "datatrove.pipeline.filters"
    for file in ("gopher_quality", "gopher_repetition", "fineweb_quality"):
        monkeypatch.setattr(
            f"{module}.{file}_filter.split_into_words", lambda text, _: text.split()
        )
    monkeypatch.setattr(f"{module}.c4_filters.split_into_sentences", lambda text, _: [text])
    chain: list[Any] = {
        "gopher": [published.GopherQualityFilter(), published.GopherRepetitionFilter()],
        "c4": [published.C4QualityFilter(min_num_sentences=-1)],
        "fineweb": [
            published.FineWebQualityFilter(
                stop_chars=filters._PUNCTUATION, char_duplicates_ratio=0.0999999, new_line_ratio=1e9
            )
        ],
    }[name]
    if name == "c4":  # which also removes lines that end with an ellipsis
        monkeypatch.setattr(f"{module}.c4_filters.ELLIPSIS", "\0")

    def judge(text: str) -> tuple[str, str]:
        document = document_type(text=text, id="")
        for step in chain:
            answer = step.filter(document)
            if answer is not True:
                return (answer[1] if isinstance(answer, tuple) else "dropped"), ""
        return "", document.text

    return judge
