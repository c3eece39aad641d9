"""Build a model that is one spelling of a pattern's formula, from `match` and `example`.

The spelling determines the grouping and order of sums and products, the storage of constants, and the opset, which determines
whether axes are attributes or inputs. What the language can't build (`_` where a value is needed, `**rest`) is left at its
default or refused.
"""

from __future__ import annotations

import ast
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from onnx_subgraph.language import term as syntax
from onnx_subgraph.language.evaluation import evaluate
from onnx_subgraph.language.optional import is_optional
from onnx_subgraph.language.pattern import Example, Pattern
from onnx_subgraph.language.sentence import asks_presence
from onnx_subgraph.matching.synonyms import written
from onnx_subgraph.operators import Schema, schema
from onnx_subgraph.proving import layout, numbers
from onnx_subgraph.proving.batch import batched
from onnx_subgraph.proving.draw import draw
from onnx_subgraph.proving.lines import Lines, lines_of
from onnx_subgraph.proving.spelling import Spelling, UnbuildableError

TYPES = {
    name: helper.np_dtype_to_tensor_dtype(np.dtype(name)) for name in ("float16", "float32", "float64", "int64", "int32", "bool")
}
AXES = frozenset({"axis", "axes"})


@dataclass(frozen=True, slots=True)
class Instance:
    """A model, and feeds for its inputs.

    inner: the values that a complete fusion removes. types: value → ONNX's number of its element type. used: the alternatives in
    the model: the `id` of the term and the index.
    """

    proto: onnx.ModelProto
    feeds: dict[str, np.ndarray]
    inner: tuple[str, ...]
    types: Mapping[str, int]
    used: frozenset[tuple[int, int]]


def build(pattern: Pattern, spelling: Spelling) -> Instance:
    """The instance of `pattern` in this spelling. Raises UnbuildableError."""
    return Builder(pattern, spelling).run()


@dataclass(slots=True)
class Builder:
    """Builds an instance. lines: those of the formula, if known. types: value → its element type, where the schemas give it.

    number_dtype: of the formula's numbers: that of the spelling, or the only one of the floats of an example without float32.
    """

    pattern: Pattern
    spelling: Spelling
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    initializers: list[onnx.TensorProto] = field(default_factory=list)
    feeds: dict[str, np.ndarray] = field(default_factory=dict)
    values: dict[str, str] = field(default_factory=dict)
    domains: set[str] = field(default_factory=set)
    sizes: dict[str, int] = field(default_factory=dict)
    types: dict[str, str] = field(default_factory=dict)
    used: set[tuple[int, int]] = field(default_factory=set)
    count: int = 0
    order: random.Random = field(init=False)
    number_dtype: str = field(init=False)
    lines: Lines = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.lines = self.lines or lines_of(self.pattern.match)
        floats = {e.dtype for e in self.pattern.example.values() if e.value is None and "float" in e.dtype}
        self.number_dtype = floats.pop() if len(floats) == 1 and "float32" not in floats else self.spelling.dtype

    def run(self) -> Instance:
        """Build it. Raises UnbuildableError."""
        outputs = self.compute()
        if (
            self.spelling.seed != 2 or self.gives_out()
        ):  # results that feed other results become outputs, but not in every spelling
            provided = set(self.pattern.results)
            outputs += [v for n, v in self.values.items() if n in provided and v not in outputs]
        if self.spelling.mixed and self.spelling.returned:
            outputs = [self.node("Cast", [o], {"to": TYPES["float16"]}) for o in outputs]
        produced = [o for n in self.nodes for o in n.output if o]
        inputs = [self.declared(name, array) for name, array in self.feeds.items()]
        imports = [helper.make_opsetid("", self.spelling.opset), *(helper.make_opsetid(d, 1) for d in sorted(self.domains))]
        untyped = [helper.make_empty_tensor_value_info(o) for o in outputs]
        graph = helper.make_graph(self.nodes, "proof", inputs, untyped, self.initializers)
        model = helper.make_model(graph, opset_imports=imports, ir_version=8 if self.spelling.opset < 21 else 10)
        inferred = onnx.shape_inference.infer_shapes(model).graph
        types = dict.fromkeys(produced, TYPES[self.number_dtype])
        for value in (*inferred.value_info, *inferred.output):
            if value.type.tensor_type.elem_type:
                types[value.name] = value.type.tensor_type.elem_type
        if (
            self.spelling.is_varied
            and not self.domains
            and not all(o.type.tensor_type.HasField("shape") for o in inferred.output)
        ):
            raise UnbuildableError("its operators don't take these ranks or axes")
        for output, known in zip(model.graph.output, inferred.output, strict=True):
            output.type.CopyFrom(known.type)
            output.type.tensor_type.elem_type = types[output.name]
        return Instance(model, self.feeds, tuple(v for v in produced if v not in outputs), types, frozenset(self.used))

    def compute(self) -> list[str]:
        """Build the nodes. Returns the results of the formula. Raises UnbuildableError."""
        self.order = self.spelling.random()
        outputs = [self.named(n) for n in self.results_wanted()]
        self.check_presence()
        return outputs

    def check_presence(self) -> None:
        """Raises UnbuildableError where a sentence excludes this choice of absent values.

        Such a sentence is `a is not None or d is not None`.
        """
        captured = (name for value in self.values if value in self.lines for name in self.lines[value].captured)
        present = dict.fromkeys((*self.values, *captured), True)
        for sentence in self.pattern.where:
            if asks_presence(sentence) and evaluate(sentence, present.get) is False:
                raise UnbuildableError(f"`{sentence}` leaves it out")

    def gives_out(self) -> bool:
        """Whether a sentence requires that a value is an output of the graph."""
        asked = (part for sentence in self.pattern.where for part in ast.walk(sentence.tree))
        return any(isinstance(part, ast.Attribute) and part.attr == "is_output" for part in asked)

    def results_wanted(self) -> list[str]:
        """The names that the replacements provide and that no other line reads.

        Building them builds every line that they need.
        """
        results = self.pattern.results
        read = {t.name for a in self.pattern.match for t in syntax.walk(a.term) if isinstance(t, syntax.Variable)}
        return [n for n in results if n not in read] or list(results[-1:])

    def declared(self, name: str, array: np.ndarray) -> onnx.ValueInfoProto:
        """The input. If the spelling is symbolic, so is its first axis where that is the axis of the batch."""
        dims: list[int | str] = list(array.shape)
        if self.spelling.symbolic and name in batched(self.pattern, self.feeds):
            dims[0] = "N"
        return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), dims)

    # Values

    def fresh(self, stem: str) -> str:
        self.count += 1
        return f"{stem}_{self.count}"

    def node(
        self, operator: str, inputs: list[str], attributes: dict[str, Any] | None = None, outputs: int = 1, domain: str = ""
    ) -> str:
        names = [self.fresh(operator.lower()) for _ in range(outputs)]
        made = helper.make_node(operator, inputs, names, name=f"{operator}_{self.count}", domain=domain, **(attributes or {}))
        self.nodes.append(made)
        numbers.record(self.types, made, schema(operator, domain, 1 if domain else self.spelling.opset))
        if domain:
            self.domains.add(domain)
        return names[0]

    def constant(self, value: Any, dtype: str) -> str:
        """A constant of the formula; a scalar is stored as the spelling says."""
        try:
            with np.errstate(over="ignore"):  # the lowest number becomes -inf in a narrower type
                array = np.asarray(value, np.dtype(dtype))
        except OverflowError:  # an infinity, or more than fits an integer
            raise UnbuildableError(f"{value} can't be written in {dtype}") from None
        if array.dtype.kind in "fiu" and not np.allclose(array.astype(np.float64), value, rtol=2e-3, atol=0):
            raise UnbuildableError(f"{value} can't be written in {dtype}")
        if array.ndim == 0 and array.dtype.kind == "f" and self.spelling.storage == "rank one" and self.has_rank():
            array = array.reshape(1)
        name = self.fresh("k")
        tensor = numpy_helper.from_array(array, name)
        if self.spelling.storage == "constant node":
            self.nodes.append(helper.make_node("Constant", [], [name], name=name, value=tensor))
        else:
            self.initializers.append(tensor)
        return name

    def has_rank(self) -> bool:
        """Whether no free value is a scalar, so that a constant of rank one does not raise the rank of a result."""
        return all(e.shape for e in self.pattern.example.values() if e.value is None)

    def named(self, name: str) -> str:
        """The value of a name: the result of its line, built when first needed, or a free value."""
        if name == "_":
            raise UnbuildableError("`_` stands where a value is needed")
        if name not in self.values:
            if name not in self.lines:
                return self.free(name)
            line = self.lines[name].assignment
            results = self.results(line.term, len(line.names))
            self.values.update({n: r for n, r in zip(line.names, results, strict=False) if n != "_"})
        return self.values[name]

    def free(self, name: str) -> str:
        """The value of a name that the pattern does not define."""
        example = self.pattern.example.get(name)
        if example is None:
            raise UnbuildableError(f"`{name}` has no example")
        if example.value is not None:
            self.values[name] = self.constant(example.value, self.dtype(example))
            return self.values[name]
        array = draw(name, example, self.narrow(example), self.shape_of(example))
        if example.constant:
            self.initializers.append(numpy_helper.from_array(array, name))
        else:
            self.feeds[name] = array
        self.values[name] = name
        self.types[name] = array.dtype.name
        if self.spelling.mixed and array.dtype == np.float16:
            self.values[name] = self.node("Cast", [name], {"to": TYPES["float32"]})
        return self.values[name]

    def shape_of(self, example: Example) -> tuple[int, ...]:
        """The shape of a drawn value. If it has the highest rank, the spelling may add axes to it or remove some."""
        drawn = [e.shape for e in self.pattern.example.values() if e.value is None]
        largest = max(len(s) for s in drawn)
        if example.constant or not self.spelling.axes_more or len(example.shape) < largest:
            return example.shape
        if self.spelling.axes_more > 0:
            return (2,) * self.spelling.axes_more + example.shape
        if largest + self.spelling.axes_more < 1:
            raise UnbuildableError("no axis can be left out")
        return example.shape[-self.spelling.axes_more :]

    def dtype(self, example: Example) -> str:
        return self.spelling.dtype if example.dtype == "float32" else example.dtype

    def narrow(self, example: Example) -> str:
        return "float16" if self.spelling.mixed and example.dtype == "float32" else self.dtype(example)

    # Terms

    def results(self, term: syntax.Term, wanted: int) -> list[str]:
        """The first `wanted` results of a term."""
        match term:
            case syntax.Either():
                return self.results(self.alternative(term), wanted)
            case syntax.Apply() if wanted > 1:
                self.apply(term, wanted)
                return list(self.nodes[-1].output)
            case syntax.Rearrange(word="split"):
                return layout.split(self, term, wanted)
            case _:
                return [self.value(term)]

    def alternative(self, term: syntax.Either) -> syntax.Term:
        """The alternative that the spelling chooses."""
        return term.alternatives[self.choice(term)]

    def choice(self, term: syntax.Term) -> int:
        """The alternative that the spelling chooses here; recorded in `used`."""
        index = self.spelling.chosen.get(id(term), 0)
        self.used.add((id(term), index))
        return index

    def value(self, term: syntax.Term) -> str:
        match term:
            case syntax.Variable(name=name):
                return self.named(name)
            case syntax.Literal(value=value):
                if isinstance(value, tuple):
                    return self.constant(value, "int64")
                return self.constant(value, self.number_dtype)
            case syntax.Either():
                return self.value(self.alternative(term))
            case syntax.Apply() | syntax.Chain() if (found := written(term)) is not None and (index := self.choice(term)):
                return self.value(found.formulas[index - 1])
            case syntax.Chain():
                return self.chain(term)
            case syntax.Rearrange(word="rearrange" | "repeat"):
                return layout.rearrange(self, term)
            case syntax.Rearrange(word="split"):
                return layout.split(self, term, 1)[0]
            case syntax.Apply():
                return self.apply(term, 1)
            case _:
                raise UnbuildableError(f"`{term}` is not built")

    def chain(self, term: syntax.Chain) -> str:
        """A sum or product in the order and grouping of the spelling."""
        join, part, turn = ("Add", "Sub", "Neg") if term.operator == "+" else ("Mul", "Div", "Reciprocal")
        there = [(t, inverse) for t, inverse in self.flat(term) if self.is_there(t)]
        parts = list(zip(numbers.operands(self, [t for t, _ in there]), (inverse for _, inverse in there), strict=True))
        if self.spelling.seed:
            self.order.shuffle(parts)
        while len(parts) > 1:
            at = self.order.randrange(len(parts) - 1) if self.spelling.seed else 0
            (a, a_inverse), (b, b_inverse) = parts[at], parts[at + 1]
            if a_inverse == b_inverse:
                pair = (self.node(join, [a, b]), a_inverse)
            elif b_inverse and self.spelling.seed == 2:
                pair = (self.node(join, [a, self.node(turn, [b])]), False)
            else:
                pair = (self.node(part, [a, b] if b_inverse else [b, a]), False)
            parts[at : at + 2] = [pair]
        value, inverse = parts[0]
        return self.node(turn, [value]) if inverse else value

    def is_there(self, term: syntax.Term) -> bool:
        """Whether an argument or a chain item is present; the spelling decides for an optional one."""
        return not is_optional(term) or not self.choice(term)

    def flat(self, term: syntax.Chain) -> list[tuple[syntax.Term, bool]]:
        """The items. If the spelling regroups, nested chains of the same operator are flattened."""
        found: list[tuple[syntax.Term, bool]] = []
        for item, inverse in term.items:
            if self.spelling.seed and isinstance(item, syntax.Chain) and item.operator == term.operator:
                found += [(t, i != inverse) for t, i in self.flat(item)]
            else:
                found.append((item, inverse))
        return found

    def apply(self, term: syntax.Apply, wanted: int) -> str:
        operator = term.operators[self.choice(term) if len(term.operators) > 1 else 0]
        if operator == syntax.Operator("Pow") and self.spelling.seed and isinstance(term.arguments[1], syntax.Literal):
            return self.power(self.value(term.arguments[0]), term.arguments[1])
        known = schema(operator.name, operator.domain, self.spelling.opset if not operator.domain else 1)
        if known is None:
            raise UnbuildableError(f"{operator} does not exist at opset {self.spelling.opset}")
        inputs = numbers.arguments(self, term, operator.name, known)
        attributes: dict[str, Any] = {}
        for key, given in term.keywords:
            value = self.static(given)
            if value is None and key in known.attributes and known.attributes[key].required:
                value = _required(operator.name, key)
            if key in AXES and isinstance(given, syntax.Variable) and self.spelling.other_axis:
                value = _another_axis(value)
            self.keyword(known, key, value, inputs, attributes)
        missing = [n for n, a in known.attributes.items() if a.required and n not in attributes] if term.rest else []
        if missing:
            raise UnbuildableError(f"`**{term.rest}` does not say the {missing[0]} of {operator}; a model in `fuses` does")
        return self.node(operator.name, inputs, attributes, max(wanted, known.min_outputs), operator.domain)

    def argument(self, term: syntax.Term, operator: str) -> str:
        """A positional argument. `_` is omitted; where that is impossible, a value without effect is used."""
        if isinstance(term, syntax.Literal) and isinstance(term.value, int) and operator == "Range":
            return self.constant(term.value, "int64")  # like the captured integers beside it
        if isinstance(term, syntax.Omitted) or not self.is_there(term):
            return ""
        if not isinstance(term, syntax.Variable) or term.name != "_":
            return self.value(term)
        if operator != "Expand":
            return ""
        if not self.feeds:
            raise UnbuildableError("the shape that Expand gives follows from no value before it; let another operand come first")
        largest = max(self.feeds, key=lambda n: self.feeds[n].ndim)
        return self.node("Shape", [largest]) if self.spelling.symbolic else self.numbers(list(self.feeds[largest].shape))

    def power(self, value: str, exponent: syntax.Literal) -> str:
        """A value to a power, as the spelling writes it."""
        match exponent.value, self.spelling.seed:
            case 2, 1 | 3:
                return self.node("Mul", [value, value])
            case 3, 1:
                return self.node("Mul", [self.node("Mul", [value, value]), value])
            case 0.5, _:
                return self.node("Sqrt", [value])
            case -0.5, _:
                return self.node("Reciprocal", [self.node("Sqrt", [value])])
        return self.node("Pow", [value, numbers.written(self, exponent, [value])])

    def keyword(self, known: Schema, key: str, value: Any, inputs: list[str], attributes: dict[str, Any]) -> None:
        """Add a keyword as an attribute or a constant input, whichever it is at this opset. None is omitted."""
        if value is None:
            return
        if key in known.attributes:
            is_float = known.attributes[key].type == "FLOAT"  # a formula may say 1 for 1.0
            attributes[key] = list(value) if isinstance(value, tuple) else float(value) if is_float else value
            return
        names = [f.name for f in known.inputs]
        if key not in names:
            if known.name == "Split" and key == "num_outputs":
                return
            raise UnbuildableError(f"{known.name} has no {key} at opset {self.spelling.opset}")
        index = names.index(key)
        inputs += [""] * (index + 1 - len(inputs))
        types = known.inputs[index].types
        beside = numbers.integer_beside(self.types, known, inputs[:index], index)
        dtype = "int64" if "tensor(float)" not in types else beside or self.number_dtype
        name = self.fresh(key)
        self.initializers.append(numpy_helper.from_array(np.asarray(value, np.dtype(dtype)), name))
        inputs[index] = name

    def static(self, term: syntax.Term) -> Any:
        match term:
            case syntax.Literal(value=value):
                return value
            case syntax.Variable(name=name):
                example = self.pattern.example.get(name)
                if example is None:
                    return None
                return example.value if example.value is not None else draw(name, example, self.dtype(example)).tolist()
            case syntax.Either():
                return self.static(self.alternative(term))
        raise UnbuildableError(f"`{term}` is not static")

    def numbers(self, values: list[int]) -> str:
        """An initializer of these integers."""
        name = self.fresh("n")
        self.initializers.append(numpy_helper.from_array(np.asarray(values, np.int64), name))
        return name


def _required(operator: str, attribute: str) -> Any:
    """The value for `_` in an attribute that can't be omitted."""
    if (operator, attribute) == ("Cast", "to"):
        return TYPES["float32"]
    raise UnbuildableError(f"{operator} needs {attribute}, which has no example")


def _another_axis(value: Any) -> Any:
    """The axes before these."""
    if isinstance(value, list | tuple):
        return [a - 1 for a in value]
    return value - 1 if isinstance(value, int) else value
