"""`python -m onnx_subgraph`: the same command line as the console script `onnx-subgraph`."""

import sys

from onnx_subgraph.cli import main

if __name__ == "__main__":
    sys.exit(main())
