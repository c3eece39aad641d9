"""Phrases that several reports share: counts, names for unnamed things, and the results of comparisons."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from onnx_subgraph.backends.names import names_in
from onnx_subgraph.operators.names import OWN_DOMAIN

if TYPE_CHECKING:
    from onnx_subgraph.result import Engines, FuseResult
    from onnx_subgraph.rewriting.marked import Marked
    from onnx_subgraph.rewriting.recurrent import Recurrent
    from onnx_subgraph.rewriting.subnormal import Flushed
    from onnx_subgraph.simplification.simplify import Simplified
    from onnx_subgraph.timing import Bench, Ratio
    from onnx_subgraph.timing.tuning import Tuning
    from onnx_subgraph.verification.verdict import Coverage, Placement, Run, Verdict

UNNAMED = "(a node without a name)"
ASSUMED = {
    "centred": "no mean of a group is a hundred times its deviation",
    "finite": "no value is NaN or infinite",
    "nonempty": "no batch or length is 0",
    "nonnegative": "no index is negative",
    "nonempty-images": "no image has a size of 0",
    "nonzero": "no norm or variance is 0, or below the bound of the original",
    "visible": "no row of a mask has the lowest finite number everywhere",
}
"""The meaning of each assumption of a pattern."""
FOLDED = "(none)"
"""The result of a match without a new operator: a constant, or an existing value."""
STRENGTH = {
    "kernel": "each fused operator ran by its kernel",
    "body": "at least one fused operator ran by its definition, inlined",
}
"""The meaning of each strength of a verdict."""
FEW = 0.01
"""The largest fraction of the elements of an output that may differ unseen without being told."""
LONGEST_NAME = 60
"""Characters of a dimension's name to show."""


def count(number: int, noun: str) -> str:
    """`3 nodes`, `1 node`, `2 matches`."""
    plural = f"{noun}es" if noun.endswith(("s", "ch")) else f"{noun}s"
    return f"{number} {noun if number == 1 else plural}"


def assumption(names: Iterable[str]) -> str:
    """What a pattern assumes of the data, as a clause."""
    return ", and ".join(f"that {ASSUMED[name]}" for name in sorted(names))


def timed(bench: Bench) -> list[str]:
    """The time of the fused model beside the original's, a line for each way to run it."""
    first, *others = bench.timed
    before, lines = milliseconds(first.quantile(0.5)), []
    for one in others:
        by = " with our kernels" if one.runtime == "kernels" else ""
        if one.ratio is None:
            lines.append(f"not measured{by}: {one.problem}")
        else:
            after = milliseconds(one.quantile(0.5))
            lines.append(f"{ratio_text(one.ratio)} of the original's{by}: {before} → {after} ms, {conditions(bench)}")
    return lines


def tuned(tuning: Tuning) -> str:
    """The result of tuning, in a sentence."""
    if tuning.whole is not None:
        if tuning.backend:
            backends, part = " and ".join(names_in(tuning.backend)), tuning.results
            which = f": the first computes {count(len(part), 'value')}, from {part[0]} to {part[-1]}" if part else ""
            return f"{ratio_text(tuning.whole)} of the original's time, by engines of {backends}{which}"
        left = f"; left alone: {', '.join(tuning.skip)}" if tuning.skip else ""
        more = "; fused against the table of costs as well" if tuning.prefer == "fusion" else ""
        some = "all" if tuning.rounded is None else len(tuning.rounded)
        rounded = f"; {tuning.numerics} in {some} of the products" if tuning.numerics != "float32" else ""
        return f"{ratio_text(tuning.whole)} of the original's time, for the target {tuning.target}{left}{more}{rounded}"
    return (
        "nothing pays on this machine, and nothing is fused" if tuning.skip else "nothing in it fuses, and nothing was measured"
    )


def flushed(zeros: Sequence[Flushed], kept: Sequence[Flushed]) -> str:
    """How many subnormal numbers became zeros, or had to be kept, and where; "" for none."""
    weights = zeros or kept
    if not weights:
        return ""
    number, where = sum(one.count for one in weights), weights[0].weight if len(weights) == 1 else f"{len(weights)} weights"
    numbers = f"{number:,} subnormal number{'' if number == 1 else 's'} of {where} {'is' if number == 1 else 'are'}"
    if zeros:
        return f"{numbers} zero{'' if number == 1 else 's'} now: products with them are slow"
    return f"{numbers} kept: with zeros in their place the model is not equivalent"


def engines(made: Engines) -> str:
    """The engines, and their backends."""
    backends = " and ".join(names_in(made.backend))
    if not made.count:
        return f"none of {backends}: {'; '.join(made.refused) or 'it runs no region that is worth it'}"
    held = f"{count(made.count, 'engine')} of {backends} with {count(made.nodes, 'node')}"
    return f"{held}: onnx_subgraph.InferenceSession runs them, onnxruntime alone runs their nodes"


def simplified(done: Simplified, undone: Simplified) -> str:
    """What was computed ahead of time, or had to be kept; "" for nothing."""
    what = done or undone
    known = what.computed + what.passed + what.branches
    parts = (
        (what.computed, "computed in advance"),
        (what.passed, "without effect"),
        (what.branches, "that chose a branch"),
        (max(0, what.removed - known) if known else 0, "that nothing reads any more"),
        (what.simpler, "written more simply"),
        (what.narrowed, "for the one row that is read"),
        (what.targets, "with a constant shape now"),
    )
    said = ", ".join(f"{number:,} {words}" for number, words in parts if number)
    said = f"{count(what.removed, 'node')}: {said}" if what.removed > 0 and done else said
    moved = f"{count(what.captured, 'weight')} moved into the only body that reads them" if what.captured else ""
    every = "; ".join(filter(None, (said, moved)))
    return every if done or not every else f"undone, because the model is not equivalent with it: {every}"


def recurrent(made: Sequence[Recurrent], kept: Sequence[Recurrent]) -> str:
    """How many Loops became which operators, or had to stay; "" for none."""
    operators = Counter(one.operator for one in made)
    said = [f"{count(number, 'Loop')} {'is' if number == 1 else 'are'} {name} now" for name, number in operators.items()]
    said += [f"{count(len(kept), 'Loop')} kept"] if kept else []
    assumed = frozenset().union(*(one.rewrite.assumes for one in made))
    return ", ".join(said) + (f", assuming {assumption(assumed)}; this was not checked" if assumed else "")


def conditions(bench: Bench) -> str:
    """The sizes and threads of the measurement."""
    options = bench.options
    threads = count(options.threads, "thread") if options.threads else "onnxruntime's default threads"
    at = ", ".join(f"{name} {size}" for name, size in bench.sizes.items())
    by = ", processor time" if options.by_processor else ""
    return f"at {at or ('the sizes given' if options.inputs else 'its fixed shapes')}, {threads}{by}"


def ratio_text(ratio: Ratio) -> str:
    """A ratio, and its least and most over parts of the run."""
    return f"{ratio.ratio:.3f} ({ratio.least:.2f}–{ratio.most:.2f})"


def milliseconds(seconds: float) -> str:
    """Milliseconds, with three digits."""
    return f"{seconds * 1e3:.3g}" if seconds < 1 else f"{seconds * 1e3:.0f}"


def tried(runs: Sequence[Run]) -> str:
    """How much was compared: the outputs, sizes and seeds."""
    sizes = sorted({sizes_of(run) for run in runs} - {""})
    seeds = sorted({run.seed for run in runs if run.seed is not None})
    parts = [count(len(runs), "comparison"), f"of {count(len({run.output for run in runs}), 'output')}"]
    if sizes:
        shown = "; ".join(sizes[:4]) + (f"; … {len(sizes)} in all" if len(sizes) > 4 else "")
        parts.append(f"at {shown}")
    if seeds:
        parts.append(f"with {'seed' if len(seeds) == 1 else 'seeds'} {_runs_of(seeds)}")
    return " ".join(parts)


def _runs_of(numbers: Sequence[int]) -> str:
    """Sorted integers in words: `0, 1, 2, 3, 32, 128 to 159`. Runs of more than four are short."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(f"{run[0]} to {run[-1]}" if len(run) > 4 else ", ".join(map(str, run)) for run in runs)


def evidence(verdict: Verdict) -> list[str]:
    """The evidence of a verdict, a line each: what ran, what was checked alone, what the outputs can show, what was random."""
    also = f"; the model ran by {' and '.join(verdict.also)} as well" if verdict.also else ""
    lines = [f"strength {verdict.strength}: {_ran(verdict)}{also}"]
    if verdict.coverage is not None:
        lines.append(_held(verdict.coverage))
    powers = [showing.power for showing in verdict.showings if showing.power is not None]
    if powers:
        lines.append(f"power: the outputs show an error of {max(powers):.1g} of their spread and more")
    few = [showing for showing in verdict.showings if showing.unseen is not None and showing.unseen > FEW]
    lines += [f"power: up to {showing.unseen:.0%} of the elements of {showing.output} may differ unseen" for showing in few]
    return lines + _remarks(verdict)


def exceptions(verdict: Verdict) -> list[str]:
    """Unexpected facts about a verdict, a line each: fusions without a kernel or a run, outputs that show nothing."""
    found, lines = verdict.coverage, list[str]()
    if verdict.also:
        lines.append(f"the model ran by {' and '.join(verdict.also)} as well")
    if found is not None:
        if found.body:
            lines.append(f"{count(found.body, 'fusion')} ran by definition, not by a kernel")
        if found.alone and verdict.runs:
            lines.append(f"no run of the model reached {count(found.alone, 'fusion')}")
    elif verdict.strength == "body":
        lines.append(STRENGTH["body"])
    return lines + _remarks(verdict)


def _remarks(verdict: Verdict) -> list[str]:
    blind = [f"{showing.output} ({showing.blind})" for showing in verdict.showings if showing.blind]
    lines = [f"counted for nothing: {_some(blind)}"] if blind and not verdict.blind else []
    jumps = Counter[str]()
    for run in verdict.runs:
        jumps[run.output] = max(run.jumps, jumps[run.output])
    lines += [
        f"{count(number, 'element')} of {output} jumped, as some of the original do when its roundings change"
        for output, number in jumps.items()
        if number
    ]
    lines += [
        f"{one.output} is {one.kernels:.1e} of its largest element from float64; onnxruntime's own is {one.onnxruntime:.1e}"
        for one in verdict.roundings
    ]
    if verdict.random:
        lines.append(f"random: {_some(verdict.random)}; what they give was fed to both models")
    return lines


def _ran(verdict: Verdict) -> str:
    found = verdict.coverage
    if found is None:
        return STRENGTH[verdict.strength]
    parts = [f"{found.kernel} by a kernel"] if found.kernel else []
    parts += [f"{found.body} by definition"] if found.body else []
    ran = f"{count(found.kernel + found.body, 'fusion')} ran" + (f", {' and '.join(parts)}" if parts else "")
    return ran + (f"; no run reached {found.alone} more" if found.alone else "")


def _held(found: Coverage) -> str:
    drawn = f" ({found.drawn} on drawn values)" if found.drawn else ""
    parts = [f"{found.float64} compared with float64, each alone{drawn}"] if found.float64 else []
    parts += [f"{found.unfused} compared with the unfused result"] if found.unfused else []
    parts += [f"{found.outputs} checked by the outputs only"] if found.outputs else []
    return f"proof: {'; '.join(parts)}"


def _some(names: Sequence[str], limit: int = 3) -> str:
    return ", ".join(names[:limit]) + (f" and {len(names) - limit} more" if len(names) > limit else "")


def outcome(run: Run) -> str:
    """The result of one comparison, and how it was made."""
    if not run.problem:
        what = f"{run.output} differs by {run.error:.2g} of {run.bound:.2g} allowed"
    else:
        what = f"{run.output}: {run.problem}" if run.output else f"the candidate {run.problem}"
    if not run.provider:  # the models' declarations differ: nothing ran
        return what
    where = f" at {list(run.worst)}" if run.worst else ""
    feeds = "given inputs" if run.seed is None else f"seed {run.seed}"
    level = "optimised" if run.optimised else "not optimised"
    return f"{what}{where} ({', '.join(filter(None, (run.provider, level, sizes_of(run), feeds)))})"


def placed(placement: Placement) -> str:
    """How many nodes ran on a provider, and which ones it left to the CPU, by operator."""
    fallen = Counter(node.op for node in placement.fallen)
    said = f"{placement.provider} took {len(placement.taken)} of {count(len(placement.nodes), 'node')}"
    left = ", ".join(f"{number} {op}" for op, number in sorted(fallen.items()))
    return f"{said}; the CPU has {left}" if left else said


def sizes_of(run: Run) -> str:
    """`batch=2 seq=7`."""
    return " ".join(f"{_on_one_line(name)}={size}" for name, size in run.sizes.items())


def _on_one_line(name: str) -> str:
    """The name of a dimension on one line: long ones are cut, unprintable characters are escaped."""
    shown = "".join(character if character.isprintable() else repr(character)[1:-1] for character in name)
    return shown if len(shown) <= LONGEST_NAME else f"{shown[: LONGEST_NAME - 1]}…"


def marked(made: Marked) -> str:
    """What a marked part became: `onnx_subgraph.EncoderLayer ×12, 18 nodes each, first encoder.layer.0`."""
    times, each = (f" ×{made.count}", " each") if made.count > 1 else ("", "")
    return f"{OWN_DOMAIN}.{made.operator}{times}, {count(made.nodes, 'node')}{each}, first {made.first}"


def changes(result: FuseResult) -> dict[str, str]:
    """Changes of a model besides fusions: kind → text."""
    said = {
        "marked": "\n".join(map(marked, result.marked)),
        "fixed": ", ".join(f"{name}={'x'.join(map(str, shape))}" for name, shape in result.fixed.items()),
        "weights": flushed(result.flushed, result.unflushed),
        "simplified": simplified(result.simplified, result.unsimplified),
        "recurrent": recurrent(result.recurrent, result.unrecurrent),
    }
    return {name: words for name, words in said.items() if words}
