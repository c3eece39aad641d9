"""Writes the page of `real_models.py`. This file reads rows and writes Markdown. It measures nothing."""

from __future__ import annotations

import math
import platform
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dimensions import PLAIN
from taking_turns import Ratio

SLOWER = 1.02
"""The page lists fused models slower than this ratio, unless two runs of the original differ as much."""
LARGEST_ERROR = 1e-4
"""As a share of an output's largest magnitude; `TIMES` the error of onnxruntime's own optimisation if that is larger."""
TIMES = 4
OURS = "ours"
CONSTANT = "constant"
"""Our model with `--constant-initializers`, for a model whose weights are inputs as well."""
PEERS = ("onnxslim", "onnxsim", "onnxscript")
OPENVINO = {"OpenVINO, float32": "openvino-f32", "OpenVINO": "openvino"}
"""Column → the runtime's name in `onnx_subgraph.timing`: in float32, and in the precision that OpenVINO chooses."""
STAGES = ("load", "find", "raise", "rewrite", "verify", "sites", "write")
PREFACE = """\
# Real models with trained weights

Made by `python benchmarks/real_models.py FOLDER SOURCES` with onnxruntime {version} on {machine}, {cores} cores, target
`onnxruntime`, provider CPUExecutionProvider, all options at their defaults. The models were published inside packages of PyPI and
npm; none was made for this page.

**{models} models: {verdicts}; {failed} failed. Undone fusions: {undone}.** {before:,} nodes became {after:,}.
Plain onnxruntime compared them with the originals, on feeds that `fuse` did not choose. The largest error is {error:.1e} of an
output's magnitude. {noisier} others are over {largest:.0e}, where onnxruntime's own optimisation of the original is as far off.
{renamed}{slower}"""
FUSED = """\
*Sites* counts fusions by the group of their pattern. *Error* is the largest difference to the original with optimisation off,
divided by the largest magnitude of that output, in three draws of feeds, with the optimisation of the written model on and off.
*Own* is the same for onnxruntime's own optimisation of the original. It is large in quantized models, which round to wide
steps, and in outputs that are close to zero everywhere, where the rounding of a Sigmoid is large. If *error* is larger than
*own* allows, both columns are distances from a float64 evaluation instead: of the written model, and of the original."""
COST = """\
Wall-clock seconds of `fuse`. *Peak* is the memory of its whole process, in MB."""
GAIN = """\
Times divided by the original's, run in turn{threads}, in onnxruntime with all its optimisations:
the ratio of the medians, with the least and most of five parts of the run. Below 1 is faster. *Again* is a second session of
the original itself: its difference from 1 is noise. *Products* is the share of our model's time that convolutions, products
with weights and recurrences take, each in its quickest run. They are kernels of onnxruntime that no fusion makes faster.
*Bound* is the ratio if everything else took no time.
{peers}"""
NAMES = """\
The name of a symbolic dimension must not matter. Each model with symbolic dimensions was fused under other names, without
verification: the first dimension has the name at the head of the column, the others the same name with a number. The table
shows the number of nodes after fusion, in bold if the fused sites differ from those with the names `{plain}`, `{plain}1`, …. A
published name, such as `2*seq`, may say more than a plain one, and then more may be fused. Dimensions named `?` need not be the
same in two inputs, so a few nodes more may stay."""


@dataclass(frozen=True)
class Undone:
    """A fusion that was undone. error, bound: its error and the allowed one. problem: another fault, or ""."""

    pattern: str
    node: str
    found: str
    error: float
    bound: float
    problem: str


def is_off(error: float, own: float) -> bool:
    """Whether a model's error is too large. own: the error of onnxruntime's own optimisation of the original."""
    return not error <= max(LARGEST_ERROR, TIMES * own)


@dataclass(frozen=True)
class Variant:
    """The result of `fuse` under other names of the dimensions. problem: why the model was refused, or ""."""

    after: int
    patterns: Mapping[str, int]
    problem: str = ""

    def is_as(self, other: Variant) -> bool:
        """Whether the same was fused under both names."""
        return (self.patterns, self.problem) == (other.patterns, other.problem)


@dataclass(frozen=True)
class Fused:
    """The result of `fuse` on a model.

    opsets, nodes: before and after. patterns, groups: fusions. seconds: by stage. error: relative, on feeds of the benchmark.
    problem: why the written model does not run, or the error of onnx's checker, or "". skipped: number of unfused matches, by
    reason. own: as error, for the original with onnxruntime's optimisation. variants: by the names of dimensions; may be empty.
    """

    opsets: Sequence[int]
    nodes: Sequence[int]
    patterns: Mapping[str, int]
    groups: Mapping[str, int]
    undone: Sequence[Undone]
    verdict: str
    strength: str
    reason: str
    seconds: Mapping[str, float]
    megabytes: float
    error: float
    own: float
    problem: str
    skipped: Mapping[str, int]
    variants: Mapping[str, Variant]

    @classmethod
    def read(cls, data: Mapping[str, Any]) -> Fused:
        """From what `dataclasses.asdict` makes of one."""
        variants = {name: Variant(**variant) for name, variant in data["variants"].items()}
        return cls(**{**data, "undone": [Undone(**undone) for undone in data["undone"]], "variants": variants})

    @property
    def is_off(self) -> bool:
        """Whether the written model's error is too large."""
        return is_off(self.error, self.own)

    @property
    def renamed(self) -> list[str]:
        """The names of dimensions under which other sites are fused than under the plain name."""
        plain = self.variants.get(PLAIN)
        return [n for n, variant in self.variants.items() if n != "as published" and plain and not variant.is_as(plain)]


@dataclass(frozen=True)
class Latency:
    """milliseconds: a run of the original. ratios: times divided by the original's; `again` is a second session of it.

    failures: name → why it is not timed. share: the part of our model's time in products, convolutions and recurrences.
    runs: of each model.
    """

    milliseconds: float
    ratios: Mapping[str, Ratio]
    failures: Mapping[str, str]
    share: float
    runs: int
    threads: int

    @classmethod
    def read(cls, data: Mapping[str, Any]) -> Latency:
        """From what `dataclasses.asdict` makes of one."""
        return cls(**{**data, "ratios": {name: Ratio(**ratio) for name, ratio in data["ratios"].items()}})

    @property
    def ours(self) -> Ratio:
        """The ratio of the model that `fuse` wrote."""
        return self.ratios[OURS]

    @property
    def bound(self) -> float:
        """The ratio if only products, convolutions and recurrences took time."""
        return self.ours.ratio * self.share

    @property
    def noise(self) -> float:
        """The ratio by which two sessions of the original differ, at least `SLOWER`."""
        again = self.ratios["again"].ratio
        return max(SLOWER, again, 1 / again)

    @property
    def is_slower(self) -> bool:
        """Whether the written model is slower than the original by more than noise."""
        return self.ours.ratio > self.noise

    @property
    def behind(self) -> Sequence[str]:
        """The peers whose models are faster than ours by more than noise."""
        return [p for p in PEERS if p in self.ratios and self.ours.ratio > self.ratios[p].ratio * self.noise]


@dataclass(frozen=True)
class Row:
    """One model. source: registry, package and version. failure: the traceback if it was not fused or not timed."""

    name: str
    source: str
    fused: Fused | None
    latency: Latency | None
    failure: str = ""

    @property
    def is_at_fault(self) -> bool:
        """Whether the tool did something wrong."""
        if self.fused is None or self.failure:
            return True
        return bool(self.fused.problem or self.fused.renamed or self.fused.undone) or self.fused.is_off


def told(name: str, fused: Fused | None, failure: str) -> str:
    """A line of progress."""
    if fused is None:
        return f"{name}: {failure.strip().splitlines()[-1]}"
    other = f", otherwise named {', '.join(fused.renamed)}" if fused.renamed else ""
    seconds = sum(fused.seconds.values())
    return f"{name}: {fused.nodes[0]} → {fused.nodes[1]} {fused.verdict} {seconds:.1f} s {fused.error:.1e}{other} {fused.problem}"


def page(rows: Sequence[Row], version: str, cores: int) -> str:
    """The whole page."""
    done = [(row, row.fused) for row in rows if row.fused is not None]
    lines = [*_preface(rows, version, cores).splitlines(), "", "## What was fused", "", *FUSED.splitlines(), ""]
    lines += ["| model | from | opset | nodes | sites | verdict | error | own |", "|---|---|---|---|---|---|---:|---:|"]
    lines += [_fused(row, fused) for row, fused in done]
    lines += ["", "## What it gains", "", *_gain(rows), "", "## What it costs", "", *_cost(done)]
    lines += ["", "## Names of dimensions", "", *NAMES.format(plain=PLAIN).splitlines(), "", *_names(done)]
    sections: Mapping[str, Iterable[str]] = {
        "Undone": (f"* **{r.name}**: {_undone(undone)}" for r, f in done for undone in f.undone),
        f"Slower than {SLOWER} of the original": (
            f"* **{r.name}**: {_ratio(r.latency.ours)}" for r in rows if r.latency is not None and r.latency.is_slower
        ),
        "Behind another tool": (
            f"* **{r.name}**: {_ratio(r.latency.ours)}; {peer} {_ratio(r.latency.ratios[peer])}{_constant(r.latency)}"
            for r in rows if r.latency is not None for peer in r.latency.behind
        ),
        "Not timed": _grouped(
            (r.name, f"{name}: {why}") for r in rows if r.latency is not None for name, why in r.latency.failures.items()
        ),
        "Matched and not fused": _skipped(done),
        "Reasons of verdicts": _grouped((r.name, f.reason) for r, f in done if f.reason),
        "Problems": (f"* **{r.name}**: {f.problem}" for r, f in done if f.problem),
        "Off": (f"* **{r.name}**: {f.error:.1e}, the original {f.own:.1e}" for r, f in done if f.is_off),
        "Failures": (f"* **{row.name}**\n\n{_fenced(row.failure)}" for row in rows if row.failure),
    }  # fmt: skip
    for title, said in sections.items():
        lines += ["", f"## {title}", "", *(list(said) or ["Nothing."])]
    return "\n".join(lines) + "\n"


def _preface(rows: Sequence[Row], version: str, cores: int) -> str:
    done = [row.fused for row in rows if row.fused is not None]
    dimensions, other = [f for f in done if f.variants], [f for f in done if f.renamed]
    latencies = [row.latency for row in rows if row.latency is not None]
    slower = sum(latency.is_slower for latency in latencies)
    renamed = (
        f"{len(dimensions)} models have symbolic dimensions; the names change what is fused in {len(other) or 'none'} of them."
    )
    mean = _mean(latencies, OURS)
    speed = f"\nThe written models take {mean} of the time (geometric mean of {len(latencies)}); {slower} over {SLOWER}."
    if any(CONSTANT in latency.ratios for latency in latencies):
        asked = [latency.ratios.get(CONSTANT, latency.ours) for latency in latencies]
        speed += f"\nWith `--constant-initializers`, which other tools do unasked, it is {_geometric_mean(asked)}."
    small = [f for f in done if f.error <= LARGEST_ERROR]
    return PREFACE.format(
        version=version,
        machine=platform.machine(),
        cores=cores,
        models=len(rows),
        failed=len(rows) - len(done),
        verdicts=", ".join(f"{n} {v}" for v, n in Counter(f.verdict for f in done).most_common()),
        undone=sum(len(f.undone) for f in done) or "none",
        before=sum(f.nodes[0] for f in done),
        after=sum(f.nodes[1] for f in done),
        error=max((f.error for f in small), default=math.nan),
        noisier=sum(not f.is_off for f in done) - len(small),
        largest=LARGEST_ERROR,
        renamed=renamed,
        slower=speed if latencies else "",
    )


def _fused(row: Row, fused: Fused) -> str:
    opset = " → ".join(map(str, dict.fromkeys(fused.opsets)))
    sites = ", ".join(f"{group} {n}" for group, n in sorted(fused.groups.items())) or "none"
    sites += f", {len(fused.undone)} undone" if fused.undone else ""
    verdict = f"{fused.verdict}, {fused.strength}" if fused.strength and fused.verdict == "equivalent" else fused.verdict
    nodes = f"{fused.nodes[0]} → {fused.nodes[1]}"
    error = "–" if math.isnan(fused.error) else f"{fused.error:.1e}"
    return f"| {row.name} | {row.source} | {opset} | {nodes} | {sites} | {verdict} | {error} | {fused.own:.1e} |"


def _gain(rows: Sequence[Row]) -> list[str]:
    timed = [(row, row.latency) for row in rows if row.latency is not None]
    latencies = [latency for _, latency in timed]
    threads = max((latency.threads for latency in latencies), default=1)
    words = " on one thread, in processor time" if threads == 1 else f" on {threads} threads"
    columns = [name for name in (OURS, "again", *PEERS, *OPENVINO) if any(name in latency.ratios for latency in latencies)]
    others = [name for name in columns if name not in (OURS, "again")]
    peers = "Columns of other tools show the models that they make, or how they run the original, by default." if others else ""
    lines = [*GAIN.format(threads=words, peers=peers).strip().splitlines(), ""]
    lines += [
        f"| model | original, ms | {' | '.join(columns)} | products | bound |",
        f"|---|---:|{'---|' * len(columns)}---:|---:|",
    ]
    for row, latency in timed:
        ratios = (_ratio(latency.ratios[name]) if name in latency.ratios else "–" for name in columns)
        lines.append(
            f"| {row.name} | {latency.milliseconds:.3g} | {' | '.join(ratios)} | {latency.share:.0%} | {latency.bound:.2f} |"
        )
    bound = math.exp(sum(math.log(latency.bound) for latency in latencies if latency.bound) / max(len(latencies), 1))
    means = " | ".join(f"**{_mean(latencies, name)}**" for name in columns)
    return [*lines, f"| geometric mean | | {means} | | **{bound:.2f}** |"]


def _mean(latencies: Sequence[Latency], name: str) -> str:
    """The geometric mean of the ratios of one column."""
    return _geometric_mean([latency.ratios[name] for latency in latencies if name in latency.ratios])


def _geometric_mean(ratios: Sequence[Ratio]) -> str:
    return f"{math.exp(sum(math.log(ratio.ratio) for ratio in ratios) / len(ratios)):.2f}" if ratios else "–"


def _cost(done: Sequence[tuple[Row, Fused]]) -> list[str]:
    stages = [stage for stage in STAGES if any(stage in fused.seconds for _, fused in done)]
    lines = [*COST.splitlines(), ""]
    lines += [f"| model | seconds | {' | '.join(stages)} | peak |", f"|---|{'---:|' * (len(stages) + 2)}"]
    for row, fused in done:
        seconds = (f"{fused.seconds[stage]:.1f}" if stage in fused.seconds else "" for stage in stages)
        lines.append(f"| {row.name} | {sum(fused.seconds.values()):.1f} | {' | '.join(seconds)} | {fused.megabytes:.0f} |")
    return lines


def _ratio(ratio: Ratio) -> str:
    return f"{ratio.ratio:.2f} ({ratio.least:.2f} to {ratio.most:.2f})"


def _constant(latency: Latency) -> str:
    """What `--constant-initializers` gains where weights are inputs, which other tools make constants unasked."""
    found = latency.ratios.get(CONSTANT)
    return "" if found is None else f"; its weights are inputs, and with `--constant-initializers` ours takes {_ratio(found)}"


def _names(done: Sequence[tuple[Row, Fused]]) -> list[str]:
    spellings = list(dict.fromkeys(name for _, fused in done for name in fused.variants))
    if not spellings:
        return ["No model has one."]
    titles = (name if name == "as published" else f"`{name}`" for name in spellings)
    lines = [
        f"| model | {' | '.join(titles)} |",
        f"|---|{'---:|' * len(spellings)}",
    ]
    for row, fused in done:
        if fused.variants:
            plain = fused.variants[PLAIN]
            cells = (_variant(fused.variants[s], plain) for s in spellings)
            lines.append(f"| {row.name} | {' | '.join(cells)} |")
    return lines


def _variant(variant: Variant, plain: Variant) -> str:
    text = variant.problem or str(variant.after)
    return text if variant.is_as(plain) else f"**{text}**"


def _skipped(done: Sequence[tuple[Row, Fused]]) -> list[str]:
    """One line for each pattern and reason. Reasons that differ in the measured sizes are one."""
    counts: Counter[tuple[str, str]] = Counter()
    for row, fused in done:
        for why, count in fused.skipped.items():
            counts[why.partition(": it takes")[0], row.name] += count
    return _grouped((f"{name} ({count}×)", why) for (why, name), count in sorted(counts.items()))


def _fenced(text: str) -> str:
    return "\n".join(["  ```", *(f"  {line}" for line in text.strip().splitlines()), "  ```"])


def _undone(undone: Undone) -> str:
    how = undone.problem.replace("\n", " ")[:200] or f"{undone.error:.3g} off, {undone.bound:.3g} allowed"
    where = {"site": "found at the site", "model": "found in the outputs"}.get(undone.found, "found nowhere")
    return f"{undone.pattern} at {undone.node}, {where}: {how}"


def _grouped(said: Iterable[tuple[str, str]]) -> list[str]:
    """One line for each text, with all its models."""
    models: dict[str, list[str]] = {}
    for name, text in said:
        models.setdefault(text.replace("\n", " ")[:300], []).append(name)
    return [f"* {', '.join(f'**{name}**' for name in names)}: {text}" for text, names in models.items()]
