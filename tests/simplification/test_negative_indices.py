"""What makes negative indices positive is left out in front of operators that count them from the end, and stays elsewhere."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from tests.simplification.test_simplify import operators, parsed, run, simplified

INPUTS = "float[5, 7] t, int32[N, 3] i, float[S, 7] u, int32[5, 7] k"
WEIGHTS = """int32 zero = {0}, int32 five = {5}, int32 seven = {7}, int32[1, 3] fives = {5, 5, 5}, float none = {0},
  int64 five64 = {5}, int32[3] others = {5, 5, 4},
  int64[1] last = {-1}, int64[3] swapped = {3, 3, -1}"""
WHERE = "l = Less(i, zero) a = Add(i, five) j = Where(l, a, i)"
LEFT_OUT = {
    "Gather": f"{WHERE} y = Gather(t, j)",
    "the sum the other way": "l = Less(i, zero) a = Add(five, i) j = Where(l, a, i) y = Gather(t, j)",
    "the size of every index": "l = Less(i, zero) a = Add(i, fives) j = Where(l, a, i) y = Gather(t, j)",
    "the other side": "l = GreaterOrEqual(i, zero) a = Add(i, five) j = Where(l, i, a) y = Gather(t, j)",
    "Greater": "l = Greater(zero, i) a = Add(i, five) j = Where(l, a, i) y = Gather(t, j)",
    "LessOrEqual": "l = LessOrEqual(zero, i) a = Add(i, five) j = Where(l, i, a) y = Gather(t, j)",
    "Not": "l = Less(i, zero) n = Not(l) a = Add(i, five) j = Where(n, i, a) y = Gather(t, j)",
    "compared as floats": "f = Cast<to = 1>(i) l = Less(f, none) a = Add(i, five) j = Where(l, a, i) y = Gather(t, j)",
    "cast before": "c = Cast<to = 7>(i) l = Less(i, zero) a = Add(c, five64) j = Where(l, a, c) y = Gather(t, j)",
    "cast behind": f"{WHERE} c = Cast<to = 7>(j) y = Gather(t, c)",
    "moved behind": f"{WHERE} r = Unsqueeze(j, last) s = Squeeze(r, last) p = Transpose<perm = [1, 0]>(s) y = Gather(t, p)",
    "the second axis": "l = Less(i, zero) a = Add(i, seven) j = Where(l, a, i) y = Gather<axis = 1>(t, j)",
    "two readers": f"{WHERE} p = Gather(t, j) q = Gather<axis = -2>(t, j) y = Add(p, q)",
    "a size of the run": """s = Shape(u) z = Cast<to = 7>(zero) n = Gather(s, z) d = Cast<to = 6>(n) l = Less(i, zero)
      a = Add(i, d) j = Where(l, a, i) y = Gather(u, j)""",
    "GatherElements": f"{WHERE} y = GatherElements(t, j)",
    "GatherND": f"{WHERE} r = Unsqueeze(j, last) c = Cast<to = 7>(r) y = GatherND(t, c)",
    "columns of GatherND": f"""{WHERE} m = Less(i, zero) b = Add(i, seven) k2 = Where(m, b, i) r = Unsqueeze(j, last)
      s = Unsqueeze(k2, last) p = Concat<axis = -1>(r, s) c = Cast<to = 7>(p) y = GatherND(t, c)""",
    "columns that are cast": f"""{WHERE} m = Less(i, zero) b = Add(i, seven) k2 = Where(m, b, i) r = Unsqueeze(j, last)
      s = Unsqueeze(k2, last) e = Cast<to = 7>(r) f = Cast<to = 7>(s) p = Concat<axis = 2>(e, f) y = GatherND(t, p)""",
}
STAYS = {
    "another size": f"{WHERE} y = Gather<axis = 1>(t, j)",
    "an axis of unknown size": f"{WHERE} y = Gather(u, j)",
    "sizes that differ": "l = Less(i, zero) a = Add(i, others) j = Where(l, a, i) y = Gather(t, j)",
    "another bound": "l = Less(i, five) a = Add(i, five) j = Where(l, a, i) y = Gather(t, j)",
    "where it is positive": "l = Less(i, zero) a = Add(i, five) j = Where(l, i, a) y = Gather(t, j)",
    "what is not negative": "l = Greater(i, zero) a = Add(i, five) j = Where(l, i, a) y = Gather(t, j)",
    "another reader": f"{WHERE} p = Gather(t, j) q = Cast<to = 1>(j) y0 = ReduceSum(q) y = Add(p, y0)",
    "a number of a table": """d = Gather(k, zero) e = Gather(d, zero) l = Less(i, zero) a = Add(i, e) j = Where(l, a, i)
      y = Gather(t, j)""",
    "columns the other way": f"""{WHERE} m = Less(i, zero) b = Add(i, seven) k2 = Where(m, b, i) r = Unsqueeze(j, last)
      s = Unsqueeze(k2, last) p = Concat<axis = -1>(s, r) c = Cast<to = 7>(p) y = GatherND(t, c)""",
}


def model(body: str, opset: int = 17) -> onnx.ModelProto:
    proto = parsed(body, INPUTS, "float[A, B] y" if "Concat" in body or "Elements" in body else "float[A, B, C] y", WEIGHTS)
    proto.opset_import[0].version = opset
    return proto


def feeds(proto: onnx.ModelProto) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    tables = {name: rng.standard_normal((5, 7)).astype(np.float32) for name in "tu"}
    return {**tables, "i": np.array([[-5, 4, 0], [-1, 3, -3]], np.int32), "k": np.full((5, 7), 5, np.int32)}


@pytest.mark.parametrize("body", LEFT_OUT.values(), ids=LEFT_OUT)
def test_negative_indices_are_read_as_they_are(body: str) -> None:
    proto = model(body)
    found, written = simplified(proto)
    assert found.passed and not {"Where", "Less", "Greater", "LessOrEqual", "GreaterOrEqual"} & operators(written).keys()
    np.testing.assert_array_equal(run(written, feeds(proto))[0], run(proto, feeds(proto))[0])


@pytest.mark.parametrize("body", STAYS.values(), ids=STAYS)
def test_other_indices_stay(body: str) -> None:
    _, written = simplified(model(body))
    assert operators(written)["Where"]


def test_a_result_stays_and_so_do_indices_of_an_early_gather() -> None:
    _, written = simplified(parsed(f"{WHERE} y = Gather(t, j)", INPUTS, "float[A, B, C] y, int32[N, 3] j", WEIGHTS))
    assert operators(written)["Where"]
    _, written = simplified(model(LEFT_OUT["Gather"], opset=10))
    assert operators(written)["Where"]


def branches(first: str, second: str, before: str, inputs: str) -> onnx.ModelProto:
    """An If with the bodies of its two branches, behind other nodes."""
    then, other = (f"b () => (float[N, 7] {result}) {{ {body} }}" for result, body in (("y1", first), ("y2", second)))
    body = f"{before} y = If(c) <then_branch = {then}, else_branch = {other}>"
    return parsed(body, f"bool c, int32[N] i, {inputs}", "float[A, B] y", WEIGHTS)


@pytest.mark.parametrize(("size", "rows"), [("five", 5), ("d", "S")])
def test_in_a_branch_negative_indices_are_read_as_they_are(size: str, rows: object) -> None:
    inside = f"l = Less(i, zero) a = Add(i, {size}) j = Where(l, a, i) y1 = Gather(u, j)"
    before = "s = Shape(u) z = Cast<to = 7>(zero) n = Gather(s, z) d = Cast<to = 6>(n)"
    _, written = simplified(branches(inside, "y2 = Gather(u, i)", before, f"float[{rows}, 7] u"))
    found = [node.op_type for part in written.graph.node for body in part.attribute for node in body.g.node]
    assert found.count("Where") == 0 and found.count("Gather") == 2


@pytest.mark.parametrize(("size", "rows", "left"), [("five", 5, 0), ("d", "S", 1)])
def test_in_a_scan_a_size_must_be_a_number(size: str, rows: object, left: int) -> None:
    """Its body declares the sizes of what it gets, and one name can stand for several sizes."""
    before = "s = Shape(u) z = Cast<to = 7>(zero) n = Gather(s, z) d = Cast<to = 6>(n)"
    inside = f"l = Less(k, zero) a = Add(k, {size}) j = Where(l, a, k) r = Gather(u, j)"
    scan = f"y = Scan <num_scan_inputs = 1, body = b (int32[N] k) => (float[N, 7] r) {{ {inside} }}> (i)"
    _, written = simplified(parsed(f"{before} {scan}", f"int32[M, N] i, float[{rows}, 7] u", "float[M, N, 7] y", WEIGHTS))
    (body,) = (part.attribute for part in written.graph.node if part.op_type == "Scan")
    assert sum(node.op_type == "Where" for attribute in body for node in attribute.g.node) == left


def test_indices_that_a_body_reads_stay() -> None:
    _, written = simplified(branches("y1 = Gather(t, j)", "y2 = Gather(t, j)", WHERE, "float[5, 7] t"))
    assert operators(written)["Where"] == 1
