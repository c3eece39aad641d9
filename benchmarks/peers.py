"""Commands by which other tools rewrite a model with their defaults, each in a process of its own.

The interpreter belongs to an environment with these tools: `pip install onnxslim onnxsim onnxscript onnxruntime sympy torch`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

PEERS: Mapping[str, str] = {
    "onnxslim": "import onnxslim; onnxslim.slim(source, target)",
    "onnxsim": (
        "import onnx, onnxsim; made, _ = onnxsim.simplify(source); onnx.save(made, target, save_as_external_data=external)"
    ),
    "onnxscript": (
        "import onnx_ir as ir; from onnxscript.rewriter.ort_fusions import optimize_for_ort; "
        "made = optimize_for_ort(ir.load(source)); made = made[0] if isinstance(made, tuple) else made; "
        "ir.save(made, target, external_data='made.data' if external else None)"
    ),
    "onnxruntime.transformers": (
        "from onnxruntime.transformers.optimizer import optimize_model; made = optimize_model(source, **known); "
        "made.save_model_to_file(target, use_external_data_format=external)"
    ),
}
"""The code that the process of each peer runs. source, target: paths. external: whether the weights are in a separate file.
known: options of the transformers optimizer."""


def peer_command(python: Path, peer: str, source: Path, target: str, external: bool, known: Mapping[str, Any]) -> list[str]:
    """The command that makes `target` from `source`. The arguments are those of `PEERS`."""
    given = f"source, target, external, known = {str(source)!r}, {target!r}, {external}, {dict(known)!r}; "
    return [str(python), "-c", given + PEERS[peer]]
