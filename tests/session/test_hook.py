"""Programs that use onnxruntime alone: under the hook they compute the same with fused models, and nothing else changes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import onnxruntime
import pytest

from onnx_subgraph import UsageError
from onnx_subgraph.session import hook

ROOT = Path(__file__).parents[2]

APP = """\
import sys
import numpy as np
import onnxruntime as ort

session = ort.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
x = np.linspace(-3, 3, 24, dtype=np.float32).reshape(3, 8)
print(__name__, sys.argv[1:], np.round(session.run(None, {"x": x})[0], 4).tolist())
print(type(session).__module__, getattr(session, "prepared", None) and session.prepared.fusions, file=sys.stderr)
if "fail" in sys.argv:
    raise KeyError("app's own")
sys.exit(7 if "seven" in sys.argv else 0)
"""


@pytest.fixture
def app(tmp_path: Path) -> Path:
    path = tmp_path / "app.py"
    path.write_text(APP)
    return path


def python(*arguments: object, cwd: Path = ROOT, **environment: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ONNX_SUBGRAPH_")}
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**kept, "PYTHONPATH": str(ROOT), **environment},
        timeout=300,
    )


def run(*arguments: object, cache: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return python("-m", "onnx_subgraph", "run", *arguments, ONNX_SUBGRAPH_CACHE=str(cache), **environment)


def test_a_program_runs_as_under_python_with_fused_models(app: Path, gelu: Path, shared_cache: Path) -> None:
    plain = python(app, gelu, "--flag", "seven")
    hooked = run("--strict", app, gelu, "--flag", "seven", cache=shared_cache)
    assert (hooked.returncode, hooked.stdout) == (plain.returncode, plain.stdout) == (7, plain.stdout)
    assert plain.stderr.startswith("onnxruntime.capi") and hooked.stderr == "onnx_subgraph.session.inference 1\n"


def test_a_traceback_shows_only_the_program(app: Path, gelu: Path, shared_cache: Path) -> None:
    plain, hooked = python(app, gelu, "fail"), run(app, gelu, "fail", cache=shared_cache)
    assert hooked.returncode == plain.returncode == 1
    assert hooked.stderr.splitlines()[1:] == plain.stderr.splitlines()[1:]
    assert "KeyError" in hooked.stderr


def test_the_hook_applies_to_modules_and_child_processes(app: Path, gelu: Path, shared_cache: Path, tmp_path: Path) -> None:
    (tmp_path / "parent.py").write_text(
        "import subprocess, sys\nsys.exit(subprocess.run([sys.executable, 'app.py', *sys.argv[1:]]).returncode)\n"
    )
    hooked = python(
        *("-m", "onnx_subgraph", "run", "-m", "parent", gelu, "seven"),
        cwd=tmp_path,
        ONNX_SUBGRAPH_CACHE=str(shared_cache),
    )
    assert hooked.returncode == 7 and hooked.stderr == "onnx_subgraph.session.inference 1\n"


def test_an_existing_sitecustomize_still_runs(tmp_path: Path, shared_cache: Path) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text("import sys; sys.mine = 5\n")
    (tmp_path / "app.py").write_text("import sys; print(sys.mine, 'onnxruntime' in sys.modules)\n")
    path = os.pathsep.join([str(tmp_path / "site"), str(ROOT)])
    assert run(tmp_path / "app.py", cache=shared_cache, PYTHONPATH=path).stdout == "5 False\n"


def test_a_missing_program_is_a_usage_error(shared_cache: Path) -> None:
    done = run("no_such.py", cache=shared_cache)
    assert done.returncode == 2 and done.stderr.startswith("Error: no_such.py: there is no such file")


def test_importing_the_package_installs_no_hook() -> None:
    code = "import onnx_subgraph, onnxruntime; onnx_subgraph.InferenceSession; print(onnxruntime.InferenceSession.__module__)"
    assert python("-c", code, ONNX_SUBGRAPH_SESSION="1").stdout.startswith("onnxruntime.")


@pytest.mark.parametrize("first", ["hook", "onnxruntime"])
def test_the_hook_can_be_installed_and_removed_at_run_time(first: str) -> None:
    imports = "import onnxruntime\n", "from onnx_subgraph.session import hook\nhook.install()\nhook.install()\n"
    code = "".join(imports if first == "onnxruntime" else imports[::-1]) + (
        "from onnxruntime import InferenceSession\n"
        "print(InferenceSession.__module__, hook.is_installed())\n"
        "hook.uninstall()\n"
        "print(onnxruntime.InferenceSession.__module__, hook.is_installed())\n"
    )
    done = python("-c", code)
    assert done.stdout == ("onnx_subgraph.session.inference True\nonnxruntime.capi.onnxruntime_inference_collection False\n"), (
        done.stderr
    )


def test_a_hook_that_is_removed_before_onnxruntime_is_imported_does_nothing() -> None:
    code = "from onnx_subgraph.session import hook\nhook.install()\nhook.uninstall()\nimport onnxruntime\n"
    done = python("-c", f"{code}print(onnxruntime.InferenceSession.__module__, hook.is_installed())")
    assert done.stdout == "onnxruntime.capi.onnxruntime_inference_collection False\n", done.stderr


def test_removing_a_hook_that_is_not_there_keeps_the_class_of_another_library(monkeypatch: pytest.MonkeyPatch) -> None:
    other = type("InferenceSession", (), {})
    monkeypatch.setattr(onnxruntime, "InferenceSession", other)
    hook.uninstall()
    assert onnxruntime.InferenceSession is other


def test_the_hook_applies_where_our_own_class_is_imported_first() -> None:
    """Then onnxruntime is imported while our class does not exist yet."""
    code = "from onnx_subgraph.session import hook\nhook.install()\nfrom onnx_subgraph import InferenceSession\n"
    done = python("-c", f"{code}import onnxruntime\nprint(onnxruntime.InferenceSession is InferenceSession, hook.is_installed())")
    assert done.stdout == "True True\n", done.stderr


def test_a_program_finds_no_onnxruntime_where_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert hook._Watch().find_spec("onnxruntime", None) is None


@pytest.mark.parametrize("variable", ["SESSION", "BACKEND", "STATIC", None])
def test_each_of_three_variables_asks_for_the_hook_at_the_start(variable: str | None) -> None:
    code = f"{hook.STARTUP}print(sys.modules.get({hook.__name__!r}) and sys.modules[{hook.__name__!r}].is_installed())"
    done = python("-c", code, **({} if variable is None else {f"ONNX_SUBGRAPH_{variable}": "1"}))
    assert done.stdout == f"{None if variable is None else True}\n", done.stderr


def test_verification_is_not_hooked(gelu: Path, tmp_path: Path) -> None:
    """A program under the hook may call `fuse`: the reference has to be the original model."""
    code = (
        "import sys; from pathlib import Path\n"
        "from onnx_subgraph.session import hook; hook.install()\n"
        "from onnx_subgraph.session import inference\n"
        "inference.InferenceSession.__init__ = lambda *a, **k: sys.exit('hooked')\n"
        "from onnx_subgraph import Options, fuse, load_patterns\n"
        f"print(fuse(Path({str(gelu)!r}), Path({str(tmp_path / 'out.onnx')!r}), load_patterns(), Options()).verdict.verdict)\n"
    )
    done = python("-c", code)
    assert done.stdout == "equivalent\n", done.stderr


def test_the_variable_works_where_the_hook_is_installed(
    app: Path, gelu: Path, tmp_path: Path, shared_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "site-packages"
    folder.mkdir()
    monkeypatch.setattr(hook, "startup_file", lambda: folder / hook.STARTUP_FILE)
    assert hook.install_startup().parent == folder
    started = f"import site, sys, runpy; site.addsitedir({str(folder)!r}); sys.argv = {[str(app), str(gelu)]!r}; "
    started += f"runpy.run_path({str(app)!r}, run_name='__main__')"
    without = python("-c", started, ONNX_SUBGRAPH_CACHE=str(shared_cache))
    withheld = python("-c", started, ONNX_SUBGRAPH_CACHE=str(shared_cache), ONNX_SUBGRAPH_SESSION="0")
    asked = python("-c", started, ONNX_SUBGRAPH_CACHE=str(shared_cache), ONNX_SUBGRAPH_SESSION="1")
    assert without.stderr.startswith("onnxruntime.") and withheld.stderr.startswith("onnxruntime.")
    assert asked.stderr == "onnx_subgraph.session.inference 1\n"
    assert asked.stdout == without.stdout == withheld.stdout
    assert hook.uninstall_startup() == folder / hook.STARTUP_FILE and hook.uninstall_startup() is None
    assert list(folder.iterdir()) == []


def test_where_the_hook_can_not_be_installed_the_message_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hook, "startup_file", lambda: tmp_path / "missing" / hook.STARTUP_FILE)
    with pytest.raises(UsageError, match="onnx-subgraph run"):
        hook.install_startup()


def test_where_the_hook_can_not_be_removed_the_message_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / hook.STARTUP_FILE).mkdir()
    monkeypatch.setattr(hook, "startup_file", lambda: tmp_path / hook.STARTUP_FILE)
    with pytest.raises(UsageError, match=r"(?s)can't be removed: .*hint: remove it as its owner"):
        hook.uninstall_startup()


def test_the_command_prints_where_the_hook_would_be_installed() -> None:
    done = python("-m", "onnx_subgraph", "hook")
    assert done.returncode == 1 and re.fullmatch(rf"not installed: .*{re.escape(hook.STARTUP_FILE)}\n", done.stdout)
