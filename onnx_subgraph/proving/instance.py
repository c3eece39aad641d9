"""A model that is one spelling of a pattern's formula, built from `match` and `example`.

Sums and products are grouped and ordered as the spelling says, constants stored as it says, axes given as attributes or inputs as its
opset has them. What the language can't build a graph from (`_` where a value must stand, `**rest`) is left at its default or refused.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from math import prod
from typing import Any

import ml_dtypes  # noqa: F401  (registers bfloat16 with numpy)
import numpy as np
import onnx
from onnx import helper, numpy_helper

from onnx_subgraph.language import term as syntax
from onnx_subgraph.language.pattern import Example, Pattern
from onnx_subgraph.operators import Schema, schema
from onnx_subgraph.proving.spelling import Spelling

TYPES = {name: helper.np_dtype_to_tensor_dtype(np.dtype(name)) for name in ("float16", "float32", "float64", "int64", "int32", "bool")}


class Unbuildable(Exception):
    """This spelling can't be built as a model; the text says why."""


@dataclass(frozen=True, slots=True)
class Instance:
    """A model, and feeds for its inputs. inner: the values that a whole fusion would take away."""

    proto: onnx.ModelProto
    feeds: dict[str, np.ndarray]
    inner: tuple[str, ...]


def build(pattern: Pattern, spelling: Spelling) -> Instance:
    """The instance of `pattern` in this spelling. Raises Unbuildable."""
    return _Builder(pattern, spelling).run()


@dataclass(slots=True)
class _Builder:
    pattern: Pattern
    spelling: Spelling
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    initializers: list[onnx.TensorProto] = field(default_factory=list)
    feeds: dict[str, np.ndarray] = field(default_factory=dict)
    values: dict[str, str] = field(default_factory=dict)
    domains: set[str] = field(default_factory=set)
    sizes: dict[str, int] = field(default_factory=dict)
    count: int = 0
    order: random.Random = field(init=False)

    def run(self) -> Instance:
        self.order = self.spelling.random()
        provided = {n for b in self.pattern.replace.values() for n in b.names} or set(self.pattern.match.names[-1:])
        outputs = [self.named(n) for n in self.pattern.match.names if n in provided]
        if self.spelling.mixed:
            outputs = [self.node("Cast", [o], {"to": TYPES["float16"]}) for o in outputs]
        produced = [o for n in self.nodes for o in n.output if o]
        inputs = [self.declared(name, array) for name, array in self.feeds.items()]
        imports = [helper.make_opsetid("", self.spelling.opset), *(helper.make_opsetid(d, 1) for d in sorted(self.domains))]
        graph = helper.make_graph(
            self.nodes, "proof", inputs, [self.typed(o) for o in outputs], self.initializers
        )
        model = helper.make_model(graph, opset_imports=imports, ir_version=8)
        return Instance(model, self.feeds, tuple(v for v in produced if v not in outputs))

    def declared(self, name: str, array: np.ndarray) -> onnx.ValueInfoProto:
        dims: list[int | str] = list(array.shape)
        if self.spelling.symbolic and len(dims) > 1 and len(dims) == max(a.ndim for a in self.feeds.values()):
            dims[0] = "N"  # the batch; a scale or a bias of lower rank has none
        return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), dims)

    def typed(self, name: str) -> onnx.ValueInfoProto:
        dtype = "float16" if self.spelling.mixed else self.spelling.dtype
        return helper.make_tensor_value_info(name, TYPES[dtype], None)

    # Values

    def fresh(self, stem: str) -> str:
        self.count += 1
        return f"{stem}_{self.count}"

    def node(self, operator: str, inputs: list[str], attributes: dict[str, Any] | None = None, outputs: int = 1, domain: str = "") -> str:
        names = [self.fresh(operator.lower()) for _ in range(outputs)]
        made = helper.make_node(operator, inputs, names, name=f"{operator}_{self.count}", domain=domain, **(attributes or {}))
        self.nodes.append(made)
        if domain:
            self.domains.add(domain)
        return names[0]

    def constant(self, value: Any, dtype: str) -> str:
        """A constant that the formula writes: stored as the spelling says when it is a scalar."""
        array = np.asarray(value, np.dtype(dtype))
        if array.dtype.kind == "f" and not np.allclose(array.astype(np.float64), value, rtol=2e-3, atol=0):
            raise Unbuildable(f"{value} can't be written in {dtype}")
        if array.ndim == 0 and self.spelling.storage == "rank one" and self.pattern.example and self.has_rank():
            array = array.reshape(1)
        name = self.fresh("k")
        tensor = numpy_helper.from_array(array, name)
        if self.spelling.storage == "constant node":
            self.nodes.append(helper.make_node("Constant", [], [name], name=name, value=tensor))
        else:
            self.initializers.append(tensor)
        return name

    def has_rank(self) -> bool:
        """Whether no free value is a scalar, so that a constant of rank one raises no rank."""
        return all(e.shape for e in self.pattern.example.values() if e.value is None)

    def named(self, name: str) -> str:
        """The value of a name: what its line of the formula computes, built when it is first needed, or a free value."""
        if name == "_":
            raise Unbuildable("`_` stands where a value is needed")
        if name not in self.values:
            line = next((a for a in self.pattern.match if name in a.names), None)
            if line is None:
                return self.free(name)
            results = self.results(line.term, len(line.names))
            self.values.update({n: r for n, r in zip(line.names, results, strict=False) if n != "_"})
        return self.values[name]

    def free(self, name: str) -> str:
        """The value of a name that the pattern doesn't define."""
        example = self.pattern.example.get(name)
        if example is None:
            raise Unbuildable(f"`{name}` has no example")
        if example.value is not None:
            return self.constant(example.value, self.dtype(example))
        array = draw(name, example, self.narrow(example))
        if example.constant:
            self.initializers.append(numpy_helper.from_array(array, name))
        else:
            self.feeds[name] = array
        self.values[name] = name
        if self.spelling.mixed and array.dtype == np.float16:
            self.values[name] = self.node("Cast", [name], {"to": TYPES["float32"]})
        return self.values[name]

    def dtype(self, example: Example) -> str:
        return self.spelling.dtype if example.dtype in ("float32", "float64") else example.dtype

    def narrow(self, example: Example) -> str:
        return "float16" if self.spelling.mixed and example.dtype == "float32" else self.dtype(example)

    # Terms

    def results(self, term: syntax.Term, wanted: int) -> list[str]:
        """The results of a term, `wanted` of them."""
        match term:
            case syntax.Either():
                return self.results(self.alternative(term), wanted)
            case syntax.Apply() if wanted > 1:
                self.apply(term, wanted)
                return list(self.nodes[-1].output)
            case syntax.Rearrange(word="split"):
                return self.split(term, wanted)
            case _:
                return [self.value(term)]

    def alternative(self, term: syntax.Either) -> syntax.Term:
        return term.alternatives[self.spelling.chosen.get(id(term), 0)]

    def value(self, term: syntax.Term) -> str:
        match term:
            case syntax.Variable(name=name):
                return self.named(name)
            case syntax.Literal(value=value):
                if isinstance(value, tuple):
                    return self.constant(value, "int64")
                return self.constant(value, self.spelling.dtype)
            case syntax.Either():
                return self.value(self.alternative(term))
            case syntax.Chain():
                return self.chain(term)
            case syntax.Rearrange(word="rearrange"):
                return self.rearrange(term)
            case syntax.Rearrange(word="split"):
                return self.split(term, 1)[0]
            case syntax.Apply():
                return self.apply(term, 1)
            case _:
                raise Unbuildable(f"`{term}` is not built")

    def chain(self, term: syntax.Chain) -> str:
        """A sum or product in the order and grouping of the spelling."""
        join, part, turn = ("Add", "Sub", "Neg") if term.operator == "+" else ("Mul", "Div", "Reciprocal")
        parts = [(self.value(t), inverse) for t, inverse in self.flat(term)]
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

    def flat(self, term: syntax.Chain) -> list[tuple[syntax.Term, bool]]:
        """The items, those of nested chains of the same operator among them when the spelling regroups."""
        found: list[tuple[syntax.Term, bool]] = []
        for item, inverse in term.items:
            if self.spelling.seed and isinstance(item, syntax.Chain) and item.operator == term.operator:
                found += [(t, i != inverse) for t, i in self.flat(item)]
            else:
                found.append((item, inverse))
        return found

    def apply(self, term: syntax.Apply, wanted: int) -> str:
        operator = term.operators[self.spelling.chosen.get(id(term), 0)]
        if operator == syntax.Operator("Pow") and self.spelling.seed and isinstance(term.arguments[1], syntax.Literal):
            simple = self.power(self.value(term.arguments[0]), term.arguments[1].value)
            if simple is not None:
                return simple
        known = schema(operator.name, operator.domain, self.spelling.opset if not operator.domain else 1)
        if known is None:
            raise Unbuildable(f"{operator} does not exist at opset {self.spelling.opset}")
        inputs = [self.argument(a) for a in term.arguments]
        attributes: dict[str, Any] = {}
        for key, given in term.keywords:
            self.keyword(known, key, self.static(given), inputs, attributes)
        return self.node(operator.name, inputs, attributes, max(wanted, known.min_outputs), operator.domain)

    def argument(self, term: syntax.Term) -> str:
        return "" if isinstance(term, syntax.Variable) and term.name == "_" else self.value(term)

    def power(self, value: str, exponent: Any) -> str | None:
        match exponent, self.spelling.seed:
            case 2, 1 | 3:
                return self.node("Mul", [value, value])
            case 3, 1:
                return self.node("Mul", [self.node("Mul", [value, value]), value])
            case 0.5, _:
                return self.node("Sqrt", [value])
            case -0.5, _:
                return self.node("Reciprocal", [self.node("Sqrt", [value])])
        return None

    def keyword(self, known: Schema, key: str, value: Any, inputs: list[str], attributes: dict[str, Any]) -> None:
        """A keyword as the attribute or the constant input that it is at this opset; a value of None is left out."""
        if value is None:
            return
        if key in known.attributes:
            attributes[key] = list(value) if isinstance(value, tuple) else value
            return
        names = [f.name for f in known.inputs]
        if key not in names:
            if known.name == "Split" and key == "num_outputs":
                return
            raise Unbuildable(f"{known.name} has no {key} at opset {self.spelling.opset}")
        index = names.index(key)
        inputs += [""] * (index + 1 - len(inputs))
        types = known.inputs[index].types
        dtype = "int64" if "tensor(float)" not in types else self.spelling.dtype
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
        raise Unbuildable(f"`{term}` is not static")

    # Layout

    def shape(self, value: str) -> tuple[int, ...]:
        """The shape of a value so far, by running what has been built."""
        from onnx_subgraph.proving.truth import shape_of

        return shape_of(self.nodes, self.initializers, self.feeds, value, self.spelling.opset, sorted(self.domains))

    def rearrange(self, term: syntax.Rearrange) -> str:
        from einops.parsing import ParsedExpression

        source = self.value(term.source)
        left, right = (ParsedExpression(side).composition for side in term.recipe.split("->"))
        shape = self.shape(source)
        sizes = self.sizes
        sizes.update({n: e.value for n, e in self.pattern.example.items() if isinstance(e.value, int)})
        sizes.update({k: self.static(v) for k, v in term.sizes})
        for axis, size in zip(left, shape, strict=True):
            unknown = [n for n in axis if n not in sizes]
            if len(unknown) > 1:
                raise Unbuildable(f"the sizes of {', '.join(unknown)} have no example")
            if unknown:
                sizes[unknown[0]] = size // prod(sizes[n] for n in axis if n in sizes)
        before = [n for axis in left for n in axis]
        after = [n for axis in right for n in axis]
        opened = self.reshape(source, [sizes[n] for n in before])
        turned = self.node("Transpose", [opened], {"perm": [before.index(n) for n in after]})
        return self.reshape(turned, [prod(sizes[n] for n in axis) for axis in right])

    def reshape(self, value: str, shape: list[int]) -> str:
        if self.spelling.symbolic:
            shape = [-1, *shape[1:]]
        name = self.fresh("shape")
        self.initializers.append(numpy_helper.from_array(np.asarray(shape, np.int64), name))
        return self.node("Reshape", [value, name])

    def split(self, term: syntax.Rearrange, wanted: int) -> list[str]:
        arguments = {k: self.static(v) for k, v in term.sizes}
        source, axis = self.value(term.source), int(arguments["axis"])
        whole = self.shape(source)[axis]
        parts = list(arguments.get("sizes") or [whole // int(arguments["parts"])] * int(arguments["parts"]))
        results, begin = [], 0
        for size in parts[:wanted]:
            bounds = [self.numbers([begin]), self.numbers([begin + size]), self.numbers([axis])]
            results.append(self.node("Slice", [source, *bounds]))
            begin += size
        return results

    def numbers(self, values: list[int]) -> str:
        name = self.fresh("n")
        self.initializers.append(numpy_helper.from_array(np.asarray(values, np.int64), name))
        return name


def draw(name: str, example: Example, dtype: str) -> np.ndarray:
    """The value of a free name: the same in every spelling."""
    rng = np.random.default_rng(int.from_bytes(name.encode()[:6].ljust(6), "little"))
    if example.value is not None:
        return np.asarray(example.value, np.dtype(dtype))
    kind = np.dtype(dtype).kind
    if kind == "b":
        return rng.random(example.shape) > 0.5
    if kind in "iu":
        low, high = int(example.low or 0), int(example.high if example.high is not None else 7)
        return rng.integers(low, high + 1, example.shape).astype(dtype)
    if example.low is not None and example.high is not None:
        return rng.uniform(example.low, example.high, example.shape).astype(dtype)
    return rng.standard_normal(example.shape).astype(dtype)
