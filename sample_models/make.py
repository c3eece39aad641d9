"""Makes the sample models and the table in this folder's README: `python sample_models/make.py [NAME ...]`.

Every model is written by a real exporter (torch's dynamo exporter, its older TorchScript exporter, or onnxscript) from a network
in `networks.py` with seeded random weights; nothing is edited afterwards except that stack traces and doc strings are dropped.
Needs torch, onnxscript, transformers and onnxruntime, which neither the project nor its tests need.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import functions
import networks
import numpy as np
import onnx
import onnxruntime
import onnxscript
import torch
from torch import nn

HERE = Path(__file__).parent
BATCH, SEQ = "batch", "seq"
DYNAMO, TORCHSCRIPT, ONNXSCRIPT = "dynamo", "torchscript", "onnxscript"
Axes = dict[str, dict[int, str]]


@dataclass(frozen=True)
class Sample:
    """One model: which network, which exporter, at which opset, and what a reader finds in it.

    inputs: name → example tensor. axes: name → axis → symbolic dimension. keywords: handed on to `torch.onnx.export`.
    """

    name: str
    network: Callable[[], nn.Module]
    inputs: dict[str, torch.Tensor]
    axes: Axes
    exporter: str
    opset: int
    contents: str
    keywords: dict[str, object]
    dtype: torch.dtype = torch.float32
    script: bool = False


def tokens() -> tuple[dict[str, torch.Tensor], Axes]:
    """Token ids and their attention mask, int64[batch, seq] each."""
    axes = {name: {0: BATCH, 1: SEQ} for name in ("input_ids", "attention_mask")}
    return {"input_ids": torch.arange(24).reshape(2, 12) % 89 + 3, "attention_mask": torch.ones(2, 12, dtype=torch.int64)}, axes


def image(size: int = 32) -> tuple[dict[str, torch.Tensor], Axes]:
    """An image, float32[batch, 3, size, size]."""
    return {"input": torch.randn(2, 3, size, size)}, {"input": {0: BATCH}}


def rows() -> tuple[dict[str, torch.Tensor], Axes]:
    """Rows of 16 features, float32[batch, seq, 16]."""
    return {"x": torch.randn(2, 5, 16)}, {"x": {0: BATCH, 1: SEQ}}


def latents() -> tuple[dict[str, torch.Tensor], Axes]:
    """The inputs of a UNet block: sample[batch, 32, 8, 8], embedding[batch, 16], context[batch, seq, 24], float32."""
    inputs = {"sample": torch.randn(2, 32, 8, 8), "embedding": torch.randn(2, 16), "context": torch.randn(2, 7, 24)}
    return inputs, {"sample": {0: BATCH}, "embedding": {0: BATCH}, "context": {0: BATCH, 1: SEQ}}


def samples() -> Iterator[Sample]:
    """Every sample model, in the order of the table."""

    def both(name, network, make_inputs, dynamo, script, contents):  # type: ignore[no-untyped-def]
        for exporter, opset, keywords in ((DYNAMO, *dynamo), (TORCHSCRIPT, *script)):
            inputs, axes = make_inputs()
            yield Sample(f"{name}_{exporter}", network, inputs, axes, exporter, opset, contents, keywords)

    kept = {"training": torch.onnx.TrainingMode.PRESERVE, "do_constant_folding": False}
    none: dict[str, object] = {}
    plain = {"optimize": False}
    text = (
        "embeddings, 2 encoder layers: LayerNormalization (spelled out below opset 17) with residual adds, "
        "erf GELU with bias, attention"
    )
    yield from both("bert", networks.bert, tokens, (18, none), (14, none), text)
    text = "1 decoder layer: RMSNorm, rotary embedding, grouped-query attention, SwiGLU"
    yield from both("llama", networks.llama, tokens, (18, none), (17, none), text)
    text = "the same in float16: RMSNorm computes in float32 between casts"
    yield Sample("llama_float16_dynamo", networks.llama, *tokens(), DYNAMO, 18, text, none, torch.float16)
    text = "1 block: pre-norm, Gemm projections, tanh GELU, eager attention"
    yield from both("gpt2", networks.gpt2, tokens, (18, none), (13, none), text)
    text = "2 layers: pre-norm, causal attention, QuickGELU"
    yield from both("clip_text", networks.clip_text, tokens, (18, none), (17, none), text)
    text = "2 layers: RMSNorm, relative position bias, gated tanh GELU"
    yield from both("t5", networks.t5_encoder, tokens, (20, none), (17, none), text)
    text = "stem and 2 bottlenecks, BatchNormalization kept, residual adds, Relu"
    yield from both("resnet", networks.resnet_stage, image, (18, plain), (13, kept), text)
    text = "stem and 3 blocks: HardSwish, HardSigmoid gates, Relu, Relu6, depthwise; torchscript keeps BatchNormalization"
    yield from both("mobilenet_v3", networks.mobilenet_v3, image, (18, none), (13, kept), text)
    text = "GroupNorm, SiLU, cross attention, LayerNormalization, GEGLU, as in Stable Diffusion"
    yield from both("unet", networks.UNetBlock, latents, (18, none), (17, none), text)
    text = "convolution and SiLU, split and concatenated; torchscript keeps BatchNormalization"
    yield from both("yolo_c2f", networks.yolo_c2f, image, (18, none), (13, kept), text)
    text = "If (torch.cond): GELU and SiLU inside its bodies"
    yield Sample("branches_dynamo", networks.CondBranches, *rows(), DYNAMO, 18, text, none)
    text = "If (a scripted module): LayerNormalization spelled out, GELU and SiLU inside its bodies"
    yield Sample("branches_torchscript", networks.ScriptBranches, *rows(), TORCHSCRIPT, 14, text, none, script=True)
    text = "model-local functions that call each other, one with an attribute: RMSNorm and GELU inside their bodies"
    yield Sample("functions_onnxscript", networks.Scripted, *rows(), ONNXSCRIPT, 18, text, none)


def seed_weights(network: nn.Module) -> None:
    """Draw scales, biases and running statistics too, which torch initialises to ones and zeros that hide mistakes."""
    torch.manual_seed(2024)
    for name, tensor in [*network.named_parameters(), *network.named_buffers()]:
        if not tensor.is_floating_point() or name.endswith("inv_freq"):
            continue
        noise = torch.randn(tensor.shape)
        if name.endswith("running_var"):
            tensor.data.copy_(noise.abs() + 0.5)
        elif tensor.ndim == 1:
            tensor.data.copy_(0.3 * noise + (1.0 if name.endswith("weight") else 0.0))


def export(sample: Sample, path: Path) -> None:
    """Write one sample to `path`, and check it: loads in onnxruntime, agrees with torch at another size, is under 1 MB."""
    torch.manual_seed(7)
    network = sample.network().eval()
    seed_weights(network)
    network.to(sample.dtype)
    arguments = tuple(t.to(sample.dtype) if t.is_floating_point() else t for t in sample.inputs.values())
    exported = torch.jit.script(network) if sample.script else network
    common = {"input_names": list(sample.inputs), "output_names": ["output"], "opset_version": sample.opset}
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        if sample.exporter == ONNXSCRIPT:
            onnx.save(functions.model(network), path)
        elif sample.exporter == DYNAMO:
            dims = tuple(sample.axes[name] for name in sample.inputs)
            torch.onnx.export(
                exported, arguments, str(path), dynamo=True, external_data=False, verbose=False, dynamic_shapes=dims,
                **common, **sample.keywords,
            )  # fmt: skip
        else:
            torch.onnx.export(exported, arguments, str(path), dynamo=False, dynamic_axes=sample.axes, **common, **sample.keywords)
    model = onnx.load(path)
    strip(model)
    onnx.checker.check_model(model)
    onnx.save(model, path)
    assert path.stat().st_size < 1_000_000, f"{path.name} is too large"
    compare(sample, network, path)


def strip(model: onnx.ModelProto) -> None:
    """Drop stack traces and doc strings: they hold the paths of the machine that exported, and they are most of the file."""
    model.doc_string = ""
    for graph in graphs(model):
        for node in graph.node:
            node.doc_string = ""
            for entry in [e for e in node.metadata_props if e.key in ("pkg.torch.onnx.stack_trace", "pkg.torch.onnx.fx_node")]:
                node.metadata_props.remove(entry)
    del model.metadata_props[:]
    for entry in [e for e in model.graph.metadata_props if len(e.value) > 1000]:
        model.graph.metadata_props.remove(entry)


def graphs(model: onnx.ModelProto) -> Iterator[onnx.GraphProto | onnx.FunctionProto]:
    """The main graph, every nested body, every function."""
    waiting: list[onnx.GraphProto | onnx.FunctionProto] = [model.graph, *model.functions]
    while waiting:
        graph = waiting.pop()
        yield graph
        waiting.extend(a.g for n in graph.node for a in n.attribute if a.type == onnx.AttributeProto.GRAPH)


def compare(sample: Sample, network: nn.Module, path: Path) -> None:
    """Hold the exported model against torch, at the exported size and with every symbolic dimension one larger."""
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    for extra in (0, 1):
        feeds = {}
        for name, tensor in sample.inputs.items():
            shape = [n + extra * (i in sample.axes[name]) for i, n in enumerate(tensor.shape)]
            if tensor.is_floating_point():
                feeds[name] = torch.randn(shape).to(sample.dtype)
            else:
                feeds[name] = torch.ones(shape, dtype=tensor.dtype) if name == "attention_mask" else torch.randint(3, 97, shape)
        with torch.no_grad():
            expected = network(*feeds.values()).float().numpy()
        (found,) = session.run(None, {k: v.numpy() for k, v in feeds.items()})
        tolerance = 2e-2 if sample.dtype == torch.float16 else 2e-4
        np.testing.assert_allclose(found.astype(np.float32), expected, rtol=tolerance, atol=tolerance)


def table(rows: list[Sample]) -> str:
    """The README's table: one row a model, read from the files themselves."""
    lines = ["| model | network | exporter | opset | nodes | functions | KB | in it |", "|---|---|---|---|---|---|---|---|"]
    for sample in rows:
        path = HERE / f"{sample.name}.onnx"
        if not path.exists():
            continue
        model = onnx.load(path)
        nodes = sum(len(g.node) for g in graphs(model))
        version = onnxscript.__version__ if sample.exporter == ONNXSCRIPT else f"torch {torch.__version__.split('+')[0]}"
        size = round(path.stat().st_size / 1000)
        lines.append(
            f"| `{path.name}` | `networks.{sample.network.__name__}` | {sample.exporter}, {version} | {sample.opset} | {nodes} "
            f"| {len(model.functions)} | {size} | {sample.contents} |"
        )
    return "\n".join(lines)


def main(names: list[str]) -> None:
    """Make the named samples, or all of them, then write the table."""
    every = list(samples())
    failed = []
    for sample in every:
        if names and sample.name not in names:
            continue
        print(sample.name, flush=True)
        try:
            export(sample, HERE / f"{sample.name}.onnx")
        except Exception as error:
            failed.append(sample.name)
            print(f"  {type(error).__name__}: {error}", file=sys.stderr)
    readme = HERE / "README.md"
    head = readme.read_text().split("<!-- table -->")[0] if readme.exists() else ""
    readme.write_text(f"{head}<!-- table -->\n{table(every)}\n")
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main(sys.argv[1:])
