"""The text of small graphs, written node by node, and choices that many fusions share: how to square, how to take a root.

A choice is a function that writes lines into a `Text` and returns the name of their result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count


@dataclass
class Text:
    """The text of a graph under construction. Every method adds lines and returns the name of their result.

    storage: where constants are stored. between: the transparent operator after every other node, or "".
    """

    opset: int
    storage: str = "initializer"
    between: str = ""
    lines: list[str] = field(default_factory=list)
    constants: list[str] = field(default_factory=list)
    names: Iterator[int] = field(default_factory=lambda: count(1))

    def number(self, value: float) -> str:
        """A float constant of one element."""
        name = f"c{next(self.names)}"
        match self.storage:
            case "initializer":
                self.constants.append(f"float {name} = {{{value!r}}}")
            case "one element":
                self.constants.append(f"float[1] {name} = {{{value!r}}}")
            case _:
                self.lines.append(f"{name} = Constant <value = float {{{value!r}}}> ()")
        return name

    def integers(self, *values: int) -> str:
        name = f"c{next(self.names)}"
        self.constants.append(f"int64[{len(values)}] {name} = {{{', '.join(map(str, values))}}}")
        return name

    def vector(self, size: int, start: float) -> str:
        """Weights: an initializer of rank 1."""
        name = f"w{next(self.names)}"
        self.constants.append(f"float[{size}] {name} = {{{', '.join(repr(start + i / 16) for i in range(size))}}}")
        return name

    def call(self, operator: str, *inputs: str | float, **attributes: object) -> str:
        """Add a node. A number among its inputs becomes a constant. Every other result goes through `between`."""
        read = [self.number(i) if isinstance(i, int | float) else i for i in inputs]
        name = f"t{next(self.names)}"
        written = ", ".join(f'{k} = "{v}"' if isinstance(v, str) else f"{k} = {v}" for k, v in attributes.items())
        self.lines.append(f"{name} = {operator} {f'<{written}>' if written else ''} ({', '.join(read)})")
        if not self.between or len(self.lines) % 2:
            return name
        self.lines.append(f"{name}b = {self.between} ({name})")
        return f"{name}b"

    def reduce(self, operator: str, x: str, axis: int) -> str:
        """A reduction over one axis, which is an attribute, or an input since opset 18 (ReduceSum: 13)."""
        if self.opset >= (13 if operator == "ReduceSum" else 18):
            return self.call(operator, x, self.integers(axis))
        return self.call(operator, x, axes=[axis])

    def clip(self, x: str, low: float, high: float) -> str:
        """A Clip with bounds as attributes, or as inputs since opset 11. They are scalars for any storage."""
        if self.opset < 11:
            return self.call("Clip", x, min=low, max=high)
        storage, self.storage = self.storage, "initializer" if self.storage == "one element" else self.storage
        clipped = self.call("Clip", x, low, high)
        self.storage = storage
        return clipped

    def model(self, result: str, inputs: str) -> str:
        """The whole model; `result` becomes the output `y`."""
        constants = f" <{', '.join(self.constants)}>" if self.constants else ""
        body = "\n  ".join((*self.lines, f"y = Identity({result})"))
        return (
            f'<ir_version: 8, opset_import: ["" : {self.opset}, "com.microsoft" : 1]>\n'
            f"g ({inputs}) => (float[2, 3, 8] y){constants} {{\n  {body}\n}}"
        )


Variants = Iterator[tuple[str, str, Callable[[Text], str]]]
"""The spellings of a family: the pattern that must be found, the choices made, and what writes the graph."""


def halves(t: Text, x: str, s: str, how: str) -> str:
    """0.5 * x * s, in every grouping and order."""
    match how:
        case "(0.5 x) s":
            return t.call("Mul", t.call("Mul", 0.5, x), s)
        case "(x 0.5) s":
            return t.call("Mul", s, t.call("Mul", x, 0.5))
        case "x (0.5 s)":
            return t.call("Mul", x, t.call("Mul", 0.5, s))
        case "(x s) 0.5":
            return t.call("Mul", t.call("Mul", x, s), 0.5)
        case "(s x) / 2":
            return t.call("Div", t.call("Mul", s, x), 2.0)
        case _:
            return t.call("Mul", t.call("Div", x, 2.0), s)


HALVES = ("(0.5 x) s", "(x 0.5) s", "x (0.5 s)", "(x s) 0.5", "(s x) / 2", "(x / 2) s")

ROOTED: Mapping[str, Callable[[Text, str, str], str]] = {
    "a / Sqrt(v)": lambda t, a, v: t.call("Div", a, t.call("Sqrt", v)),
    "a * Reciprocal(Sqrt(v))": lambda t, a, v: t.call("Mul", a, t.call("Reciprocal", t.call("Sqrt", v))),
    "(1 / Sqrt(v)) * a": lambda t, a, v: t.call("Mul", t.call("Div", 1.0, t.call("Sqrt", v)), a),
    "a * Pow(v, -0.5)": lambda t, a, v: t.call("Mul", a, t.call("Pow", v, -0.5)),
    "a / Pow(v, 0.5)": lambda t, a, v: t.call("Div", a, t.call("Pow", v, 0.5)),
    "a * Sqrt(Reciprocal(v))": lambda t, a, v: t.call("Mul", a, t.call("Sqrt", t.call("Reciprocal", v))),
}
INVERSE: Mapping[str, Callable[[Text, str], str]] = {
    "Reciprocal(Sqrt(v))": lambda t, v: t.call("Reciprocal", t.call("Sqrt", v)),
    "1 / Sqrt(v)": lambda t, v: t.call("Div", 1.0, t.call("Sqrt", v)),
    "Pow(v, -0.5)": lambda t, v: t.call("Pow", v, -0.5),
}
SQUARES: Mapping[str, Callable[[Text, str], str]] = {
    "Pow(a, 2)": lambda t, a: t.call("Pow", a, 2.0),
    "a * a": lambda t, a: t.call("Mul", a, a),
}
CUBES: Mapping[str, Callable[[Text, str], str]] = {
    "Pow(x, 3)": lambda t, x: t.call("Pow", x, 3.0),
    "x * (x * x)": lambda t, x: t.call("Mul", x, t.call("Mul", x, x)),
    "Pow(x, 2) * x": lambda t, x: t.call("Mul", t.call("Pow", x, 2.0), x),
}
