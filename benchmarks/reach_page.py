"""Writes the page of `reach.py`: totals, one row a model, and the reason for each count that is too low.

This file reads rows and writes Markdown. It measures nothing. Except for the seconds, equal models and versions give equal pages.
"""

from __future__ import annotations

import math
import platform
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import onnxruntime
import units

TITLES = {
    "layer_norm": "LayerNorm", "rms_norm": "RMSNorm", "gelu": "GELU", "gelu_tanh": "tanh GELU", "quick_gelu": "QuickGELU",
    "silu": "SiLU", "hardswish": "HardSwish", "hardsigmoid": "HardSigmoid", "batch_norm": "BatchNorm",
    "relu": "Relu", "group_norm": "GroupNorm", "attention": "Attention",
}  # fmt: skip
PREFACE = """\
# Reach on real models

Made by `python benchmarks/reach.py CORPUS` with onnxruntime {version} on {machine}, target `onnxruntime`, provider
CPUExecutionProvider, all options at their defaults.

**{graphs} graphs of {networks} networks: {verdicts}; {failed} failed.** {kernel} of the equivalent have the strength `kernel`:
each fused operator ran as a kernel of the provider.

{loaded} written models load and run in plain onnxruntime. The largest difference to the original, on feeds that `fuse` did not
choose, is {error:.1e} of the output's magnitude ({half:.1e} in float16). {nodes_before} nodes became {nodes_after}. Every unit
of the network was found in {complete} graphs; some were not found in {short}."""
READING = """\
*Found* counts the units of the written model, *of* those that one forward pass of the source network calls. An operator that
the exporter wrote itself counts as found. BatchNorm counts the folded ones, Relu (and Relu6) those that became part of a
convolution. Attention is scaled dot-product attention, called or written out. Units that the exporter merged or dropped are not
counted in *of*; they are listed below."""
COLUMNS = """\
*Nodes* includes those of nested bodies and functions. *Units* is found/of. *Error* is the largest difference to the original
with optimisation off, divided by the largest magnitude of that output. *Seconds* are processor time of `fuse` in all: reading,
matching, rewriting, verifying on {cores} threads, writing."""
CHECKER = """\
`onnx.checker` accepts each written model whose original it accepts, with these exceptions. {own} have
`SimplifiedLayerNormalization`, onnxruntime's own name for RMSNorm in the default domain, which onnx's checker does not know.
The standard's RMSNormalization begins with opset 23. (`--target standard` or `function` writes models without it.)"""


@dataclass(frozen=True)
class Row:
    """The results for one model.

    seconds: processor time of `fuse`. found, expected: by unit. error: the largest difference to the original divided by the
    largest magnitude of that output, on the manifest's own feeds. problem: why the written model does not run, or "".
    invalid: the error of onnx's checker if it accepts the original, or "". notes: units of the network that the graph does not
    have. reasons: why a count is short, or why nothing was written.
    """

    name: str
    verdict: str
    seconds: float
    before: int = 0
    after: int = 0
    opsets: Sequence[int] = (0, 0)
    found: Mapping[str, int] = field(default_factory=dict)
    expected: Mapping[str, int] = field(default_factory=dict)
    error: float = float("nan")
    problem: str = ""
    invalid: str = ""
    strength: str = ""
    notes: Sequence[str] = ()
    reasons: Sequence[str] = ()
    rewrites: Mapping[str, int] = field(default_factory=dict)
    half: bool = False

    @property
    def short(self) -> dict[str, tuple[int, int]]:
        """Units of which fewer were found than expected."""
        return {u: (self.found.get(u, 0), n) for u, n in self.expected.items() if self.found.get(u, 0) < n}


def page(rows: Sequence[Row], failures: Mapping[str, str], cores: int) -> str:
    """The whole page. failures: model → what went wrong, for models on which `fuse` failed."""
    lines = [*_preface(rows, failures).splitlines(), "", *_totals(rows), "", *READING.splitlines(), "", "## Models", ""]
    lines += [*COLUMNS.format(cores=cores).splitlines(), "", *_models(rows), "", "## Where a count is short", ""]
    lines += _grouped((r.name, reason) for r in rows for reason in r.reasons) or ["Nowhere."]
    if notes := _grouped((r.name, note) for r in rows for note in r.notes):
        lines += ["", "## Where a graph has fewer units than its network", "", *notes]
    lines += ["", "## Validity", "", *_validity(rows), "", "## What was fused", "", *_patterns(rows)]
    if failures:
        lines += ["", "## Failures", ""]
        for name, text in sorted(failures.items()):
            lines += [f"* **{name}**", "", "  ```", *(f"  {line}" for line in text.strip().splitlines()), "  ```"]
    return "\n".join(lines) + "\n"


def _preface(rows: Sequence[Row], failures: Mapping[str, str]) -> str:
    verdicts = Counter(row.verdict for row in rows)
    errors = {half: [r.error for r in rows if r.half == half and not math.isnan(r.error)] for half in (False, True)}
    return PREFACE.format(
        version=onnxruntime.__version__, machine=platform.machine(), graphs=len(rows) + len(failures),
        networks=len({r.name.partition(".")[0] for r in rows}), verdicts=", ".join(f"{n} {v}" for v, n in verdicts.most_common()),
        kernel=sum(r.verdict == "equivalent" and r.strength == "kernel" for r in rows),
        loaded=sum(not r.problem and not math.isnan(r.error) for r in rows), error=max(errors[False], default=0.0),
        half=max(errors[True], default=0.0), nodes_before=f"{sum(r.before for r in rows):,}",
        nodes_after=f"{sum(r.after for r in rows):,}", complete=sum(r.verdict == "equivalent" and not r.short for r in rows),
        short=sum(bool(r.short) for r in rows), failed=len(failures),
    )  # fmt: skip


def _totals(rows: Sequence[Row]) -> list[str]:
    lines = ["| unit | found | of | graphs |", "|---|---:|---:|---:|"]
    for unit in units.UNITS:
        having = [r for r in rows if r.expected.get(unit)]
        if having:
            found = sum(min(r.found.get(unit, 0), r.expected[unit]) for r in having)
            lines.append(f"| {TITLES[unit]} | {found} | {sum(r.expected[unit] for r in having)} | {len(having)} |")
    return lines


def _models(rows: Sequence[Row]) -> list[str]:
    lines = ["| model | nodes | opset | verdict | units | error | seconds |", "|---|---|---|---|---|---:|---:|"]
    for row in rows:
        before, after = row.opsets
        opset = str(before) if before == after else f"{before} → {after}"
        counts = ", ".join(_count(row, unit) for unit in units.UNITS if row.expected.get(unit) or row.found.get(unit))
        error = row.problem or ("" if math.isnan(row.error) else f"{row.error:.1e}")
        cells = (
            row.name, f"{row.before} → {row.after}", opset, row.verdict, counts or "none", error,
            f"{row.seconds:.1f}",
        )  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _count(row: Row, unit: str) -> str:
    text = f"{TITLES[unit]} {row.found.get(unit, 0)}/{row.expected.get(unit, 0)}"
    return f"**{text}**" if unit in row.short else text


def _grouped(said: Iterable[tuple[str, str]]) -> list[str]:
    """One line for each text, with all its models."""
    models: dict[str, list[str]] = {}
    for name, text in said:
        models.setdefault(text, []).append(name)
    return [f"* {', '.join(f'**{name}**' for name in names)}: {text}" for text, names in models.items()]


def _validity(rows: Sequence[Row]) -> list[str]:
    invalid = [row for row in rows if row.invalid]
    if not invalid:
        return ["`onnx.checker` accepts each written model whose original it accepts."]
    others = [(row.name, row.invalid) for row in invalid if "SimplifiedLayerNormalization" not in row.invalid]
    lines = CHECKER.format(own=len(invalid) - len(others)).splitlines()
    return [*lines, "", *_grouped(others)] if others else lines


def _patterns(rows: Sequence[Row]) -> list[str]:
    sites: Counter[str] = Counter()
    graphs: Counter[str] = Counter()
    for row in rows:
        sites.update(row.rewrites)
        graphs.update(row.rewrites.keys())
    ordered = sorted(sites, key=lambda pattern: (-sites[pattern], pattern))
    return ["| pattern | sites | graphs |", "|---|---:|---:|", *(f"| {p} | {sites[p]} | {graphs[p]} |" for p in ordered)]
