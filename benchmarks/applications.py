"""Runs programs from PyPI that use onnxruntime, unchanged: plain, under `onnx-subgraph run`, and under the hook.

    python -m venv there
    there/bin/pip install 'onnx-subgraph[openvino]' rapidocr-onnxruntime silero-vad magika waitress
    there/bin/python benchmarks/applications.py [--rounds 3] [--page benchmarks/applications.md]

The wheels of the programs contain the models. Each program in benchmarks/applications prints its results, which must be equal in
all ways, and the median time of one use in milliseconds. In each round all ways run in turn on one core. Each way has its own
cache, which is empty at first. The hook is installed for the last way, and removed afterwards if it was not there before.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import sys
import sysconfig
import tempfile
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

FOLDER = Path(__file__).parent / "applications"
PROGRAMS = {"ocr": "rapidocr-onnxruntime", "voice": "silero-vad", "kind": "magika", "web": "waitress"}
TOOL = str(Path(sysconfig.get_path("scripts")) / "onnx-subgraph")
WAYS: dict[str, tuple[list[str], dict[str, str]]] = {
    "plain": ([sys.executable], {}),
    "fused": ([TOOL, "run"], {}),
    "openvino": ([TOOL, "run", "--backend", "openvino"], {}),
    "the variable": ([sys.executable], {"ONNX_SUBGRAPH_BACKEND": "openvino"}),
}
WARNED = re.compile(r"OnnxSubgraphWarning: (.+)")


@dataclass(frozen=True, slots=True)
class Ended:
    """The output of a program: its answer, the milliseconds of one use, and our warnings."""

    answer: str
    milliseconds: float
    warnings: tuple[str, ...]


def run(program: Path, way: str, cache: str) -> Ended:
    """Run a program once. Raises SystemExit if it fails."""
    command, variables = WAYS[way]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("ONNX_SUBGRAPH_")}
    environment |= {"ONNX_SUBGRAPH_CACHE": cache, **variables}
    done = subprocess.run([*command, str(program)], capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} {program.name} ended with {done.returncode}:\n{done.stderr}")
    return Ended(done.stdout, float(done.stderr.split()[-1]), tuple(WARNED.findall(done.stderr)))


def row(name: str, rounds: int) -> str:
    """One line of the table. Prints our warnings to standard error."""
    try:
        package = f"{PROGRAMS[name]} {version(PROGRAMS[name])}"
    except PackageNotFoundError:
        return f"| {PROGRAMS[name]} | is not installed | | | | |"
    program = FOLDER / f"{name}.py"
    ended: dict[str, list[Ended]] = {way: [] for way in WAYS}
    with tempfile.TemporaryDirectory() as cache:
        for way in WAYS:
            for warning in run(program, way, cache).warnings:  # fills the cache
                print(f"{name}, {way}: {warning}", file=sys.stderr)
        for _ in range(rounds):
            for way in WAYS:
                ended[way].append(run(program, way, cache))
    plain = ended["plain"]
    cells = []
    for way in list(WAYS)[1:]:
        ratios = sorted(mine.milliseconds / theirs.milliseconds for mine, theirs in zip(ended[way], plain, strict=True))
        cells.append(f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})")
    answer = f"{others} of {len(WAYS) * rounds} differ" if (others := differences(ended)) else "the same"
    return f"| {package} | {answer} | {statistics.median(one.milliseconds for one in plain):.3g} | {' | '.join(cells)} |"


def differences(ended: dict[str, list[Ended]]) -> int:
    """The number of runs whose answer differs from the first plain one. Prints these answers to standard error."""
    expected = ended["plain"][0].answer
    other = [(way, one.answer) for way, runs in ended.items() for one in runs if one.answer != expected]
    for way, answer in other:
        print(f"{way} answers\n{answer}where plain answered\n{expected}", file=sys.stderr)
    return len(other)


HEAD = """# Programs from PyPI under the hook

Made by `python benchmarks/applications.py` in an environment with the programs as their authors published them. *plain ms* is
one use with plain onnxruntime {onnxruntime}, in milliseconds. The other times are ratios to it: the median of {rounds} runs in
turn, with the least and the most, on one core. *fused* is `onnx-subgraph run`, *openvino* is `onnx-subgraph run --backend
openvino`, *the variable* is `ONNX_SUBGRAPH_BACKEND=openvino` with the hook installed. The answer is what the program prints:
the texts of a page with their scores, the probability of speech in 124 pieces of sound, the kinds of five files with their
scores. waitress is a server that answers with magika. Eight clients send it 3,600 requests, as fast as it answers.

| program | answer | plain ms | fused | openvino | the variable |
|---|---|---:|---:|---:|---:|
"""


def main() -> None:
    """Measure, print, and write the page if asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--page", type=Path)
    arguments = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    page = HEAD.format(onnxruntime=version("onnxruntime"), rounds=arguments.rounds)
    print(page, end="")
    installed = subprocess.run([TOOL, "hook"], capture_output=True, check=False).returncode == 0
    subprocess.run([TOOL, "hook", "--install"], check=True, capture_output=True)
    try:
        for name in PROGRAMS:
            line = row(name, arguments.rounds)
            print(line, flush=True)
            page += line + "\n"
    finally:
        if not installed:
            subprocess.run([TOOL, "hook", "--uninstall"], check=True, capture_output=True)
    if arguments.page is not None:
        arguments.page.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
