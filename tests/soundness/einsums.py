"""Matrix products of an instance written as Einsums, as some libraries write attention and projections."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from random import Random
from string import ascii_lowercase

import onnx
from onnx import helper

FIRST_OPSET = 12


def as_einsums(random: Random, proto: onnx.ModelProto, shapes: Mapping[str, Sequence[int]]) -> onnx.ModelProto:
    """A copy of a flat model with its MatMuls as Einsums, and most Transposes beside them as the order of the letters.

    shapes: of every value. Products of vectors stay.
    """
    made = onnx.ModelProto()
    made.CopyFrom(proto)
    nodes = [*made.graph.node]
    outputs = {o.name for o in made.graph.output}
    for product in [n for n in nodes if n.op_type == "MatMul" and not n.domain]:
        ranks = [len(shapes[name]) for name in product.input]
        if min(ranks) < 2:
            continue
        sizes = [shapes[name] for name in product.input]
        as_ellipsis = _may_be_ellipsis(sizes) and random.random() < 0.3
        *operands, result = _letters(random, sizes, as_ellipsis=as_ellipsis)
        often = 0.0 if as_ellipsis else 0.8
        for position, name in enumerate(product.input):
            transpose = next((n for n in nodes if name in n.output and n.op_type == "Transpose"), None)
            if transpose is not None and random.random() < often:
                order = _order(transpose, ranks[position])
                operands[position] = [operands[position][order.index(axis)] for axis in range(len(order))]
                product.input[position] = transpose.input[0]
        reader, *others = [n for n in nodes if product.output[0] in n.input] or [None]
        is_turned = reader is not None and reader.op_type == "Transpose" and not others and product.output[0] not in outputs
        if reader is not None and is_turned and random.random() < often:
            order = _order(reader, max(ranks))
            result = [result[axis] for axis in order]
            nodes.remove(reader)
            product.output[0] = reader.output[0]
        product.op_type = "Einsum"
        del product.attribute[:]
        product.attribute.append(helper.make_attribute("equation", _equation(*operands, result)))
    read = Counter(name for n in nodes for name in n.input)
    live = [n for n in nodes if n.op_type != "Transpose" or n.output[0] in outputs or read[n.output[0]]]
    del made.graph.node[:]
    made.graph.node.extend(live)
    return made


def equation(random: Random, *shapes: Sequence[int]) -> str:
    """The equation of the MatMul of operands with these shapes, with random letters or an ellipsis."""
    return _equation(*_letters(random, shapes, as_ellipsis=_may_be_ellipsis(shapes) and random.random() < 0.3))


def _may_be_ellipsis(shapes: Sequence[Sequence[int]]) -> bool:
    """Whether an ellipsis may stand for the leading axes: onnx's shape inference takes only operands of one rank."""
    return len({len(shape) for shape in shapes}) == 1


def _equation(*letters: Sequence[str]) -> str:
    *operands, result = map("".join, letters)
    return ",".join(operands) + "->" + result


def _letters(random: Random, shapes: Sequence[Sequence[int]], *, as_ellipsis: bool) -> tuple[list[str], list[str], list[str]]:
    """The letters of both operands and of the product. as_ellipsis: the leading axes are an ellipsis.

    A leading axis of one element broadcasts; it has a letter of its own, and the result has the letter of the other operand.
    """
    drawn = iter(random.sample(ascii_lowercase, 20))
    row, inner, column = next(drawn), next(drawn), next(drawn)
    left: list[str] = []
    right: list[str] = []
    both: list[str] = []
    if as_ellipsis:
        return ["...", row, inner], ["...", inner, column], ["...", row, column]
    longest = max(map(len, shapes))
    padded = [[*[None] * (longest - len(shape)), *shape][:-2] for shape in shapes]
    for first, second in zip(*padded, strict=True):
        letter = next(drawn)
        both.append(letter)
        for letters, size, other in ((left, first, second), (right, second, first)):
            if size is not None:
                letters.append(next(drawn) if size == 1 and other not in (1, None) else letter)
    return [*left, row, inner], [*right, inner, column], [*both, row, column]


def _order(transpose: onnx.NodeProto, rank: int) -> list[int]:
    return next((list(a.ints) for a in transpose.attribute if a.name == "perm"), [*range(rank)][::-1])
