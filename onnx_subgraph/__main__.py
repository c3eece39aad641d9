"""The command line as a program: `python -m onnx_subgraph`, the console script `onnx-subgraph` and `cli.py` of a checkout.

It imports the command line where ^C is answered already, because importing takes longer than many a command. It also does what
only a program may do to its whole process.
"""

import gc
import os
import sys

IDLE = "OPENBLAS_THREAD_TIMEOUT"
"""The power of two of the processor cycles after which an idle thread of numpy's OpenBLAS sleeps. Until then it spins."""
SOON = "20"
"""A third of a millisecond. OpenBLAS's 26 lets each of its threads spin for some 20 ms after the import of numpy."""


def main() -> int:
    """Runs the command line on `sys.argv[1:]` and gives its exit code: 0, 1 or 2."""
    os.environ.setdefault(IDLE, SOON)  # OpenBLAS reads it when numpy is imported
    try:
        from onnx_subgraph.cli import main as run
    except KeyboardInterrupt:
        sys.stderr.write("Interrupted: nothing was written.\n")
        return 2
    code = run()
    gc.freeze()  # Python collects garbage while it shuts down. Without this it would traverse a million objects for nothing.
    return code


if __name__ == "__main__":
    sys.exit(main())
