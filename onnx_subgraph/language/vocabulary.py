"""The closed vocabulary of `where` and `let`: the facts, element types, functions and operators that a sentence may use.

`sentence` refuses everything else when a pattern is read, and `evaluation` implements nothing else.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable
from typing import Any

TYPE_FACTS = ("dtype", "shape", "rank")
"""The facts of a value that its type gives."""
FACTS = (
    *TYPE_FACTS,
    *("is_constant", "is_scalar", "is_output"),
    *("is_doubled", "is_paired", "is_binary", "is_causal", "is_dequantized", "lower_bound", "magnitude", "value"),
)
"""The facts of a value, as in `x.rank`."""
DTYPES = {
    "float16": 10,
    "bfloat16": 16,
    "float32": 1,
    "float64": 11,
    "bool": 9,
    "string": 8,
    "int4": 22,
    "int8": 3,
    "int16": 5,
    "int32": 6,
    "int64": 7,
    "uint4": 21,
    "uint8": 2,
    "uint16": 4,
    "uint32": 12,
    "uint64": 13,
}
"""Name of an element type → its number in an attribute. Used by name: `x.dtype in [float32, float16]`, `Cast(x, to=float16)`."""
CONSTANTS = {"pi": math.pi, "inf": math.inf}
RELATIVE_TOLERANCE = 2e-5
"""Relative tolerance for equal floats, as for constants in a term: an epsilon stored as float32 differs slightly from 1e-5."""
MAX_INTEGER = 2**256
"""The largest integer that is read or computed."""

ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "len": len,
    "min": min,
    "max": max,
    "abs": abs,
    "sum": sum,
    "prod": math.prod,
    "sqrt": math.sqrt,
    "all": all,
    "any": any,
    "known": bool,
}


def is_word(name: str) -> bool:
    """Whether `name` has a meaning in the language, so that it cannot name anything else."""
    return name in DTYPES or name in CONSTANTS or name in FUNCTIONS
