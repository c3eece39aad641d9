"""Lazy imports: a small model needs no sympy. Where a module is needed, it is imported with the same results."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from onnx_subgraph import late
from tests.cli.conftest import GELU, ROOT, save

FLATTENED = """
<ir_version: 8, opset_import: ["" : 17]>
flattened (float[batch, 4, 8] x) => (float[n] y)
<int64[1] all = {-1}, float half = {0.5}>
{
  flat = Reshape (x, all)
  y = Mul (flat, half)
}
"""
"""Its `n` is `32*batch`: a product of dimensions."""


def imported(*arguments: object) -> tuple[int, bool]:
    """The exit code of a command in its own process, and whether that process imported sympy."""
    code = (
        "import sys\nfrom onnx_subgraph.cli import main\n"
        "code = main(sys.argv[1:])\nprint(code, 'sympy.core' in sys.modules, file=sys.stderr)"
    )
    command = [sys.executable, "-c", code, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=300)
    said, found = done.stderr.split()[-2:]
    return int(said), found == "True"


@pytest.mark.parametrize("command", ["fuse", "explain"])
def test_a_model_with_plain_dimensions_does_not_import_sympy(tmp_path: Path, command: str) -> None:
    assert imported(command, save(GELU, tmp_path / "gelu.onnx")) == (0, False)


ELSEWHERE = (
    *("authoring", "backends.registry", "engine", "expectation", "explaining", "kernels", "mining", "partitioning"),
    *("proving", "session", "timing", "tuning", "report.html", "rewriting.recurrent", "verification.own"),
)
"""Parts of the package that only other commands, other options, or a Loop need."""


def test_a_small_model_imports_only_what_it_needs(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom onnx_subgraph.cli import main\nfrom onnx_subgraph.late import LATE\nprint(main(sys.argv[1:]),"
        "[m for m in LATE if type(sys.modules[m]).__name__ != '_Late'], "
        f"[m for m in {ELSEWHERE} if 'onnx_subgraph.' + m in sys.modules], file=sys.stderr)"
    )
    command = [sys.executable, "-c", code, "fuse", save(GELU, tmp_path / "gelu.onnx")]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=300)
    assert done.stderr == "0 [] []\n"


PROGRAMS = {
    "the function": """
from onnx_subgraph import Options, fuse, load_patterns
fuse(path, path.with_name("out.onnx"), load_patterns(), Options())
""",
    "the session": """
from onnx_subgraph import InferenceSession
assert InferenceSession(path).prepared.fusions
""",
    "the hook": """
import onnxruntime
from onnx_subgraph.session import hook
hook.install()
assert onnxruntime.InferenceSession(path).prepared.fusions
""",
}


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_with_a_small_model_does_not_import_sympy(tmp_path: Path, program: str) -> None:
    path = save(GELU, tmp_path / "gelu.onnx")
    code = (
        f"import sys\nfrom pathlib import Path\npath = Path(sys.argv[1])\n{PROGRAMS[program]}\nprint('sympy.core' in sys.modules)"
    )
    environment = {**os.environ, "ONNX_SUBGRAPH_CACHE": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, "-c", code, path], capture_output=True, text=True, cwd=ROOT, env=environment, timeout=300
    )
    assert done.stdout == "False\n", done.stderr


def test_a_program_may_import_sympy_itself() -> None:
    """Its parts and names can be imported too, after this package and before sympy was used."""
    code = (
        "from onnx_subgraph import fuse\nimport sympy.abc\nfrom sympy import symbols\nfrom sympy.core import Add\n"
        "print(sympy.expand((symbols('x') + 1) ** 2) == sympy.abc.x ** 2 + 2 * sympy.abc.x + 1, sympy.Add is Add)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=300)
    assert done.stdout == "True True\n", done.stderr


def test_a_model_with_computed_dimensions_imports_sympy(tmp_path: Path) -> None:
    assert imported("fuse", save(FLATTENED, tmp_path / "flattened.onnx")) == (0, True)


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A lazily imported module. Its import fails while a file `broken` exists."""
    (tmp_path / "slow_library.py").write_text(
        "from pathlib import Path\nruns = []\nruns.append(1)\nif Path(__file__).with_name('broken').exists():\n"
        "    raise KeyboardInterrupt\ndef answer():\n    return inner()\ndef inner():\n    return 1\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(late, "LATE", ("slow_library",))
    monkeypatch.delitem(sys.modules, "slow_library", raising=False)
    return "slow_library"


def test_a_lazy_module_runs_at_first_use(library: str) -> None:
    with late.late_imports():
        module = importlib.import_module(library)
    assert "runs" not in module.__dict__
    assert module.answer() == 1  # also after the block
    assert module.runs == [1]
    assert importlib.import_module(library) is module


def test_an_attribute_that_was_set_before_the_import_stays(library: str) -> None:
    with late.late_imports():
        module = importlib.import_module(library)
        module.inner = lambda: 2
    assert module.answer() == 2


def test_an_interrupted_import_runs_again(library: str, tmp_path: Path) -> None:
    """A time limit may interrupt the import of a library. The next model needs the whole library."""
    with late.late_imports():
        module = importlib.import_module(library)
    (tmp_path / "broken").touch()
    with pytest.raises(KeyboardInterrupt):
        module.answer()
    (tmp_path / "broken").unlink()
    assert module.answer() == 1


def test_other_imports_are_not_lazy(library: str) -> None:
    before = list(sys.meta_path)
    with late.late_imports():
        assert type(importlib.import_module("colorsys")).__name__ == "module"
    assert sys.meta_path == before


HEAVY = ("onnx", "onnx_ir", "yaml", "sympy", "onnx_subgraph.language.library", "onnx_subgraph.engine.session")


def test_a_session_from_the_cache_imports_nothing_heavy(tmp_path: Path) -> None:
    """A program that starts with a full cache should start as quickly as with plain onnxruntime."""
    code = (
        "import sys, onnx_subgraph\n"
        "made = onnx_subgraph.InferenceSession(sys.argv[1], providers=['CPUExecutionProvider'])\n"
        f"print(made.prepared.fusions, made.prepared.from_cache, [m for m in {HEAVY} if m in sys.modules])"
    )
    environment = {**os.environ, "ONNX_SUBGRAPH_CACHE": str(tmp_path / "cache")}
    command = [sys.executable, "-c", code, str(save(GELU, tmp_path / "gelu.onnx"))]
    first, second = (
        subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=300, env=environment) for _ in range(2)
    )
    assert first.stdout.startswith("1 False"), first.stderr
    assert second.stdout == "1 True []\n", second.stderr
