"""action.yml: bash runs its steps as a runner would, with the inputs as environment variables. Only pip installs nothing."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
import pytest
import yaml

from tests.cli.conftest import GELU, save
from tests.cli.test_ci import with_another_epsilon

ROOT = Path(__file__).resolve().parents[1]
ACTION: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
STEPS: list[dict[str, Any]] = ACTION["runs"]["steps"]

PYTHON = f"""#!/bin/sh
# A Python whose `venv` has our command, and whose `pip` notes what it was to install.
[ "$1" != "-c" ] || exec "{sys.executable}" "$@"
[ "$1 $2" = "-m venv" ] || exit 9
mkdir -p "$3/bin"
printf '#!/bin/sh\\necho "$@" >> "%s/pip"\\n' "$RUNNER_TEMP" > "$3/bin/python"
printf '#!/bin/sh\\nexec "{sys.executable}" "{ROOT / "cli.py"}" "$@"\\n' > "$3/bin/onnx-subgraph"
chmod +x "$3/bin/python" "$3/bin/onnx-subgraph"
"""

pytestmark = pytest.mark.skipif(os.name != "posix", reason="the commands that stand for others are shell scripts")


@dataclass(frozen=True)
class Job:
    """A job on a runner. workspace: the folder where the steps run. temp: the runner's temporary folder."""

    workspace: Path
    temp: Path

    def use(self, **inputs: str) -> tuple[int, str, dict[str, str]]:
        """Run the action. Returns the exit code of its last step, the printed text and the outputs."""
        python = self.temp / "python3"
        python.write_text(PYTHON, encoding="utf-8")
        python.chmod(0o755)
        given = {name: one.get("default", "") for name, one in ACTION["inputs"].items()} | {"python": str(python)} | inputs
        outputs: dict[str, dict[str, str]] = {}
        printed = ""
        for step in STEPS:
            code, text, outputs[step.get("id", "")] = self.step(step, given, outputs)
            printed += text
            if code:
                break
        return code, printed, {name: resolved(one["value"], given, outputs) for name, one in ACTION["outputs"].items()}

    def step(self, step: dict[str, Any], given: dict[str, str], outputs: dict[str, Any]) -> tuple[int, str, dict[str, str]]:
        script, output = self.temp / "step.sh", self.temp / "output"
        script.write_text(step["run"], encoding="utf-8")
        output.write_text("", encoding="utf-8")
        files = {"GITHUB_OUTPUT": output, "GITHUB_STEP_SUMMARY": self.temp / "summary.md", "RUNNER_TEMP": self.temp}
        environment = {
            **os.environ,
            **{name: str(path) for name, path in files.items()},
            "GITHUB_ACTIONS": "true",
            "GITHUB_ACTION_PATH": str(ROOT),
            "GITHUB_WORKSPACE": str(self.workspace),
            **{name: resolved(value, given, outputs) for name, value in step["env"].items()},
        }
        command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(script)]
        done = subprocess.run(command, cwd=self.workspace, env=environment, capture_output=True, text=True)
        pairs = (line.partition("=") for line in output.read_text(encoding="utf-8").splitlines())
        return done.returncode, done.stdout + done.stderr, {name: value for name, _, value in pairs}


def resolved(text: str, inputs: dict[str, str], outputs: dict[str, dict[str, str]]) -> str:
    """Replace the expressions in `text` as the runner does. Raises KeyError for an unknown expression."""

    def value(found: re.Match[str]) -> str:
        match found.group(1).split("."):
            case ["inputs", name]:
                return inputs[name]
            case ["steps", step, "outputs", name]:
                return outputs[step].get(name, "")  # a failed step may have set no outputs
            case _:
                raise KeyError(found.group())

    return re.sub(r"\$\{\{ ([\w.-]+) \}\}", value, text)


@pytest.fixture
def job(tmp_path: Path) -> Job:
    workspace, temp = tmp_path / "my repository", tmp_path / "temp"
    (workspace / "build" / "deep").mkdir(parents=True)
    temp.mkdir()
    save(GELU, workspace / "build" / "a model.onnx")
    save(GELU, workspace / "build" / "deep" / "b.onnx")
    return Job(workspace, temp)


def test_models_are_fused_verified_and_reported(job: Job) -> None:
    code, printed, outputs = job.use(models="build/**/*.onnx\n")
    assert (code, "::error" in printed) == (0, False), printed
    assert sorted(path.name for path in (job.workspace / outputs["output-dir"]).iterdir()) == ["a model.onnx", "b.onnx"]
    assert Path(outputs["junit"]).read_text(encoding="utf-8").count("<testsuite ") == 2
    assert (job.temp / "summary.md").read_text(encoding="utf-8").startswith("### onnx-subgraph: 2 of 2 models passed")
    assert (job.temp / "pip").read_text(encoding="utf-8").split()[-1] == str(ROOT)


def test_a_regressed_model_fails_the_job_at_the_line_of_its_expectation(job: Job) -> None:
    expect = job.workspace / "ci" / "expected.yaml"
    expect.parent.mkdir()
    expect.write_text("models:\n  a model.onnx:\n    fusions: {gelu: 1}\n  b.onnx:\n    fusions: {gelu: 1}\n", encoding="utf-8")
    save(GELU.replace("1.4142135", "1.42"), job.workspace / "build" / "a model.onnx")
    code, printed, outputs = job.use(models="build/*.onnx\nbuild/deep/b.onnx", expect="ci/expected.yaml")
    assert code == 1
    error = next(line for line in printed.splitlines() if line.startswith("::error"))
    assert error.startswith(
        "::error file=ci/expected.yaml,line=3,col=21,endColumn=22,title=build/a model.onnx%3A gelu::gelu: expected 1"
    )
    assert "expected the constant 0.707107, found 0.704225" in error
    assert [path.name for path in (job.workspace / outputs["output-dir"]).iterdir()] == ["b.onnx"]
    assert "❌" in (job.temp / "summary.md").read_text(encoding="utf-8")
    assert "<failure " in Path(outputs["junit"]).read_text(encoding="utf-8")


def test_a_layer_norm_with_another_epsilon_fails_the_job_with_its_name(job: Job) -> None:
    """Only the expectation finds this: the model fuses as before and computes what its wrong original computes."""
    good = onnx.load(ROOT / "sample_models" / "bert_torchscript.onnx")
    onnx.save(good, job.workspace / "bert.onnx")
    only = "--only layer-normalization,gelu"
    code, printed, _ = job.use(models="bert.onnx", args=f"{only} --write-expect expected.yaml")
    assert code == 0, printed
    with_another_epsilon(good, "/model/encoder/layer.0/output/LayerNorm/")
    onnx.save(good, job.workspace / "bert.onnx")
    code, printed, outputs = job.use(models="bert.onnx", args=only, expect="expected.yaml", **{"output-dir": "regressed"})
    assert code == 1
    error = next(line for line in printed.splitlines() if line.startswith("::error"))
    assert "file=expected.yaml" in error and "/model/encoder/layer.0/output/LayerNorm/LayerNormalization" in error
    assert not list((job.workspace / outputs["output-dir"]).glob("*"))


def test_pages_are_made_where_a_folder_is_named(job: Job) -> None:
    code, printed, _ = job.use(models="build/a model.onnx", report="my pages")
    assert code == 0, printed
    assert [page.name for page in (job.workspace / "my pages").iterdir()] == ["a model.html"]
    assert (job.temp / "pip").read_text(encoding="utf-8").split()[-1] == f"{ROOT}[report]", "with what they are made with"


def test_an_old_python_is_reported_before_anything_is_installed(job: Job) -> None:
    old = job.temp / "old"
    old.write_text("#!/bin/sh\nexit 1\n", encoding="utf-8")
    old.chmod(0o755)
    for python in (str(old), "no-such-python"):
        code, printed, _ = job.use(models="build/*.onnx", python=python)
        assert code == 2 and f"::error title=onnx-subgraph::{python} is no Python from 3.11 on" in printed
    assert not (job.temp / "pip").exists()


def test_options_patterns_and_a_version_are_passed_on(job: Job) -> None:
    pattern = job.workspace / "my patterns" / "group" / "twice.yaml"
    pattern.parent.mkdir(parents=True)
    text = 'id: twice\nsummary: x + x, in one operator\nmatch: |\n  y = Erf(x) + Erf(x)\nexample: {x: "float32[2]"}\n'
    pattern.write_text(text, encoding="utf-8")
    code, printed, _ = job.use(
        models="build/a model.onnx",
        patterns="my patterns\n",
        args="--target function\n --only gelu",
        version="1.2.3",
        **{"output-dir": "my output"},
    )
    assert code == 0, printed
    assert "onnx_subgraph.Gelu (function)" in printed
    assert [path.name for path in (job.workspace / "my output").iterdir()] == ["a model.onnx"]
    assert (job.temp / "pip").read_text(encoding="utf-8").split()[-1] == "onnx-subgraph==1.2.3"


def test_a_glob_without_a_model_is_an_error(job: Job) -> None:
    code, printed, _ = job.use(models="built/*.onnx")
    assert code == 2
    assert "::error file=built/*.onnx," in printed and "there is no such file" in printed


def test_inputs_are_never_executed(job: Job) -> None:
    """Inputs reach the steps as environment variables. The shell treats them as words, whatever they contain."""
    code, _, _ = job.use(
        models="$(touch owned)`touch owned`;touch owned", args="$(touch owned) `touch owned`", patterns="$(touch owned)"
    )
    assert code == 2
    assert not (job.workspace / "owned").exists()
    assert all("${{" not in step["run"] for step in STEPS)


def test_every_input_is_used_and_described() -> None:
    text = " ".join(value for step in STEPS for value in step["env"].values())
    for name, one in ACTION["inputs"].items():
        assert f"${{{{ inputs.{name} }}}}" in text, name
        assert one["description"].endswith(".")
        assert one.get("required") or "default" in one
    assert all(step["shell"] == "bash" for step in STEPS)
