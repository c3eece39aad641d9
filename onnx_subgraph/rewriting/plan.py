"""Plan a rewrite: run every check before anything changes. The result is a `Plan` to commit, or a `Skip` with the reason.

The target selects among a pattern's replacements; the first one that passes every check is planned. The checks: no removed value
is still needed; the replacement can be written at this opset; its results have the same dtype and provably the same shape; every
provider loads it; it was not measured to be slower; and the new graph has no cycle.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import onnx_ir as ir

from onnx_subgraph.emitting import function
from onnx_subgraph.emitting.copying import copies
from onnx_subgraph.emitting.fragment import Fragment
from onnx_subgraph.emitting.refused import Needless, Refused, Slower, Unfit, Unloadable, WasWrong
from onnx_subgraph.errors import OnnxSubgraphError
from onnx_subgraph.language.term import Block
from onnx_subgraph.matching.equalities import REARRANGING
from onnx_subgraph.matching.interior import staying
from onnx_subgraph.matching.match import Match
from onnx_subgraph.matching.origin import label
from onnx_subgraph.model.nested import graph_of
from onnx_subgraph.operators.names import OWN_DOMAIN, operator_of
from onnx_subgraph.regions.selector import Builder
from onnx_subgraph.rewriting import checks
from onnx_subgraph.rewriting.costs import NOISE, is_fused, main_operator
from onnx_subgraph.rewriting.liveness import Liveness, Redirect, redirects
from onnx_subgraph.rewriting.loadability import CPU, Loadability, Operand
from onnx_subgraph.rewriting.order import place
from onnx_subgraph.rewriting.replacement import Choice, Site, replacement
from onnx_subgraph.rewriting.rewrite import Bug, Skip, Way

_BUG = "a bug in onnx-subgraph"
_REARRANGING = REARRANGING | {"Identity", "Split", "Expand", "Cast", "Shape", "Gather", "Concat"}


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """A rewrite that passed every check.

    replaced: old value → value of the fragment. removed: the matched nodes and those that die with them.
    before: the node that the fragment must precede, or None to put it after the last matched node.
    moved: nodes to move in front of it, too. lowering: the file of the replacement, as in `Block`.
    remarks: what to report although the match is replaced: a replacement that would be faster at a later opset, a lowering that
    was not used, or a bug of this tool.
    """

    match: Match
    graph: ir.Graph
    fragment: Fragment
    replaced: dict[ir.Value, ir.Value]
    removed: tuple[ir.Node, ...]
    redirects: tuple[Redirect, ...]
    before: ir.Node | None
    moved: tuple[ir.Node, ...]
    lowering: str = ""
    remarks: tuple[Skip, ...] = ()

    @property
    def head(self) -> ir.Node | None:
        """The main node of the replacement: the last fused operator, else the last node that does more than rearrange data."""
        nodes = self.fragment.nodes
        named = [n for n in reversed(nodes) if is_fused(n)] or [n for n in reversed(nodes) if n.op_type not in _REARRANGING]
        return next(iter([*named, *reversed(nodes)]), None)

    @property
    def op(self) -> str:
        """The main operator, with its domain; "" where the replacement has no node."""
        return "" if self.head is None else operator_of(self.head)


def plan(match: Match, target: str, site: Site, barred: Collection[Way] = ()) -> Plan | Skip:
    """Plan the replacement of `match` for `target`, or say why it is skipped. Does not change the model.

    barred: the replacements that were wrong here.
    """
    refusals: list[Refused] = []
    of_lowerings: dict[str, Refused] = {}
    bugs: list[Bug] = []
    best: Plan | None = None
    for blocks, is_fallback in _candidates(match, target):
        if best is not None and (best.lowering or _cost(best, site) is None):
            break  # a user's lowering wins; without measurements the first wins
        planned: list[Plan] = []
        slower: list[Slower] = []
        for block in blocks:
            try:
                has_kernel = target == "native" and block is None
                planned.append(_plan(match, block, site, barred, is_fallback=is_fallback, has_kernel=has_kernel))
            except Refused as refused:
                slower += [refused] if isinstance(refused, Slower) else []
                if not isinstance(refused, Unfit):
                    refusals.append(_unless_inlined(refused, match, site.loadability) if is_fallback else refused)
                if block is not None and block.lowering and not isinstance(refused, WasWrong):
                    of_lowerings.setdefault(block.lowering, refused)
            except OnnxSubgraphError:
                raise  # the user's mistake, in a selector or a pattern
            except Exception as error:  # a bug of this tool is reported, and the other matches go on
                bugs.append(Bug.of(error))
        planned = [p for p in planned if not any(_copies_more(p, other) for other in slower)]
        if planned:
            least = min(planned, key=lambda p: copies(p.fragment))
            best = least if best is None or _is_faster(least, best, site) else best
    results = tuple(value.name or "" for value in match.roots.values())
    found = [Skip(match.pattern.id, root_name(match), f"{_BUG}: {bug.error}", results=results, bug=bug) for bug in bugs]
    if best is not None:
        return replace(
            best, remarks=(*filter(None, [_faster_later(best, refusals, site)]), *_not_taken(best, of_lowerings), *found)
        )
    if found:
        return found[0]
    if not refusals:
        others = [t for t in match.pattern.targets if t != target and _candidates(match, t)]
        refusals.append(checks.nothing_to_try(match, target, others))
    reasons = dict.fromkeys(r.reason for r in refusals)
    opset = next((r.opset for r in refusals if r.opset is not None), None)
    change = "; or ".join(dict.fromkeys(change for r in refusals if (change := r.change or _raised(r.opset))))
    needless = any(isinstance(r, Needless) for r in refusals) and all(isinstance(r, Needless) or r.opset for r in refusals)
    skip = Skip(match.pattern.id, root_name(match), "; ".join(reasons), None if needless else opset, change, results)
    was_wrong = any(isinstance(r, WasWrong) for r in refusals)
    return replace(skip, unloadable=any(isinstance(r, Unloadable) for r in refusals), needless=needless, was_wrong=was_wrong)


def _raised(opset: int | None) -> str:
    return "" if opset is None else f"export the model at opset {opset} or later"


def _cost(planned: Plan, site: Site) -> float | None:
    """The ratio of a plan on the provider where it is worst, by the unfused graph; None where it is unknown on one of them."""
    if site.costs is None:
        return None
    found = [site.costs.of(p.provider, planned.match.pattern.id, planned.fragment.nodes) for p in site.loadability]
    ratios = [cost.ratio for cost in found if cost is not None]
    return max(ratios) if ratios and len(ratios) == len(found) else None


def _is_faster(planned: Plan, other: Plan, site: Site) -> bool:
    """Whether both were measured, and `planned` was faster by more than noise."""
    cost, others = _cost(planned, site), _cost(other, site)
    return cost is not None and others is not None and cost < others * (1 - NOISE)


def _copies_more(planned: Plan, slower: Slower) -> bool:
    """Whether a plan makes more copies than `slower` for the same operator on the CPU. Then it is slower, too.

    Other providers may have a faster kernel for the layout that the copies make.
    """
    same = slower.provider == CPU and slower.kind == main_operator(planned.fragment.nodes)
    return same and slower.copies < copies(planned.fragment)


def _faster_later(planned: Plan, refusals: Sequence[Refused], site: Site) -> Skip | None:
    """A remark on a replacement that was measured faster than `planned` and needs a later opset; None if there is none."""
    cost = _cost(planned, site)
    root = next(iter(planned.replaced))
    for refused in refusals:
        if cost is None or site.costs is None or refused.opset is None or root.dtype is None:
            continue
        dtype = root.dtype.name.lower()
        typical = [site.costs.typical(p.provider, refused.operator, dtype) for p in site.loadability]
        if all(t is not None and t < cost * (1 - NOISE) for t in typical):
            why = f"replaced by {planned.op or 'nothing'}; {refused.operator} would be faster, and needs opset {refused.opset}"
            return Skip(planned.match.pattern.id, root_name(planned.match), why, refused.opset, replaced=True)
    return None


def _not_taken(planned: Plan, refusals: Mapping[str, Refused]) -> list[Skip]:
    """Remarks on users' lowerings that were refused. refusals: by the files of the lowerings."""
    root = root_name(planned.match)
    return [
        Skip(
            planned.match.pattern.id,
            root,
            f"replaced by {planned.op or 'nothing'}, and not as in {file}: {refused.reason}",
            refused.opset,
            refused.change or _raised(refused.opset),
            replaced=True,
            lowering=file,
            unloadable=isinstance(refused, Unloadable),
        )
        for file, refused in refusals.items()
        if file != planned.lowering
    ]


def _unless_inlined(refused: Refused, match: Match, loadability: Sequence[Loadability]) -> Refused:
    """Return `refused`, unless the provider would inline the operator even at that opset."""
    dtypes = (match.roots[name].dtype for name in function.provided_names(match))
    operands = [Operand(dtype) for dtype in dtypes if dtype is not None]
    for provider in loadability:
        if refused.opset is not None and provider.inlines(refused.operator, refused.opset, operands):
            return checks.inlined(refused.operator, provider)
    return refused


def root_name(match: Match) -> str:
    """The name of the last matched node, or of its result where the node has no name."""
    return label(match.nodes[-1])


def targets_tried(target: str) -> tuple[str, ...]:
    """The targets whose replacements serve a target, the preferred one first."""
    return ("onnxruntime", "standard") if target in ("onnxruntime", "native") else (target,)


def _candidates(match: Match, target: str) -> list[tuple[Sequence[Block | None], bool]]:
    """The replacements to try, grouped by target and file, and whether each group belongs to another target.

    None stands for a function call, or for what a selector builds. Within a group, the one with the fewest copies is used. A
    match of a single operator does not become a function if its pattern has replacements, unless it raises to a canonical
    operator.
    """
    pattern = match.pattern
    if pattern.bodies and target not in pattern.targets:
        return []
    own = pattern.grow is not None and pattern.grow.domain != OWN_DOMAIN
    if own or (match.selector is not None and isinstance(match.selector, Builder)):
        return [((None,), False)]
    if target == "function":
        return [] if len(match.nodes) == 1 and pattern.replace and not pattern.raised else [((None,), False)]
    kernel: list[tuple[Sequence[Block | None], bool]] = [((None,), False)] if target == "native" and _has_kernel(match) else []
    target = "onnxruntime" if target == "native" else target
    found: dict[tuple[str, str], list[Block | None]] = {}
    for of_target in targets_tried(target):
        for block in pattern.blocks(of_target):
            if all(match.bindings.get(n) is None for n in block.requires.absent):
                found.setdefault((of_target, block.lowering), []).append(block)
    return [*kernel, *((blocks, of_target != target) for (of_target, _), blocks in found.items())]


def _has_kernel(match: Match) -> bool:
    """Whether our library has a kernel for the match's operator and types."""
    types = {function.data_type(name) for name in match.pattern.kernel}
    return {match.roots[name].dtype for name in function.provided_names(match)} <= types


def _plan(match: Match, block: Block | None, site: Site, barred: Collection[Way], *, is_fallback: bool, has_kernel: bool) -> Plan:
    graph = graph_of(match.graph)
    names = function.provided_names(match) if block is None else [n for n in block.names if n in match.roots]
    before = Liveness(site.outline, graph, match.nodes)
    shared = [v for n in match.pattern.shares if type(v := match.bindings.get(n)) is ir.Value]
    provided = dict.fromkeys(match.roots[n] for n in names)
    stay = staying(match.nodes, provided, shared, before.is_needed, site.constants)
    if stay:
        match = replace(match, nodes=tuple(n for n in match.nodes if n not in stay))
        before = Liveness(site.outline, graph, match.nodes)
    needed = {n for n in names if before.is_needed(match.roots[n])}
    if not needed:
        raise Refused("nothing needs its result", change="leave it out, for it is computed for nothing")
    redirects(before, provided, _staying(match), match.nodes)

    fragment = replacement(Choice(match, block, needed, is_fallback, has_kernel), site)
    replaced = {match.roots[n]: v for n, v in fragment.provides.items()}

    after = Liveness(site.outline, graph, match.nodes, fragment.read.values())
    redirected = redirects(after, replaced, _staying(match), match.nodes)
    removed = (*match.nodes, *after.dead(replaced))
    first, moved = place(match.nodes, graph, fragment, replaced, removed, redirected, site.outline)
    lowering = "" if block is None else block.lowering
    made = Plan(match, graph, fragment, replaced, removed, tuple(redirected), first, moved, lowering)
    if (made.op, lowering) in barred:
        raise WasWrong(f"{made.op} is wrong here")
    return made


def _staying(match: Match) -> list[ir.Value]:
    """The bound values that the match reads and does not compute."""
    inner = {o for n in match.nodes for o in n.outputs}
    return list(dict.fromkeys(v for v in match.bindings.values() if type(v) is ir.Value and v not in inner))
