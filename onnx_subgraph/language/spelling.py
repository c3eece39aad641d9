"""Suggest the known word nearest to a misspelled one: "did you mean …?".

`hint` gives the text for an error. Without a near word it lists the known words, if they are few.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word most similar to `word`, first ignoring case; None where none is near."""
    words = sorted(set(known))
    same = [k for k in words if k.lower() == word.lower()]
    if same:
        return same[0]
    close = difflib.get_close_matches(word, words, n=1, cutoff=0.6)
    return close[0] if close else None


def hint(word: str, known: Iterable[str], otherwise: str | None = None) -> str | None:
    """`did you mean …?`, or `otherwise`, or a short list of the known words, or None."""
    words = sorted(set(known))
    near = nearest(word, words)
    if near is not None:
        return f"did you mean `{near}`?"
    if otherwise is None and 0 < len(words) <= 12:
        return "known are " + ", ".join(f"`{w}`" for w in words)
    return otherwise
