"""Fuses ONNX's own node tests and writes `benchmarks/definitions.md`: which definitions become their operator again.

    python benchmarks/definitions.py [--jobs 2] [--only NAME-GLOB]

ONNX publishes tests of one node each. For an operator with a function body there is a second test, `*_expanded`, with the body in
place of the node. If onnxruntime runs the operator as one node, the body should become that node again. A child process
(`workers.py`) fuses each model with the inputs of its test. The written model is then compared with the original by this file
alone: plain onnxruntime, without optimisation for the original, with and without for the written model.
"""

from __future__ import annotations

import argparse
import contextlib
import fnmatch
import re
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import workers
from rows import page_path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from onnx_subgraph.errors import OnnxSubgraphError  # noqa: E402
from onnx_subgraph.language.library import Library, load_patterns  # noqa: E402
from onnx_subgraph.options import Options  # noqa: E402
from onnx_subgraph.pipeline import FuseResult, fuse  # noqa: E402

BODY = "function-body"
"""The pattern of function bodies."""
OUTCOMES = ("fused, equal", "unchanged", "not runnable", "not shown equal", "refused with a message", "wrong", "traceback")
FAULTS = ("wrong", "traceback")
PREFACE = """\
# Definitions

Made by `python benchmarks/definitions.py` with onnx {onnx} and onnxruntime {onnxruntime} in {seconds:.0f} s, from the node
tests that onnx publishes. An *expanded* model has the function body of an operator instead of the operator, like a model whose
functions were inlined. The table counts those whose operator onnxruntime runs as one node on the CPU. *One operator*: after
`fuse --prefer fusion`, one node computes the results.

**{found} of {expanded} definitions become one operator. `fuse` ran on all {every} node tests: {faults} wrong.**"""


@dataclass(frozen=True)
class Row:
    """The result of one node test.

    outcome: one of OUTCOMES. operator: the one that the expanded model defines, "" for any other model. left: the operators that
    compute the results after fusion. why: why an expanded model is not one operator, or what is wrong.
    """

    name: str
    outcome: str
    operator: str = ""
    left: tuple[str, ...] = ()
    why: str = ""


@cache
def cases() -> Mapping[str, Any]:
    """The node tests of the installed onnx, by name."""
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {case.name: case for case in collect_testcases(None)}


@cache
def _library() -> Library:
    return load_patterns()


def measure(name: str) -> Row:
    """Fuse one node test and classify the result."""
    case = cases()[name]
    operator = _operator(name)
    with tempfile.TemporaryDirectory() as folder:
        source, output = Path(folder) / "model.onnx", Path(folder) / "fused.onnx"
        onnx.save(case.model, source)
        feeds = _feeds(case)
        inputs = None
        if feeds and all(isinstance(v, np.ndarray) and v.dtype.kind in "biuf" for v in feeds.values()):
            inputs = Path(folder) / "feeds.npz"
            np.savez(inputs, **feeds)
        try:
            result = fuse(source, output, _library(), Options(prefer="fusion", inputs=inputs))
        except OnnxSubgraphError as error:
            return Row(name, "refused with a message", operator, why=error.message.replace(f"{folder}/", ""))
        left = tuple(_live(onnx.load(output if result.output is not None else source)))
        row = Row(name, _outcome(result), operator, left)
        if result.output is not None and not result.unchanged:
            row = _held(row, source, output, feeds)
        return row if not operator or len(left) == 1 or row.why else replace(row, why=_why(case.model, result))


def _operator(name: str) -> str:
    """The operator that an expanded model defines, if onnxruntime runs it as one node; else ""."""
    found = re.match(r"(.*)_expanded(_ver\d+)?$", name)
    plain = cases().get(found[1]) if found is not None else None
    if plain is None or len(plain.model.graph.node) != 1:
        return ""
    operator = str(plain.model.graph.node[0].op_type)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "loaded.onnx"
        try:
            _session(plain.model.SerializeToString(), written=path)
        except Exception:  # onnxruntime has no such operator, or not for these types
            return ""
        return operator if [node.op_type for node in onnx.load(path).graph.node] == [operator] else ""


def _feeds(case: Any) -> dict[str, Any]:
    inputs, _ = case.data_sets[0]
    return {value.name: np.asarray(x) if np.isscalar(x) else x for value, x in zip(case.model.graph.input, inputs, strict=False)}


def _live(model: onnx.ModelProto) -> list[str]:
    """The operators that compute the outputs of a model, without constants. An expanded model may have other, unused nodes."""
    needed, found = {value.name for value in model.graph.output}, []
    for node in reversed(model.graph.node):
        if needed.intersection(node.output):
            needed.update(node.input, *(_captured(a.g) for a in node.attribute if a.type == onnx.AttributeProto.GRAPH))
            found += [node.op_type] if node.op_type != "Constant" else []
    return found


def _captured(graph: onnx.GraphProto) -> set[str]:
    inner = {*(v.name for v in graph.output), *(name for node in graph.node for name in node.input)}
    return inner.union(*(_captured(a.g) for n in graph.node for a in n.attribute if a.type == onnx.AttributeProto.GRAPH))


def _outcome(result: FuseResult) -> str:
    if result.output is None:
        return "not shown equal" if result.rewrites else "not runnable"
    return "unchanged" if result.unchanged else "fused, equal"


def _why(model: onnx.ModelProto, result: FuseResult) -> str:
    """Why an expanded model did not become one operator."""
    for undone in result.undone:
        if undone.rewrite.pattern == BODY:
            return f"undone: {undone.problem or f'{undone.error:.3g}, bound {undone.bound:.3g}'}"
    skips = [skip.reason for skip in result.skipped if skip.pattern == BODY]
    if skips:
        return skips[0]
    if result.output is None:
        return result.verdict.reason
    if any(a.type == onnx.AttributeProto.GRAPH for node in model.graph.node for a in node.attribute):
        return "its body has branches (If)"
    return "its body is not found"


def _held(row: Row, source: Path, output: Path, feeds: Mapping[str, Any]) -> Row:
    """The row, after comparing the written model with the original."""
    try:
        reference = _session(str(source))
        expected, again = reference.run(None, dict(feeds)), _session(str(source)).run(None, dict(feeds))
    except Exception:
        return replace(row, outcome="not runnable")
    for optimised in (False, True):
        try:
            found = _session(str(output), optimised=optimised).run(None, dict(feeds))
        except Exception as error:
            return replace(row, outcome="wrong", why=f"does not run: {str(error).splitlines()[0]}")
        for value, a, b, c in zip(reference.get_outputs(), found, expected, again, strict=True):
            if _differs(a, b) and not _differs(b, c):  # a random output is no reference
                return replace(row, outcome="wrong", why=f"{value.name}: {_differs(a, b)}")
    return row


def _differs(found: Any, expected: Any) -> str:
    """How `found` differs, or "" if it is the same within 2e-4 of the largest magnitude (float16: 1e-2)."""
    if not isinstance(expected, np.ndarray) or expected.dtype.kind not in "fc":
        return "" if np.array_equal(found, expected) else "other values"
    if found.shape != expected.shape or found.dtype != expected.dtype:
        return f"{found.dtype}{list(found.shape)} instead of {expected.dtype}{list(expected.shape)}"
    finite = np.isfinite(expected)
    if not np.array_equal(np.isfinite(found), finite) or not np.array_equal(found[~finite], expected[~finite], equal_nan=True):
        return "other values are not finite"
    bound = (1e-2 if expected.dtype == np.float16 else 2e-4) * max(np.abs(expected[finite]).max(initial=0.0), 1e-2)
    error = np.abs(found[finite].astype(np.float64) - expected[finite].astype(np.float64)).max(initial=0.0)
    return "" if error <= bound else f"differs by {error:.3g}, bound {bound:.3g}"


def _session(model: str | bytes, *, optimised: bool = False, written: Path | None = None) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    if not optimised:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    if written is not None:
        options.optimized_model_filepath = str(written)
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def report(rows: Sequence[Row], seconds: float) -> str:
    """The page: a table of operators, the models that are not one operator and why, and the outcomes of all node tests."""
    expanded = [row for row in rows if row.operator]
    found = [row for row in expanded if len(row.left) == 1]
    faults = sum(row.outcome in FAULTS for row in rows)
    lines = PREFACE.format(
        onnx=onnx.__version__,
        onnxruntime=onnxruntime.__version__,
        seconds=seconds,
        found=len(found),
        expanded=len(expanded),
        every=len(rows),
        faults=faults,
    ).splitlines()
    lines += ["", "| operator | expanded models | one operator |", "|---|---|---|"]
    whole, those = Counter(row.operator for row in expanded), Counter(row.operator for row in found)
    lines += [f"| {operator} | {count} | {those[operator]} |" for operator, count in sorted(whole.items())]
    lines += ["", "## Not one operator", "", "| model | nodes left | reason |", "|---|---|---|"]
    lines += [f"| {r.name} | {len(r.left)} | {_cell(r.why)} |" for r in expanded if len(r.left) != 1]
    lines += ["", "## All node tests", "", "| outcome | models |", "|---|---|"]
    outcomes = Counter(row.outcome for row in rows)
    lines += [f"| {outcome} | {outcomes[outcome]} |" for outcome in OUTCOMES if outcomes[outcome] or outcome in FAULTS]
    lines += ["", _LEGEND]
    told = [row for row in rows if row.outcome in ("refused with a message", *FAULTS)]
    if told:
        lines += ["", "| model | outcome | |", "|---|---|---|"]
        lines += [f"| {row.name} | {row.outcome} | {_cell(row.why)} |" for row in told]
    return "\n".join(lines) + "\n"


_LEGEND = """\
*Not runnable*: onnxruntime does not run the original, so nothing can be verified and nothing is written. *Not shown equal*:
something was fused, but no output can show a difference (it is empty or random), or onnxruntime does not run the
original, so nothing is written."""


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())[:300]


def main() -> None:
    """Run all node tests and write the page; exit 1 if there is a fault."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--only", default="*", help="a glob over the names of the tests")
    arguments.add_argument("--jobs", type=int, default=2)
    arguments.add_argument("--limit", type=float, default=120, help="seconds for one test")
    arguments.add_argument("-o", "--output", type=Path, help="the page; the page of a part of the tests goes into build/")
    given = arguments.parse_args()
    output = page_path(given.output, "definitions.md", given.only)
    started = time.perf_counter()
    rows: list[Row] = []
    names = [name for name in cases() if fnmatch.fnmatch(name, given.only)]
    for outcome in workers.run(measure, names, jobs=given.jobs, limit=given.limit):
        failure = " ".join(outcome.failure.strip().splitlines()[-3:]).replace(str(HERE.parent), ".")
        row = outcome.result or Row(outcome.task, "traceback", why=failure)
        rows.append(row)
        if row.outcome in FAULTS:
            with contextlib.suppress(BrokenPipeError):
                print(f"{row.name}: {row.outcome}: {row.why}", file=sys.stderr, flush=True)
    output.write_text(report(rows, time.perf_counter() - started), encoding="utf-8")
    print(f"{output}: {dict(Counter(row.outcome for row in rows))} in {time.perf_counter() - started:.0f} s")
    sys.exit(any(row.outcome in FAULTS for row in rows))


if __name__ == "__main__":
    main()
