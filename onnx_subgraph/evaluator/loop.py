"""The standard's Loop for onnx's reference evaluator.

The evaluator's own version concatenates scan outputs along the first axis; the standard stacks them along a new one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx.reference.op_run import OpRun


class Loop(OpRun):
    """Runs until the trip count is reached, or the body's condition is false.

    Scan outputs of zero steps have an unknown shape.
    """

    op_domain = ""
    body: Any
    """The evaluator of the body, made from the node's attribute."""
    _run_body: Any

    def need_context(self) -> bool:
        """The body may read any value computed before."""
        return True

    def _run(self, limit: Any, going: Any, *states: Any, context: Any = None, body: Any = None, **options: Any) -> Any:
        number, on, *carried = self.body.input_names
        listed: list[tuple[Any, ...]] = []
        while (going is None or going) and (limit is None or len(listed) < limit):
            begun = {number: np.array(len(listed), np.int64), on: np.array(True), **dict(zip(carried, states, strict=True))}
            going, *results = self._run_body({**(context or {}), **begun}, **options)
            states = tuple(results[: len(carried)])
            listed.append(tuple(results[len(carried) :]))
        if not listed and len(self.body.output_names) > 1 + len(carried):
            raise NotImplementedError("the list of a Loop without a step, whose shape is not known")
        return (*states, *map(np.stack, zip(*listed, strict=True)))
