"""`onnx-subgraph hook`: makes the Python of this environment read ONNX_SUBGRAPH_BACKEND, or undoes that."""

from __future__ import annotations

import click


@click.command(short_help="Let programs of this environment use ONNX_SUBGRAPH_BACKEND.")
@click.option("--install", "action", flag_value="install", help="Install the hook in this Python environment.")
@click.option("--uninstall", "action", flag_value="uninstall", help="Remove the hook.")
def hook(action: str | None) -> int:
    """Say whether the hook is installed in this Python environment; install or remove it.

    With it, ONNX_SUBGRAPH_BACKEND=NAME python app.py runs the program's onnxruntime models with that backend, and
    ONNX_SUBGRAPH_SESSION=1 python app.py fuses them. Without one of these variables nothing is imported and nothing changes.
    """
    from onnx_subgraph.cli.terminal import show_text
    from onnx_subgraph.session import hook as hooks

    path = hooks.startup_file()
    if action == "install":
        show_text(f"installed: {hooks.install_startup()}")
        return 0
    if action == "uninstall":
        gone = hooks.uninstall_startup()
        show_text(f"removed: {gone}" if gone is not None else f"it was not installed: there is no {path}")
        return 0
    show_text(f"{'installed' if path.exists() else 'not installed'}: {path}")
    return 0 if path.exists() else 1
