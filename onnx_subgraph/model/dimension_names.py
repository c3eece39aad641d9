"""Names of dimensions: in the file (outer) and in the algebra of shapes (inner).

A file may give a dimension any name: `batch size`, `N:1`, `2x`, `if`. The algebra parses names as expressions. So a name that is
not a plain word is replaced while the model is in memory (`inner`). Files, reports and messages show the original name (`outer`).

* An expression of declared dimensions, as `past + seq`, keeps its meaning.
* A placeholder, as `?` or `None`, is not a name. Exporters write it for every free dimension, so two placeholders are not equal.
* Every other text is a name, equal only to itself.
"""

from __future__ import annotations

import hashlib
import re
import string
from collections.abc import Collection, Mapping
from functools import cache, lru_cache

import onnx_ir as ir

Dim = int | ir.SymbolicDim

_PLAIN = re.compile(r"(?!dim_[0-9a-f]{16}\b|\w*anonymous_)[A-Za-z][A-Za-z0-9_]{,63}")
"""A word that the algebra accepts as it is, and that inference never generates (`_d0`, `anonymous_1`)."""
_INNER = re.compile(r"\bdim_[0-9a-f]{16}\b")
_GENERATED = re.compile(r"_d\d+")
"""Names that shape inference generates for dimensions without a name in the file."""
_PUNCTUATION = frozenset(string.punctuation + string.whitespace)
_PLACEHOLDERS = frozenset({"none", "unk", "unknown"})
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")
_TOKENS = re.compile(rf"(?:{_WORD.pattern}|\d+|//|[-+*/%(),]|\s)+")
_FUNCTIONS = frozenset({"Max", "Min", "Mod", "floor", "max", "min", "mod"})
_LONGEST_EXPRESSION = 300
"""In characters; a longer text is a name."""
_DIVISIBLE = 720720
"""Divisible by every number up to 16. An expression must give an integer at this size."""

_OUTER: dict[str, str] = {}
"""Inner name → name in the file. An inner name is a digest of the original, so entries are valid for every model."""


def is_placeholder(name: str) -> bool:
    """Whether a text only means that a dimension is free: `?`, `*`, `-1`, `None`, `<unknown>`."""
    word = "".join(character for character in name.lower() if character not in _PUNCTUATION)
    return not word or name == "-1" or word in _PLACEHOLDERS


def inner(name: str, declared: Collection[str] = ()) -> str | None:
    """The inner name of a dimension; None for a placeholder. declared: all names and expressions that the model declares."""
    if _is_plain(name):
        return name
    if _INNER.fullmatch(name) and name in _OUTER:
        return name
    if is_placeholder(name):
        return None
    if is_expression(name, declared):
        return _WORD.sub(lambda word: word.group() if word.group() in _FUNCTIONS else _word(word.group()), name)
    return _word(name)


def outer(text: str) -> str:
    """The text with inner names replaced by the names in the file."""
    return _INNER.sub(lambda name: _OUTER.get(name.group(), name.group()), text) if "dim_" in text else text


def name_of(dim: ir.SymbolicDim) -> str | None:
    """The name of a dimension in the file; None where it has none."""
    return None if dim.value is None or _GENERATED.fullmatch(dim.value) else outer(dim.value)


def shown(shape: ir.Shape) -> str:
    """A shape as text for users: `[batch size,12,?]`."""
    return f"[{','.join(str(dim) if isinstance(dim, int) else name_of(dim) or '?' for dim in shape)}]"


def words(text: str) -> frozenset[str]:
    """The names in an expression, without function names."""
    return frozenset(_WORD.findall(text)) - _FUNCTIONS


def is_expression(text: str, declared: Collection[str]) -> bool:
    """Whether a text computes a size from dimensions that are declared on their own."""
    if len(text) > _LONGEST_EXPRESSION or "**" in text or text in _FUNCTIONS or not _TOKENS.fullmatch(text):
        return False
    names = words(text)
    if not names or text in names or not all(name in declared and not is_placeholder(name) for name in names):
        return False
    return _is_integer(text)


@cache
def _is_integer(text: str) -> bool:
    """Whether a text is an expression with an integer value."""
    try:
        return isinstance(ir.SymbolicDim(text).evaluate(dict.fromkeys(words(text), _DIVISIBLE)), int)
    except Exception:  # The parser and sympy raise many types, also for a division by zero; the text is a name then.
        return False


def are_plain(shape: ir.Shape) -> bool:
    """Whether every dimension of a shape has the same name in the file and in the algebra."""
    return all(dim >= 0 if isinstance(dim, int) else dim.value is None or _is_plain(dim.value) for dim in shape.dims)


def renamed(shape: ir.Shape, declared: Collection[str]) -> ir.Shape:
    """The shape with inner names. A negative size is unknown, as in onnxruntime."""
    return ir.Shape([_renamed(dim, declared) for dim in shape])


def restored(shape: ir.Shape) -> ir.Shape:
    """The shape with the names in the file; the same object if nothing changes."""
    if not any(isinstance(dim, ir.SymbolicDim) and dim.value is not None and _INNER.search(dim.value) for dim in shape):
        return shape
    return ir.Shape([dim if isinstance(dim, int) or dim.value is None else ir.SymbolicDim(outer(dim.value)) for dim in shape])


def sized(text: str, sizes: Mapping[str, int]) -> str:
    """An expression with its names replaced by sizes. A name without a size stays. sizes: name in the file → size."""

    def number(word: re.Match[str]) -> str:
        size = sizes.get(outer(word.group()))
        return word.group() if size is None else f"({size})"

    return _WORD.sub(number, text)


@lru_cache(maxsize=10_000)
def _is_plain(name: str) -> bool:
    return _PLAIN.fullmatch(name) is not None and not is_placeholder(name)


def _renamed(dim: Dim, declared: Collection[str]) -> Dim:
    if isinstance(dim, int):
        return dim if dim >= 0 else ir.SymbolicDim(None)
    return dim if dim.value is None else ir.SymbolicDim(inner(dim.value, declared))


def _word(name: str) -> str:
    if _PLAIN.fullmatch(name):
        return name
    digest = f"dim_{hashlib.sha256(name.encode(errors='surrogatepass')).hexdigest()[:16]}"
    _OUTER[digest] = name
    return digest
