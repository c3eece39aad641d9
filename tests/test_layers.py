"""The layers of the package: modules import only from their own layer or lower ones, and only some modules import each library.

Imports inside functions count like those at the top, so that a lazy import can't break a layer. Imports for types alone (`if
TYPE_CHECKING`) count too, because a name from a higher layer is a dependency on it.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "onnx_subgraph"

LAYERS: tuple[tuple[str, ...], ...] = (
    ("", "__main__"),  # the package itself and `python -m`: they name what users call
    ("cli",),
    ("report",),
    ("session", "expectation"),  # session runs models for users, in processes of its own; expectation judges the result of fuse
    ("authoring",),  # writes patterns from mined units
    ("mining",),
    ("explaining", "tuning"),
    ("pipeline", "partitioning"),
    ("settling",),  # what verification keeps of a rewritten model
    ("options", "result"),  # the options and results of fuse
    ("proving", "timing"),  # timing: runs models against each other
    ("engine",),  # regions at run time
    ("backends",),  # compile and run regions, independently of each other
    ("verification",),
    ("inputs", "evaluator"),
    ("rewriting",),
    ("emitting",),
    ("matching",),
    ("regions", "simplification"),
    ("facts",),  # the facts that sentences ask about values
    ("files",),
    ("language", "model"),
    ("operators", "kernels"),
    ("watch",),  # calls at a time; it starts its thread as deadline asks
    ("deadline", "custom_ops", "targets"),
    ("paths", "values"),
    ("errors", "clock", "collection", "late", "temporary", "protobuf", "inherited", "forks"),
)
"""From top to bottom. A room imports from the rooms below it and from itself; rooms side by side do not know each other."""

DEPTH = {room: depth for depth, rooms in enumerate(LAYERS) for room in rooms}

ALLOWED = {
    "yaml": ("onnx_subgraph/language/",),
    "onnxruntime": (
        "onnx_subgraph/verification/",
        "onnx_subgraph/rewriting/computed.py",
        "onnx_subgraph/rewriting/loadability.py",
        "onnx_subgraph/session/",
        "onnx_subgraph/backends/onnxruntime.py",
    ),
    "onnxruntime_extensions": ("onnx_subgraph/engine/custom_op.py",),
    "openvino": ("onnx_subgraph/backends/openvino/",),
    "rich": ("onnx_subgraph/cli/", "onnx_subgraph/report/"),
    "distributed": ("onnx_subgraph/cli/cluster.py",),
    "jinja2": ("onnx_subgraph/report/",),
    "markupsafe": ("onnx_subgraph/report/",),
    "fast_sugiyama": ("onnx_subgraph/report/",),
    "click": ("onnx_subgraph/cli/",),
    "pickle": (),
    "torch": (),
}
"""Library → the only places in the package that may import it."""

LAZY = ("onnxruntime", "distributed", "jinja2", "markupsafe", "fast_sugiyama")
"""Libraries that are imported inside functions only."""

DERIVES = "onnx_subgraph/session/inference.py"
"""The one module that derives a class from onnxruntime's and so imports it at its top; it is imported for a session only."""

MODULES = sorted(PACKAGE.rglob("*.py"))


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def room(path: Path) -> str:
    """The top-level unit that a module belongs to: its folder in the package, or its own name."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return "" if parts == ("__init__",) else parts[0]


def imports(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Every module imported anywhere in `tree`, with its line. `from a import b` gives `a.b`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: a relative import hides its layer"
            yield from ((f"{node.module}.{alias.name}", node.lineno) for alias in node.names)


@cache
def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(parse(path)))


@cache
def imported(path: Path) -> tuple[tuple[str, int], ...]:
    return tuple(imports(parse(path)))


def imports_go_downwards(path: Path) -> Iterator[str]:
    here = room(path)
    if here not in DEPTH:
        yield f"{relative(path)} is in a room that LAYERS does not have"
        return
    for name, line in imported(path):
        parts = name.split(".")
        if parts[0] != "onnx_subgraph" or len(parts) < 2:
            continue
        there = parts[1] if parts[1] in DEPTH else ""  # `from onnx_subgraph import __version__` imports the package itself
        if there == "" and parts[1] == "__version__":
            continue
        if there != here and DEPTH[there] <= DEPTH[here]:
            yield f"{relative(path)}:{line}: {here} must not import {name}"


def a_library_is_imported_only_in_its_rooms(path: Path) -> Iterator[str]:
    for name, line in imported(path):
        places = ALLOWED.get(name.split(".")[0])
        if places is not None and not relative(path).startswith(places):
            yield f"{relative(path)}:{line}: {name} may be imported only in {places}"


def heavy_and_optional_libraries_are_imported_lazily(path: Path) -> Iterator[str]:
    if relative(path) == DERIVES:
        return
    inside = {id(n) for f in nodes(path) if isinstance(f, ast.FunctionDef | ast.AsyncFunctionDef) for n in ast.walk(f)}
    typing = {
        id(n)
        for block in nodes(path)
        if isinstance(block, ast.If) and ast.unparse(block.test) in {"TYPE_CHECKING", "typing.TYPE_CHECKING"}
        for n in ast.walk(block)
    }
    for node in nodes(path):
        if id(node) in inside or id(node) in typing:
            continue
        for name, line in imports(node) if isinstance(node, ast.Import | ast.ImportFrom) else ():
            if name.split(".")[0] in LAZY:
                yield f"{relative(path)}:{line}: import {name} inside the function that needs it"


def only_cli_prints(path: Path) -> Iterator[str]:
    if room(path) in {"cli", "__main__"}:
        return
    for node in nodes(path):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print":
            yield f"{relative(path)}:{node.lineno}: only cli prints"
        if isinstance(node, ast.Attribute) and node.attr in {"stdout", "stderr"} and ast.unparse(node.value) == "sys":
            yield f"{relative(path)}:{node.lineno}: only cli writes to {ast.unparse(node)}"


def nothing_is_evaluated_or_unpickled(path: Path) -> Iterator[str]:
    for node in nodes(path):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in {"eval", "exec"}:
            yield f"{relative(path)}:{node.lineno}: {node.func.id} runs what a file says"


def every_module_says_what_it_is_for(path: Path) -> Iterator[str]:
    if not ast.get_docstring(parse(path)):
        yield f"{relative(path)} has no docstring"


LONGEST = 300
"""The most lines of a module: what is longer has more than one idea in it."""

LONG = {
    "language/evaluation.py": (420, "one function for each kind of node of a sentence"),
    "language/syntax.py": (500, "one method for each kind of node of a formula"),
    "matching/matcher.py": (420, "one method for each kind of term"),
    "matching/normalise.py": (340, "one method for each kind of term"),
    "matching/reasons.py": (345, "the words for each kind of failure"),
    "proving/instance.py": (435, "one method for each kind of term"),
    "report/text.py": (400, "the report's sections"),
    "emitting/emit.py": (420, "one method for each kind of term"),
}
"""Module → the most lines that it may have, and why it is longer."""


def modules_are_short(path: Path) -> Iterator[str]:
    name = path.relative_to(PACKAGE).as_posix()
    most, _ = LONG.get(name, (LONGEST, ""))
    length = len(path.read_text(encoding="utf-8").splitlines())
    if length > most:
        yield f"{relative(path)} has {length} lines: take it apart"
    if name in LONG and length <= LONGEST:
        yield f"{relative(path)} is short now; LONG need not name it"


LAWS = (
    imports_go_downwards,
    a_library_is_imported_only_in_its_rooms,
    heavy_and_optional_libraries_are_imported_lazily,
    only_cli_prints,
    nothing_is_evaluated_or_unpickled,
    every_module_says_what_it_is_for,
    modules_are_short,
)


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
def test_every_module_keeps_the_layers(law: Callable[[Path], Iterator[str]]) -> None:
    broken = [where for path in MODULES for where in law(path)]
    assert not broken, "\n".join(broken)


def house() -> list[str]:
    """The units that CONTRIBUTING.md lists, in its order: `name/` is a folder, `name.py` a module."""
    listing = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("\nonnx_subgraph/\n")[2].partition("```")[0]
    return [line.split()[0] for line in listing.splitlines()]


def test_contributing_lists_every_unit() -> None:
    there = {path.relative_to(PACKAGE).parts[0] for path in MODULES} - {"__init__.py", "__main__.py"}
    assert sorted(house()) == sorted(name if name.endswith(".py") else f"{name}/" for name in there)


def test_contributing_lists_units_in_the_order_of_the_layers() -> None:
    """From top to bottom; units of one layer may have any order."""
    rooms = [name.removesuffix("/").removesuffix(".py") for name in house()]
    assert rooms == sorted(rooms, key=DEPTH.__getitem__)


def test_a_broken_layer_is_found() -> None:
    """Every form of import is read, so that a broken layer fails a test."""
    tree = ast.parse("import yaml\ndef f():\n    from onnx_subgraph.cli import main\n    import onnxruntime as ort\n")
    assert list(imports(tree)) == [("yaml", 1), ("onnx_subgraph.cli.main", 3), ("onnxruntime", 4)]


CIRCLES = {
    frozenset({"onnx_subgraph.session.hook", "onnx_subgraph.session.inference"}): "the hook waits for the import that this is",
}
"""Modules that import each other all the same, and why."""


def test_imports_have_no_cycles() -> None:
    """Modules can be read, tested and moved one by one, from the lowest layer up. The package's `__init__` is not counted."""
    names = {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in MODULES if path.name != "__init__.py"}
    graph = {name: {n for n in _modules(imported(path), names) if n != name} for name, path in names.items()}
    order = TopologicalSorter({name: read - _allowed(name) for name, read in graph.items()})
    try:
        order.prepare()
    except CycleError as error:
        pytest.fail(" → ".join(error.args[1]))


def _modules(found: Iterable[tuple[str, int]], names: Mapping[str, Path]) -> Iterator[str]:
    """The modules among the imported names: a module itself, or the module that holds the name."""
    for name, _ in found:
        yield from (n for n in (name, name.rpartition(".")[0]) if n in names)


def _allowed(name: str) -> set[str]:
    return {other for circle in CIRCLES if name == min(circle) for other in circle}


def test_importing_the_package_imports_no_heavy_library() -> None:
    """`import onnx_subgraph` loads no heavy library: public names are loaded at first use."""
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
