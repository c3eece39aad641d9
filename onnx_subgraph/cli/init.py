"""`onnx-subgraph init`: a new pack of patterns."""

from __future__ import annotations

from pathlib import Path

import click

from onnx_subgraph.cli.options import json_option


@click.command(short_help="Write a new pack of patterns.")
@click.argument("folder", metavar="FOLDER", type=click.Path(path_type=Path))
@click.option("--name", metavar="NAME", show_default="the name of the folder", help="The name of the pack: my-pack.")
@json_option
def init(folder: Path, name: str | None, as_json: bool) -> int:
    """Write a pack into FOLDER, which is new or empty: a Python package with one pattern that passes its proof.

    After installation with pip it has a name: --patterns NAME.
    """
    from onnx_subgraph.authoring.scaffold import write_pack
    from onnx_subgraph.cli.terminal import show_json, show_text
    from onnx_subgraph.errors import UsageError

    name = folder.absolute().name if name is None else name
    try:
        files = write_pack(folder, name)
    except OSError as error:
        raise UsageError(f"{folder} can't be written: {error.strerror or error}", hint="name another folder") from error
    package = folder / name.replace("-", "_")
    here = f"./{folder}" if len(folder.parts) == 1 else folder  # pip takes a name alone for that of a published package
    if as_json:
        show_json({"name": name, "files": [str(path) for path in files]})
    else:
        written = "\n".join(f"  {path}" for path in files)
        show_text(
            f"{name} is written:\n{written}\n\n"
            f"onnx-subgraph test-patterns squared-relu --patterns {package}   proves its pattern\n"
            f"onnx-subgraph new-pattern MODEL --mined 1 --id ID -o FILE   writes another one\n"
            f"pip install {here}   makes it known as --patterns {name}"
        )
    return 0
