"""The keys of a `pack.yaml` take effect, and an installed pack is found by its name."""

from __future__ import annotations

import shutil
from pathlib import Path

import onnx
import pytest

from onnx_subgraph import Options, PatternError, UsageError, fuse, load_patterns
from onnx_subgraph.language.installed import with_names_resolved
from onnx_subgraph.language.pack import Pack
from onnx_subgraph.proving import prove
from tests.own_operators.conftest import CONV_BN, Run, save
from tests.own_operators.test_regions import FORMULA, mine

NAME = "my_ops_of_a_test"
GATED = """
id: mine
summary: a gate
match: y = Tanh(x) * Sigmoid(g)
replace: {onnxruntime: "y = com.mylib.GatedTanh(x, g)"}
example: {x: "float32[2, 8]", g: "float32[2, 8]"}
"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return save(CONV_BN, tmp_path / "model.onnx")


def install(site: Path, package: str, name: str = "my-ops") -> None:
    folder = site / f"{NAME}-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {NAME}\nVersion: 1.0\n", encoding="utf-8")
    (folder / "entry_points.txt").write_text(f"[onnx_subgraph.packs]\n{name} = {package}\n", encoding="utf-8")


@pytest.fixture
def installed(pack: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the example's pack, inside an installed package."""
    site = tmp_path / "site"
    folder = site / NAME
    shutil.copytree(pack, folder)
    install(site, NAME)
    monkeypatch.syspath_prepend(str(site))
    return folder


@pytest.mark.parametrize(
    ("specifier", "version", "taken"),
    [
        ("", "1.20.0", True),
        (">=1.22", "1.22.0", True),
        (">=1.22", "1.9.3", False),
        (">1.22", "1.22", False),
        ("<2", "2.0.0", False),
        (">=1.20, <2", "1.31.0", True),
        ("==1.22", "1.22.0", True),
        ("!=1.22", "1.22.0", False),
        ("~=1.22", "1.30.1", True),
        ("~=1.22.1", "1.23.0", False),
        (">=1.22", "1.22.0+cu12", True),
    ],
)
def test_versions_are_compared_as_numbers(specifier: str, version: str, taken: bool) -> None:
    assert Pack("sample", Path(), onnxruntime=specifier).takes(version) is taken


def test_a_pack_for_another_onnxruntime_is_refused(model: Path, tmp_path: Path) -> None:
    patterns = mine(tmp_path, FORMULA, "onnxruntime: '>=99'")
    with pytest.raises(UsageError, match=r"the pack mine asks for onnxruntime >=99, and .* is here"):
        fuse(model, tmp_path / "out.onnx", patterns, Options())
    assert not (tmp_path / "out.onnx").exists()


def test_the_model_is_raised_to_the_opset_that_a_pack_asks_for(model: Path, library: Path, tmp_path: Path) -> None:
    patterns = mine(tmp_path, FORMULA, 'opsets: {"": 18, com.mylib: 2}')
    kept = fuse(model, tmp_path / "out.onnx", patterns, Options(libraries=[library], opset="keep"))
    assert not kept.rewrites and "its pack asks for opset 18" in kept.skipped[0].reason
    raised = fuse(model, tmp_path / "out.onnx", patterns, Options(libraries=[library]))
    assert raised.verdict.verdict == "equivalent" and len(raised.rewrites) == 1
    imports = {one.domain: one.version for one in onnx.load(tmp_path / "out.onnx").opset_import}
    assert imports == {"": 18, "com.mylib": 2}


def test_an_older_version_of_the_domain_is_refused_with_a_reason(library: Path, tmp_path: Path) -> None:
    patterns = mine(tmp_path, FORMULA, "opsets: {com.mylib: 2}")
    older = save(CONV_BN.replace('["" : 17]', '["" : 17, "com.mylib" : 1]'), tmp_path / "older.onnx")
    result = fuse(older, tmp_path / "out.onnx", patterns, Options(libraries=[library]))
    assert [skip.reason for skip in result.skipped] == ["its pack asks for version 2 of com.mylib, and the model is of 1"]


def test_the_libraries_of_a_pack_are_loaded(run: Run, pack: Path, model: Path, tmp_path: Path) -> None:
    told = run("fuse", model, "--patterns", pack, "-o", tmp_path / "out.onnx", "--json")
    assert told.json["libraries"] == [str(pack / "my_ops.so")]
    assert told.json["verification"]["strength"] == "kernel"


def test_a_library_of_a_pack_that_is_not_built_is_named(run: Run, pack: Path, model: Path, tmp_path: Path) -> None:
    (pack / "my_ops.so").unlink()
    told = run("fuse", model, "--patterns", pack, "-o", tmp_path / "out.onnx")
    assert told.code == 2 and "of the pack my-ops can't be loaded: there is no such file" in told.err


def test_shapes_refer_to_known_operators(model: Path, tmp_path: Path) -> None:
    with pytest.raises(PatternError, match="`shapes` are of operators of the pack's domain"):
        folder = tmp_path / "nobody"
        folder.mkdir()
        (folder / "pack.yaml").write_text("name: nobody\nshapes: {ConvBN: Conv}", encoding="utf-8")
        load_patterns(folder)
    with pytest.raises(UsageError, match="gives ConvBN the shapes of Convolution, and these are not known"):
        fuse(model, None, mine(tmp_path, FORMULA.replace("ConvBN", "Other"), "shapes: {ConvBN: Convolution}"), Options())


# Installed packs


def test_an_installed_pack_is_used_only_if_named(run: Run, installed: Path, model: Path, tmp_path: Path) -> None:
    """Law: a pack that no one names is not used, and its library is not loaded."""
    unnamed = run("fuse", model, "-o", tmp_path / "plain.onnx", "--json")
    assert "libraries" not in unnamed.json
    named = run("fuse", model, "--patterns", "my-ops", "-o", tmp_path / "out.onnx", "--json")
    assert named.json["libraries"] == [str(installed / "my_ops.so")]
    assert [fusion["op"] for fusion in named.json["fusions"]] == ["com.mylib.ConvBN"]


def test_the_list_shows_the_pack_of_a_pattern(run: Run, installed: Path) -> None:
    told = run("list-patterns", "--json").json["patterns"]
    origins = {one["id"]: one["from"] for one in told}
    assert origins["gelu"] == ""
    assert origins["conv-bn-of-mine"] == "the pack my-ops 1.0 (installed; --patterns my-ops uses it)"
    assert "convolution, of the pack my-ops 1.0" in run("list-patterns", "--patterns", "my-ops").out
    assert "from     the pack my-ops 1.0" in run("list-patterns", "conv-bn-of-mine").out


def test_a_file_has_priority_over_a_pack(installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert with_names_resolved("my-ops") == (installed,)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my-ops").mkdir()
    assert with_names_resolved("my-ops") == (Path("my-ops"),)


def test_a_pack_of_a_missing_package_is_named(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = tmp_path / "site"
    site.mkdir()
    install(site, "no_such_package", "gone")
    monkeypatch.syspath_prepend(str(site))
    told = run("list-patterns")
    assert told.code == 0 and "the pack gone is registered as no_such_package, which is not there" in told.err
    assert run("fuse", "model.onnx", "--patterns", "gone").code == 2


def test_an_unknown_name_is_an_error(run: Run, model: Path) -> None:
    told = run("fuse", model, "--patterns", "no-such-pack")
    assert told.code == 2 and "no-such-pack" in told.err


def test_a_replacement_whose_library_is_missing_is_not_proved_here_whatever_opset_its_pack_asks_for(tmp_path: Path) -> None:
    """Models below that opset are tried again at it, and no operator is loaded there either."""
    library = mine(tmp_path, GATED, 'opsets: {"": 17, com.mylib: 1}\nshapes: {GatedTanh: Mul}')
    proof = prove(library.get("mine"))
    assert not proof.failures
    assert "does not know com.mylib.GatedTanh" in proof.unproved["onnxruntime"]
