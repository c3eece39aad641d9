"""Laws of the house, read from the imports of every module: imports go downwards, and each library has its rooms.

Lazy imports inside functions count like those at the top, so that a layer can't be broken by hiding the import; imports for types
alone (`if TYPE_CHECKING`) count too, because a name from above is knowledge of what is above.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "onnx_subgraph"

LAYERS: tuple[tuple[str, ...], ...] = (
    ("", "__main__"),  # the package itself and `python -m`: they name what users call
    ("cli",),
    ("report",),
    ("session", "expectation"),  # session runs models for users, in processes of its own; expectation judges what fuse did
    ("pipeline", "partitioning"),
    ("proving",),
    ("engine",),  # regions at run time
    ("backends",),  # what compiles and runs a region; each stands by itself
    ("verification",),
    ("rewriting",),
    ("matching",),
    ("language", "model"),
    ("operators",),
    ("deadline",),
    ("paths",),
    ("errors", "clock", "collection", "temporary"),
)
"""From top to bottom. A room imports from the rooms below it and from itself; rooms side by side do not know each other."""

DEPTH = {room: depth for depth, rooms in enumerate(LAYERS) for room in rooms}

ALLOWED = {
    "yaml": ("onnx_subgraph/language/",),
    "onnxruntime": (
        "onnx_subgraph/verification/",
        "onnx_subgraph/rewriting/loadability.py",
        "onnx_subgraph/session/",
        "onnx_subgraph/backends/onnxruntime.py",
    ),
    "onnxruntime_extensions": ("onnx_subgraph/engine/custom_op.py",),
    "openvino": ("onnx_subgraph/backends/openvino/",),
    "rich": ("onnx_subgraph/cli/", "onnx_subgraph/report/"),
    "jinja2": ("onnx_subgraph/report/",),
    "markupsafe": ("onnx_subgraph/report/",),
    "fast_sugiyama": ("onnx_subgraph/report/",),
    "click": ("onnx_subgraph/cli/",),
    "pickle": (),
    "torch": (),
}
"""Library → the only places in the package that may import it."""

LAZY = ("onnxruntime", "jinja2", "markupsafe", "fast_sugiyama")
"""Libraries that are imported inside functions only."""

DERIVES = "onnx_subgraph/session/inference.py"
"""The one module that derives a class from onnxruntime's and so imports it at its top; it is imported for a session only."""

MODULES = sorted(PACKAGE.rglob("*.py"))


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def room(path: Path) -> str:
    """The room that a module belongs to: its folder in the package, or its own name."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return "" if parts == ("__init__",) else parts[0]


def imports(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Every module imported anywhere in `tree`, with its line. `from a import b` gives `a.b`, which `a` is the beginning of."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: a relative import hides its layer"
            yield from ((f"{node.module}.{alias.name}", node.lineno) for alias in node.names)


def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


@pytest.mark.parametrize("path", MODULES, ids=relative)
def test_imports_go_downwards(path: Path) -> None:
    here = room(path)
    assert here in DEPTH, f"{relative(path)} is in a room that LAYERS does not have"
    for name, line in imports(parse(path)):
        parts = name.split(".")
        if parts[0] != "onnx_subgraph" or len(parts) < 2:
            continue
        there = parts[1] if parts[1] in DEPTH else ""  # `from onnx_subgraph import __version__` is of the package itself
        if there == "" and parts[1] == "__version__":
            continue
        assert there == here or DEPTH[there] > DEPTH[here], f"{relative(path)}:{line}: {here} must not import {name}"


@pytest.mark.parametrize("path", MODULES, ids=relative)
def test_a_library_is_imported_only_in_its_rooms(path: Path) -> None:
    for name, line in imports(parse(path)):
        places = ALLOWED.get(name.split(".")[0])
        if places is not None:
            assert relative(path).startswith(places), f"{relative(path)}:{line}: {name} may be imported only in {places}"


@pytest.mark.parametrize("path", [path for path in MODULES if relative(path) != DERIVES], ids=relative)
def test_heavy_and_optional_libraries_are_imported_lazily(path: Path) -> None:
    tree = parse(path)
    inside = {id(n) for f in ast.walk(tree) if isinstance(f, ast.FunctionDef | ast.AsyncFunctionDef) for n in ast.walk(f)}
    typing = {
        id(n)
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and ast.unparse(block.test) in {"TYPE_CHECKING", "typing.TYPE_CHECKING"}
        for n in ast.walk(block)
    }
    for node in ast.walk(tree):
        if id(node) in inside or id(node) in typing:
            continue
        for name, line in imports(node) if isinstance(node, ast.Import | ast.ImportFrom) else ():
            assert name.split(".")[0] not in LAZY, f"{relative(path)}:{line}: import {name} inside the function that needs it"


@pytest.mark.parametrize("path", [path for path in MODULES if room(path) not in {"cli", "__main__"}], ids=relative)
def test_only_cli_prints(path: Path) -> None:
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id != "print", f"{relative(path)}:{node.lineno}: only cli prints"
        if isinstance(node, ast.Attribute) and ast.unparse(node) in {"sys.stdout", "sys.stderr"}:
            pytest.fail(f"{relative(path)}:{node.lineno}: only cli writes to {ast.unparse(node)}")


@pytest.mark.parametrize("path", MODULES, ids=relative)
def test_nothing_is_evaluated_or_unpickled(path: Path) -> None:
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id not in {"eval", "exec"}, f"{relative(path)}:{node.lineno}: {node.func.id} runs what a file says"


@pytest.mark.parametrize("path", MODULES, ids=relative)
def test_every_module_says_what_it_is_for(path: Path) -> None:
    assert ast.get_docstring(parse(path)), f"{relative(path)} has no docstring"


def test_the_laws_can_be_broken() -> None:
    """The reading of imports sees all forms of them, so that a broken layer is a failing test."""
    tree = ast.parse("import yaml\ndef f():\n    from onnx_subgraph.cli import main\n    import onnxruntime as ort\n")
    assert list(imports(tree)) == [("yaml", 1), ("onnx_subgraph.cli.main", 3), ("onnxruntime", 4)]


def test_importing_the_package_imports_no_heavy_library() -> None:
    """`import onnx_subgraph` costs nothing: its names are loaded when they are used."""
    code = (
        "import sys, onnx_subgraph; print([m for m in ('onnx', 'onnx_ir', 'onnxruntime', 'sympy', 'numpy') if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert result.stdout.strip() == "[]"


def test_every_public_name_is_there() -> None:
    import onnx_subgraph

    for name in onnx_subgraph.__all__:
        assert getattr(onnx_subgraph, name) is not None
        assert name in dir(onnx_subgraph)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        onnx_subgraph.nonsense  # noqa: B018
