"""`onnx-subgraph run`: runs a Python program with the hook, so that its onnxruntime sessions load fused models.

The program replaces this process by a Python process: its arguments, exit status, tracebacks and child processes are as under
`python`. The hook is loaded by a `sitecustomize` on PYTHONPATH, which Python imports at start.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import click

from onnx_subgraph.cli.idle import of_user
from onnx_subgraph.errors import UsageError


@click.command(
    short_help="Run a Python program with fused onnxruntime sessions.",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.option(
    "--backend",
    multiple=True,
    metavar="NAME",
    help="Let this backend run the regions that it supports, after fusing. May be repeated; each one gets the "
    "nodes that the ones before it left.",
)
@click.option("--strict", is_flag=True, help="Raise an error instead of using the unmodified model.")
@click.option("-m", "module", is_flag=True, help="PROGRAM is the name of a module, as with python -m.")
@click.argument("program", metavar="PROGRAM")
@click.argument("arguments", metavar="[ARGUMENT]...", nargs=-1, type=click.UNPROCESSED)
def run(backend: tuple[str, ...], strict: bool, module: bool, program: str, arguments: tuple[str, ...]) -> int:
    """Run the Python file PROGRAM with ARGUMENTs, as python would, and fuse every model that it loads with onnxruntime.

    Fused models are cached. A model that can't be fused is loaded as it is, with a warning.
    """
    if not module and not Path(program).exists():
        raise UsageError(f"{program}: there is no such file", hint="name a Python file, or a module with -m")
    backends = ";".join(backend)
    if backends:
        from onnx_subgraph.backends.names import check_backends

        check_backends(backends)
    environment = hooked(of_user(os.environ), backends, strict)
    command = [sys.executable, *(["-m"] if module else []), program, *arguments]
    sys.stdout.flush()
    sys.stderr.flush()
    if os.name == "posix":
        os.execve(sys.executable, command, environment)
    return subprocess.run(command, env=environment, check=False).returncode


def hooked(environment: dict[str, str], backends: str, strict: bool) -> dict[str, str]:
    """The environment for a program under the hook."""
    from onnx_subgraph import session
    from onnx_subgraph.session.settings import PREFIX

    site = str(Path(session.__file__).parent / "site")
    environment["PYTHONPATH"] = os.pathsep.join([site, *filter(None, [environment.get("PYTHONPATH", "")])])
    environment[f"{PREFIX}SESSION"] = "1"
    if backends:
        environment[f"{PREFIX}BACKEND"] = backends
    if strict:
        environment[f"{PREFIX}STRICT"] = "1"
    return environment
