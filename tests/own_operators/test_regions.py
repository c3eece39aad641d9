"""Regions and formulas become a user's operator: they are proved with its library, and undone where the library is wrong."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from onnx_subgraph import Library, Options, Region, fuse, load_patterns, region_pattern
from onnx_subgraph.proving import prove
from onnx_subgraph.regions.selector import NewNode
from onnx_subgraph.result import FuseResult
from onnx_subgraph.verification.libraries import with_libraries
from tests.own_operators.conftest import CONV_BN, NUMBERS, WEIGHTS, Run, save

GROWN = """
id: mine
summary: A convolution and the normalization behind it
grow:
  select: node.operator == "Conv"
  output: consumer.operator == "BatchNormalization"
  keep: region.size == 2
replace:
  function: com.mylib.ConvBN(strides=Conv.strides, pads=Conv.pads, epsilon=BatchNormalization.epsilon, kind="mine")
"""
FORMULA = """
id: mine
summary: A convolution and the normalization behind it
match: |
  c = Conv(x, w, strides=s, pads=p, dilations=_, group=1, kernel_shape=_)
  y = BatchNormalization(c, scale, shift, mean, var, epsilon=eps)
replace:
  onnxruntime: y = com.mylib.ConvBN(x, w, scale, shift, mean, var, strides=s, pads=p, epsilon=eps)
example:
  x: float32[1, 3, 6, 6]
  w: float32[4, 3, 3, 3] constant
  scale, shift, mean: float32[4] constant
  var: float32[4] in [0.5, 1.5] constant
  eps: 1e-5
  s: [1, 1]
  p: [1, 1, 1, 1]
"""
TWO = f"""
<ir_version: 8, opset_import: ["" : 17]>
net (float[batch,1,8,8] x) => (float[batch,4,4,4] a, float[batch,4,6,6] b) <{WEIGHTS}, {NUMBERS}>
{{
  c = Conv <strides = [2, 2], pads = [1, 1, 1, 1]> (x, w)  a = BatchNormalization (c, scale, shift, mean, var)
  d = Conv (x, w)  b = BatchNormalization <epsilon = 0.5> (d, scale, shift, mean, var)
}}
"""


def mine(tmp_path: Path, text: str, pack: str = "") -> Library:
    """The patterns of a pack with this pattern."""
    folder = tmp_path / "pack"
    (folder / "group").mkdir(parents=True)
    (folder / "group" / "mine.yaml").write_text(text, encoding="utf-8")
    (folder / "pack.yaml").write_text(f"name: mine\ndomain: com.mylib\n{pack}", encoding="utf-8")
    return load_patterns(folder, built_in=False)


def fused(text: str, library: Library, tmp_path: Path, *libraries: Path, target: str = "onnxruntime") -> FuseResult:
    model = save(text, tmp_path / "model.onnx")
    return fuse(model, tmp_path / "out.onnx", library, Options(target=target, libraries=libraries, sites=True))


def nodes(tmp_path: Path) -> list[onnx.NodeProto]:
    return list(onnx.load(tmp_path / "out.onnx").graph.node)


def attributes(node: onnx.NodeProto) -> dict[str, object]:
    return {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}


@pytest.mark.parametrize("target", ["onnxruntime", "standard", "function"])
def test_a_region_becomes_an_operator_with_its_attributes(tmp_path: Path, library: Path, target: str) -> None:
    result = fused(CONV_BN, mine(tmp_path, GROWN), tmp_path, library, target=target)
    assert (result.verdict.verdict, result.verdict.strength) == ("equivalent", "kernel")
    assert [(site.proved, site.wrong) for site in result.sites] == [(True, False)]
    node, _ = nodes(tmp_path)
    assert (node.domain, node.op_type, list(node.input)) == ("com.mylib", "ConvBN", ["x", "w", "scale", "shift", "mean", "var"])
    given = attributes(node)
    assert given.pop("epsilon") == pytest.approx(1e-5)  # left out in the model: the schema's default
    assert given == {"strides": [2, 2], "pads": [1, 1, 1, 1], "kind": b"mine"}


def test_definitions_with_different_attributes_share_one_operator_type(tmp_path: Path, library: Path) -> None:
    """Different definitions are overloads of one name, which one kernel of the library serves."""
    result = fused(TWO, mine(tmp_path, GROWN), tmp_path, library)
    assert result.verdict.verdict == "equivalent" and len(result.rewrites) == 2
    one, other = nodes(tmp_path)
    assert one.op_type == other.op_type == "ConvBN" and one.overload != other.overload
    assert "strides" not in attributes(other)  # the node has none, and the schema has no default
    assert attributes(other)["epsilon"] == pytest.approx(0.5)


def test_its_inputs_do_not_depend_on_which_are_constant(tmp_path: Path, library: Path) -> None:
    """A number that a caller may override and a weight of one element keep their input positions."""
    text = """
    <ir_version: 8, opset_import: ["" : 17]>
    net (float[1,1,8,8] x, float[1] scale, float[1,1,3,3] w) => (float[1,1,6,6] y)
    <float[1] shift = {1}, float[1] mean = {2}, float[1] var = {3}>
    { c = Conv (x, w)  y = BatchNormalization (c, scale, shift, mean, var) }
    """
    result = fused(text, mine(tmp_path, GROWN), tmp_path, library)
    assert result.verdict.verdict == "equivalent"
    (node,) = nodes(tmp_path)
    assert list(node.input) == ["x", "w", "scale", "shift", "mean", "var"]


def test_fusing_again_changes_nothing(tmp_path: Path, library: Path) -> None:
    patterns = mine(tmp_path, GROWN)
    fused(TWO, patterns, tmp_path, library)
    again = fuse(tmp_path / "out.onnx", tmp_path / "again.onnx", patterns, Options(libraries=[library]))
    assert again.unchanged


def test_without_the_library_it_runs_by_its_definition(tmp_path: Path) -> None:
    result = fused(CONV_BN, mine(tmp_path, GROWN), tmp_path)
    assert (result.verdict.verdict, result.verdict.strength, len(result.rewrites)) == ("equivalent", "body", 1)


def test_fusions_that_a_wrong_library_computes_are_undone(tmp_path: Path, wrong: Path) -> None:
    result = fused(CONV_BN, mine(tmp_path, GROWN), tmp_path, wrong)
    assert (result.verdict.verdict, len(result.undone), result.rewrites) == ("equivalent", 1, ())
    assert [node.op_type for node in nodes(tmp_path)] == ["Conv", "BatchNormalization", "Relu"]


def test_a_type_without_a_kernel_is_a_reason(tmp_path: Path, library: Path) -> None:
    """The library's kernel takes float32 only. A model with the operator in another type would not load."""
    doubles = CONV_BN.replace("float[", "double[")
    result = fused(doubles, mine(tmp_path, GROWN), tmp_path, library)
    assert result.verdict.verdict == "equivalent" and not result.rewrites
    (skip,) = result.skipped
    assert "CPUExecutionProvider does not load com.mylib.ConvBN" in skip.reason


def test_conflicting_attributes_within_a_region_are_a_reason(tmp_path: Path) -> None:
    text = GROWN.replace('consumer.operator == "BatchNormalization"', "consumer.operator in ['BatchNormalization', 'Conv']")
    chain = f"""
    <ir_version: 8, opset_import: ["" : 17]>
    net (float[1,1,8,8] x) => (float[1,4,6,6] y) <{WEIGHTS}, float[1,4,1,1] o = {{1, 2, 3, 4}}>
    {{ c = Conv (x, w)  d = Conv <pads = [0, 0, 0, 0], strides = [1, 1]> (c, o)  y = Relu (d) }}
    """
    result = fused(chain, mine(tmp_path, text), tmp_path)
    assert [skip.reason for skip in result.skipped] == ["the region has several Conv with different strides"]


def test_a_formula_becomes_an_operator(tmp_path: Path, library: Path) -> None:
    result = fused(CONV_BN, mine(tmp_path, FORMULA), tmp_path, library)
    assert result.verdict.verdict == "equivalent" and result.sites[0].proved
    node, _ = nodes(tmp_path)
    assert (node.op_type, attributes(node)["strides"]) == ("ConvBN", [2, 2])


def test_without_its_library_a_formula_is_skipped_with_the_reason(tmp_path: Path) -> None:
    result = fused(CONV_BN, mine(tmp_path, FORMULA), tmp_path)
    (skip,) = result.skipped
    assert "does not know com.mylib.ConvBN" in skip.reason and "--custom-op-library" in skip.change


def test_a_result_within_a_replacement_needs_a_declared_shape(tmp_path: Path, library: Path) -> None:
    """A final result has the shape of the replaced value. For an inner result, the pack has to declare the shape."""
    act = FORMULA.replace("y = BatchNorm", "n = BatchNorm").replace("replace:", "replace:\n", 1)
    act = act.replace("epsilon=eps)\nreplace", "epsilon=eps)\n  y = Relu(n)\nreplace")
    act = act.replace(
        "y = com.mylib.ConvBN(x, w, scale, shift, mean, var, strides=s, pads=p, epsilon=eps)", "y = Relu(com.own.X(x))"
    )
    act = act.replace("com.own.X(x)", "com.mylib.ConvBN(x, w, scale, shift, mean, var, strides=s, pads=p, epsilon=eps)")
    declared = fused(CONV_BN, mine(tmp_path, act, "shapes: {ConvBN: Conv}"), tmp_path, library)
    assert declared.verdict.verdict == "equivalent" and len(declared.rewrites) == 1
    assert [node.op_type for node in nodes(tmp_path)] == ["ConvBN", "Relu"]


# Selectors in Python


class Builds:
    """Regions of a convolution and its normalization. An activation is selected too, but filtered out."""

    def select(self, node: ir.Node) -> bool:
        return node.op_type == "Conv"

    def select_input(self, node: ir.Node, producer: ir.Node) -> bool:
        return False

    def select_output(self, node: ir.Node, consumer: ir.Node) -> bool:
        return True

    def filter(self, region: Region) -> Iterable[ir.Node] | Region | bool:
        return [node for node in region.nodes if node.op_type != "Relu"]

    def build(self, region: Region) -> NewNode | None:
        conv, norm = region.nodes
        given = {name: list(conv.attributes[name].value) for name in ("strides", "pads")}
        return NewNode("ConvBN", [*conv.inputs, *norm.inputs[1:]], domain="com.mylib", attributes=given)


def test_a_selector_builds_a_node_of_its_own_library(tmp_path: Path, library: Path) -> None:
    result = fused(CONV_BN, Library((region_pattern("mine", Builds),)), tmp_path, library)
    assert result.verdict.verdict == "equivalent" and result.sites[0].proved
    assert [node.op_type for node in nodes(tmp_path)] == ["ConvBN", "Relu"]


def test_a_selector_with_a_wrong_library_is_undone(tmp_path: Path, wrong: Path) -> None:
    result = fused(CONV_BN, Library((region_pattern("mine", Builds),)), tmp_path, wrong)
    assert result.verdict.verdict == "equivalent" and len(result.undone) == 1


class Grows(Builds):
    build = None  # type: ignore[assignment]


def test_a_selector_without_a_node_names_the_operator_of_its_function(tmp_path: Path, library: Path) -> None:
    pattern = region_pattern("mine", Grows, operator="com.mylib.ConvBN")
    result = fused(
        CONV_BN.replace("strides = [2, 2], pads = [1, 1, 1, 1]", "")
        .replace("Conv <>", "Conv")
        .replace("float[batch,4,4,4]", "float[batch,4,6,6]"),
        Library((pattern,)),
        tmp_path,
        library,
    )
    assert result.verdict.verdict == "equivalent" and result.rewrites[0].op == "com.mylib.ConvBN"


FORK = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[2] x) => (float[2] y) { [a] a = Exp (x)  [b] b = Sqrt (a)  [c] c = Abs (a)  [d] y = Add (b, c) }
"""


@pytest.mark.parametrize(
    ("kept", "replaced", "found"),
    [
        ("a b c d", "a b c d", ""),
        ("b d", "b d", ""),
        ("a", "a", ""),
        ("", "", "a region of 4 nodes"),
        ("a d", "", "2 parts that can't be one: a and d"),
        ("a b d", "", "2 parts that can't be one"),
    ],
)
def test_a_filter_keeps_a_connected_convex_part(tmp_path: Path, kept: str, replaced: str, found: str) -> None:
    """`a b d` is connected but not convex: a path through c leaves it and returns."""

    class Part(Builds):
        build = None  # type: ignore[assignment]

        def select(self, node: ir.Node) -> bool:
            return True

        def filter(self, region: Region) -> Iterable[ir.Node]:
            return {node for node in region.nodes if (node.name or "") in kept.split()}

    result = fused(FORK, Library((region_pattern("part", Part),)), tmp_path, target="function")
    assert [" ".join(rewrite.replaces) for rewrite in result.rewrites] == ([replaced] if replaced else [])
    assert found in "".join(miss.found for miss in result.near_misses)
    assert result.verdict.verdict == "equivalent"


def test_a_filter_that_returns_a_node_outside_the_region_is_a_reason(tmp_path: Path) -> None:
    class Strange(Builds):
        build = None  # type: ignore[assignment]

        def filter(self, region: Region) -> Iterable[ir.Node]:
            return [*region.nodes, ir.Node("", "Abs", [], name="elsewhere")]

    result = fused(CONV_BN, Library((region_pattern("strange", Strange),)), tmp_path, target="function")
    assert "elsewhere, which is not in the region" in result.near_misses[0].found


def test_the_report_names_the_operator(run: Run, pack: Path, tmp_path: Path) -> None:
    model = save(CONV_BN, tmp_path / "model.onnx")
    told = run("fuse", "-v", model, "--patterns", pack, "-o", tmp_path / "out.onnx")
    assert told.code == 0 and "com.mylib.ConvBN (function)" in told.out and "by a kernel" in told.out


def test_without_verification_the_kernel_of_the_library_runs(tmp_path: Path, wrong: Path) -> None:
    """The outputs differ from the definition's: the kernel runs, not the definition."""
    model = save(CONV_BN, tmp_path / "model.onnx")
    options = Options(libraries=[wrong], verify=False)
    fuse(model, tmp_path / "out.onnx", mine(tmp_path, GROWN), options)
    x = np.ones((1, 1, 8, 8), np.float32)

    def run_with(library: Path | None) -> np.ndarray:
        import onnxruntime

        session_options = onnxruntime.SessionOptions()
        if library is not None:
            session_options.register_custom_ops_library(str(library))
        return np.asarray(onnxruntime.InferenceSession(tmp_path / "out.onnx", session_options).run(None, {"x": x})[0])

    assert not np.allclose(run_with(wrong), run_with(None))


def test_inlining_restores_the_nodes_and_counts_the_calls(run: Run, tmp_path: Path) -> None:
    result = fused(TWO, mine(tmp_path, GROWN), tmp_path)
    told = run("inline", tmp_path / "out.onnx", "-o", tmp_path / "back.onnx", "--json")
    assert (len(result.rewrites), told.json["calls"]) == (2, 2)
    assert [node.op_type for node in onnx.load(tmp_path / "back.onnx").graph.node] == ["Conv", "BatchNormalization"] * 2


def test_a_proof_uses_the_libraries_of_its_block(tmp_path: Path, library: Path) -> None:
    """Law: the operators of a library are known within its block only."""
    pattern = mine(tmp_path, FORMULA).get("mine")
    assert "does not know com.mylib.ConvBN" in prove(pattern).unproved["onnxruntime"]
    with with_libraries([library]):
        inside = prove(pattern)
    assert not inside.failures and inside.targets["onnxruntime"]
    assert "onnxruntime" in prove(pattern).unproved
