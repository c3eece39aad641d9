"""The proofs of patterns, for a person."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Group
from rich.text import Text

from onnx_subgraph.report.table import Rows
from onnx_subgraph.report.wording import count
from onnx_subgraph.targets import TARGETS

if TYPE_CHECKING:
    from rich.console import RenderableType

    from onnx_subgraph.proving import Proof

FAILURES = 10
"""The most failures shown for one proof; `--json` has all."""


def proofs(proofs: Sequence[Proof]) -> RenderableType:
    """Which patterns passed their proofs, for which targets, and the failures of the others."""
    table = Rows("pattern", "models", "proof", *TARGETS, head=3 + len(TARGETS), right=("models", *TARGETS))
    for proof in proofs:
        word = Text(count(len(proof.failures), "failure"), "red") if proof.failures else Text("holds", "green")
        counts = (str(proof.targets[t] or "none") if t in proof.targets else "" for t in TARGETS)
        table.add(proof.pattern, str(proof.cases), word, *counts)
    parts: list[RenderableType] = [table]
    unproved = [f"{p.pattern}, {target}: {why}" for p in proofs for target, why in p.unproved.items()]
    if unproved:
        parts += ["", Text("Not proved on this machine", "bold"), *(Text(f"  {line}") for line in unproved)]
    if len(proofs) == 1 and proofs[0].notes:
        parts += ["", Text("Spellings that were left out", "bold"), *(Text(f"  {note}") for note in proofs[0].notes)]
    for proof in proofs:
        shown, hidden = proof.failures[:FAILURES], len(proof.failures) - FAILURES
        parts += [Text(f"\n{proof.pattern}: {failure}", "red") for failure in shown]
        if hidden > 0:
            parts.append(Text(f"\n{proof.pattern}: and {count(hidden, 'failure')} more, in --json", "red"))
    failed = sum(bool(proof.failures) for proof in proofs)
    total = f"{count(len(proofs), 'pattern')}, {count(sum(proof.cases for proof in proofs), 'model')}"
    return Group(*parts, "", f"{total}: {count(failed, 'pattern')} failed" if failed else f"{total}: all hold")
