"""The command line as a program: `python -m onnx_subgraph`, the console script `onnx-subgraph` and `cli.py` of a checkout.

It imports the command line where ^C is answered already, because importing takes longer than many a command. It also does what
only a program may do to its whole process.
"""

import gc
import sys


def main() -> int:
    """Runs the command line on `sys.argv[1:]` and gives its exit code: 0, 1 or 2."""
    try:
        from onnx_subgraph.cli import main as run
        from onnx_subgraph.cli.idle import sleep_soon
        from onnx_subgraph.cli.last_words import end, listen
    except KeyboardInterrupt:
        sys.stderr.write("Interrupted: nothing was written.\n")
        return 2
    sleep_soon()
    listen()
    code = run()
    end()
    gc.freeze()  # Python collects garbage while it shuts down. Without this it would traverse a million objects for nothing.
    return code


if __name__ == "__main__":
    sys.exit(main())
