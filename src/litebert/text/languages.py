"""The languages of texts, by the library lingua (extra `languages`), whose models lie in its wheel.
Its mode of low accuracy reads trigrams alone, which suits texts of a sentence or more.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from litebert.base.errors import DataError, MissingExtraError, nearest

CHARACTERS = 200
UNKNOWN = "unknown"
"""Stands for the code where a text has no letters, or several languages are equally likely."""


def check_languages(codes: Sequence[str]) -> None:
    codes_of_lingua = {_name(language) for language in _load().Language.all()}
    for code in codes:
        if code not in codes_of_lingua:
            raise DataError(
                f"keep_languages has '{code}', which is no language that lingua tells by its ISO "
                f"639-1 code; {nearest(code, codes_of_lingua)}"
            )


def detect_languages(texts: Sequence[str]) -> list[str]:
    """Return the ISO 639-1 code of each text, or `UNKNOWN`."""
    detector = _make_detector()
    languages = [detector.detect_language_of(text[:CHARACTERS]) for text in texts]
    return [UNKNOWN if language is None else _name(language) for language in languages]


def _load() -> Any:
    try:
        import lingua  # late: an optional library
    except ImportError:
        raise MissingExtraError("lingua-language-detector", "languages") from None
    return lingua


@lru_cache(1)
def _make_detector() -> Any:
    # All languages, because a text in another one would count as the most similar of a few.
    return _load().LanguageDetectorBuilder.from_all_languages().with_low_accuracy_mode().build()


def _name(language: Any) -> str:
    return str(language.iso_code_639_1.name).lower()
