"""Load and save model files: `load`, `save`, `hand_on`, `write_temporary`.

Loading accepts what onnxruntime accepts, including untidy files. It keeps what it does not know, and maps external weights
instead of reading them. Saving is atomic, deterministic and never touches the input. External weights stay where they are: a
model saved beside its source uses the source's data files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import onnx
import onnx_ir as ir
from google.protobuf.message import DecodeError, EncodeError  # type: ignore[import-untyped]

from onnx_subgraph.collection import collect_if_due
from onnx_subgraph.errors import ModelError, UsageError
from onnx_subgraph.files import formats, maps, stored, texts, wellformed
from onnx_subgraph.files.atomic import check_target, copy_whole
from onnx_subgraph.files.inside import FileTensor, ModelFile
from onnx_subgraph.files.protobuf import tensors
from onnx_subgraph.files.tidy import tidy, tidy_protobuf
from onnx_subgraph.files.weights import DataFileTensor, length, placed, sources, words
from onnx_subgraph.files.wire import LARGE, Extent, Gap, filled
from onnx_subgraph.model import shapes
from onnx_subgraph.model.constants import STRIPPED
from onnx_subgraph.model.nested import within
from onnx_subgraph.model.quiet import quiet

_LARGEST = 2**31 - 1
"""Maximum size of a protobuf in bytes."""
_DAMAGED = "the file is damaged; export or download it again"


def load(path: Path, *, weights: Path | None = None) -> ir.Model:
    """Load a model. External weights are mapped, not read.

    weights: the folder of the external data, if it is not the file's folder (`write_temporary`). Types and shapes of values are
    as declared; `infer_shapes` adds the others. Raises ModelError with the first problem found.
    """
    collect_if_due()
    path = Path(path)
    home = path if weights is None else weights / path.name
    proto, file, extents = _read(path)
    tidy_protobuf(proto)
    try:
        wellformed.check(proto, home, {position: extent.length for position, extent in extents.items()})
        declared = {value.name for part in ("value_info", "input", "output") for value in getattr(proto.graph, part)}
        of_maps = maps.take_out(proto)
        with quiet("onnx_ir"):
            model = ir.from_proto(proto)
        maps.remember(model, of_maps)
        for tensor_owner in _external(model):
            tensor_owner.const_value = DataFileTensor.of(tensor_owner.const_value, home)
        _keep_in_file(model, proto, file, extents)
        _set_place(model, home)
        _mark_stripped(model, proto)
        tidy(model, path)
        shapes.remember_declared(
            model,
            undeclared=[value for value in model.graph.initializers.values() if value.name not in declared],
        )
    except ModelError:
        raise
    except RecursionError as error:
        raise ModelError(f"{path}: its bodies are nested too deep", hint="flatten nested If, Loop and Scan bodies") from error
    except Exception as error:
        unknown = isinstance(_cause(error), NotImplementedError)  # of onnx_ir
        hint = "sparse tensors, and maps inside of bodies, are not supported" if unknown else _DAMAGED
        raise ModelError(f"{path}: {_root(error)}", hint=hint) from error
    return model


def read(path: Path) -> onnx.ModelProto:
    """The protobuf in a file, without external data and with large weights empty. Raises ModelError where it holds no model."""
    return _read(path)[0]


def _read(path: Path) -> tuple[onnx.ModelProto, ModelFile | None, Mapping[int, Extent]]:
    """The protobuf in a file with large weights empty, the open file, and the extents of these weights by their positions."""
    if not path.exists():
        raise ModelError(f"{path}: there is no such file", hint="check the path")
    if not path.is_file():
        if path.is_dir():
            hint = f"name the files in it, for example {path / '*.onnx'}"
            raise ModelError(f"{path}: is a folder, not a model file", hint=hint)
        raise ModelError(f"{path}: is not a regular file", hint="give the file of a model; - reads one from standard input")
    try:
        size = path.stat().st_size
        if size > _LARGEST:
            raise ModelError(
                f"{path}: has {size} bytes, and no protobuf can have more than 2 GiB", hint="export it with external data"
            )
        file = ModelFile(path) if size >= LARGE else None
        data, extents = (path.read_bytes(), {}) if file is None else file.outlined()
    except OSError as error:
        raise ModelError(f"{path}: cannot be read: {error.strerror or error}", hint="check its permissions") from error
    if not data:
        raise ModelError(f"{path}: is empty", hint="export or download the model again")
    try:
        proto = onnx.ModelProto()
        proto.ParseFromString(data)
    except (DecodeError, UnicodeDecodeError) as error:
        kind = formats.kind_of(data, path)
        raise ModelError(f"{path}: {kind.what}", hint=kind.hint) from error
    if not proto.HasField("graph"):  # bytes of another format can happen to parse as a protobuf
        known = formats.recognised(data, path) if proto.ir_version else formats.kind_of(data, path)
        if known is not None:
            raise ModelError(f"{path}: {known.what}", hint=known.hint)
    texts.make_readable(proto)
    return proto, file, extents


def save(model: ir.Model, path: Path, source: Path | None) -> None:
    """Write a model. `source` is the file it was loaded from: external weights stay there if `path` is in the same folder.

    External weights go to `<path>.data` if `path` is in another folder. So do new weights of at least 1 MiB, if the model has
    external data. The name gets a number where another model of the folder has its data there. A model without external data
    keeps its weights inside, up to the 2 GiB limit of protobuf.
    Raises UsageError when `path` is the input, ModelError when it cannot be written; then nothing is left behind.
    """
    path = Path(path)
    data = sources(model)
    check_target(path, never=(*((source,) if source is not None else ()), *data))
    beside = source is not None and source.resolve().parent == path.parent.resolve()  # a link at `path` is replaced
    others = _data_of_others(path) if path.with_name(f"{path.name}.data").exists() else ()
    with placed(model, path, keep=beside, never=(*data, *(file for _, file in others))) as placement:
        placement.write(lambda: pieces(model, path))


def _data_of_others(path: Path, *folders: Path) -> Iterator[tuple[str, Path]]:
    """The names of the other models in the folder of `path`, and in these, each with every data file that it reads."""
    for other in sorted(model for folder in {path.parent, *folders} for model in folder.glob("*.[oO][nN][nN][xX]")):
        if other != path:
            with suppress(ModelError, ValueError):  # what nobody can read has no data
                yield from ((other.name, file) for file in data_files(other))


def size(model: ir.Model, unchanged: Path | None = None) -> int:
    """The size in bytes of a model when written, including the external data that it reads. Writes nothing.

    unchanged: the original file, if the model was not changed and this file is copied instead.
    """
    with placed(model, Path("model.onnx"), keep=True, never=()):
        content = unchanged.stat().st_size if unchanged is not None else sum(map(length, pieces(model, Path("model.onnx"))))
        tensors = [value.const_value for value in _external(model)]
        data = {
            (tensor.location, tensor.offset): int(tensor.nbytes) for tensor in tensors if isinstance(tensor, ir.ExternalTensor)
        }
        return content + sum(data.values())


def write_temporary(model: ir.Model, source: Path, directory: Path) -> Path:
    """Write a temporary file of the model into `directory`, for a session to open. No existing weights are copied.

    External data stays beside `source`. If `directory` is another folder, open the session with the option
    `session.model_external_initializers_file_folder_path` set to the folder of `source`. New weights are written inside.
    """
    path = Path(directory) / f"{source.stem}.candidate.onnx"
    data = sources(model)
    with placed(model, path, keep=True, never=data, inline=True) as placement:
        placement.write(lambda: pieces(model, path))
    return path


def hand_on(source: Path, path: Path) -> None:
    """Copy a model file byte for byte; into another folder, its data files too. Raises as `save` does."""
    source, path = Path(source), Path(path)
    locations = _locations(read(source))
    data = [source.parent / location for location in locations]
    check_target(path, never=(source, *data))
    for file, location in zip(data, locations, strict=True):
        _hand_on_data(file, path.parent / location, path)
    copy_whole(source, path)


def data_files(path: Path) -> list[Path]:
    """The data files that a model refers to. Raises ModelError where it cannot be read."""
    return [path.parent / location for location in _locations(read(path))]


def size_on_disk(path: Path) -> int:
    """The size in bytes of a model file and the data files that it refers to. Raises ModelError where it cannot be read."""
    files = (path, *data_files(path))
    return sum(file.stat().st_size for file in files if file.is_file())


def _locations(proto: onnx.ModelProto) -> list[str]:
    """The data files that a model refers to, relative to its folder."""
    external = (t for t in tensors(proto) if t.data_location == onnx.TensorProto.EXTERNAL)
    return sorted({texts.file_name(stored.external_place(tensor)[0]) for tensor in external})


def _hand_on_data(file: Path, target: Path, path: Path) -> None:
    if not target.resolve().is_relative_to(path.parent.resolve()):
        raise UsageError(
            f"{path}: its data '{target}' is a link to another folder, so onnxruntime would not load the copy",
            hint="choose another folder for the output, with -o or --output-dir",
        )
    if target.exists() and target.samefile(file):
        return
    if target.exists() and not _same_bytes(file, target):
        others = _data_of_others(path, target.parent)
        user = next((other for other, data in others if data.resolve() == target.resolve()), None)
        if user is not None:
            raise UsageError(f"{target}: is data of {user} and would be overwritten", hint="choose another output folder")
    target.parent.mkdir(parents=True, exist_ok=True)
    copy_whole(file, target)


def _same_bytes(a: Path, b: Path) -> bool:
    if a.stat().st_size != b.stat().st_size:
        return False
    with a.open("rb") as left, b.open("rb") as right:
        while block := left.read(1 << 20):
            if block != right.read(1 << 20):
                return False
    return True


def serialized(model: ir.Model, path: Path) -> bytes:
    """The bytes of the model as file `path`; external data stays where it is. Raises ModelError."""
    try:
        with shapes.declared_only(model), quiet("onnx_ir"):
            proto = ir.to_proto(model)
            maps.put_back(proto, model)
            content: bytes = proto.SerializeToString(deterministic=True)
            if texts.MARK_BYTES in content:  # Weights may contain the mark by chance; then `put_back` changes nothing.
                texts.put_back(proto)
                content = proto.SerializeToString(deterministic=True)
            return content
    except (EncodeError, ValueError, TypeError) as error:
        raise ModelError(f"{path}: the model cannot be written: {_root(error)}", hint="please report this model") from error


def pieces(model: ir.Model, path: Path) -> list[bytes | ir.TensorProtocol]:
    """The contents of the file `path` in order: bytes, and weights whose data goes there. Raises as `serialized` does."""
    with words(model) as weights:
        content = serialized(model, path)
    found = filled(content, {word: int(tensor.nbytes) for word, tensor in weights.items()})
    assert [piece.word for piece in found if isinstance(piece, Gap)] == [*weights]
    return [weights[piece.word] if isinstance(piece, Gap) else piece for piece in found]


def _external(model: ir.Model) -> Iterator[ir.Value]:
    for graph in model.graphs():
        for value in graph.initializers.values():
            if isinstance(value.const_value, ir.ExternalTensor):
                yield value


def _keep_in_file(model: ir.Model, proto: onnx.ModelProto, file: ModelFile | None, extents: Mapping[int, Extent]) -> None:
    """Make the omitted large weights read from the file. Of several weights with one name, the last one counts."""
    last = {tensor.name: position for position, tensor in enumerate(proto.graph.initializer)}
    for name, position in last.items():
        if file is not None and position in extents:
            value = model.graph.initializers[name]
            assert value.const_value is not None
            value.const_value = FileTensor(file, extents[position], value.const_value)


def _mark_stripped(model: ir.Model, proto: onnx.ModelProto) -> None:
    """Mark weights without data, so that they are not read as zeros."""
    for tensor in proto.graph.initializer:
        if tensor.name and stored.is_stripped(tensor):
            model.graph.initializers[tensor.name].meta[STRIPPED] = True


def _set_place(model: ir.Model, path: Path) -> None:
    """Set the places of external tensors in attributes. path: of the model's file."""
    owners = (model.graph, *(function.graph for function in model.functions.values()))
    for node in (node for owner in owners for graph in within(owner) for node in graph):
        for attribute in list(node.attributes.data.values()):
            if attribute.type not in (ir.AttributeType.TENSOR, ir.AttributeType.TENSORS) or attribute.is_ref():
                continue
            one = attribute.type == ir.AttributeType.TENSOR
            found = (attribute.value,) if one else attribute.value
            if not any(isinstance(tensor, ir.ExternalTensor) for tensor in found):
                continue
            put = [DataFileTensor.of(t, path) if isinstance(t, ir.ExternalTensor) else t for t in found]
            node.attributes[attribute.name] = ir.Attr(attribute.name, attribute.type, put[0] if one else put)


def _cause(error: BaseException) -> BaseException:
    """The innermost cause of an error."""
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def _root(error: BaseException) -> str:
    """The message of the innermost cause of an error, one line of at most 300 characters."""
    error = _cause(error)
    lines = str(error).splitlines() or [type(error).__name__]
    return lines[0][:300]
