"""Runs the command line from a checkout: `python cli.py fuse model.onnx`.

Not installed as a module: an installed package has the console script `onnx-subgraph`. It needs the package's dependencies,
which `make demo` installs into .venv.
"""

import sys

if __name__ == "__main__":
    try:
        from onnx_subgraph.__main__ import main

        sys.exit(main())
    except ModuleNotFoundError as error:
        print(
            f"cli.py: {error.name} is not installed here; run `pip install -e .` (or `make demo`, then .venv/bin/python cli.py)",
            file=sys.stderr,
        )
        sys.exit(2)
