"""Bad input of every kind gives one message with its place and the next step, and exit code 2. No file is written or changed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from onnx_subgraph import pipeline
from onnx_subgraph.cli import terminal, workers
from onnx_subgraph.language import library
from tests.cli.conftest import GELU, ROOT, Run, forked, save
from tests.language.test_mistakes import CASES

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
POSIX = pytest.mark.skipif(os.name != "posix", reason="signals and limits as on POSIX")


X = np.zeros((2, 8), np.float32)


def feeds(path: Path, **arrays: np.ndarray) -> Path:
    np.savez(path, **arrays)
    return path


def external(location: str, path: Path) -> None:
    """GELU, with one constant in an external data file."""
    model = onnx.parser.parse_model(GELU)
    tensor = model.graph.initializer[0]
    tensor.ClearField("float_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", "0"), ("length", "4")):
        tensor.external_data.add(key=key, value=value)
    path.write_bytes(model.SerializeToString())


def damaged(old: str, new: str, path: Path) -> None:
    path.write_bytes(onnx.parser.parse_model(GELU.replace(old, new)).SerializeToString())


def truncated(path: Path) -> None:
    path.write_bytes(onnx.parser.parse_model(GELU).SerializeToString()[:-40])


def with_field(path: Path, **fields: object) -> None:
    """GELU whose first constant has other fields: no element type, or more elements than its shape."""
    model = onnx.parser.parse_model(GELU)
    tensor = model.graph.initializer[0]
    tensor.ClearField("float_data")
    for name, value in fields.items():
        if isinstance(value, list):
            getattr(tensor, name).extend(value)
        else:
            setattr(tensor, name, value)
    path.write_bytes(model.SerializeToString())


def with_import(version: int, path: Path, of: str = "") -> None:
    model = onnx.parser.parse_model(f"{GELU}\n{of}")
    (model.functions[0] if of else model).opset_import[0].version = version
    path.write_bytes(model.SerializeToString())


def with_functions(calls: dict[str, list[str]], path: Path) -> None:
    """A model that calls the function "f0". Each function calls others in turn; "" stands for Relu."""
    functions = "\n".join(
        f'<domain: "local", opset_import: ["" : 17, "local" : 1]> {name} (v0) => (v{len(inner)}) {{ '
        + " ".join(f"v{i + 1} = {f'local.{c}' if c else 'Relu'} (v{i})" for i, c in enumerate(inner))
        + " }"
        for name, inner in calls.items()
    )
    header = '<ir_version: 8, opset_import: ["" : 17, "local" : 1]> g (float[2, 8] x) => (float[2, 8] y) { y = local.f0 (x) }'
    path.write_bytes(onnx.parser.parse_model(f"{header}\n{functions}").SerializeToString())


def with_sparse(path: Path) -> None:
    model = onnx.parser.parse_model(GELU)
    values = onnx.helper.make_tensor("few", onnx.TensorProto.FLOAT, [1], [1.0])
    places = onnx.helper.make_tensor("places", onnx.TensorProto.INT64, [1], [1])
    model.graph.sparse_initializer.append(onnx.helper.make_sparse_tensor(values, places, [8]))
    path.write_bytes(model.SerializeToString())


def with_sparse_constant(path: Path) -> None:
    model = onnx.parser.parse_model(GELU)
    values = onnx.helper.make_tensor("few", onnx.TensorProto.FLOAT, [1], [1.0])
    places = onnx.helper.make_tensor("places", onnx.TensorProto.INT64, [1], [1])
    sparse = onnx.helper.make_sparse_tensor(values, places, [8])
    model.graph.node.append(onnx.helper.make_node("Constant", [], ["few"], sparse_value=sparse))
    path.write_bytes(model.SerializeToString())


DEEP = {f"f{i}": [f"f{i + 1}" if i < 199 else ""] for i in range(200)}
DOUBLING = {f"f{i}": [f"f{i + 1}" if i < 39 else ""] * 2 for i in range(40)}


def with_wrong_length(path: Path) -> None:
    external("data.bin", path)
    path.write_bytes(path.read_bytes().replace(b"\n\x06length\x12\x014", b"\n\x06length\x12\x013"))
    path.with_name("data.bin").write_bytes(b"\0\0\0\0")


def with_short_data(path: Path) -> None:
    external("short.bin", path)
    path.with_name("short.bin").write_bytes(b"\0\0")


BAD_MODELS: dict[str, tuple[Callable[[Path], object], str]] = {
    "missing": (lambda path: None, "there is no such file"),
    "a folder": (lambda path: path.mkdir(), "is a folder"),
    "empty": (lambda path: path.touch(), "is empty"),
    "text": (lambda path: path.write_text("this is a text file, and no model\n" * 10), "is a text file"),
    "a pattern": (lambda path: shutil.copy(ROOT / "patterns/activation/gelu.yaml", path), "is a text file"),
    "arrays": (
        lambda path: feeds(path.with_suffix(".npz"), x=X).rename(path),
        "is an archive of NumPy arrays (.npz), not an ONNX",
    ),
    "another protobuf": (lambda path: path.write_bytes(b"\x0a\x03abc"), "not an ONNX model"),
    "truncated": (truncated, "is not an ONNX model, or is cut off"),
    "too much data": (partial(with_field, raw_data=b"12345678"), "'half' of shape [] needs 4 bytes and has more"),
    "too many elements": (partial(with_field, float_data=[1.0, 2.0]), "needs 1 elements and has another number of them"),
    "elements of two types": (partial(with_field, int64_data=[1], float_data=[0.5]), "has its data in float_data and int64_data"),
    "no element type": (partial(with_field, data_type=0), "tensor 'half' has no element type"),
    "an opset beyond all": (partial(with_import, 1 << 62), "imports version 4611686018427387904 of 'ai.onnx', which can't be"),
    "an opset below all": (partial(with_import, -3), "imports version -3 of 'ai.onnx'"),
    "a function's opset": (
        partial(with_import, -2, of='<domain: "my", opset_import: ["" : 17]> f (a) => (b) { b = Relu (a) }'),
        "imports version -2 of 'ai.onnx'",
    ),
    "a function in itself": (partial(with_functions, {"f0": ["", "f0"]}), "the function 'f0' calls itself"),
    "functions in functions in functions": (partial(with_functions, DEEP), "call each other more than 100 levels deep"),
    "weights that are sparse": (with_sparse, "the initializer 'few' is sparse"),
    "a constant that is sparse": (with_sparse_constant, "the Constant node that makes 'few' holds a sparse tensor"),
    "data in the field of another type": (partial(with_field, int64_data=[1]), "of type FLOAT has its data in int64_data"),
    "an unknown element type": (partial(with_field, data_type=71, raw_data=b"1234"), "has the unknown element type 71"),
    "functions in a circle": (partial(with_functions, {"f0": ["f1"], "f1": ["f0"]}), "calls itself"),
    "functions without end": (partial(with_functions, DOUBLING), "more than 10000000 nodes without them"),
    "data missing": (partial(external, "weights.bin"), "the data file 'weights.bin' of tensor 'half' is missing"),
    "data cut off": (with_short_data, "needs 4 bytes at 0 of 'short.bin', which has 2"),
    "a wrong length": (with_wrong_length, "needs 4 bytes of 'data.bin', and the model states a length of 3"),
    "data outside": (partial(external, "../secret.bin"), "'../secret.bin', which leaves the folder of the model"),
    "data anywhere": (partial(external, "/etc/passwd"), "'/etc/passwd', which is no relative path"),
    "a cycle": (partial(damaged, "Erf (scaled)", "Erf (product)"), "the graph has a cycle: node 'erf'"),
    "dangling input": (partial(damaged, "Erf (scaled)", "Erf (nowhere)"), "reads 'nowhere', which nothing makes"),
    "dangling output": (partial(damaged, "batch, 8] y)", "batch, 8] z)"), "nothing makes the output 'z'"),
    "made twice": (partial(damaged, "erf = Erf (scaled)", "scaled = Erf (x)"), "'scaled' is made twice"),
}


def snapshot(folder: Path) -> dict[Path, bytes | None]:
    """Every file and folder below `folder`, with the content of the files."""
    return {path: path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


@contextmanager
def untouched(folder: Path) -> Iterator[None]:
    before = snapshot(folder)
    yield
    assert snapshot(folder) == before


@pytest.mark.parametrize("command", ["fuse", "explain", "verify"])
@pytest.mark.parametrize(("make", "words"), BAD_MODELS.values(), ids=BAD_MODELS.keys())
def test_a_bad_model_is_one_message(
    run: Run, tmp_path: Path, gelu: Path, make: Callable[[Path], object], words: str, command: str
) -> None:
    model = tmp_path / "bad.onnx"
    make(model)
    with untouched(tmp_path):
        result = run(command, *([gelu] if command == "verify" else []), model)
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith(f"Error: {model}: ")
    assert words in result.err
    assert "hint: " in result.err
    assert "bug" not in result.err and "Traceback" not in result.err


@pytest.mark.parametrize("command", ["specialize --shape x=2x8", "partition --backend onnxruntime", "inline"])
@pytest.mark.parametrize(
    ("path", "words"),
    [
        (".", "Error: .: is a folder, not a model file\nhint: name the files in it, for example *.onnx\n"),
        ("/", "Error: /: is a folder, not a model file\nhint: name the files in it, for example /*.onnx\n"),
        ("", "the path is empty; is a variable not set?\n"),
    ],
)
def test_what_names_no_file_is_one_message(run: Run, command: str, path: str, words: str) -> None:
    result = run(*command.split(), path)
    assert (result.code, result.out) == (2, "")
    assert result.err.endswith(words)
    assert "bug" not in result.err


BAD_OPTIONS: dict[str, tuple[Callable[[Path], list[object]], str]] = {
    "no number": (lambda _: ["--rtol", "nan"], "Invalid value for '--rtol': nan is not a finite number."),
    "an infinite time": (lambda _: ["--time-limit", "inf"], "'--time-limit': inf is not a finite number."),
    "no pattern left": (
        lambda _: ["--only", "gelu", "--skip", "gelu"],
        "every pattern that --only selects is left out by --skip",
    ),
    "unknown provider": (lambda d: ["--provider", "CPUExecutionProvder"], "CPUExecutionProvder is not in this onnxruntime"),
    "absent provider": (lambda d: ["--provider", "CUDAExecutionProvider"], "comes with onnxruntime-gpu"),
    "a provider of services": (lambda d: ["--provider", "AzureExecutionProvider"], "runs no operators of ONNX, only its own"),
    "misspelled pattern": (lambda d: ["--only", "geluu"], "did you mean `gelu`?"),
    "output is a folder": (lambda d: ["-o", d], f"use --output-dir {os.sep}"),
    "output is the input": (lambda d: ["-o", d / "gelu.onnx"], "gelu.onnx is read, so it can't be written"),
    "one output of two models": (lambda d: ["-o", d / "x.onnx", d / "plain.onnx"], "-o names one file, but there are 2 models"),
    "output in no folder": (lambda d: ["-o", d / "missing" / "x.onnx"], "there is no folder"),
    "output below a file": (lambda d: ["-o", d / "plain.onnx" / "x.onnx"], "plain.onnx is no folder"),
    "folder below a file": (lambda d: ["--output-dir", d / "plain.onnx" / "x"], "plain.onnx is no folder"),
    "folder is a file": (lambda d: ["--output-dir", d / "plain.onnx"], "is a file"),
    "device": (lambda d: ["-o", "/dev/null"], "is not a regular file"),
    "another input": (lambda d: ["--inputs", feeds(d / "f.npz", z=X)], "z is no input of the model; x is missing"),
    "another size": (lambda d: ["--inputs", feeds(d / "f.npz", x=X[:, :7])], "x has size 7 in dimension 1, the model declares 8"),
    "another rank": (lambda d: ["--inputs", feeds(d / "f.npz", x=X[0])], "x has 1 dimensions, the model declares 2"),
    "another type": (lambda d: ["--inputs", feeds(d / "f.npz", x=X.astype(float))], "x is float64, the model takes float32"),
    "pickled inputs": (lambda d: ["--inputs", feeds(d / "f.npz", x=np.array([{}]))], "can't be read as an .npz of arrays"),
    "inputs are a model": (lambda d: ["--inputs", d / "gelu.onnx"], "is no .npz file; write it with numpy.savez"),
    "shape of no input": (lambda d: ["--shape", "z=2x8"], "--shape names z, which is no input of the model"),
    "shape that differs": (lambda d: ["--shape", "x=2x9"], "--shape gives dimension 1 of x the size 9"),
    "shape of another rank": (lambda d: ["--shape", "x=2x8x1"], "--shape gives x 3 dimensions"),
    "shape unlike the inputs": (
        lambda d: ["--shape", "x=1x8", "--inputs", feeds(d / "f.npz", x=X)],
        f"--shape gives x 1x8, and --inputs gives it {'x'.join(map(str, X.shape))}\nhint: leave one of the two out",
    ),
    "shape of no input, with inputs": (lambda d: ["--shape", "z=2x8", "--inputs", feeds(d / "f.npz", x=X)], "--shape names z"),
    "shape larger than memory": (lambda d: ["--shape", "x=1000000000000x8"], "--shape gives x 32,000 GB, and this machine has"),
    "shape without elements": (lambda d: ["--shape", "x=0x8"], "nothing can be compared on it"),
    "lower opset": (lambda d: ["--opset", "16"], "can't be lowered to 16"),
    "opset of the future": (lambda d: ["--opset", "999"], "onnx knows no opset 999"),
    "pattern is a model": (lambda d: ["--patterns", d / "gelu.onnx"], "the file is not UTF-8 text"),
    "no patterns": (lambda d: ["--patterns", d / "empty"], "there are no pattern files"),
}


@pytest.mark.parametrize(("options", "words"), BAD_OPTIONS.values(), ids=BAD_OPTIONS.keys())
def test_a_bad_option_is_one_message(
    run: Run, tmp_path: Path, gelu: Path, plain: Path, options: Callable[[Path], list[object]], words: str
) -> None:
    (tmp_path / "empty").mkdir()
    arguments = options(tmp_path)
    with untouched(tmp_path):
        result = run("fuse", gelu, *arguments)
    assert (result.code, result.out) == (2, "")
    assert words in result.err
    assert result.err.count("Error: ") == 1
    assert "bug" not in result.err and "Traceback" not in result.err


@pytest.mark.parametrize("command", [["verify"], ["bench", "--budget", "0.1"]])
def test_shapes_of_a_comparison_must_be_those_of_its_inputs(run: Run, tmp_path: Path, gelu: Path, command: list[str]) -> None:
    """They were ignored beside --inputs."""
    given = feeds(tmp_path / "f.npz", x=X)
    result = run(*command, gelu, gelu, "--inputs", given, "--shape", "x=1x8")
    assert result.code == 2 and "--shape gives x 1x8, and --inputs gives it" in result.err
    assert run(*command, gelu, gelu, "--inputs", given, "--shape", "x=" + "x".join(map(str, X.shape))).code == 0
    result = run(*command, gelu, gelu, "--shape", "x=1000000000000x8")
    assert result.code == 2 and "GB of memory\nhint: give smaller sizes" in result.err


def test_explain_of_an_unknown_node_names_the_nearest(run: Run, tmp_path: Path) -> None:
    model = save(GELU.replace("erf = Erf", "[first_erf] erf = Erf"), tmp_path / "named.onnx")
    result = run("explain", model, "--node", "first_ref")
    assert (result.code, result.out) == (2, "")
    assert result.err == f"Error: {model} has no node 'first_ref'\nhint: did you mean `first_erf`?\n"
    assert run("explain", model, "--node", "first_erf").code == 0


@pytest.mark.parametrize(("text", "message"), [case[1:] for case in CASES], ids=[case[0].replace(" ", "-") for case in CASES])
def test_a_mistake_in_a_pattern_is_shown_with_its_place(
    run: Run, tmp_path: Path, gelu: Path, monkeypatch: pytest.MonkeyPatch, text: str, message: str
) -> None:
    monkeypatch.setattr(library, "load_patterns", partial(library.load_patterns, built_in=False))
    file = tmp_path / "patterns" / "group" / "sample.yaml"
    file.parent.mkdir(parents=True)
    file.write_text(text, encoding="utf-8", newline="")
    with untouched(tmp_path):
        result = run("fuse", gelu, "--patterns", file)
    assert (result.code, result.out) == (2, "")
    assert result.err == f"Error: {message}\n".replace("patterns/group/sample.yaml", str(file))


def test_no_folder_is_left_where_nothing_was_written(run: Run, tmp_path: Path) -> None:
    (tmp_path / "bad.onnx").touch()
    with untouched(tmp_path):
        assert run("fuse", tmp_path / "bad.onnx", "--output-dir", tmp_path / "a" / "b" / "c").code == 2


# Errors of the operating system


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="permissions do not stop root")
def test_a_read_only_folder_is_named(run: Run, gelu: Path, tmp_path: Path) -> None:
    folder = tmp_path / "read-only"
    folder.mkdir(mode=0o555)
    result = run("fuse", gelu, "--output-dir", folder)
    assert result.code == 2
    assert f"the folder {folder} can't be written to" in result.err
    assert list(folder.iterdir()) == []


def test_a_folder_that_the_system_calls_read_only_is_named(run: Run, gelu: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This holds for every user, root included: a read-only file system ignores permissions."""
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != gelu.parent)
    with untouched(gelu.parent):
        result = run("fuse", gelu)
    assert result.code == 2
    assert f"the folder {gelu.parent} can't be written to" in result.err


def test_a_refused_write_leaves_nothing(run: Run, gelu: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system refuses each way to move the file into place."""

    def refuse(*paths: object, **_: object) -> None:
        raise PermissionError(13, "Permission denied", str(paths[-1]))

    for name in ("replace", "rename", "link"):
        monkeypatch.setattr(os, name, refuse)
    with untouched(gelu.parent):
        result = run("fuse", gelu)
    assert result.code == 2
    assert "Permission denied" in result.err
    assert "bug" not in result.err


@POSIX
@pytest.mark.parametrize("options", [[], ["--no-verify"]], ids=["while verifying", "while writing"])
def test_a_full_disk_leaves_nothing(gelu: Path, tmp_path_factory: pytest.TempPathFactory, options: list[str]) -> None:
    """A limit on file sizes stands for a full disk: both refuse a write in the middle of a file."""
    temporary = tmp_path_factory.mktemp("temporary")
    code = (
        "import resource, signal, sys; from onnx_subgraph.cli import main; signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100)); sys.exit(main(sys.argv[1:]))"
    )
    with untouched(gelu.parent):
        command = [sys.executable, "-B", "-c", code, "fuse", str(gelu), *options]  # -B: compiled modules are files, too
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env={**os.environ, "TMPDIR": str(temporary)})
    assert (done.returncode, done.stdout) == (2, "")
    assert "File too large" in done.stderr
    assert list(temporary.glob("onnx-subgraph*")) == []
    assert "bug" not in done.stderr and "Traceback" not in done.stderr


# ^C


@POSIX
@pytest.mark.parametrize("stage", ["load", "find", "rewrite", "verify", "write"])
def test_an_interrupt_at_any_stage_leaves_nothing(run: Run, gelu: Path, monkeypatch: pytest.MonkeyPatch, stage: str) -> None:
    def interrupt(message: str) -> None:
        if message.endswith(f": {stage}"):
            os.kill(os.getpid(), signal.SIGINT)
            for _ in range(1000):  # the waiting thread handles the signal and interrupts this one
                time.sleep(0.01)

    @contextmanager
    def progress() -> Iterator[Callable[[str], None]]:
        yield interrupt

    monkeypatch.setattr("onnx_subgraph.cli.terminal.progress", progress)
    with untouched(gelu.parent):
        result = run("fuse", gelu)
    assert (result.code, result.out) == (2, "")
    assert result.err.strip() == "Interrupted: nothing more was written."


@POSIX
def test_an_interrupt_just_before_the_output_is_moved_into_place_leaves_nothing(
    run: Run, gelu: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "replace", lambda *_, **__: signal.raise_signal(signal.SIGINT))
    with untouched(gelu.parent):
        result = run("fuse", gelu)
    assert (result.code, result.out) == (2, "")
    assert result.err.strip() == "Interrupted: nothing more was written."


@POSIX
@pytest.mark.parametrize("limit", [0, 60], ids=["in the main thread", "in the thread that works"])
def test_an_interrupt_that_an_import_turns_into_an_import_error_is_still_an_interrupt(
    run: Run, gelu: Path, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    """Extension modules turn any exception during their import into an ImportError, which has another message."""

    def load(path: Path) -> None:
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt as error:
            raise ImportError("numpy._core.multiarray failed to import") from error

    monkeypatch.setattr("onnx_subgraph.pipeline.load", load)
    for command in ("fuse", "explain"):
        result = run(command, gelu, "--time-limit", limit)
        assert (result.code, result.out, result.err.strip()) == (2, "", "Interrupted: nothing more was written.")


class _Interrupting:
    """Interrupts the process when it is dropped, where Python prints an exception and goes on."""

    def __del__(self) -> None:
        signal.raise_signal(signal.SIGINT)


@POSIX
def test_an_interrupt_that_python_ignores_ends_the_command_at_its_next_stage(
    run: Run, gelu: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load_and_drop(path: Path, **options: Any) -> object:
        _Interrupting()
        return load(path, **options)

    load = pipeline.load
    monkeypatch.setattr(pipeline, "load", load_and_drop)
    with untouched(gelu.parent):
        result = run("fuse", gelu, "--time-limit", 0)  # without a limit the work is done in the main thread, which takes signals
    assert (result.code, result.out, result.err.strip()) == (2, "", "Interrupted: nothing more was written.")


@POSIX
def test_an_interrupt_that_python_ignores_after_the_last_stage_is_told(
    run: Run, gelu: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(terminal, "show", lambda *_, **__: _Interrupting() and None)
    result = run("fuse", gelu)
    assert (result.code, result.err.strip()) == (2, "Interrupted: nothing more was written.")
    assert gelu.with_suffix(".fused.onnx").is_file()


@POSIX
def test_an_interrupt_that_python_ignores_ends_a_run_with_several_jobs(
    run: Run, gelu: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer_and_drop(worker: workers.Worker[Any, Any]) -> object:
        if len(told) == 1:
            _Interrupting()
        told.append(worker)
        return answer(worker)

    told: list[object] = []
    answer = workers.Worker.answer
    monkeypatch.setattr(workers.Worker, "answer", answer_and_drop)
    other = shutil.copy(gelu, gelu.with_name("other.onnx"))
    with untouched(gelu.parent):
        result = run("fuse", gelu, other, "-j", 2)
    assert (result.code, result.out, result.err.strip()) == (2, "", "Interrupted: nothing more was written.")


@pytest.mark.parametrize("program", [["-m", "onnx_subgraph"], [str(ROOT / "cli.py")]], ids=["module", "checkout"])
def test_an_interrupt_while_the_command_line_is_imported_is_one_message(program: list[str], tmp_path: Path) -> None:
    interrupted = "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\nsignal.raise_signal(signal.SIGINT)\n"
    (tmp_path / "click.py").write_text(interrupted, encoding="utf-8")
    paths = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run([sys.executable, *program, "--help"], cwd=ROOT, env=paths, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr.strip()) == (2, "", "Interrupted: nothing was written.")


@POSIX
def test_an_interrupt_in_executed_text_gives_the_same_exit_code(tmp_path: Path) -> None:
    """`python -m` exits by SIGINT after a KeyboardInterrupt passed through `exec` of text, even if it was caught."""
    script = """
import signal, sys
from onnx_subgraph import cli
signal.signal(signal.SIGINT, signal.default_int_handler)
cli.commands.main = lambda *_, **__: exec("signal.raise_signal(signal.SIGINT)", {"signal": signal})
sys.exit(cli.main([]))
"""
    (tmp_path / "broken_off.py").write_text(script, encoding="utf-8")
    command = [sys.executable, "-m", "broken_off"]
    paths = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(tmp_path)])}
    done = subprocess.run(command, env=paths, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr.strip()) == (2, "Interrupted: nothing more was written.")


@POSIX
@pytest.mark.parametrize(("sent", "jobs"), [(signal.SIGINT, "1"), (signal.SIGINT, "2"), (signal.SIGTERM, "2")], ids=str)
def test_an_interrupt_among_many_models_leaves_only_whole_files(tmp_path: Path, sent: signal.Signals, jobs: str) -> None:
    """The signal goes to the whole process group, as ^C in a terminal. The models may be at any stage."""
    first = save(GELU, tmp_path / "0.onnx").read_bytes()
    models = [tmp_path / f"{i}.onnx" for i in range(500)]  # more models than can finish before the signal, even on a slow machine
    for model in models:
        model.write_bytes(first)
    folder = tmp_path / "out"
    command = [sys.executable, "-m", "onnx_subgraph", "fuse", *map(str, models), "--output-dir", str(folder), "-j", jobs]
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, cwd=ROOT, start_new_session=True
    ) as process:
        while process.poll() is None and not (folder.is_dir() and any(folder.glob("*.onnx"))):
            time.sleep(0.02)
        assert process.stderr is not None
        assert process.poll() is None, process.stderr.read()
        os.killpg(process.pid, sent)
        errors = process.stderr.read()
        assert process.wait(60) == 2, errors
    assert errors.strip() == "Interrupted: nothing more was written."
    written = sorted(folder.iterdir())
    assert {path.name for path in written} < {model.name for model in models}
    assert {path.read_bytes() for path in written} == {written[0].read_bytes()}


# Killed


@LINUX
@pytest.mark.parametrize("call", ["open", "fsync", "replace", "unlink"])
@pytest.mark.parametrize("verify", [True, False], ids=["verified", "unverified"])
def test_a_killed_process_leaves_only_whole_files(tmp_path_factory: pytest.TempPathFactory, call: str, verify: bool) -> None:
    """It is killed before the first write to the folder, and before and after the output is complete and renamed."""
    folder, temporary = tmp_path_factory.mktemp("models"), tmp_path_factory.mktemp("temporary")
    model, output = save(GELU, folder / "gelu.onnx"), folder / "out.onnx"
    before, old = model.read_bytes(), b"an older output"
    output.write_bytes(old)
    code = f"""
import os, pathlib, signal, sys
from onnx_subgraph.cli import main

def killed(before):
    def call(*given, **named):
        names = [str(g) for g in given] + ([os.readlink(f"/proc/self/fd/{{given[0]}}")] if isinstance(given[0], int) else [])
        if any(str(n).startswith({str(folder)!r}) and ".tmp" in str(n) for n in names):
            os.kill(os.getpid(), signal.SIGKILL)
        return before(*given, **named)
    return call

if {call!r} == "fsync":
    os.fsync = killed(os.fsync)
else:
    setattr(pathlib.Path, {call!r}, killed(getattr(pathlib.Path, {call!r})))
sys.exit(main(sys.argv[1:]))
"""
    given = ["fuse", model, "-o", output, *([] if verify else ["--no-verify"])]
    done = forked(code, *given, folder=tmp_path_factory.mktemp("streams"), TMPDIR=str(temporary))
    assert done.code == -signal.SIGKILL, done.err
    assert model.read_bytes() == before
    if call == "unlink":  # the last step: the output is renamed
        assert "Gelu" in {n.op_type for n in onnx.load(output).graph.node}
    else:
        assert output.read_bytes() == old
    left = {p.name for p in folder.iterdir()} - {"gelu.onnx", "out.onnx"}
    assert all(name.startswith(".out.onnx.") and name.endswith(".tmp") for name in left)
    (elsewhere,) = {p.name[:13] for p in temporary.iterdir()} - {".ses"} or {"onnx-subgraph"}  # onnxruntime makes a file .ses
    assert elsewhere == "onnx-subgraph"
