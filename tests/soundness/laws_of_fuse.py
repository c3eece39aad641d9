"""What `fuse` promises for any model, whatever its options, held against a random one."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from random import Random

import numpy as np
import onnx

from tests.soundness import judge
from tests.soundness.ground import BrokenError, Ground, piped

OPTIONS: tuple[tuple[str, ...], ...] = (
    *(("--target", target) for target in ("standard", "function", "native")),
    ("--prefer", "fusion"),
    ("--constant-initializers",),
    ("--keep-subnormals",),
    ("--no-simplify",),
    ("--keep-loops",),
    ("--sites",),
    ("--opset", "keep"),
)
"""Options under which a fused model computes what the original does."""
SHARE = 0.3
"""The share of these that is given at a time."""


def expectations(ground: Ground) -> str:
    """What `fuse --write-expect` writes holds in the next run. With `--skip` a pattern is not used, and so it is missed."""
    wanted, written = ground.folder / "expected.yaml", ground.folder / "fused.onnx"
    answer = ground.written("fuse", ground.model, "-o", written, "--write-expect", wanted)
    if answer is None:
        return ""
    ground.answer("fuse", ground.model, "-o", written, "--expect", wanted)
    if not answer["fusions"]:
        return ""
    name = Random(ground.model.read_bytes()).choice(answer["fusions"])["pattern"]
    _, less = ground.answer("fuse", ground.model, "-o", written, "--expect", wanted, "--skip", name, codes=(1, 2))
    if any(fusion["pattern"] == name for fusion in less["fusions"]):
        raise BrokenError(f"--skip {name} does not skip it")
    return "with fusions"


def reports(ground: Ground) -> str:
    """Each kind of report can be written, the text agrees with the JSON, and no report changes the model."""
    one, other = ground.folder / "one.onnx", ground.folder / "other.onnx"
    code, answer = ground.answer("fuse", ground.model, "-o", one, codes=(0, 1, 2))
    files = [w for name in ("report.html", "junit.xml", "summary.md") for w in (f"--{name.split('.')[0]}", ground.folder / name)]
    again, out = ground.run("fuse", ground.model, "-o", other, "-v", "--sites", "--compare-ort", *files, codes=(0, 1, 2))
    if code != again or (not code and one.read_bytes() != other.read_bytes()):
        raise BrokenError("with reports, another model is written")
    counted = (answer["nodes"]["before"], answer["nodes"]["after"])
    said = re.search(r"^nodes +(\d+) → (\d+)", out, re.MULTILINE)
    if said is not None and (int(said[1]), int(said[2])) != counted:
        raise BrokenError(f"the text says {said[0]!r}, the JSON {counted}")
    return "with fusions" if answer["fusions"] else ""


def fuse_sites_only(ground: Ground) -> str:
    """`fuse --sites-only`, which runs no model, changes no result."""
    written = ground.folder / "sites.onnx"
    answer = ground.written("fuse", ground.model, "--sites-only", "-o", written)
    if answer is None:
        return ""
    ground.computes_the_same(written)
    return "with fusions" if answer["fusions"] else ""


def fuse_tune(ground: Ground) -> str:
    """`fuse --tune` changes no result, and the choice that `--tuned` keeps gives the same file."""
    one, other, choice = (ground.folder / name for name in ("tuned.onnx", "again.onnx", "choice.json"))
    answer = ground.written("fuse", ground.model, "--tune", "--tune-budget", 0.2, "--tuned", choice, "-o", one)
    if answer is None:
        return ""
    ground.computes_the_same(one)
    ground.answer("fuse", ground.model, "--tuned", choice, "-o", other)
    if one.read_bytes() != other.read_bytes():
        raise BrokenError("with the choice that was kept, another model is written")
    return "with fusions" if answer["fusions"] else ""


def fuse_for_cuda(ground: Ground) -> str:
    """`fuse --assume-provider CUDAExecutionProvider`, which runs nothing, changes no result where the CPU loads it."""
    written = ground.folder / "cuda.onnx"
    _, answer = ground.answer("fuse", ground.model, "--assume-provider", "CUDAExecutionProvider", "--no-verify", "-o", written)
    if isinstance(judge.session(onnx.load(written)), str):
        return ""
    ground.computes_the_same(written)
    return "with fusions" if answer["fusions"] else ""


def fuse_options(ground: Ground) -> str:
    """`fuse` changes no result with other options: targets, preferences, what is kept, inputs from a file."""
    random, written, inputs = Random(ground.model.read_bytes()), ground.folder / "fused.onnx", ground.folder / "feeds.npz"
    first = ground.case.feeds[0]
    np.savez(inputs, **first)
    given = [option for option in (*OPTIONS, ("--inputs", str(inputs))) if random.random() < SHARE]
    answer = ground.written("fuse", ground.model, *(word for option in given for word in option), "-o", written)
    if answer is None:
        return ""
    fixed = {i.name for i in ground.case.model.graph.initializer} if ("--constant-initializers",) in given else set()
    ground.computes_the_same(written, tuple({n: a for n, a in feeds.items() if n not in fixed} for feeds in ground.case.feeds))
    return "with fusions" if answer["fusions"] else ""


def fuse_external_data(ground: Ground) -> str:
    """Weights in a file of their own: the output computes the same beside them and elsewhere, and the file stays as it was."""
    here, there = ground.folder / "apart", ground.folder / "elsewhere"
    here.mkdir()
    there.mkdir()
    path, data = here / "model.onnx", here / "model.data"
    onnx.save(ground.case.model, path, save_as_external_data=True, location=data.name, size_threshold=0)
    if not data.exists():
        return ""
    before = data.read_bytes()
    fused = False
    for written in (here / "fused.onnx", there / "model.onnx"):
        answer = ground.written("fuse", path, "-o", written)
        if answer is None:
            return ""
        fused = bool(answer["fusions"])
        ground.computes_the_same(written)
    if data.read_bytes() != before:
        raise BrokenError(f"{data.name} has changed")
    data.unlink()
    ground.computes_the_same(there / "model.onnx")
    return "with fusions" if fused else "without fusions"


def fuse_streams(ground: Ground) -> str:
    """`fuse - -o -` reads and writes the bytes that `fuse` with files does."""
    written = ground.folder / "fused.onnx"
    answer = ground.written("fuse", ground.model, "-o", written)
    code, out, err = piped(ground.model.read_bytes(), "fuse", "-", "-o", "-", "--json")
    if answer is None:
        return ""
    if code or out != written.read_bytes():
        raise BrokenError(f"from standard input to standard output, it exits with {code} and gives other bytes: {err[-600:]}")
    return "with fusions" if answer["fusions"] else ""


def fuse_resume(ground: Ground) -> str:
    """Of several models, `--resume` does only what has changed, and gives the same files as one run of each."""
    folder, out, alone = ground.folder / "zoo", ground.folder / "out", ground.folder / "alone.onnx"
    paths = [folder / "a.onnx", folder / "below" / "b.onnx"]
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(ground.model.read_bytes())
    if ground.written("fuse", ground.model, "-o", alone) is None:
        return ""
    line = ("fuse", folder, "--output-dir", out)
    _all_like(ground, line, alone, [False, False])
    _all_like(ground, (*line, "--resume"), alone, [True, True])
    (out / "below" / "b.onnx").write_bytes(b"")
    _all_like(ground, (*line, "--resume"), alone, [True, False])
    other = onnx.load(paths[0])
    other.doc_string += "changed"
    onnx.save(other, paths[0])
    _, answer = ground.answer(*line, "--resume")
    if [bool(model.get("resumed")) for model in answer["models"]] != [False, True]:
        raise BrokenError("a model that has changed is not fused again, or another one is")
    return "that were fused again"


def _all_like(ground: Ground, line: tuple[object, ...], expected: Path, resumed: list[bool]) -> None:
    """Raises BrokenError unless both models are written as expected, and those that are marked were left out."""
    _, answer = ground.answer(*line)
    if [bool(model.get("resumed")) for model in answer["models"]] != resumed:
        raise BrokenError(f"{' '.join(map(str, line))}: left out are not {resumed}: {json.dumps(answer)[:300]}")
    for model in answer["models"]:
        if Path(model["output"]).read_bytes() != expected.read_bytes():
            raise BrokenError(f"{model['output']} is not what a run of one model writes")


def bench(ground: Ground) -> str:
    """`bench` times the model against what `fuse` makes of it."""
    code, answer = ground.answer("bench", ground.model, "--budget", 0.05, codes=(0, 2))
    if code or "models" not in answer:
        return ""  # it does not run, or nothing fuses
    times = [model["p50_ms"] for model in answer["models"]]
    if len(times) != 2 or min(times) <= 0:
        raise BrokenError(f"the times are {times}, of the model and of what `fuse` makes of it")
    return "that were timed"


LAWS: tuple[Callable[[Ground], str], ...] = (
    expectations,
    reports,
    fuse_options,
    fuse_external_data,
    fuse_streams,
    fuse_resume,
    fuse_sites_only,
    fuse_tune,
    fuse_for_cuda,
    bench,
)
"""Functions that try a law on a model, as those of `laws.LAWS` do."""
