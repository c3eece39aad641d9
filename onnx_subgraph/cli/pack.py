"""Packs the weights of one model, in a process that a session starts. Not a command for users.

python -m onnx_subgraph.cli.pack MODEL -o PACKED --store FOLDER --json
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from onnx_subgraph.session.packing import pack


def main() -> None:
    """Packs, and prints the result as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--store", type=Path, required=True)
    parser.add_argument("--json", action="store_true", required=True)
    given = parser.parse_args()
    try:
        told: dict[str, object] = {"shared": pack(given.model, given.output, given.store)}
    except Exception as error:  # onnxruntime's exceptions have no common base class of their own
        told = {"error": str(error) or type(error).__name__}
    sys.stdout.write(json.dumps(told))


if __name__ == "__main__":
    main()
