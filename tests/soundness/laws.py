"""What each command promises for any model, held against a random one: `LAWS`, and `broken`, which says what does not hold.

The commands run as a user runs them, by their arguments, in this process. The models that they write are judged by `judge`; the
project's own verification takes no part in that.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import jsonschema
import numpy as np
import onnx

from onnx_subgraph.cli import main
from onnx_subgraph.session.inference import InferenceSession
from onnx_subgraph.session.static import StaticSession
from tests.soundness import judge
from tests.soundness.graphs import Case
from tests.soundness.growth import Array
from tests.soundness.stilled import stilled

SCHEMA = Path(__file__).parents[2] / "docs" / "report.schema.json"


class BrokenError(Exception):
    """A law that does not hold, in words."""


@dataclass(frozen=True)
class Ground:
    """A case, the file with its model, and a folder for what the commands write."""

    case: Case
    model: Path
    folder: Path

    def run(self, *arguments: object, codes: tuple[int, ...] = (0,)) -> tuple[int, str]:
        """Run a command; its exit code and standard output. Raises BrokenError for another exit code and for an internal error."""
        code, out, err = ran(*arguments)
        if code not in codes or "internal error" in err:
            raise BrokenError(f"`{' '.join(map(str, arguments))}` exits with {code}: {(err.strip() or out.strip())[-600:]}")
        return code, out

    def answer(self, *arguments: object, codes: tuple[int, ...] = (0,)) -> tuple[int, Any]:
        """Run a command with --json. Its answer is valid for the schema, and nothing else is printed."""
        code, out = self.run(*arguments, "--json", codes=codes)
        if not out.strip():
            raise BrokenError(f"`{' '.join(map(str, arguments))}` exits with {code} and prints no JSON")
        answer = json.loads(out, parse_constant=_no_number)
        error = next(_schema().iter_errors(answer), None)
        if error is not None:
            raise BrokenError(f"`{' '.join(map(str, arguments))}`: the JSON is not as its schema says: {error.message[:300]}")
        return code, answer

    def written(self, *arguments: object) -> Any:
        """The answer of a command that writes a model; None where the verdict is that it could not tell.

        Raises BrokenError for a verdict against the result, unless onnxruntime's optimisation changes the original itself.
        """
        code, answer = self.answer(*arguments, codes=(0, 1, 2))
        if code == 1 and not judge.Judge(self.case.model, self.case.feeds).breaks_when_optimised():
            raise BrokenError(f"`{' '.join(map(str, arguments))}`: {json.dumps(answer['verification'])[:600]}")
        return None if code else answer

    def computes_the_same(self, written: Path, feeds: tuple[Mapping[str, Array], ...] | None = None) -> None:
        """Raises BrokenError unless the written model is valid and computes what the original does on the feeds."""
        made = onnx.load(written)
        problem = judge.problem(made)
        if problem is None:
            problem = judge.Judge(self.case.model, self.case.feeds if feeds is None else feeds).difference(made)
        if problem is not None:
            raise BrokenError(f"{written.name}: {problem}")


def ran(*arguments: object) -> tuple[int, str, str]:
    """Run a command line in this process: its exit code and both outputs."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        code = main([str(argument) for argument in arguments])
    return code, out.getvalue(), err.getvalue()


def _no_number(word: str) -> float:
    raise BrokenError(f"the JSON has {word}, which is no number of JSON")


@cache
def _schema() -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text(encoding="utf-8")))


def partitioned(ground: Ground, backend: str) -> None:
    """An engine computes what its region did, and `inline` gives the nodes back."""
    written = ground.folder / "engines.onnx"
    everything = ("--min-nodes", 1, "--max-crossing", 9, "--gain", "inf", "--no-isolated")
    if not ground.written("partition", ground.model, "--backend", backend, *everything, "-o", written):
        return
    ground.computes_the_same(written)
    back = ground.folder / "inlined.onnx"
    ground.answer("inline", written, "-o", back)
    ground.computes_the_same(back)


def engines_of_the_reference(ground: Ground) -> None:
    """`partition --backend reference`."""
    partitioned(ground, "reference")


def engines_of_onnxruntime(ground: Ground) -> None:
    """`partition --backend onnxruntime`."""
    partitioned(ground, "onnxruntime")


def engines_of_openvino(ground: Ground) -> None:
    """`partition --backend openvino`."""
    partitioned(ground, "openvino")


def specialized(ground: Ground) -> None:
    """`specialize` to the sizes of a run computes what the model does at these sizes."""
    first = ground.case.feeds[0]
    names = {i.name: [d.dim_param for d in i.type.tensor_type.shape.dim] for i in ground.case.model.graph.input}
    sizes = {n: np.asarray(first[n]).shape for n, dims in names.items() if any(dims) and n in first}
    if not sizes:
        return
    written = ground.folder / "static.onnx"
    shapes = [word for n, size in sizes.items() for word in ("--shape", f"{n}={'x'.join(map(str, size))}")]
    if ground.written("specialize", ground.model, *shapes, "-o", written):
        ground.computes_the_same(written, (first,))


def session(ground: Ground, kind: Callable[..., Any]) -> None:
    """A session gives what onnxruntime's gives without optimisation."""
    model = stilled(ground.case.model)
    path = ground.folder / "stilled.onnx"
    path.write_bytes(model.SerializeToString())
    if isinstance(judge.session(model), str):
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        opened = kind(str(path), providers=["CPUExecutionProvider"])
    held = judge.Judge(model, (*ground.case.feeds, ground.case.feeds[0]))
    problem = held.difference_of_runs(lambda feeds: judge.run(opened, feeds))
    if problem is not None and not held.breaks_when_optimised():
        raise BrokenError(f"{kind.__name__}: {problem}")


def inference_session(ground: Ground) -> None:
    """`InferenceSession`."""
    session(ground, InferenceSession)


def static_session(ground: Ground) -> None:
    """`StaticSession`, each signature recorded, and the first one replayed."""
    session(ground, StaticSession)


def expectations(ground: Ground) -> None:
    """What a run expects of itself holds the next time, and a model that lacks a fusion misses it."""
    wanted, written = ground.folder / "expected.yaml", ground.folder / "fused.onnx"
    answer = ground.written("fuse", ground.model, "-o", written, "--write-expect", wanted)
    if answer is None:
        return
    ground.answer("fuse", ground.model, "-o", written, "--expect", wanted)
    if answer["fusions"]:
        name = Random(ground.model.name).choice(answer["fusions"])["pattern"]
        code, less = ground.answer("fuse", ground.model, "-o", written, "--expect", wanted, "--skip", name, codes=(0, 1))
        if not code and sum(f["pattern"] == name for f in less["fusions"]):
            raise BrokenError(f"--skip {name} does not skip it")


def explained(ground: Ground) -> None:
    """`explain` answers for each model and each planted pattern; it names the matches that `fuse` replaces."""
    _, answer = ground.answer("explain", ground.model)
    ground.run("explain", ground.model, "-v")
    for identifier in dict.fromkeys(name for name, _ in ground.case.planted):
        if not identifier.startswith("wrong"):
            ground.answer("explain", ground.model, identifier, codes=(0, 2) if ground.case.trap == "wrong pattern" else (0,))


def mined(ground: Ground) -> None:
    """A pattern that `new-pattern` writes can be read, and finds at least its own place."""
    _, answer = ground.answer("mine", ground.model)
    for rank in range(1, min(len(answer["units"]), 2) + 1):
        file = ground.folder / f"mined_{rank}.yaml"
        code, made = ground.answer(
            "new-pattern", ground.model, "--mined", rank, "--id", f"mined-{rank}", "-o", file, codes=(0, 1, 2)
        )
        if code == 2:
            continue
        ground.run("list-patterns", "--patterns", file, f"mined-{rank}")
        if code:
            raise BrokenError(f"the pattern of unit {rank} fails: {json.dumps(made)[:700]}\n{file.read_text(encoding='utf-8')}")
        written = ground.folder / f"mined_{rank}.onnx"
        arguments = ("fuse", ground.model, "--patterns", file, "--only", f"mined-{rank}", "--target", "function", "-o", written)
        if ground.written(*arguments):
            ground.computes_the_same(written)


def functions(ground: Ground) -> None:
    """`inline` gives the definitions of functions back as nodes that compute the same."""
    written, back = ground.folder / "functions.onnx", ground.folder / "inlined.onnx"
    if not ground.written("fuse", ground.model, "--target", "function", "-o", written):
        return
    ground.answer("inline", written, "-o", back)
    if onnx.load(back).functions:
        raise BrokenError("functions are left after inline")
    ground.computes_the_same(back)


def reports(ground: Ground) -> None:
    """Each kind of report can be written, the text agrees with the JSON, and no report changes the model."""
    one, other = ground.folder / "one.onnx", ground.folder / "other.onnx"
    code, answer = ground.answer("fuse", ground.model, "-o", one, codes=(0, 1, 2))
    files = [
        word for name in ("report.html", "junit.xml", "summary.md") for word in (f"--{name.split('.')[0]}", ground.folder / name)
    ]
    again, out = ground.run("fuse", ground.model, "-o", other, "-v", "--sites", "--compare-ort", *files, codes=(0, 1, 2))
    if code != again or (not code and one.read_bytes() != other.read_bytes()):
        raise BrokenError("with reports, another model is written")
    before, after = answer["nodes"]["before"], answer["nodes"]["after"]
    said = re.search(r"^nodes +(\d+) → (\d+)", out, re.MULTILINE)
    if said is not None and (int(said[1]), int(said[2])) != (before, after):
        raise BrokenError(f"the text says {said[0]!r}, the JSON {before} → {after}")


LAWS: Mapping[str, Callable[[Ground], None]] = {
    law.__name__.replace("_", " "): law
    for law in (
        engines_of_the_reference,
        engines_of_onnxruntime,
        engines_of_openvino,
        specialized,
        inference_session,
        static_session,
        expectations,
        explained,
        mined,
        functions,
        reports,
    )
}
"""The name of each law → what raises BrokenError where it does not hold."""


def broken(name: str, case: Case, folder: Path) -> str | None:
    """What a law does not hold for this model, in words; None if it holds."""
    model = folder / "model.onnx"
    model.write_bytes(case.model.SerializeToString(deterministic=True))
    try:
        LAWS[name](Ground(case, model, folder))
    except BrokenError as error:
        return str(error)
    return None
