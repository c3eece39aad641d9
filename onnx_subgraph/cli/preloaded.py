"""Imports shared by the processes that fuse many models: each is forked from a process that has imported this module.

The module starts no thread (except numpy's OpenBLAS, which restarts its threads in a fork) and does not import onnxruntime, so a
fork is safe.
"""

from __future__ import annotations

import gc
from contextlib import suppress

from onnx_subgraph.errors import PatternError
from onnx_subgraph.late import late_imports

with late_imports():
    import onnx_subgraph.pipeline  # noqa: F401 - imported for its own imports
    from onnx_subgraph.language.library import load_patterns
    from onnx_subgraph.matching.normalise import normalise

with suppress(PatternError):  # each process reads them again, and reports the error
    for pattern in load_patterns().patterns:
        if pattern.is_formula:
            normalise(pattern)
gc.freeze()  # the collector of a fork does not touch these objects, so their memory stays shared
