"""Write the replacement of a match, and check it as far as it depends only on the kind of the match, not on the nodes around it.

The outcome is remembered for matches of the same kind (`outcomes`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import onnx_ir as ir

from onnx_subgraph.emitting import enclosure, function
from onnx_subgraph.emitting.attribute import lookup_in
from onnx_subgraph.emitting.emit import Emitter
from onnx_subgraph.emitting.fit import check_fit
from onnx_subgraph.emitting.fragment import Fragment
from onnx_subgraph.emitting.refused import Refused
from onnx_subgraph.language.term import Block
from onnx_subgraph.matching.match import Match
from onnx_subgraph.model.constants import Constants
from onnx_subgraph.model.nested import graph_of
from onnx_subgraph.operators.names import OWN_DOMAIN
from onnx_subgraph.rewriting import checks
from onnx_subgraph.rewriting.costs import Costs
from onnx_subgraph.rewriting.loadability import Loadability
from onnx_subgraph.rewriting.outcomes import Outcomes
from onnx_subgraph.rewriting.outline import Outline


@dataclass(frozen=True, slots=True, eq=False)
class Site:
    """The context of planning: the model's index and constants, and the providers that must load the result.

    costs: what replacements cost there, or None to ignore costs. outcomes: what became of the places of this model so far.
    """

    outline: Outline
    constants: Constants
    loadability: Sequence[Loadability]
    costs: Costs | None = None
    outcomes: Outcomes = field(default_factory=Outcomes)


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """One of the ways to replace a match: by `block`, or by a function call if it is None.

    needed: the results that are read. is_fallback: whether the block is for another target. has_kernel: whether the function call
    is one of a kernel of our library.
    """

    match: Match
    block: Block | None
    needed: Collection[str]
    is_fallback: bool
    has_kernel: bool


def replacement(choice: Choice, site: Site) -> Fragment:
    """What is put in the place of the match. Raises Refused where a check fails."""
    match, outcomes = choice.match, site.outcomes
    root = site.outline.root(graph_of(match.graph))
    case = outcomes.case(match, choice.block, choice.needed, root, _opset_imports(match, root), site.constants)
    if case is None:
        return _checked(choice, root, site)
    known = outcomes.known(case, site.outline.model.functions)
    if known is not None:
        return known
    try:
        fragment = _checked(choice, root, site)
    except Refused as refused:
        outcomes.refused(case, refused)
        raise
    outcomes.made(case, fragment)
    return fragment


def _checked(choice: Choice, root: ir.Graph | ir.Function, site: Site) -> Fragment:
    match = choice.match
    fragment = _fragment(choice, root, site)
    if root is not site.outline.model.graph:
        function.check_body(fragment.nodes)
    checks.check_reads(match, fragment)
    if match.pattern.grow is None or not fragment.functions:  # a function computes the same as its region
        fragment.infer()
        checks.adopt(match, fragment)
        if not match.pattern.bodies:  # a function body has the operator's result, known or not
            for name, new in fragment.provides.items():
                checks.check_result(match.roots[name], new, fragment)
        fragment.simplify()
        fragment.fold()
    checks.check_loads(fragment, site.loadability)
    checks.check_operands(fragment, has_kernel=choice.has_kernel)
    checks.check_overloads(fragment, root)
    if choice.is_fallback:
        checks.check_kernels(match, fragment, site.loadability)
    if choice.block is not None and site.costs is not None:
        checks.check_costs(match, fragment, site.costs, site.loadability)
    return fragment


def _fragment(choice: Choice, root: ir.Graph | ir.Function, site: Site) -> Fragment:
    match, block, needed = choice.match, choice.block, choice.needed
    checks.check_opsets(match.pattern, root.opset_imports)
    fragment = Fragment(_opset_imports(match, root), site.constants.tensor)
    lookup = lookup_in(match.bindings, site.constants.array)
    providers = [p.provider for p in site.loadability]
    if match.pattern.grow is not None:
        enclosure.call(match, fragment, needed, site.outline.definitions)
        return fragment
    if block is None:
        definitions = site.outline.definitions
        loads = partial(checks.check_loads, loadability=site.loadability)
        instead = (
            partial(checks.check_instead, match, costs=site.costs, loadability=site.loadability) if choice.has_kernel else None
        )
        function.call(match, fragment, lookup, definitions, loads, instead, providers)
        return fragment
    asked = block.requires.asked
    emitter = Emitter(fragment, match.bindings, match.rest, lookup, lambda n: n in needed or n in asked)
    emitter.block(block, lambda now: check_fit(block.requires, now, providers, is_fallback=choice.is_fallback))
    fragment.provides.update((n, emitter.value_of(n)) for n in block.names if n in needed)
    checks.check_need(match, fragment, site.loadability)
    return fragment


def _opset_imports(match: Match, root: ir.Graph | ir.Function) -> Mapping[str, int]:
    """Domain → the version that a replacement of `match` is written for."""
    return {"com.microsoft": 1, OWN_DOMAIN: 1, **match.pattern.opsets, **root.opset_imports}
