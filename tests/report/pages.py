"""Made-up results, one of them with names that would be executed by an unsafe page."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from onnx_subgraph.errors import Span
from onnx_subgraph.expectation.check import Check
from onnx_subgraph.language.library import Library
from onnx_subgraph.matching.match import NearMiss
from onnx_subgraph.report import html
from onnx_subgraph.report.entry import Entry
from onnx_subgraph.result import FuseResult
from onnx_subgraph.rewriting.excerpt import Edge, Excerpt, Step
from onnx_subgraph.rewriting.lines import MatchedLine
from onnx_subgraph.rewriting.rewrite import Rewrite, Skip
from onnx_subgraph.verification.accuracy import Accuracy
from onnx_subgraph.verification.blame import Undone
from onnx_subgraph.verification.own import OwnFusion, OwnSite, OwnWork
from onnx_subgraph.verification.site import SiteCheck
from onnx_subgraph.verification.verdict import PlacedNode, Placement, Run, Verdict
from tests.report.excerpts import chain

HOSTILE = "</title><script>alert(1)</script>\"'><img src=x onerror=alert(1)>]]>-->\x00\x1b[31m\u202eevil&amp;{{ 7 * 7 }}"


def result(*rewrites: Rewrite, **changes: object) -> FuseResult:
    """A made-up result."""
    plain = FuseResult(
        model=Path("models/bert.onnx"),
        output=None,
        nodes_before=100,
        nodes_after=40,
        opset_before=17,
        opset_after=17,
        target="onnxruntime",
        providers=("CPUExecutionProvider",),
        rewrites=rewrites,
        near_misses=(),
        skipped=(),
        verdict=Verdict("equivalent", "kernel", (Run("CPUExecutionProvider", True, {"batch": 2}, 0, "y", 1e-7, 1e-6, (0,)),)),
        seconds={"load": 0.1, "find": 0.2},
    )
    return replace(plain, **changes)  # type: ignore[arg-type]


def entry_of(told: FuseResult, code: int = 0, checks: tuple[Check, ...] = ()) -> Entry:
    """The JSON object of a result, as the command line makes it."""
    return Entry(told.model, code, told, checks=checks)


def entry(*rewrites: Rewrite, **changes: object) -> Entry:
    """The JSON object of a made-up result."""
    return entry_of(result(*rewrites, **changes))


def gelu(layer: int, before: Excerpt | None = None) -> Rewrite:
    name = f"/layer.{layer}"
    erf = before or chain("Div", "Erf", "Add", "Mul", name=name)
    return Rewrite(
        "gelu", "com.microsoft.Gelu", f"{name}/Gelu", tuple(f"{name}/{i}" for i in range(4)), 1, before=erf, after=chain("Gelu")
    )


def hostile(library: Library) -> str:
    """A page about a model in which every name would be executed by an unsafe page."""
    step = Step(HOSTILE, HOSTILE, HOSTILE, ((HOSTILE, HOSTILE),), (0, 1), (2,))
    edges = (Edge(HOSTILE, HOSTILE, (HOSTILE,)), Edge(HOSTILE, HOSTILE, (), constant=True, literal=HOSTILE), Edge(HOSTILE))
    excerpt = Excerpt((step,), edges, (2,), {HOSTILE: 1})
    span = Span(HOSTILE, 1, 1, 5, HOSTILE)
    rewrite = Rewrite(HOSTILE, HOSTILE, HOSTILE, (HOSTILE,), 1, frozenset({HOSTILE}), before=excerpt, after=excerpt, root=HOSTILE)
    rewrite = replace(rewrite, lines=(MatchedLine(HOSTILE, (0,)),))
    bad = Accuracy(1.0, float("nan"), float("inf"), HOSTILE)
    run = Run(HOSTILE, True, {HOSTILE: 1}, 0, HOSTILE, 1.0, 0.0, (0,), HOSTILE)
    placement = Placement(HOSTILE, (PlacedNode(HOSTILE, HOSTILE, HOSTILE), PlacedNode(HOSTILE, HOSTILE, "CPU")))
    own = OwnWork(HOSTILE, (OwnFusion(HOSTILE, HOSTILE, "blocked", HOSTILE),), (OwnSite(rewrite, HOSTILE),), 2, 1)
    told = result(
        rewrite,
        own=(own, OwnWork(HOSTILE, failure=HOSTILE)),
        fixed={HOSTILE: (1, 2)},
        undone=(Undone(rewrite, "site", HOSTILE, HOSTILE, 1.0, 0.0, None, HOSTILE),),
        sites=(SiteCheck(rewrite, HOSTILE, HOSTILE, bad), SiteCheck(rewrite, HOSTILE, unknown=HOSTILE)),
        model=Path(HOSTILE.replace("\x00", "")),
        output=Path(HOSTILE.replace("\x00", "")),
        target=HOSTILE,
        providers=(HOSTILE,),
        near_misses=(NearMiss(HOSTILE, span, HOSTILE, HOSTILE, HOSTILE, HOSTILE, 3, HOSTILE),),
        skipped=(Skip(HOSTILE, HOSTILE, HOSTILE, change=HOSTILE),),
        verdict=Verdict("different", "body", (run,), HOSTILE, (placement,)),
        operators_before={HOSTILE: 1},
        operators_after={HOSTILE: 2},
    )
    return html.page(entry_of(told, 1, (Check(HOSTILE, HOSTILE, HOSTILE, False, span, (HOSTILE,)),)), library)
