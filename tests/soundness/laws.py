"""What each command promises for any model, held against a random one: `LAWS`, and `held`, which tries one of them.

The commands run as a user runs them, by their arguments, in this process. The models that they write are judged by `judge`; the
project's own verification takes no part in that.
"""

from __future__ import annotations

import traceback
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import onnx

from onnx_subgraph.session.inference import InferenceSession
from onnx_subgraph.session.static import StaticSession
from tests.soundness import judge, laws_of_fuse, traps
from tests.soundness.alterations import altered, respelled
from tests.soundness.graphs import Case
from tests.soundness.ground import BrokenError, Ground
from tests.soundness.stilled import stilled

ATTEMPTS = 5
"""How often a model is altered until it computes something else."""
MOST_UNITS = 2
"""Mined units of one model that a pattern is written from."""


@dataclass(frozen=True, slots=True)
class Held:
    """What came of one law and one model. seen: what the law looked at, "" where there was nothing. broken: why not, or ""."""

    seen: str = ""
    broken: str = ""


def _partition(ground: Ground, backend: str) -> str:
    written, back = ground.folder / "engines.onnx", ground.folder / "inlined.onnx"
    everything = (
        "--min-nodes",
        1,
        "--max-crossing",
        9,
        "--gain",
        "inf",
        "--isolated" if backend == "openvino" else "--no-isolated",
    )
    answer = ground.written("partition", ground.model, "--backend", backend, *everything, "-o", written)
    if answer is None:
        return ""
    ground.computes_the_same(written)
    ground.answer("inline", written, "-o", back)
    ground.computes_the_same(back)
    return "with engines" if answer["engines"] else ""


def partition_reference(ground: Ground) -> str:
    """Engines of the backend `reference` compute what their regions did, and `inline` gives the nodes back."""
    return _partition(ground, "reference")


def partition_onnxruntime(ground: Ground) -> str:
    """The same for the backend `onnxruntime`."""
    return _partition(ground, "onnxruntime")


def partition_openvino(ground: Ground) -> str:
    """The same for the backend `openvino`."""
    return _partition(ground, "openvino")


def specialize(ground: Ground) -> str:
    """The model for the sizes of a run computes what the original does at these sizes."""
    first = ground.case.feeds[0]
    names = {i.name: [d.dim_param for d in i.type.tensor_type.shape.dim] for i in ground.case.model.graph.input}
    sizes = {n: np.asarray(first[n]).shape for n, dims in names.items() if any(dims) and n in first}
    written = ground.folder / "static.onnx"
    shapes = [word for n, size in sizes.items() for word in ("--shape", f"{n}={'x'.join(map(str, size))}")]
    if not sizes or ground.written("specialize", ground.model, *shapes, "-o", written) is None:
        return ""
    ground.computes_the_same(written, (first,))
    return "with free dimensions"


def _session(ground: Ground, kind: Callable[..., Any]) -> str:
    model = stilled(ground.case.model)
    path = ground.folder / "stilled.onnx"
    path.write_bytes(model.SerializeToString())
    if isinstance(judge.session(model), str):
        return ""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        opened = kind(str(path), providers=["CPUExecutionProvider"])
    held = judge.Judge(model, (*ground.case.feeds, ground.case.feeds[0]))
    problem = held.difference_of_runs(lambda feeds: judge.run(opened, feeds))
    if problem is not None and not held.breaks_when_optimised():
        raise BrokenError(f"{kind.__name__}: {problem}")
    return "that run" if held.judged else ""


def inference_session(ground: Ground) -> str:
    """`InferenceSession` gives what onnxruntime gives without optimisation."""
    return _session(ground, InferenceSession)


def static_session(ground: Ground) -> str:
    """So does `StaticSession`, for other sizes and when it replays the first ones."""
    return _session(ground, StaticSession)


def explain(ground: Ground) -> str:
    """`explain` answers for the model, and for each planted pattern."""
    ground.answer("explain", ground.model)
    ground.run("explain", ground.model, "-v")
    planted = [] if ground.case.trap == traps.WRONG else list(dict.fromkeys(name for name, _ in ground.case.planted))
    for identifier in planted:
        ground.answer("explain", ground.model, identifier)
    return "with planted patterns" if planted else ""


def mine(ground: Ground) -> str:
    """A pattern that `new-pattern` writes can be read; if it is proved, fusing with it changes no result."""
    _, answer = ground.answer("mine", ground.model)
    proved = drafts = 0
    for rank in range(1, min(len(answer["units"]), MOST_UNITS) + 1):
        file = ground.folder / f"mined_{rank}.yaml"
        chosen = ("--mined", rank, "--id", f"mined-{rank}", "-o", file)
        code, _ = ground.answer("new-pattern", ground.model, *chosen, codes=(0, 1, 2))
        if code == 2:
            continue  # no example can be written, or the unit changes nothing
        ground.run("list-patterns", "--patterns", file, f"mined-{rank}")
        proved, drafts = proved + (not code), drafts + code
        written = ground.folder / f"mined_{rank}.onnx"
        only = ("--patterns", file, "--only", f"mined-{rank}", "--target", "function")
        if not code and ground.written("fuse", ground.model, *only, "-o", written) is not None:
            ground.computes_the_same(written)
    return "with patterns that are drafts" if drafts else "with proved patterns" if proved else ""


def inline(ground: Ground) -> str:
    """`inline` gives the definitions of functions back as nodes that compute the same."""
    written, back = ground.folder / "functions.onnx", ground.folder / "inlined.onnx"
    answer = ground.written("fuse", ground.model, "--target", "function", "-o", written)
    if answer is None:
        return ""
    ground.answer("inline", written, "-o", back)
    if onnx.load(back).functions:
        raise BrokenError("functions are left after inline")
    ground.computes_the_same(back)
    return "with functions" if onnx.load(written).functions else ""


def verify_fused(ground: Ground) -> str:
    """`verify`, which tries more inputs than `fuse`, calls no fused model different."""
    written = ground.folder / "fused.onnx"
    answer = ground.written("fuse", ground.model, "--prefer", "fusion", "-o", written)
    if answer is None or not answer["fusions"] or stilled(ground.case.model) is not ground.case.model or _has_float16(ground):
        return ""
    code, found = ground.answer("verify", ground.model, written, codes=(0, 1, 2))
    if code == 1 and not judge.Judge(ground.case.model, ground.case.feeds).breaks_when_optimised():
        worst = next(run for run in found["runs"] if not run["equal"])
        raise BrokenError(f"called different, with {[fusion['pattern'] for fusion in answer['fusions']]}: {worst}")
    return "" if code else "equivalent"


def _has_float16(ground: Ground) -> bool:
    """onnxruntime leaves out roundings to float16 between some nodes and not others, also with its optimisation off."""
    text = onnx.printer.to_text(ground.case.model)
    return "float16" in text or "to: int = 10" in text


def verify_same(ground: Ground) -> str:
    """`verify` calls no model different that computes the same in other nodes."""
    if _has_float16(ground):
        return ""
    path = ground.folder / "respelled.onnx"
    onnx.save(respelled(ground.case.model, Random(ground.model.read_bytes())), path)
    code, answer = ground.answer("verify", ground.model, path, codes=(0, 1, 2))
    if code == 1 and not judge.Judge(ground.case.model, ground.case.feeds).breaks_when_optimised():
        raise BrokenError(f"called different: {next(run for run in answer['runs'] if not run['equal'])}")
    return "" if code else "equivalent"


def verify_other(ground: Ground) -> str:
    """`verify` calls no model equivalent that differs on the inputs that it is given."""
    random = Random(ground.model.read_bytes())
    if stilled(ground.case.model) is not ground.case.model:
        return ""  # the judge draws other random numbers than the command
    for _ in range(ATTEMPTS):
        other = altered(ground.case.model, random)
        if other is None:
            return ""
        held = judge.Judge(ground.case.model, ground.case.feeds[:1])
        problem = held.difference(other)
        if problem is not None and not isinstance(judge.session(other), str):
            return _told_apart(ground, other, problem)
    return ""


def _told_apart(ground: Ground, other: onnx.ModelProto, problem: str) -> str:
    """How `verify` finds a model that differs on the first feeds. Raises BrokenError where it does not."""
    path, inputs = ground.folder / "altered.onnx", ground.folder / "feeds.npz"
    onnx.save(other, path)
    np.savez(inputs, **ground.case.feeds[0])
    code, answer = ground.answer("verify", ground.model, path, "--inputs", inputs, codes=(0, 1, 2))
    if not code and any(f" {output['output']} " in problem for output in answer["outputs"] if output["blind"]):
        return "where the output counts for nothing"
    if not code:
        raise BrokenError(f"called equivalent: {problem}")
    drawn, _ = ground.answer("verify", ground.model, path, codes=(0, 1, 2))
    ways = {0: "told apart with --inputs only", 1: "told apart", 2: "told apart with --inputs, and unknown without"}
    return ways[drawn] if code == 1 else ""


LAWS: Mapping[str, Callable[[Ground], str]] = {
    law.__name__.replace("_", " "): law
    for law in (
        partition_reference,
        partition_onnxruntime,
        partition_openvino,
        specialize,
        inference_session,
        static_session,
        explain,
        mine,
        inline,
        *laws_of_fuse.LAWS,
        verify_fused,
        verify_same,
        verify_other,
    )
}
"""The name of each law → what tries it on a model, and says what it looked at; it raises BrokenError where it does not hold."""


def held(name: str, case: Case, folder: Path) -> Held:
    """Try a law on a model. An error of the code that is tried breaks the law."""
    model = folder / "model.onnx"
    model.write_bytes(case.model.SerializeToString(deterministic=True))
    try:
        return Held(LAWS[name](Ground(case, model, folder)))
    except BrokenError as error:
        return Held(broken=str(error))
    except Exception:
        return Held(broken=traceback.format_exc(limit=-8))
