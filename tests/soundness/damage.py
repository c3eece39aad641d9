"""Damaged files: real models with changed bytes or fields, random bytes, and real pattern files with changed words.

Whatever a file contains, the command line returns an exit code and, if it is 2, one message. It raises nothing, changes no file
and leaves no partial output. `fault` says what is wrong with an answer.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import onnx
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from onnx_subgraph.cli import main

ROOT = Path(__file__).parents[2]
MODELS = sorted((ROOT / "sample_models").glob("*.onnx"), key=lambda p: p.stat().st_size)
PATTERNS = sorted((ROOT / "patterns").rglob("*.yaml"))

INTEGERS = (0, 1, -1, 2, 7, 127, 1 << 20, 1 << 31, -(1 << 31), (1 << 62), (1 << 63) - 1, -(1 << 63))
FLOATS = (0.0, -0.0, 1e-45, 3.4e38, float("inf"), float("-inf"), float("nan"))
STRINGS = ("", "x", "\0", "../../etc/passwd", "/etc/passwd", "ai.onnx", "com.microsoft", "a" * 5000, "é", "%s%n", "{0}")
WORDS = (
    *(
        "x",
        "_",
        "|",
        "*",
        "+",
        "**",
        "-",
        "@",
        "(",
        ")",
        "[",
        "]",
        "{",
        "}",
        ",",
        "=",
        ":",
        "&a",
        "*a",
        "!!python/object:os.system",
    ),
    *(
        "0",
        "-1",
        "1e999",
        "9" * 400,
        "Relu",
        "Erf(x)",
        "rearrange(x, 'a b -> b a')",
        "**rest",
        "lambda: 0",
        "x.value",
        "not",
        "or",
    ),
    *("\t", "\0", "#", "'", '"', "|\n", "<<:", "match:", "replace:", "where:", "example:", "id:", "a.b.c.D(x)", "x if y else z"),
    *(
        "(" * 200,
        "-" * 300 + "x",
        "x" + " + x" * 500,
        "sqrt(-1)",
        "1 / 0",
        "2 ** 10 ** 9",
        "[[[[]]]]",
        "x[0]",
        "x.y.z",
        "__import__",
    ),
)


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of the command line to a damaged file, and what the file was made from."""

    code: int
    out: str
    err: str
    origin: str


def noise(random: Random, folder: Path) -> Path:
    """A model file of random bytes, or of pieces of a real one."""
    path = folder / "damaged.onnx"
    if random.random() < 0.2:
        path.write_bytes(random.randbytes(random.randrange(2000)))
        return path
    content = bytearray(random.choice(MODELS[:12]).read_bytes())
    for _ in range(random.randint(1, 8)):
        at = random.randrange(len(content))
        match random.randrange(5):
            case 0:
                del content[at:]
            case 1:
                content[at] ^= 1 << random.randrange(8)
            case 2:
                content[at : at + 4] = random.randbytes(random.randrange(8))
            case 3:
                content[at:at] = content[at : at + random.randrange(200)]
            case 4:
                del content[at : at + random.randrange(200)]
        if not content:
            break
    path.write_bytes(bytes(content))
    return path


def damaged_model(random: Random, folder: Path) -> Path:
    """A real model in which some fields, anywhere, have other values."""
    model = onnx.load(random.choice(MODELS[:12]), load_external_data=False)
    for _ in range(random.choice([1, 1, 1, 2, 3, 6])):
        _damage(random, model)
    path = folder / "damaged.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def _damage(random: Random, message: Message) -> None:
    """Change one field of the message, or of a message inside it."""
    place = message
    while True:
        fields = [f for f in place.DESCRIPTOR.fields if _present(place, f)]
        inner = [f for f in fields if f.type == FieldDescriptor.TYPE_MESSAGE]
        if not inner or random.random() < 0.15:
            break
        field = random.choice(inner)
        held = getattr(place, field.name)
        place = random.choice(held) if field.is_repeated else held
    fields = [f for f in place.DESCRIPTOR.fields if random.random() < 0.2 or _present(place, f)]
    if fields:
        _change(random, place, random.choice(fields))


def _present(message: Message, field: FieldDescriptor) -> bool:
    return bool(len(getattr(message, field.name))) if field.is_repeated else message.HasField(field.name)


def _change(random: Random, message: Any, field: FieldDescriptor) -> None:
    if random.random() < 0.2:
        message.ClearField(field.name)
        return
    held = getattr(message, field.name)
    if field.type == FieldDescriptor.TYPE_MESSAGE:
        if not field.is_repeated or not held:
            return
        index = random.randrange(len(held))
        match random.randrange(3):
            case 0:
                del held[index]
            case 1:
                held.add().CopyFrom(held[index])
            case 2:
                held[index].CopyFrom(random.choice(held))
        return
    value = _value(random, field, held)
    try:
        if not field.is_repeated:
            setattr(message, field.name, value)
        elif held and random.random() < 0.7:
            held[random.randrange(len(held))] = value
        else:
            held.append(value)
    except (ValueError, TypeError):  # the number is out of the field's range
        pass


def _value(random: Random, field: FieldDescriptor, held: Any) -> Any:
    match field.type:
        case FieldDescriptor.TYPE_STRING:
            return random.choice(STRINGS)
        case FieldDescriptor.TYPE_BYTES:
            return random.choice([random.randbytes(random.randrange(64)), b"", b"\xff\xfe", b"SAME_UPPER"])
        case FieldDescriptor.TYPE_FLOAT | FieldDescriptor.TYPE_DOUBLE:
            return random.choice(FLOATS)
        case FieldDescriptor.TYPE_ENUM:
            return random.randrange(20)
        case _:
            return random.choice([*INTEGERS, random.randrange(40)])


def damaged_pattern(random: Random, folder: Path) -> Path:
    """A real pattern file with changed words and lines, under its own name."""
    source = random.choice(PATTERNS)
    lines = source.read_text(encoding="utf-8").splitlines()
    for _ in range(random.choice([1, 1, 2, 3])):
        at = random.randrange(len(lines))
        match random.randrange(6):
            case 0:
                del lines[at]
            case 1:
                lines.insert(at, random.choice(lines))
            case 2:
                lines[at] = " " * random.randrange(4) + lines[at]
            case 3:
                cut = random.randrange(len(lines[at]) + 1)
                lines[at] = lines[at][:cut] + random.choice(WORDS) + lines[at][cut:]
            case 4:
                words = lines[at].split(" ")
                words[random.randrange(len(words))] = random.choice(WORDS)
                lines[at] = " ".join(words)
            case 5:
                cut = random.randrange(len(lines[at]) + 1)
                lines[at] = lines[at][:cut]
        lines = lines or [""]
    path = folder / source.parent.name / source.name
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8", errors="surrogateescape")
    return path


def arguments(random: Random, folder: Path) -> Iterator[str]:
    """A command line over a damaged file in `folder`; its output is `folder`/out.onnx."""
    kind = random.choice(["noise", "model", "model", "model", "pattern", "pattern"])
    output = ["-o", str(folder / "out.onnx")]
    if kind == "pattern":
        pattern = damaged_pattern(random, folder)
        yield from ("fuse", str(MODELS[0]), *output, "--no-verify", "--patterns", str(pattern))
        return
    model = (noise if kind == "noise" else damaged_model)(random, folder)
    match random.randrange(6):
        case 0:
            yield from ("explain", str(model))
        case 1:
            yield from ("fuse", str(model), *output)
        case _:
            yield from ("fuse", str(model), *output, "--no-verify")


def answer(given: list[str]) -> Answer:
    """The answer of the command line, in this process."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = main(given)
    return Answer(code, out.getvalue(), err.getvalue(), " ".join(given))


def fault(answered: Answer, folder: Path) -> str | None:
    """What is wrong with the answer, in words, or None."""
    text = answered.err
    if answered.code not in (0, 1, 2):
        return f"exit code {answered.code}"
    if "This is a bug" in text or "Traceback" in text:
        return text.strip()
    if answered.code == 2 and text.count("Error: ") != (0 if answered.out else 1):
        return f"exit code 2, and neither an answer nor one message: {text.strip()[:500]!r}"
    if answered.code == 2 and (folder / "out.onnx").exists():
        return "exit code 2 and an output"
    left = [p.name for p in folder.rglob("*") if p.name.endswith(".tmp")]
    return f"temporary files are left: {left}" if left else None
