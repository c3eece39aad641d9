"""einops recipes, and solving for the sizes of their named axes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from math import prod

from onnx_subgraph.errors import Span
from onnx_subgraph.matching.sizes import ONE, Size, word_of


@dataclass(frozen=True, slots=True)
class Mismatch:
    """Why the static part of a node does not match, or a chain is not the rearrangement that the pattern requires.

    change: what would make it match, if there is a simple change. reached: the number of nodes of the chain, if its ranks are
    right. of_rank: whether the rank of a value is wrong. span: the place of what does not match, if it is not the whole term.
    """

    expected: str
    found: str
    change: str = ""
    reached: int = 0
    of_rank: bool = False
    span: Span | None = None

    @property
    def said(self) -> tuple[str, str, str]:
        """As in a `Failure`."""
        return self.expected, self.found, self.change


@dataclass(frozen=True, slots=True)
class Recipe:
    """An einops recipe: the names that make up each axis, before and after; an axis of size 1 has none."""

    left: tuple[tuple[str, ...], ...]
    right: tuple[tuple[str, ...], ...]


@cache
def parse_recipe(text: str) -> Recipe:
    """Parse a checked recipe, `"b s (h d) -> b h s d"`, with einops' parser."""
    from einops.parsing import ParsedExpression

    left, right = (tuple(tuple(axis) for axis in ParsedExpression(side).composition) for side in text.split("->"))
    return Recipe(left, right)


def solve(equations: Iterable[tuple[tuple[str, ...], Size]], known: Mapping[str, Size]) -> dict[str, Size] | Mismatch:
    """The size of each named axis, from the sizes of the combined axes and the known sizes."""
    found = dict(known)
    lines = list(equations)
    for _ in range(len(lines) + 1):
        for names, size in lines:
            unknown = [n for n in names if n not in found]
            rest: Size | None = size
            for name in names:
                if name in found and rest is not None:
                    rest = rest.over(found[name])
            if rest is None:
                return _unsolved(names, size, found)
            if len(unknown) == 1:
                found[unknown[0]] = rest
            elif not unknown and rest != ONE:
                return _unsolved(names, size, found)
    missing = [n for names, _ in lines for n in names if n not in found]
    return Mismatch(f"a size for {', '.join(missing)}", "a shape that can't be factored") if missing else found


def _unsolved(names: tuple[str, ...], size: Size, known: Mapping[str, Size]) -> Mismatch:
    """A mismatch: the size of an axis contradicts the sizes of its parts."""
    parts = [name for name in names if name in known]
    axis = f"axis {names[0]}" if len(names) == 1 else f"axis ({' '.join(names)})" if names else "axis of size 1"
    where = f", where {', '.join(f'{name} is {word_of(known[name])}' for name in parts)}" if parts else ""
    wanted = word_of(prod((known[name] for name in parts), start=ONE))
    change = f"let its size be {wanted if len(parts) == len(names) else f'a multiple of {wanted}'}"
    if size.symbols or wanted == "?":
        change = "write the sizes of the Reshape as constants, or fix those of the inputs"
    return Mismatch(f"an {axis}{where}", f"size {word_of(size)}", change)
