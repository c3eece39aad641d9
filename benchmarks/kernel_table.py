"""Writes `onnx_subgraph/operators/kernels.json`: for which float types an execution provider has kernels of an operator.

    python benchmarks/kernel_table.py [EP]
    python benchmarks/kernel_table.py --page OperatorKernels.md --version VERSION

The table of a provider is read from the installed onnxruntime. By default it is that of the CPU, in the plain wheel. CUDA needs
the wheel onnxruntime-gpu, a GPU, and the libraries of TensorRT: onnxruntime asks all of its providers. DirectML's table comes
from onnxruntime's own list, docs/OperatorKernels.md of a release's source (the Debian source package onnxruntime has it as well).
The other tables, and the limits of all, stay as they are.
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from typing import Any

import onnxruntime
from onnxruntime.capi import onnxruntime_pybind11_state as state

TARGET = Path(__file__).resolve().parents[1] / "onnx_subgraph" / "operators" / "kernels.json"
CPU = "CPUExecutionProvider"
FROM_PAGE = "DmlExecutionProvider"
LETTERS = {"tensor(float)": "f", "tensor(double)": "d", "tensor(float16)": "h", "tensor(bfloat16)": "b"}
NEWEST = 2**31 - 1

Kernels = dict[str, dict[str, list[list[Any]]]]
"""Domain → operator → [first version, last version or null, the letters of its floating types], for each kernel."""


def main() -> None:
    """Writes the table."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument(
        "provider", nargs="?", default=CPU, metavar="EP", choices=onnxruntime.get_all_providers(), help="a provider"
    )
    arguments.add_argument("--page", type=Path, help="onnxruntime's list of kernels, in place of the installed onnxruntime")
    arguments.add_argument("--version", help="the version of onnxruntime that the page describes")
    given = arguments.parse_args()
    if (given.page is None) != (given.version is None):
        arguments.error("--page and --version belong together")
    table: dict[str, Any] = json.loads(TARGET.read_text(encoding="utf-8")) if TARGET.exists() else {}
    if given.page is not None:
        put(table, FROM_PAGE, given.version, read(given.page.read_text(encoding="utf-8"))[FROM_PAGE])
    else:
        put(table, given.provider, onnxruntime.__version__, registered(given.provider))
    TARGET.write_text(written(table), encoding="utf-8")
    for provider, entry in table.items():
        count = sum(len(operators) for operators in entry["kernels"].values())
        print(f"{provider}: {count} operators of onnxruntime {entry['onnxruntime']}")


def put(table: dict[str, Any], provider: str, version: str, kernels: Kernels) -> None:
    """Put the kernels of a provider into the table. Its limits stay."""
    table[provider] = {**table.get(provider, {}), "onnxruntime": version, "kernels": kernels}


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
        limits = f'"limits": {json.dumps(entry["limits"])}, ' if "limits" in entry else ""
        version = json.dumps(entry["onnxruntime"])
        entries.append(f'{json.dumps(provider)}: {{"onnxruntime": {version}, {limits}"kernels": {{\n  {kernels}\n }}}}')
    return "{\n " + ",\n ".join(entries) + "\n}\n"


if __name__ == "__main__":
    main()
