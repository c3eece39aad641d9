"""What the processes that fuse many models share: each is forked from one that has imported this module.

It starts no thread (but numpy, whose OpenBLAS makes its own anew in a fork) and does not import onnxruntime: a fork is safe.
"""

from __future__ import annotations

import gc
from contextlib import suppress

import onnx_subgraph.pipeline  # noqa: F401 - for the modules that it imports
from onnx_subgraph.errors import PatternError
from onnx_subgraph.language.library import load_patterns
from onnx_subgraph.matching.normalise import normalise

with suppress(PatternError):  # each process reads them again, and says what is wrong
    for pattern in load_patterns().patterns:
        if pattern.is_formula:
            normalise(pattern)
gc.freeze()  # the collector of a fork does not touch it, so that its memory stays shared
