"""Did you mean …? The nearest known word to a misspelled one.

`hint` words it for an error; without a near word it lists what is known, when that is short.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that is most like `word`, case aside first, or None where none is near."""
    words = sorted(set(known))
    same = [k for k in words if k.lower() == word.lower()]
    if same:
        return same[0]
    close = difflib.get_close_matches(word, words, n=1, cutoff=0.6)
    return close[0] if close else None


def hint(word: str, known: Iterable[str], otherwise: str | None = None) -> str | None:
    """`did you mean …?`, or `otherwise`, or the list of what is known when it is short, or None."""
    words = sorted(set(known))
    near = nearest(word, words)
    if near is not None:
        return f"did you mean `{near}`?"
    if otherwise is None and 0 < len(words) <= 12:
        return "known are " + ", ".join(f"`{w}`" for w in words)
    return otherwise
