"""Packs, groups and files: which are found, in which order, and the messages for mistakes."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from math import inf
from pathlib import Path

import onnx
import onnx.parser
import pytest

from onnx_subgraph import Options, fuse
from onnx_subgraph.errors import PatternError, UsageError
from onnx_subgraph.kernels.build import source_folder
from onnx_subgraph.language.check import static_names
from onnx_subgraph.language.library import Library, built_in_packs, headers, load_patterns
from onnx_subgraph.language.pack import read_pack
from onnx_subgraph.language.reading import parse_pattern
from onnx_subgraph.operators.names import KERNELS
from onnx_subgraph.targets import TARGETS

DATA = Path(__file__).parent / "data"
GELU = (DATA / "activation" / "exact_gelu.yaml").read_text(encoding="utf-8")


def test_a_pack_is_read_in_the_order_of_its_names() -> None:
    library = load_patterns([DATA], built_in=False)
    assert [(p.group, p.id, p.order) for p in library.patterns] == [
        ("activation", "exact-gelu", 0),
        ("attention", "multi-head-attention", 1),
        ("convolution", "conv-activation", 2),
        ("normalization", "skip-layer-normalization", 3),
    ]
    assert [pack.name for pack in library.packs] == ["sample"]
    assert library.get("exact-gelu").summary == "Exact GELU, x · Φ(x), spelled out with Erf"


def test_headers_say_what_patterns_say() -> None:
    """Law: reading only the header of a file gives the same as reading the whole pattern."""
    for paths in ([DATA], [DATA / "activation", DATA / "convolution" / "conv_activation.yaml"]):
        patterns = load_patterns(paths, built_in=False).patterns
        assert [(h.id, h.group, h.summary, h.targets, h.file, h.order) for h in headers(paths, built_in=False)] == [
            (p.id, p.group, p.summary, p.targets, p.file, p.order) for p in patterns
        ]


def test_the_built_in_patterns_load() -> None:
    assert built_in_packs()
    assert [p.id for p in load_patterns().patterns] == [h.id for h in headers()]


def test_the_built_in_patterns_are_right() -> None:
    """They are not checked at each start, but here."""
    assert [p.id for p in load_patterns(checked=True).patterns] == [p.id for p in load_patterns().patterns]


def test_what_is_built_in_is_checked_where_that_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mistake in a built-in pattern is shown with its place, as one in a pattern of the user always is."""
    folder = tmp_path / "patterns"
    shutil.copytree(built_in_packs()[0], folder)
    file = folder / "activation" / "hard_swish.yaml"
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace("where: x.dtype", "where: nobody.dtype"), encoding="utf-8")
    monkeypatch.setattr("onnx_subgraph.language.library.built_in_folder", lambda: folder)
    load_patterns()
    with pytest.raises(PatternError, match="`nobody` is not bound") as caught:
        load_patterns(checked=True)
    assert caught.value.span is not None and caught.value.span.file == str(file)
    with pytest.raises(PatternError, match="`nobody` is not bound"):
        load_patterns(shutil.copy(file, tmp_path), built_in=False)


def test_headers_are_read_without_the_heavy_libraries() -> None:
    """`list-patterns` takes under 0.3 s only if no heavy library is imported."""
    code = (
        "import sys; from onnx_subgraph.language.library import headers; headers();"
        "print([m for m in ('onnx', 'onnx_ir', 'onnxruntime', 'numpy', 'einops', 'sympy') if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=DATA.parents[2])
    assert result.stdout.strip() == "[]"


def test_patterns_of_a_library_have_different_ids() -> None:
    """The second would never be named by `only`, `skip` and the report."""
    gelu = load_patterns().get("gelu")
    with pytest.raises(PatternError, match="two patterns of the library have the id `gelu`\nhint: give one of them another id"):
        Library((gelu, gelu))


def test_an_id_that_no_pattern_has_is_an_error() -> None:
    library = load_patterns()
    for chosen in ({"only": "gelux"}, {"skip": ["gelux"]}):
        with pytest.raises(UsageError, match="there is no pattern `gelux`\nhint: did you mean `gelu`"):
            library.selected("onnxruntime", **chosen)  # type: ignore[arg-type]
    assert [pattern.id for pattern in library.selected("onnxruntime", only="gelu")] == ["gelu"]


def test_a_file_given_twice_is_read_once() -> None:
    library = load_patterns([DATA / "activation", DATA / "activation" / "exact_gelu.yaml", DATA], built_in=False)
    assert [p.id for p in library.patterns] == [
        "exact-gelu",
        "multi-head-attention",
        "conv-activation",
        "skip-layer-normalization",
    ]


def test_an_id_in_two_packs_is_an_error_with_both_files(tmp_path: Path) -> None:
    other = tmp_path / "mine" / "exact_gelu.yaml"
    other.parent.mkdir()
    other.write_text(GELU, encoding="utf-8")
    with pytest.raises(PatternError) as raised:
        load_patterns([DATA, tmp_path], built_in=False)
    assert str(DATA / "activation" / "exact_gelu.yaml") in str(raised.value)
    assert str(other) in str(raised.value)


def test_an_unknown_id_is_an_error() -> None:
    with pytest.raises(UsageError, match="did you mean `exact-gelu`"):
        load_patterns([DATA], built_in=False).get("exact-geul")


@pytest.mark.parametrize("make", [lambda p: None, lambda p: p.mkdir()], ids=["missing", "empty"])
def test_a_path_without_patterns_is_an_error(tmp_path: Path, make: object) -> None:
    path = tmp_path / "nothing"
    assert callable(make)
    make(path)
    with pytest.raises(PatternError, match="nothing"):
        load_patterns([path], built_in=False)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("version: 1", "`name` is missing"),
        ("name: a\nverison: 1", "did you mean `version`"),
        ("name: a\nonnxruntime: new", "not a version specifier"),
        ("name: a\nopsets: {'': x}", "an opset is a number"),
        ("name: a\nopsets: 3", "not a mapping"),
        ("name: a\nlibraries: {}", "not a list of files"),
        ("name: [a]", "not text"),
    ],
)
def test_mistakes_in_a_pack(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "pack.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(PatternError) as raised:
        read_pack(tmp_path)
    assert message in str(raised.value)


def test_a_pack_states_its_requirements(tmp_path: Path) -> None:
    text = 'name: a\nversion: 1.10\ndomain: my.ops\nonnxruntime: ">=1.20, <2"\nopsets: {ai.onnx: 17}\nlibraries: [libops.so]\n'
    (tmp_path / "pack.yaml").write_text(text, encoding="utf-8")
    group = tmp_path / "group"
    group.mkdir()
    text = 'id: mine\nsummary: s\nmatch: y = Relu(x)\nreplace: {onnxruntime: "y = my.ops.Fast(x, a=3)"}\n'
    text += 'example: {x: "float32[2]"}\n'
    (group / "mine.yaml").write_text(text, encoding="utf-8")
    library = load_patterns([tmp_path], built_in=False)
    (pack,) = library.packs
    assert (pack.version, pack.domain, pack.onnxruntime, pack.opsets) == ("1.10", "my.ops", ">=1.20, <2", {"": 17})
    assert pack.libraries == (tmp_path / "libops.so",)
    assert library.get("mine").name == "Mine"


def test_names_that_must_be_constant() -> None:
    """Attributes of a replacement, and names in computations of sentences. Not facts, captured attributes or inputs."""
    text = """
id: pattern
summary: s
match: |
  m = ReduceMean(x, axes=axes)
  y = (x - m) / Sqrt(v + eps) * scale + shift * c
let: |
  half = [c.value / 2]
where: [shift.rank == 1, scale.is_constant]
replace:
  standard: y = LayerNormalization(x, scale, v, axis=-1, epsilon=eps) + shift + Clip(x, min=half) + ReduceSum(x, axes)
example: {x: "float32[2, 8]", v: "float32[2, 1]", scale: "float32[8]", shift: "float32[8]", axes: [-1], eps: 1e-5, c: 2.0}
"""
    assert static_names(parse_pattern(text)) == {"eps", "c"}


def test_changed_files_are_parsed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Changes to the pattern file, its formulas and the working folder count. Unchanged size and time do not hide a change."""
    text = 'id: gate\nsummary: A gate\nmatch: y = z * half(x)\nexample: {x: "float32[2]", z: "float32[2]"}\n'
    for name, function in (("here", "Relu"), ("there", "Sinh")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "gate.yaml").write_text(text, encoding="utf-8")
        (tmp_path / name / "formulas.yaml").write_text(f"half(x): {function}(x)\n", encoding="utf-8")
    gate, formulas = tmp_path / "here" / "gate.yaml", tmp_path / "here" / "formulas.yaml"

    def match() -> str:
        return str(load_patterns(["gate.yaml"], built_in=False).get("gate").match)

    monkeypatch.chdir(gate.parent)
    assert match() == "y = z * Relu(x)"
    before = gate.stat()
    gate.write_text(text.replace("z *", "z +"), encoding="utf-8")
    os.utime(gate, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert match() == "y = z + Relu(x)"
    formulas.write_text("half(x): Tanh(x)\n", encoding="utf-8")
    assert match() == "y = z + Tanh(x)"
    monkeypatch.chdir(tmp_path / "there")
    assert match() == "y = z * Sinh(x)"
    for name in ("here", "there"):
        (tmp_path / name / "formulas.yaml").unlink()
        (tmp_path / name / "gate.yaml").write_text(text.replace("half", "Relu"), encoding="utf-8")
        monkeypatch.chdir(tmp_path / name)
        assert load_patterns(["gate.yaml"], built_in=False).get("gate").group == name


def test_unchanged_files_are_parsed_once() -> None:
    assert all(a is b for a, b in zip(load_patterns().patterns, load_patterns().patterns, strict=True))


def test_names_with_equal_examples_share_a_key() -> None:
    text = "id: gate\nsummary: A gate\nmatch: y = a * Sigmoid(b) + c\n"
    whole = parse_pattern(text + 'example: {"a, b": "float32[2]", c: "float32[1] constant"}', "group/gate.yaml")
    assert {name: str(given.shape) for name, given in whole.example.items()} == {"a": "(2,)", "b": "(2,)", "c": "(1,)"}
    with pytest.raises(PatternError, match="`b` has an example already"):
        parse_pattern(text + 'example: {"a, b": "float32[2]", "b, c": "float32[1]"}', "group/gate.yaml")


def test_an_example_may_be_a_matrix() -> None:
    text = "id: gate\nsummary: A gate\nmatch: y = a * Sigmoid(b)\n"
    read = parse_pattern(text + "example: {a: [[0.0, -inf], [0.5, 2]], b: [1, 2]}", "group/gate.yaml").example
    assert (read["a"].dtype, read["a"].shape, read["a"].value) == ("float32", (2, 2), ((0.0, -inf), (0.5, 2)))
    assert (read["b"].dtype, read["b"].shape, read["b"].value) == ("int64", (2,), (1, 2))
    for rows in ("[[1, 2], [3]]", "[1, [2]]", "[[1], 2]"):
        with pytest.raises(PatternError, match="the rows of an example differ in length"):
            parse_pattern(text + f"example: {{a: {rows}, b: [1, 2]}}", "group/gate.yaml")


@pytest.mark.parametrize("target", TARGETS)
def test_a_pattern_is_searched_for_with_the_first_target_that_it_is_listed_for(target: str) -> None:
    library = load_patterns()
    listed = {pattern.id for pattern in library.patterns if pattern.targets[0] == target}
    assert listed <= {pattern.id for pattern in library.selected(target)}


def test_a_gated_unit_is_one_function(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[2, 8] x, float[2, 8] gate) => (float[2, 8] y) {
      s = Sigmoid (gate) silu = Mul (gate, s) y = Mul (x, silu) }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    result = fuse(tmp_path / "m.onnx", tmp_path / "out.onnx", load_patterns(), Options(target="function"))
    assert [one.pattern for one in result.rewrites] == ["swiglu"]


@pytest.mark.parametrize("name", ["softmax", "rotary", "add-layer-norm", "engine", "hard-swish-2"])
def test_an_id_whose_operator_is_one_of_ours_is_refused(name: str, tmp_path: Path) -> None:
    """Our library of kernels would compute it in its own way, without a word: our Softmax is along the last axis."""
    text = f"""id: {name}
summary: S
match: |
  e = Exp(x)
  y = e / ReduceSum(e, axes=[1], keepdims=1)
example: {{x: "float32[2, 3, 8]"}}
"""
    path = tmp_path / f"{name.replace('-', '_')}.yaml"
    path.write_text(text, encoding="utf-8")
    if name == "hard-swish-2":
        assert load_patterns([path]).get(name).name == "HardSwish2"
        return
    with pytest.raises(
        PatternError, match=r"operator `onnx_subgraph\.\w+` has the name of a built-in one\n(.*\n)*hint: rename the pattern"
    ):
        load_patterns([path])


def test_a_region_whose_operator_is_one_of_ours_is_refused(tmp_path: Path) -> None:
    grow = "grow:\n  select: node.operator == 'Relu'\n  input: producer.is_elementwise\n"
    (tmp_path / "area.yaml").write_text(f"id: area\nsummary: S\n{grow}replace:\n  function: Mish\n", encoding="utf-8")
    with pytest.raises(PatternError, match="hint: name another operator in `replace`"):
        load_patterns([tmp_path / "area.yaml"])


def test_the_names_of_kernels_are_those_of_the_library() -> None:
    source = "".join(path.read_text(encoding="utf-8") for path in sorted(source_folder().glob("op_*.c")))
    assert {*re.findall(r'(?:\.name = |^(?:NORM|ELEMENTWISE)\(\w+, )"(\w+)"', source, re.MULTILINE)} == KERNELS
