"""Typical programs work under the hook: they run one after the other in one process, with and without the hook."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import onnx
import pytest

ROOT = Path(__file__).parents[2]

GELU = """
<ir_version: 8, opset_import: ["" : 17]>
gelu (float[batch, 8] x) => (float[batch, 8] y)
<float half = {0.5}, float one = {1.0}, float root = {1.4142135}>
{ a = Div (x, root) b = Erf (a) c = Add (b, one) d = Mul (x, c) y = Mul (d, half) }
"""

HALF = """
<ir_version: 8, opset_import: ["" : 17]>
half (float16[batch, 8] x) => (float16[batch, 8] y) { a = Abs (x) b = Sqrt (a) c = Exp (b) d = Neg (c) y = Sigmoid (d) }
"""

BEGINNING = """
import os
import sys
os.sched_setscheduler = lambda *_: None  # what is prepared aside would wait for all the other tests
import numpy as np
import onnxruntime as ort
path, x = sys.argv[1], np.linspace(-3, 3, 24).reshape(3, 8).astype(sys.argv[2])
def show(outputs):
    print(np.round(np.asarray(outputs[0], np.float64), 2).tolist())
"""

PROGRAMS = {
    "a subclass of the session": """
class Mine(ort.InferenceSession):
    def __init__(self, path):
        super().__init__(path, providers=["CPUExecutionProvider"])
        self.mine = 1
    def run(self, feeds):
        return super().run(None, feeds)
session = Mine(path)
show(session.run({"x": x}))
session.set_providers(["CPUExecutionProvider"])
show(session.run({"x": x}))
print(session.mine, type(session).__name__, isinstance(session, ort.InferenceSession))
""",
    "a subclass with names of its own": """
class Mine(ort.InferenceSession):
    def __init__(self, path):
        self._model, self._source, self._given, self._settings = path, "disk", {}, {"device": "cpu"}
        super().__init__(path, providers=["CPUExecutionProvider"])
        self._schedules, self._limits, self._prepare, self._general = [1], None, 2, "all"
    def _special(self, text):
        return text.upper()
    def close(self, reason):
        print(reason)
session = Mine(path)
show(session.run(None, {"x": x}))
session.set_providers(["CPUExecutionProvider"])
show(session.run(["y"], {"x": x}))
print(session._model == path, session._source, session._settings, session._schedules, session._special("a"))
session.close("done")
""",
    "a subclass with a required argument": """
class Mine(ort.InferenceSession):
    def __init__(self, path, name):
        ort.InferenceSession.__init__(self, path, None, ["CPUExecutionProvider"])
        self.name = name
session = Mine(path, "n")
session.set_providers(["CPUExecutionProvider"], [{}])
show(session.run(["y"], {"x": x}))
print(session.name, session.get_providers())
""",
    "set_providers": """
session = ort.InferenceSession(path)
session.set_providers(["CPUExecutionProvider"])
show(session.run(None, {"x": x}))
print(session.get_providers())
""",
    "I/O binding": """
session = ort.InferenceSession(path)
binding = session.io_binding()
for _ in range(3):
    binding.bind_cpu_input("x", x)
    binding.bind_output("y")
    session.run_with_iobinding(binding)
    show(binding.copy_outputs_to_cpu())
given = ort.OrtValue.ortvalue_from_numpy(x)
show([value.numpy() for value in session.run_with_ort_values(["y"], {"x": given})])
""",
    "asynchronous runs": """
import threading
session = ort.InferenceSession(path)
for _ in range(3):
    done, got = threading.Event(), []
    def ready(outputs, data, error):
        got.append((outputs, data, error)); done.set()
    session.run_async(["y"], {"x": x}, ready, "mine")
    assert done.wait(60)
    ((outputs, data, error),) = got
    show(outputs); print(data, repr(error))
""",
    "many runs": """
session = ort.InferenceSession(path)
for batch in (3, 1, 3, 1):
    show(session.run(None, {"x": x[:batch]}))
    getattr(session, "wait", lambda: 0)()
""",
    "a model in memory, options, and a name of an output": """
options = ort.SessionOptions()
options.intra_op_num_threads = 1
session = ort.InferenceSession(open(path, "rb").read(), sess_options=options, providers=["CPUExecutionProvider"])
show(session.run(["y"], {"x": x}, ort.RunOptions()))
print([v.name for v in session.get_inputs()], session.get_modelmeta().graph_name)
print(session.get_session_options().intra_op_num_threads)
""",
}
WAYS = {
    "fused": {"SESSION": "1"},
    "with a backend": {"BACKEND": "onnxruntime"},
    "static": {"STATIC": "1"},
}


def run(program: str, model: Path, dtype: str, *, hooked: dict[str, str], cache: Path) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ONNX_SUBGRAPH_")}
    environment |= {f"ONNX_SUBGRAPH_{name}": value for name, value in hooked.items()}
    environment |= {"PYTHONPATH": str(ROOT), "ONNX_SUBGRAPH_CACHE": str(cache)}
    script = model.parent / "program.py"
    script.write_text(BEGINNING + program)
    command = [sys.executable, *(["-m", "onnx_subgraph", "run"] if hooked else []), str(script), str(model), dtype]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.mark.parametrize("way", WAYS)
def test_programs_print_the_same_under_the_hook(way: str, cache: Path, tmp_path: Path) -> None:
    """With a backend the model is fused too. Repeated runs use all ways to run."""
    names = PROGRAMS if way == "with a backend" else ["many runs"]
    agree(names, GELU, "float32", WAYS[way], cache, tmp_path)


def test_programs_print_the_same_with_engines_of_float16(cache: Path, tmp_path: Path) -> None:
    agree(["many runs", "I/O binding"], HALF, "float16", WAYS["with a backend"], cache, tmp_path)


def agree(names: Iterable[str], model: str, dtype: str, way: dict[str, str], cache: Path, folder: Path) -> None:
    path = folder / "model.onnx"
    onnx.save(onnx.parser.parse_model(model), path)
    text = "".join(f"print({name!r})\n{PROGRAMS[name]}" for name in names)
    plain = run(text, path, dtype, hooked={}, cache=cache)
    assert plain.returncode == 0 and plain.stdout, plain.stderr
    hooked = run(text, path, dtype, hooked={**way, "STRICT": "1"}, cache=cache)
    assert (hooked.returncode, hooked.stdout) == (0, plain.stdout), hooked.stderr
    assert "Warning" not in hooked.stderr or "where they pay" in hooked.stderr
