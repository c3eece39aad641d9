"""A verdict in words: in brief for the report of a command, in full with `-v` and for `verify`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from onnx_subgraph.report.wording import count, evidence, exceptions, outcome, placed, tried

if TYPE_CHECKING:
    from onnx_subgraph.verification.verdict import Coverage, Verdict

WORDS = {"equivalent": ("equivalent", "bold green"), "different": ("different", "bold red"), "not-run": ("not run", "yellow")}
"""The style of each verdict."""


def verdict_text(verdict: Verdict, *, brief: bool = False) -> Text:
    """A verdict and its evidence.

    brief: for an equivalent model only how much was compared, how close the outputs came to their bounds, and anything
    unexpected, such as a fusion that no run reached. Other verdicts are always shown in full.
    """
    text = Text.assemble(WORDS[verdict.verdict])
    if verdict.verdict == "not-run":
        return text.append(f": {verdict.reason}" if verdict.reason else "")
    if brief and verdict.verdict == "equivalent":
        return text.append(_brief(verdict))
    if verdict.reason:
        text.append(f": {verdict.reason}")
    if any(run.provider for run in verdict.runs):
        text.append(f"\n{tried(verdict.runs)}")
        text.append("".join(f"\n{line}" for line in evidence(verdict)))
    for placement in verdict.placements:
        text.append(f"\n{placed(placement)}")
    if (worst := verdict.worst) is not None:
        text.append(f"\n{'why' if worst.problem else 'worst'}: {outcome(worst)}")
    return text


def _brief(verdict: Verdict) -> str:
    providers = dict.fromkeys(run.provider for run in verdict.runs if run.provider)
    said = f" on {', '.join(providers)}" if providers else ""
    compared = [count(len(verdict.runs), "comparison") + " with the original"] if verdict.runs else []
    checked = ", ".join([*compared, *_checked(verdict.coverage)])
    shown = "; ".join(filter(None, (checked, verdict.reason)))
    said += f": {shown}" if shown else ""
    worst = verdict.worst
    if worst is not None and worst.bound:
        said += f"\nlargest error: {worst.error / worst.bound:.2g} of the bound, in {worst.output}"
    return "\n".join([said, *exceptions(verdict), *map(placed, verdict.placements)])


def _checked(found: Coverage | None) -> list[str]:
    """How many fusions were checked alone; of those that are alike two are (`verification.likeness`)."""
    if found is None:
        return []
    alone, fusions = found.float64 + found.unfused, found.float64 + found.unfused + found.outputs
    if not alone:
        return []
    number = count(fusions, "fusion") if alone == fusions else f"{alone} of {count(fusions, 'fusion')}"
    return [f"{number} checked alone (two of each that are equal)"]
