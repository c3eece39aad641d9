"""Random excerpts, for the laws of drawing and of grouping similar sites."""

from __future__ import annotations

from collections import Counter

from hypothesis import strategies as st

from onnx_subgraph.rewriting.excerpt import Edge, Excerpt, Step

OPERATORS = ("Add", "MatMul", "LayerNormalization", "Sqrt", "Split")
WORDS = st.text(max_size=40)


@st.composite
def excerpts(draw: st.DrawFn) -> Excerpt:
    """Excerpts of any number of nodes, constants and outside values, connected in any way and with any names."""
    edges = [Edge(draw(WORDS), "float32", ("batch", 8)) for _ in range(draw(st.integers(1, 3)))]
    edges += [Edge("weight", "float32", (8,), constant=True, literal=draw(WORDS)) for _ in range(draw(st.integers(0, 2)))]
    steps: list[Step] = []
    for _ in range(draw(st.integers(1, 14))):
        inputs = tuple(draw(st.lists(st.one_of(st.none(), st.integers(0, len(edges) - 1)), max_size=4)))
        outputs = tuple(range(len(edges), len(edges) + draw(st.integers(1, 3))))
        edges += [Edge(draw(WORDS), "float32", None) for _ in outputs]
        attributes = tuple((name, draw(WORDS)) for name in ("axis", "perm", "to")[: draw(st.integers(0, 3))])
        steps.append(Step(draw(WORDS), "", draw(st.sampled_from(OPERATORS)), attributes, inputs, outputs, draw(st.booleans())))
    made = [edge for step in steps for edge in step.outputs]
    read = {edge for step in steps for edge in step.inputs}
    results = tuple(edge for edge in made if edge not in read or draw(st.booleans()))
    return Excerpt(tuple(steps), tuple(edges), results, Counter(step.op_type for step in steps))


def chain(*operators: str, name: str = "/layer.0") -> Excerpt:
    """Operators in sequence."""
    edges = tuple(Edge(f"{name}/value_{i}", "float32", ("batch", 8)) for i in range(len(operators) + 1))
    steps = tuple(Step(f"{name}/{op}", "", op, (), (i,), (i + 1,)) for i, op in enumerate(operators))
    return Excerpt(steps, edges, (len(operators),), Counter(operators))


def fan(count: int) -> Excerpt:
    """Parallel operators, and one that reads all of them."""
    edges = tuple(Edge(f"value_{i}", "float32", ("batch", 8)) for i in range(2 * count + 1))
    sides = tuple(Step("", "", "Sqrt", (), (i,), (count + i,)) for i in range(count))
    last = Step("", "", "Concat", (), tuple(range(count, 2 * count)), (2 * count,))
    return Excerpt((*sides, last), edges, (2 * count,), Counter({"Sqrt": count, "Concat": 1}))
