"""Every message that a user reads says what is wrong, where, and what to do next."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "onnx_subgraph"
FOR_USERS = {"UsageError", "ModelError", "PatternError", "KernelError", "EngineError", "BadParameter"}
"""The errors that a user can cause. Others are caught, and told in the words of one of these or as a warning."""
HANDED_ON = {
    "cli/__init__.py": 2,  # click's own messages, with a suggestion
    "kernels/build.py": 2,  # a compiler's output, which `build` puts under its own message
    "session/digest.py": 1,  # caught: the session warns and loads the original file
    "timing/bench.py": 1,  # the message of a failed verification
}
"""Module → how often it raises what somebody else has said."""
NEXT = re.compile(r"; (write|give|leave|add|name)|: (leave|write|give|name) ")
"""A message of click has no hint: the next step stands in it."""


def raised() -> Iterator[tuple[str, ast.Call]]:
    """Where an error for users is raised, and the expression that makes it."""
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
                name = ast.unparse(node.exc.func)
                if name.rpartition(".")[2] in FOR_USERS:
                    yield f"{path.relative_to(PACKAGE).as_posix()}:{node.lineno}", node.exc


def text(call: ast.Call) -> str:
    """The text of a message, with `…` for inserted values."""
    parts = (node.value for argument in call.args for node in ast.walk(argument) if isinstance(node, ast.Constant))
    return "…".join(part for part in parts if isinstance(part, str))


def test_every_message_says_what_to_do_next() -> None:
    told = list(raised())
    silent = [
        f"{where}: {text(call)}"
        for where, call in told
        if not any(keyword.arg == "hint" for keyword in call.keywords) and not NEXT.search(text(call))
    ]
    modules = Counter(line.partition(":")[0] for line in silent)
    assert modules == HANDED_ON, "\n".join(["no hint:", *silent])
    assert len(told) > 300


TERMS = {
    "veils?": "look-through",
    "fronts": "factorings",
    "plausible": "prefilter",
    "guilty": "wrong, to blame",
    "as ever": "as before",
    "besides": "as well",
    "heed(s|ed)?": "read or use",
    "save for": "except",
    "ere": "before",
}
"""Words that were made up here, or are rare, and the usual one."""


@pytest.mark.parametrize("page", ["README.md", *(f"docs/{page.name}" for page in (PACKAGE.parent / "docs").glob("*.md"))])
def test_pages_use_the_terms_of_the_field(page: str) -> None:
    content = (PACKAGE.parent / page).read_text(encoding="utf-8").lower()
    found = [f"{word} → {term}" for word, term in TERMS.items() if re.search(rf"\b{word}\b", content)]
    assert not found, f"{page}: {', '.join(found)}"
