"""Writes `onnx_subgraph/operators/kernels.json`: for which float types an execution provider has kernels of an operator.

The table of the CPU is read from the installed onnxruntime, which must be the plain wheel. CUDA and DirectML cannot be asked on a
machine without them. Their tables come from onnxruntime's own list: `python benchmarks/kernel_table.py OperatorKernels.md 1.21.0`
reads docs/OperatorKernels.md of that release's source (the Debian source package onnxruntime has it as well). Without that
argument these tables stay as they are.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import onnxruntime
from onnxruntime.capi import onnxruntime_pybind11_state as state

TARGET = Path(__file__).resolve().parents[1] / "onnx_subgraph" / "operators" / "kernels.json"
CPU = "CPUExecutionProvider"
FROM_PAGE = ("CUDAExecutionProvider", "DmlExecutionProvider")
LETTERS = {"tensor(float)": "f", "tensor(double)": "d", "tensor(float16)": "h", "tensor(bfloat16)": "b"}
NEWEST = 2**31 - 1

Kernels = dict[str, dict[str, list[list[Any]]]]
"""Domain → operator → [first version, last version or null, the letters of its floating types], for each kernel."""


def main(arguments: list[str]) -> None:
    """Writes the table."""
    table: dict[str, Any] = json.loads(TARGET.read_text(encoding="utf-8")) if TARGET.exists() else {}
    table[CPU] = {"onnxruntime": onnxruntime.__version__, "kernels": registered(CPU)}
    if arguments:
        page, version = arguments
        listed = read(Path(page).read_text(encoding="utf-8"))
        for provider in FROM_PAGE:
            table[provider] = {"onnxruntime": version, "kernels": listed[provider]}
    TARGET.write_text(written(table), encoding="utf-8")
    for provider, entry in table.items():
        count = sum(len(operators) for operators in entry["kernels"].values())
        print(f"{provider}: {count} operators of onnxruntime {entry['onnxruntime']}")


def registered(provider: str) -> Kernels:
    """The kernels that the onnxruntime at hand has registered for a provider."""
    found: Kernels = {}
    for kernel in state.get_all_opkernel_def():
        if kernel.provider == provider:
            first, last = kernel.version_range
            types = [t for types in kernel.type_constraints.values() for t in types]
            _add(found, kernel.domain, kernel.op_name, first, None if last == NEWEST else last, types)
    return _sorted(found)


def read(page: str) -> dict[str, Kernels]:
    """Provider → its kernels, from the text of OperatorKernels.md."""
    result: dict[str, Kernels] = {}
    for section in page.split("## Operators implemented by ")[1:]:
        found: Kernels = {}
        domain = name = ""
        for line in section.splitlines():
            if heading := re.match(r"\|\*\*Operator Domain:\*\* \*(.+?)\*", line):
                domain = "" if heading[1] == "ai.onnx" else heading[1]
            cells = line.split("|")
            if len(cells) < 6 or not (span := re.fullmatch(r"(\d+)\+|(\d+)|\[(\d+), (\d+)\]", cells[3].strip())):
                continue
            name = cells[1].strip() or name
            since, only, first, last = span.groups()
            begin, end = (since, None) if since else (only, only) if only else (first, last)
            _add(found, domain, name, int(begin), None if end is None else int(end), re.findall(r"tensor\(\w+\)", cells[4]))
        result[section.split()[0]] = _sorted(found)
    return result


def _add(found: Kernels, domain: str, name: str, first: int, last: int | None, types: list[str]) -> None:
    letters = "".join(sorted({LETTERS[t] for t in types if t in LETTERS}))
    kernels = found.setdefault(domain, {}).setdefault(name, [])
    if [first, last, letters] not in kernels:
        kernels.append([first, last, letters])


def _sorted(found: Kernels) -> Kernels:
    return {
        domain: {name: sorted(kernels, key=lambda k: (k[0], k[2])) for name, kernels in sorted(operators.items())}
        for domain, operators in sorted(found.items())
        if domain in ("", "com.microsoft")
    }


def written(table: dict[str, Any]) -> str:
    """The table as text, one operator a line."""
    entries = []
    for provider, entry in sorted(table.items()):
        domains = []
        for domain, operators in entry["kernels"].items():
            rows = ",\n   ".join(f"{json.dumps(name)}: {json.dumps(kernels)}" for name, kernels in operators.items())
            domains.append(f"{json.dumps(domain)}: {{\n   {rows}\n  }}")
        kernels = ",\n  ".join(domains)
        entries.append(
            f'{json.dumps(provider)}: {{"onnxruntime": {json.dumps(entry["onnxruntime"])}, "kernels": {{\n  {kernels}\n }}}}'
        )
    return "{\n " + ",\n ".join(entries) + "\n}\n"


if __name__ == "__main__":
    main(sys.argv[1:])
