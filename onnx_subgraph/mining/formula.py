"""From atoms to a formula in the language of patterns: lines, and what its names stand for."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import onnx_ir as ir

from onnx_subgraph.language.term import Static
from onnx_subgraph.matching.sizes import Size
from onnx_subgraph.mining.atom import Atom, Call, Items, Layout, Operand, Parts
from onnx_subgraph.mining.axes import shared_axes
from onnx_subgraph.operators.names import qualified

Slot = tuple[int, int]
"""A number of a formula: which atom, and which of its operands, -1 for the number of a sum or product."""

_COMPUTED = ("x", "z", "u", "v", "r", "s")
_NUMBERS = ("a", "b", "c", "d", "e", "f")
LONGEST = 60
"""Letters of a term that is written inside another one; a longer one has a line of its own."""
_ATOM, _POWER, _PRODUCT, _SUM = 3, 2, 1, 0
"""How tightly a piece of text binds."""
_AXES = "ijklmnopq"
"""Letters that no value has."""


@dataclass(slots=True)
class Formula:
    """A formula. values: name → the value that it reads from outside, a constant of several elements among them.

    numbers: name → the slot that it stands for. results: name → what others read. axes: name → its size, of those that no shape
    of a value gives. optional: the names that may be absent.
    """

    lines: list[str] = field(default_factory=list)
    values: dict[str, ir.Value] = field(default_factory=dict)
    numbers: dict[str, Slot] = field(default_factory=dict)
    results: dict[str, ir.Value] = field(default_factory=dict)
    axes: dict[str, Size] = field(default_factory=dict)
    optional: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return "\n".join(self.lines)

    @property
    def sketch(self) -> str:
        """The formula on one line."""
        return "; ".join(self.lines)


def formula_of(
    atoms: Sequence[Atom],
    leaving: Sequence[ir.Value],
    names: Mapping[Slot, str] | None = None,
    optional: Collection[Slot] = (),
) -> Formula:
    """The formula of atoms in topological order. leaving: the values that others read. names: of the numbers that have one."""
    return _Writer(atoms, leaving, names or {}, optional).run()


def slots(number: int, atom: Atom) -> list[tuple[Slot, float]]:
    """The numbers of an atom, in an order that is the same for all spellings."""
    own = [((number, -1), atom.form.constant)] if isinstance(atom.form, Items) and atom.form.constant is not None else []
    ordered = sorted(range(len(atom.operands)), key=lambda i: (atom.operands[i].port, atom.operands[i].number or 0.0))
    return [*own, *(((number, i), n) for i in ordered if (n := atom.operands[i].number) is not None)]


class _Writer:
    def __init__(
        self, atoms: Sequence[Atom], leaving: Sequence[ir.Value], names: Mapping[Slot, str], optional: Collection[Slot]
    ) -> None:
        self.atoms = atoms
        self.optional = optional
        self.names = names
        self.leaving = list(dict.fromkeys(leaving))
        self.made = {value: (i, n) for i, atom in enumerate(atoms) for n, value in enumerate(atom.results)}
        self.reads = Counter(o.value for atom in atoms for o in atom.operands)
        self.formula = Formula(numbers={name: slot for slot, name in names.items()})
        self.text: dict[ir.Value, tuple[str, int]] = {}
        self.counts: Counter[str] = Counter()
        self.axes = shared_axes(atoms)
        self.of_axis: dict[tuple[int, int], int] = {}
        self.is_double = False

    def run(self) -> Formula:
        last = self.leaving[-1] if self.leaving else self.atoms[-1].results[-1]
        for number, atom in enumerate(self.atoms):
            text, binds = self.written(number, atom)
            if len(atom.results) > 1:
                names = [self.result(v, last) if v in self.leaving or self.reads[v] else "_" for v in atom.results]
                self.formula.lines.append(f"{', '.join(names)} = {text}")
                continue
            (value,) = atom.results
            if value in self.leaving or self.reads[value] != 1 or value is last or len(text) > LONGEST:
                self.formula.lines.append(f"{self.result(value, last)} = {text}")
            else:
                self.text[value] = text, binds
        return self.formula

    def result(self, value: ir.Value, last: ir.Value) -> str:
        """A name for the result of a line."""
        if value is last:
            name = "y"
        elif value in self.leaving:
            name = f"y{self._count('y') + 2}"
        else:
            name = f"t{self._count('t') + 1}"
        if value in self.leaving or value is last:
            self.formula.results[name] = value
        self.text[value] = name, _ATOM
        return name

    def _count(self, stem: str) -> int:
        self.counts[stem] += 1
        return self.counts[stem] - 1

    def written(self, number: int, atom: Atom) -> tuple[str, int]:
        order = sorted(range(len(atom.operands)), key=lambda i: self.rank((("", 0), atom.operands[i])))
        in_order = range(len(order)) if isinstance(atom.form, Call) else order
        self.is_double = atom.results[0].dtype is ir.DataType.DOUBLE
        said = {i: self.operand(number, i, atom.operands[i]) for i in in_order}
        operands = [said[i] for i in range(len(order))]
        match atom.form:
            case Items(is_product=True):
                return self.product(number, atom, operands)
            case Items():
                return self.sum(number, atom, operands)
            case Layout(before=((0,), (1,)), after=((1,), (0,))):
                return f"Transpose({operands[0][0]}, perm=[1, 0])", _ATOM
            case Layout() as layout:
                word = "repeat" if layout.repeated else "rearrange"
                return f'{word}({operands[0][0]}, "{self.recipe(number, layout)}")', _ATOM
            case Parts(axis=axis, sizes=sizes) as parts:
                cut = f"parts={len(sizes)}" if parts.is_even else f"sizes={list(sizes)}"
                return f"split({operands[0][0]}, axis={axis}, {cut})", _ATOM
            case Call() as call:
                return self.call(call, operands)

    def operand(self, number: int, index: int, operand: Operand) -> tuple[str, int]:
        if operand.number is not None:
            name = self.names.get((number, index))
            return (name, _ATOM) if name is not None else self.literal(operand.number)
        if operand.value not in self.text:
            stems = ("w",) if operand.constant else _COMPUTED
            used = self._count("w" if operand.constant else "x")
            name = stems[used] if used < len(stems) else f"{stems[0]}{used + 1}"
            self.formula.values[name] = operand.value
            self.text[operand.value] = name, _ATOM
        text, binds = self.text[operand.value]
        if (number, index) in self.optional:
            self.formula.optional.append(text)
            return f"{text}?", _ATOM
        return text, binds

    def number(self, number: int, value: float) -> str:
        """The number of a sum or product, as it is written."""
        name = self.names.get((number, -1))
        if (number, -1) in self.optional and name is not None:
            self.formula.optional.append(name)
            return f"{name}?"
        return name if name is not None else number_text(value, is_double=self.is_double)

    def rank(self, pair: tuple[tuple[str, int], Operand]) -> tuple[float, bool, bool]:
        """Where an item stands in a chain: what is computed inside first, constants last."""
        (_, operand) = pair
        return -operand.port, operand.constant, operand.value not in self.made

    def literal(self, number: float) -> tuple[str, int]:
        text = number_text(number, is_double=self.is_double)
        return text, _ATOM if not text.startswith("-") else _SUM

    def product(self, number: int, atom: Atom, operands: list[tuple[str, int]]) -> tuple[str, int]:
        form = atom.form
        assert isinstance(form, Items)
        over: list[str] = []
        under: list[str] = []
        if form.constant is not None:
            over.append(self.number(number, form.constant))
        for (text, binds), operand in sorted(zip(operands, atom.operands, strict=True), key=self.rank):
            (over if operand.port > 0 else under).append(_powered(text, binds, abs(operand.port)))
        if not under and len(over) == 1:
            operand = atom.operands[0]
            return (over[0], _POWER if operand.port not in (0.5, 1) else _ATOM)
        return " / ".join([" * ".join(over) or "1", *under]), _PRODUCT

    def sum(self, number: int, atom: Atom, operands: list[tuple[str, int]]) -> tuple[str, int]:
        form = atom.form
        assert isinstance(form, Items)
        pairs = sorted(zip(operands, atom.operands, strict=True), key=self.rank)
        text, constant = "", form.constant
        if constant is not None and pairs[0][1].port < 0:  # 1 - x
            text, constant = self.number(number, constant), None
        for (said, binds), operand in pairs:
            sign = "-" if operand.port < 0 else "+"
            said = f"({said})" if binds == _SUM and (sign == "-" or said.startswith("-")) else said
            text = (f"0 - {said}" if sign == "-" else said) if not text else f"{text} {sign} {said}"
        if constant is not None:
            negative = (number, -1) not in self.names and constant < 0
            text = f"{text} {'-' if negative else '+'} {self.number(number, abs(constant))}"
        return text, _SUM

    def call(self, call: Call, operands: list[tuple[str, int]]) -> tuple[str, int]:
        if (call.domain, call.operator) == ("", "MatMul"):
            return " @ ".join(text if binds == _ATOM else f"({text})" for text, binds in operands), _PRODUCT
        arguments = [text for text, _ in operands]
        for position in call.omitted:
            arguments.insert(position, "None")
        keywords = [f"{name}={static_text(value)}" for name, value in call.keywords]
        return f"{qualified((call.domain, call.operator))}({', '.join([*arguments, *keywords])})", _ATOM

    def recipe(self, number: int, layout: Layout) -> str:
        """The recipe of a rearrangement. Equal axes of several rearrangements have one name; within one, each has its own."""
        name: dict[int, str] = {}
        seen: Counter[int] = Counter()
        for part in (*(part for parts in layout.before for part in parts), *layout.repeated):
            kind = self.axes[number, part]
            name[part] = self.axis(kind, seen[kind])
            seen[kind] += 1
        for parts in layout.before:
            for inner in parts[1:]:  # the first one follows from the others
                self.formula.axes[name[inner]] = layout.sizes[inner]
        self.formula.axes |= {name[part]: layout.sizes[part] for part in layout.repeated}
        return " -> ".join(" ".join(_axis(axis, name) for axis in way) for way in (layout.before, layout.after))

    def axis(self, kind: int, turn: int) -> str:
        """The letter of an axis. turn: 0, or 1 and more for equal axes of one rearrangement, such as those of scores."""
        place = self.of_axis.setdefault((kind, turn), len(self.of_axis))
        times, letter = divmod(place, len(_AXES))
        return f"{_AXES[letter]}{times + 1 if times else ''}"


def _axis(atoms: Sequence[int], name: Mapping[int, str]) -> str:
    if not atoms:
        return "1"
    names = " ".join(name[a] for a in atoms)
    return f"({names})" if len(atoms) > 1 else names


def _powered(text: str, binds: int, power: float) -> str:
    """`text` to a power, as a factor."""
    if power == 0.5:
        return f"Sqrt({text})"
    if power == 1:
        return f"({text})" if binds < _POWER else text
    inner = text if binds == _ATOM else f"({text})"
    return f"{inner} ** {number_text(power)}"


def number_text(number: float, *, is_double: bool = False) -> str:
    """A finite number as a pattern writes it: with the fewest digits that give it again, as float32 or as float64."""
    if float(number).is_integer() and abs(number) < 1e9:
        return str(int(number))
    texts = (f"{number:.{digits}g}" for digits in (7, 9, 15))
    rounding = 2.0**-53 if is_double else 2.0**-24
    return next((text for text in texts if abs(float(text) - number) <= rounding * abs(number)), repr(float(number)))


def static_text(value: Static) -> str:
    """An attribute as a pattern writes it."""
    if isinstance(value, tuple):
        return f"[{', '.join(map(static_text, value))}]"
    return json.dumps(value) if isinstance(value, str) else f"{value:.7g}" if isinstance(value, float) else repr(value)
