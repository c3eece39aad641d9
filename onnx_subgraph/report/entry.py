"""The outcome of one model of a run, including expectations: the input of the files for CI jobs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from onnx_subgraph.report.wording import count

if TYPE_CHECKING:
    from onnx_subgraph.expectation.check import Check
    from onnx_subgraph.result import FuseResult


@dataclass(frozen=True, slots=True)
class Entry:
    """One model of a run. result: None if it could not be fused; `error` then says why. code: 0 yes, 1 no, 2 could not tell.

    checks: its expectations, compared with the result. strict: an undone fusion counts as a no.
    """

    model: Path
    code: int
    result: FuseResult | None = None
    error: str = ""
    checks: tuple[Check, ...] = ()
    strict: bool = False

    @property
    def missed(self) -> tuple[Check, ...]:
        """The expectations that were not met."""
        return tuple(check for check in self.checks if not check.met)

    @property
    def outcome(self) -> str:
        """In a few words, whether the model may be used."""
        if self.result is None:
            return "could not be fused"
        if self.result.verdict.verdict == "different":
            return "not equivalent to the original"
        if self.code == 2:
            return "could not be verified"
        if self.missed:
            return f"{len(self.missed)} of {len(self.checks)} expectation{'' if len(self.checks) == 1 else 's'} missed"
        said = "unchanged: nothing fused" if self.result.unchanged else "fused"
        if not self.result.undone:
            return said
        wrong = f"{count(len(self.result.undone), 'wrong fusion')}"
        return f"not written: {wrong}" if self.strict else f"{said}, {wrong} undone"


def missed_text(check: Check) -> str:
    """A missed expectation in full: its place with a caret, what was expected and found, and why."""
    return "\n".join([str(check.span), check.span.caret(), str(check), *(f"  {reason}" for reason in check.reasons)])
