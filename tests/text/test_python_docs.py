"""The built-in corpus."""

from __future__ import annotations

import itertools
import re
from collections import Counter

import pytest

from litebert.text.python_docs import extract_prose, read_python_docs
from litebert.text.sentences import split_sentences
from litebert.text.sources import read_documents


@pytest.mark.thorough
def test_python_docs_is_prose_with_few_duplicates() -> None:
    texts = [document.text for document in itertools.islice(read_documents(["python-docs"]), 300)]
    assert len(texts) == 300
    assert len(set(texts)) == 300
    sentences = [sentence for text in texts for sentence in split_sentences(text)]
    words = [word for sentence in sentences for word in sentence.split()]
    assert len(words) > 30_000
    repeated = sum(count - 1 for count in Counter(sentences).values())
    assert repeated < 0.06 * len(sentences)
    paragraphs = [line for text in texts for line in text.split("\n")]
    assert len(set(paragraphs)) == len(paragraphs)
    assert 8 < len(words) / len(sentences) < 30
    plain = sum(re.fullmatch(r"[A-Za-z'-]+[.,;:!?)]*", word) is not None for word in words)
    assert plain > 0.85 * len(words)
    assert Counter(words).most_common(1)[0][0] == "the"
    assert not any(line.lstrip().startswith(">>>") for text in texts for line in text.split("\n"))
    assert [text for text, _ in itertools.islice(read_python_docs(), 300)] == texts, (
        "the same every time"
    )


def test_prose_leaves_the_sentences_of_a_docstring() -> None:
    docstring = """Return the *sum* of ``all`` the numbers that are given.

    Parameters
    ----------
    numbers : list of float
        The numbers that shall be added up, in any order you like.

    Example::

        total = add([1, 2, 3]) + add([4]) and so on and so forth for ever

    >>> add([1, 2]) # a doctest is no prose, however many words it may have

    | a | table | of many | words | is | no | prose | either | way |
    """
    assert list(extract_prose(docstring)) == [
        "Return the sum of all the numbers that are given.",
        "The numbers that shall be added up, in any order you like.",
    ]
