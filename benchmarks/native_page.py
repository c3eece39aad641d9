"""Writes the page of `native.py`."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from roofline import Spent
from taking_turns import Ratio

from kernels import copying, peaks
from onnx_subgraph.timing.tuning import machine

LEAST_SHARE = 0.005
"""Operators that take a smaller share of a model's time are left out."""
PREFACE = """\
# Models with our kernels

Made by `python benchmarks/native.py CORPUS --write` with onnxruntime {version} on {cores} cores of an
{machine}.

Each number is a model's time divided by the original's: the ratio of the lower quartiles, with the least and the most
of five parts of the run. Both run in turn in one process, in onnxruntime with all its optimisations. *onnxruntime* is
`fuse`, *by definition* is `fuse --target native`, *kernels* is the same with the library, *bf16* adds `--numerics
bf16`. *OpenVINO* runs the original, in float32 or in the precision that it chooses. Times of one thread are processor
time, others wall-clock time.{older}
"""
HIDDEN = """\
To measure an older instruction set, the newer ones are hidden from the whole process (`older_processor.c`), so
onnxruntime and our library both use the older one."""
CAPPED = """\
Our library was also limited to an older instruction set (`ONNX_SUBGRAPH_ISA`) in which onnxruntime's float32 kernels
are the same. Others are not measured: this system cannot hide instruction sets from onnxruntime."""
NO_AMX = "This processor has no AMX, so AMX is not measured."
ERRORS = """
## Errors

The largest difference of an output from float64, divided by the largest magnitude of that output, on one thread with
{isa}. *times* is the ratio to the original's.
"""
ROOFLINE = """
## Where the time goes

Native models with the library, one thread, {isa}, from onnxruntime's profile. The time of a node is the 33rd
percentile of its runs. The peak of a product is what products and sums reach in registers ({peak:.0f} GFLOP/s). The
peak of another operator is what copying 3 MB reaches ({copied:.0f} GB/s, read and written). Bytes count each operand
and result once.
"""


@dataclass(frozen=True)
class Setting:
    """The best instruction set that a process sees, and the threads of its sessions.

    hidden: newer ones are hidden from the whole process. If not, only our library is limited.
    """

    isa: str
    threads: int
    hidden: bool = True


@dataclass(frozen=True)
class Row:
    """One model. milliseconds: time of the original. ratios, errors: by column. operators: number of ours, by operator."""

    name: str
    milliseconds: float
    ratios: Mapping[str, Ratio]
    operators: Mapping[str, int]
    errors: Mapping[str, float]


def page(rows: Mapping[Setting, Sequence[Row]], by_operator: Mapping[str, Sequence[Spent]], version: str) -> str:
    """The whole page."""
    first = next(iter(rows))
    older = HIDDEN if all(setting.hidden for setting in rows) else CAPPED
    said = "\n\n".join(["", older] if len({s.isa for s in rows}) > 1 else [""]) + ("" if first.isa == "amx" else f"\n\n{NO_AMX}")
    processor = machine("CPUExecutionProvider")["processor"]
    lines = [PREFACE.format(version=version, machine=processor, cores=os.cpu_count(), older=said)]
    for setting, each in rows.items():
        capped = "" if setting.hidden else "our library limited to "
        lines += [f"## {capped}{setting.isa}, {setting.threads} thread{'s' * (setting.threads > 1)}\n", *_times(each), ""]
    lines += ["## Kernels\n", "| model | operators of ours |", "|---|---|"]
    for row in rows[first]:
        used = ", ".join(f"{op.removeprefix('onnx_subgraph.')} {n}" for op, n in row.operators.items())
        lines.append(f"| {row.name} | {used} |")
    lines += [ERRORS.format(isa=first.isa), *_errors(rows[first]), *_by_operator(by_operator, first.isa)]
    return "\n".join(lines) + "\n"


def _times(rows: Sequence[Row]) -> list[str]:
    names = list(dict.fromkeys(name for row in rows for name in row.ratios))
    lines = [f"| model | ms | {' | '.join(names)} |", f"|---|---:|{'---|' * len(names)}"]
    for row in rows:
        cells = [_cell(row.ratios.get(name)) for name in names]
        lines.append(f"| {row.name} | {row.milliseconds:.1f} | {' | '.join(cells)} |")
    means = [_mean([row.ratios[name].ratio for row in rows if name in row.ratios]) for name in names]
    lines.append(f"| **geometric mean** | | {' | '.join(f'**{mean:.3f}**' for mean in means)} |")
    return lines


def _cell(one: Ratio | None) -> str:
    return "" if one is None else f"{one.ratio:.3f} ({one.least:.2f}–{one.most:.2f})"


def _mean(ratios: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


def _errors(rows: Sequence[Row]) -> list[str]:
    told = [row for row in rows if row.errors]
    names = list(dict.fromkeys(name for row in told for name in row.errors if name != "original"))
    lines = [f"| model | original | {' | '.join(names)} |", f"|---|---|{'---|' * len(names)}"]
    for row in told:
        own = row.errors["original"]
        cells = [f"{row.errors[name]:.1e}, {row.errors[name] / own:.2f} times" if name in row.errors else "" for name in names]
        lines.append(f"| {row.name} | {own:.1e} | {' | '.join(cells)} |")
    return lines


def _by_operator(models: Mapping[str, Sequence[Spent]], isa: str) -> list[str]:
    if not models:
        return []
    peak, copied = peaks([isa])[isa], copying(3e6)
    lines = [ROOFLINE.format(isa=isa, peak=peak * 1e-9, copied=copied * 1e-9)]
    for name, rows in models.items():
        total = sum(row.milliseconds for row in rows)
        lines += [f"### {name}\n", "| operator | nodes | ms | share | reaches | of the peak |", "|---|---:|---:|---:|---:|---:|"]
        for row in (one for one in rows if one.milliseconds >= LEAST_SHARE * total):
            rate, top = (row.operations, peak) if row.operations else (row.nbytes, copied)
            unit, seconds = "GFLOP/s" if row.operations else "GB/s", row.milliseconds * 1e-3
            reached = f"{rate / seconds * 1e-9:.0f} {unit} | {rate / seconds / top:.0%}"
            lines.append(
                f"| {row.operator} | {row.nodes} | {row.milliseconds:.2f} | {row.milliseconds / total:.1%} | {reached} |"
            )
        lines.append("")
    return lines
