"""Names of dimensions: what a file may call one, and what the algebra of shapes calls it.

A file may call a dimension anything: `batch size`, `N:1`, `2x`, `if`. The algebra parses names as expressions, so a name that is
no plain word is replaced by one within a model in memory (`inner`). Files, reports and messages have the name itself (`outer`).

* An expression of dimensions that the model declares, `past + seq`, keeps its meaning.
* A placeholder, `?` or `None`, is no name: exporters write it at every dimension that is free, and two of them are not equal.
* Every other text is a name, equal to itself alone.
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
"""A word that the algebra takes as it is, and that inference never invents (`_d0`, `anonymous_1`)."""
_INNER = re.compile(r"\bdim_[0-9a-f]{16}\b")
_GENERATED = re.compile(r"_d\d+")
"""What shape inference calls a dimension that has no name in the file."""
_PUNCTUATION = frozenset(string.punctuation + string.whitespace)
_PLACEHOLDERS = frozenset({"none", "unk", "unknown"})
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")
_TOKENS = re.compile(rf"(?:{_WORD.pattern}|\d+|//|[-+*/%(),]|\s)+")
_FUNCTIONS = frozenset({"Max", "Min", "Mod", "floor", "max", "min", "mod"})
_LONGEST_EXPRESSION = 300
"""Characters; a longer text is a name."""
_DIVISIBLE = 720720
"""A size that every number up to 16 divides: an expression must give an integer for it."""

_OUTER: dict[str, str] = {}
"""Inner name → the name in the file. An inner name is a digest of the other one, so that an entry holds for every model."""


def is_placeholder(name: str) -> bool:
    """Whether a text says only that a dimension is free: `?`, `*`, `-1`, `None`, `<unknown>`."""
    word = "".join(character for character in name.lower() if character not in _PUNCTUATION)
    return not word or name == "-1" or word in _PLACEHOLDERS


def inner(name: str, declared: Collection[str] = ()) -> str | None:
    """What the algebra calls a dimension; None for a placeholder. declared: all names and expressions that the model declares."""
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
    """A text with the names of the file in the place of inner ones."""
    return _INNER.sub(lambda name: _OUTER.get(name.group(), name.group()), text) if "dim_" in text else text


def name_of(dim: ir.SymbolicDim) -> str | None:
    """The name of a dimension, as the file has it; None where it has none."""
    return None if dim.value is None or _GENERATED.fullmatch(dim.value) else outer(dim.value)


def shown(shape: ir.Shape) -> str:
    """A shape for a person: `[batch size,12,?]`."""
    return f"[{','.join(str(dim) if isinstance(dim, int) else name_of(dim) or '?' for dim in shape)}]"


def words(text: str) -> frozenset[str]:
    """The names in an expression, functions left out."""
    return frozenset(_WORD.findall(text)) - _FUNCTIONS


def is_expression(text: str, declared: Collection[str]) -> bool:
    """Whether a text computes a size from dimensions that are declared by themselves."""
    if len(text) > _LONGEST_EXPRESSION or "**" in text or text in _FUNCTIONS or not _TOKENS.fullmatch(text):
        return False
    names = words(text)
    if not names or text in names or not all(name in declared and not is_placeholder(name) for name in names):
        return False
    return _is_integer(text)


@cache
def _is_integer(text: str) -> bool:
    """Whether a text is an expression that gives an integer."""
    try:
        return isinstance(ir.SymbolicDim(text).evaluate(dict.fromkeys(words(text), _DIVISIBLE)), int)
    except Exception:  # the parser and sympy raise what they like, where it divides by zero among others: it is a name
        return False


def are_plain(shape: ir.Shape) -> bool:
    """Whether every dimension of a shape is called by the algebra what the file calls it."""
    return all(dim >= 0 if isinstance(dim, int) else dim.value is None or _is_plain(dim.value) for dim in shape.dims)


def renamed(shape: ir.Shape, declared: Collection[str]) -> ir.Shape:
    """The shape with inner names. A size below zero is unknown, as for onnxruntime."""
    return ir.Shape([_renamed(dim, declared) for dim in shape])


def restored(shape: ir.Shape) -> ir.Shape:
    """The shape with the names of the file; the same object where none is an inner one."""
    if not any(isinstance(dim, ir.SymbolicDim) and dim.value is not None and _INNER.search(dim.value) for dim in shape):
        return shape
    return ir.Shape([dim if isinstance(dim, int) or dim.value is None else ir.SymbolicDim(outer(dim.value)) for dim in shape])


def sized(text: str, sizes: Mapping[str, int]) -> str:
    """An expression with numbers for its names; a name without a size stays. sizes: the file's name → size."""

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
