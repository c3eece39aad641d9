"""Operators of com.microsoft have the shape and type that onnxruntime gives their results, or none."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import onnxruntime
import pytest
import sympy
from onnx_shape_inference import registry
from onnxruntime.capi.onnxruntime_pybind11_state import get_all_operator_schema, get_all_opkernel_def

from onnx_subgraph.model.inference import install
from onnx_subgraph.model.inference_microsoft import MICROSOFT
from onnx_subgraph.model.shapes import infer_shapes

SIZES = {"b": 2, "s": 3, "p": 4, "h": 5, "w": 6, "m": 36, "one": 1}
"""Symbol of a case → its size in the run."""
ATTENTION = "float[b, s, 8] q, float[b, p, 8] k, float[b, p, 12] v"
PAST = "float[b, 2, p, 4] pk, float[b, 2, p, 4] pv"
CACHE = "float[one, 2, p, 8] pk, float[one, 2, p, 8] pv, int32[one] l, int32[1] n"
GROUPED = f"float[one, s, 32] q, float[one, s, 16] k, float[one, s, 16] v, {CACHE}"
PACKED = f"float[one, s, 64] q, {CACHE}"
BLOCKS = "float[b, 2, 16, 8] pk, float[b, 2, 16, 8] pv, int32[1, 2] i, int32[1, 1] j, int32[1] n, int32[b] l"
EMBED = "int32[b, s] i, int32[b, s] g, float[10, 8] e, float[20, 8] o, float[2, 8] m, float[8] a, float[8] c, int32[b, s] r"
QUANTIZED_EMBED = (
    "int32[b, s] i, int32[b, s] g, uint8[10, 8] e, uint8[20, 8] o, uint8[2, 8] m, uint8[8] a, uint8[8] c, int32[b, s] r, "
    "float x, uint8 z"
)
QUANTIZED_LSTM = "float[s, b, 8] x, uint8[1, 8, 12] w, uint8[1, 3, 12] r, float[1] u, uint8[1] z"
Q = "float x, uint8 z"
CALLS: dict[str, tuple[str, str]] = {
    "Attention": ("float[b, s, 8] x, float[8, 36] w, float[36] c", "y = Attention <num_heads = 2> (x, w, c)"),
    "Attention of other hidden sizes": (
        "float[b, s, 8] x, float[8, 24] w, float[24] c",
        "y = Attention <num_heads = 2, qkv_hidden_sizes = [6, 6, 12]> (x, w, c)",
    ),
    "Attention with present": (
        "float[b, s, 8] x, float[8, 36] w, float[36] c",
        "y, r = Attention <num_heads = 2> (x, w, c)",
    ),
    "Attention with past": (
        "float[b, s, 8] x, float[8, 36] w, float[36] c, float[2, b, 2, p, 6] past",
        "y, r = Attention <num_heads = 2> (x, w, c, , past)",
    ),
    "Attention of symbolic weights": (
        "float[b, s, 8] x, float[8, m] w, float[m] c",
        "y, r = Attention <num_heads = 2> (x, w, c)",
    ),
    "BiasGelu": ("float[b, s, 8] x, float[8] c", "y = BiasGelu(x, c)"),
    "BranchwiseRMSNorm": ("float[b, s, 2, 8] x, float[2, 8] c", "y = BranchwiseRMSNorm(x, c)"),
    "CausalConvWithState": ("float[b, 4, s] x, float[4, 1, 3] w", "y, r = CausalConvWithState(x, w)"),
    "DecoderMaskedMultiHeadAttention": (
        f"float[b, one, 8] q, float[b, one, 8] k, float[b, one, 8] v, {PAST}, int32[1] a",
        "y, rk, rv = DecoderMaskedMultiHeadAttention <num_heads = 2, past_present_share_buffer = 1> (q, k, v, , , pk, pv, a)",
    ),
    "DynamicQuantizeLSTM": (QUANTIZED_LSTM, "y, h, c = DynamicQuantizeLSTM <hidden_size = 3> (x, w, r, , , , , , u, z, u, z)"),
    "DynamicQuantizeLSTM of both directions": (
        QUANTIZED_LSTM.replace("[1, ", "[2, ").replace("1]", "2]"),
        'y, h, c = DynamicQuantizeLSTM <hidden_size = 3, direction = "bidirectional"> (x, w, r, , , , , , u, z, u, z)',
    ),
    "EmbedLayerNormalization": (EMBED, "y, k, t = EmbedLayerNormalization <mask_index_type = 0> (i, g, e, o, m, a, c, r)"),
    "EmbedLayerNormalization of positions only": (
        EMBED,
        "y, k = EmbedLayerNormalization (i, , e, o, , a, c)",
    ),
    "EngramGate": (
        "float[b, s, 2, 8] k, float[b, s, 2, 8] q, float[b, s, 8] v, float[2, 8] a, float[2, 8] c",
        "y = EngramGate(k, q, v, a, c)",
    ),
    "FastGelu": ("float[b, s, 8] x, float[8] c", "y = FastGelu(x, c)"),
    "FusedMatMul": ("float[b, 8, s] x, float[b, 4, 8] w", "y = FusedMatMul <transA = 1, transB = 1> (x, w)"),
    "FusedMatMul of one batch": ("float[b, 8, s] x, float[one, 8, s] w", "y = FusedMatMul <transB = 1> (x, w)"),
    "FusedMatMul of batches that broadcast": ("float[one, 3, 8] x, float[b, 8, 4] w", "y = FusedMatMul(x, w)"),
    "FusedMatMul of vectors": ("float[8] x, float[b, 8, 4] w", "y = FusedMatMul(x, w)"),
    "SparseAttention": (
        f"float[b, s, 32] q, float[b, s, 16] k, float[b, s, 16] v, {BLOCKS}",
        "y, rk, rv = SparseAttention <num_heads = 4, kv_num_heads = 2, sparse_block_size = 16> (q, k, v, pk, pv, i, j, n, l)",
    ),
    "SparseAttention, packed": (
        f"float[b, s, 64] q, {BLOCKS}",
        "y, rk, rv = SparseAttention <num_heads = 4, kv_num_heads = 2, sparse_block_size = 16> (q, , , pk, pv, i, j, n, l)",
    ),
    "VarlenCausalConvWithState": (
        "float[w, 4] x, float[4, 1, 3] u, int32[s] o, float[2, 4, 2] i",
        "y, r = VarlenCausalConvWithState(x, u, o, , i)",
    ),
    "VarlenNGramHashMapping": (
        "int64[w] i, int64[3] m, int64[4] v, int32[s] o, int64[2, 2] p",
        "y, r = VarlenNGramHashMapping <max_ngram_size = 3, n_head_per_ngram = 2, pad_id = 0> (i, m, v, o, p)",
    ),
    "TransposeMatMul": ("float[b, 8, s] x, float[b, 4, 8] w", "y = TransposeMatMul <transA = 1, transB = 1> (x, w)"),
    "TransposeMatMul of batches that broadcast": ("float[one, 3, 8] x, float[b, 8, 4] w", "y = TransposeMatMul(x, w)"),
    "GatedAdd": ("float[b, s, 8] x, float[b, s, 8] u, float[b, s, 1] g", "y = GatedAdd(x, u, g)"),
    "GatedDeltaNet": (
        "float[b, s, 2, 4] q, float[b, s, 2, 4] k, float[b, s, 2, 6] v, float[b, s, 2] d, float[b, s, 2] e",
        "y, r = GatedDeltaNet(q, k, v, , d, e)",
    ),
    "GatedRMSNorm": ("float[b, s, 8] x, float[8] c, float[b, s, 8] g", "y = GatedRMSNorm(x, c, g)"),
    "Gelu": ("float[b, s, 8] x", "y = Gelu(x)"),
    "GroupQueryAttention": (
        GROUPED,
        "y, rk, rv = GroupQueryAttention <num_heads = 4, kv_num_heads = 2> (q, k, v, pk, pv, l, n)",
    ),
    "GroupQueryAttention in a longer buffer": (
        GROUPED.replace(" p,", " 9,"),
        "y, rk, rv = GroupQueryAttention <num_heads = 4, kv_num_heads = 2> (q, k, v, pk, pv, l, n)",
    ),
    "GroupQueryAttention, packed": (
        PACKED,
        "y, rk, rv = GroupQueryAttention <num_heads = 4, kv_num_heads = 2> (q, , , pk, pv, l, n)",
    ),
    "GroupQueryAttention without past": (
        "float[one, s, 32] q, float[one, s, 16] k, float[one, s, 16] v, int32[one] u, int32[1] d",
        "y, rk, rv = GroupQueryAttention <num_heads = 4, kv_num_heads = 2> (q, k, v, , , u, d)",
    ),
    "HyperConnectionPostMix": (
        "float[b, s, 2, 8] x, float[b, s, 8] u, float[b, s, 2] c",
        "y = HyperConnectionPostMix(x, u, c)",
    ),
    "HyperConnectionPreMix": ("float[b, s, 2, 8] x, float[b, s, 2] c", "y = HyperConnectionPreMix(x, c)"),
    "LinearAttention": (
        "float[b, s, 8] q, float[b, s, 8] k, float[b, s, 12] v",
        'y, r = LinearAttention <q_num_heads = 2, kv_num_heads = 2, update_rule = "linear"> (q, k, v)',
    ),
    "LinearAttentionGate": (
        "float[b, s, 8] x, float[8] c, float[8] d, float[b, s, 8] e",
        "y, r = LinearAttentionGate(x, c, d, e)",
    ),
    "MRotaryEmbedding": (
        "float[b, s, 16] x, int64[3, b, s] i, float[20, 4] c, float[20, 4] d",
        "y = MRotaryEmbedding <num_heads = 2, mrope_section = [1, 1, 2]> (x, i, c, d)",
    ),
    "MatMulNBits": (
        "float[b, s, 32] x, uint8[8, 2, 8] w, float[16] c",
        "y = MatMulNBits <K = 32, N = 8, block_size = 16, bits = 4> (x, w, c)",
    ),
    "MatMulNBits of a vector": (
        "float[32] x, uint8[8, 2, 8] w, float[16] c",
        "y = MatMulNBits <K = 32, N = 8, block_size = 16, bits = 4> (x, w, c)",
    ),
    "MoE": (
        "float[b, s, 8] x, float[6, 2] r, float[2, 16, 8] u, float[2, 8, 16] v",
        'y = MoE <k = 1, activation_type = "relu"> (x, r, u, , v)',
    ),
    "MultiHeadAttention": (ATTENTION, "y = MultiHeadAttention <num_heads = 2> (q, k, v)"),
    "MultiHeadAttention with present": (ATTENTION, "y, rk, rv = MultiHeadAttention <num_heads = 2> (q, k, v)"),
    "MultiHeadAttention with past": (
        f"float[b, s, 8] q, float[b, s, 8] k, float[b, s, 8] v, {PAST}",
        "y, rk, rv = MultiHeadAttention <num_heads = 2> (q, k, v, , , , pk, pv)",
    ),
    "MultiHeadAttention of heads": (
        "float[b, s, 8] q, float[b, 2, p, 4] k, float[b, 2, p, 4] v",
        "y = MultiHeadAttention <num_heads = 2> (q, k, v)",
    ),
    "MultiHeadAttention of heads with present": (
        "float[b, s, 8] q, float[b, 2, p, 4] k, float[b, 2, p, 4] v",
        "y, rk, rv = MultiHeadAttention <num_heads = 2> (q, k, v)",
    ),
    "NGramHashMapping": (
        "int64[b, s] i, int64[3] m, int64[4] v, int64[b, 2] p",
        "y, r = NGramHashMapping <max_ngram_size = 3, n_head_per_ngram = 2, pad_id = 0> (i, m, v, p)",
    ),
    "QAttention": (
        "uint8[b, s, 8] x, uint8[8, 36] w, float[36] c, float u, float v, uint8 z, uint8 n",
        "y = QAttention <num_heads = 2> (x, w, c, u, v, , z, n)",
    ),
    "QAttention of symbolic weights": (
        "uint8[b, s, 8] x, uint8[8, m] w, float[m] c, float u, float v, uint8 z, uint8 n",
        "y = QAttention <num_heads = 2> (x, w, c, u, v, , z, n)",
    ),
    "QAttention with past": (
        "uint8[b, s, 8] x, uint8[8, 36] w, float[36] c, float u, float v, uint8 z, uint8 n, float[2, b, 2, p, 6] past",
        "y, r = QAttention <num_heads = 2> (x, w, c, u, v, , z, n, past)",
    ),
    "QEmbedLayerNormalization": (
        QUANTIZED_EMBED,
        "y, k = QEmbedLayerNormalization (i, g, e, o, m, a, c, r, x, x, x, x, x, z, z, z, z, z)",
    ),
    "QGemm": (f"uint8[s, 4] a, uint8[4, 6] w, int32[6] c, {Q}", "y = QGemm(a, x, z, w, x, z, c, x, z)"),
    "QGemm of transposed operands": (
        f"uint8[4, s] a, uint8[6, 4] w, {Q}",
        "y = QGemm <transA = 1, transB = 1> (a, x, z, w, x, z, , x, z)",
    ),
    "QGemm to floats": (f"uint8[s, 4] a, uint8[4, 6] w, {Q}", "y = QGemm(a, x, z, w, x, z)"),
    "QGemm of signed integers": (
        "int8[s, 4] a, int8[4, 6] w, int32[6] c, float x, int8 z",
        "y = QGemm <alpha = 2.0> (a, x, z, w, x, z, c, x, z)",
    ),
    "QLinearAdd": (f"uint8[b, s, one] u, uint8[one, 8] v, {Q}", "y = QLinearAdd(u, x, z, v, x, z, x, z)"),
    "QLinearAdd of two symbols": (f"uint8[one, s] u, uint8[b, s] v, {Q}", "y = QLinearAdd(u, x, z, v, x, z, x, z)"),
    "QLinearAveragePool": (f"uint8[b, 3, h, w] u, {Q}", "y = QLinearAveragePool <kernel_shape = [2, 3]> (u, x, z, x, z)"),
    "QLinearAveragePool with pads and strides": (
        f"uint8[b, 3, h, w] u, {Q}",
        "y = QLinearAveragePool <kernel_shape = [2, 3], pads = [1, 1, 0, 1], strides = [2, 2], ceil_mode = 1> (u, x, z, x, z)",
    ),
    "QLinearAveragePool of channels last": (
        f"uint8[b, h, w, 3] u, {Q}",
        "y = QLinearAveragePool <kernel_shape = [2, 3], channels_last = 1> (u, x, z, x, z)",
    ),
    "QLinearConcat": (f"uint8[b, s] u, uint8[b, p] v, {Q}", "y = QLinearConcat <axis = 1> (x, z, u, x, z, v, x, z)"),
    "QLinearConv": (f"uint8[b, 3, h, w] u, uint8[4, 3, 2, 2] v, {Q}", "y = QLinearConv(u, x, z, v, x, z, x, z)"),
    "QLinearConv of channels last": (
        f"uint8[b, h, w, 3] u, uint8[4, 3, 2, 2] v, {Q}",
        "y = QLinearConv <channels_last = 1, strides = [2, 2], pads = [1, 0, 1, 0]> (u, x, z, v, x, z, x, z)",
    ),
    "QLinearGlobalAveragePool": (f"uint8[b, 3, h, w] u, {Q}", "y = QLinearGlobalAveragePool(u, x, z, x, z)"),
    "QLinearGlobalAveragePool of channels last": (
        f"uint8[b, h, w, 3] u, {Q}",
        "y = QLinearGlobalAveragePool <channels_last = 1> (u, x, z, x, z)",
    ),
    "QLinearLeakyRelu": (f"uint8[b, s, 8] u, {Q}", "y = QLinearLeakyRelu(u, x, z, x, z)"),
    "QLinearMul": (f"uint8[one, s] u, uint8[b, s] v, {Q}", "y = QLinearMul(u, x, z, v, x, z, x, z)"),
    "QLinearSigmoid": (f"uint8[b, s, 8] u, {Q}", "y = QLinearSigmoid(u, x, z, x, z)"),
    "QLinearSoftmax": (f"uint8[b, s, 8] u, {Q}", "y = QLinearSoftmax <opset = 13> (u, x, z, x, z)"),
    "QLinearWhere": (f"bool[one, s] c, uint8[b, s] u, uint8[b, one] v, {Q}", "y = QLinearWhere(c, u, x, z, v, x, z, x, z)"),
    "QMoE": (
        "float[b, s, 16] x, float[6, 2] r, uint8[2, 32, 8] u, float[2, 32] us, uint8[2, 16, 16] v, float[2, 16] vs",
        'y = QMoE <k = 1, activation_type = "relu", expert_weight_bits = 4> (x, r, u, us, , v, vs)',
    ),
    "QuickGelu": ("float[b, s, 8] x", "y = QuickGelu(x)"),
    "RotaryEmbedding": (
        "float[b, s, 16] x, int64[b, s] i, float[20, 4] c, float[20, 4] d",
        "y = RotaryEmbedding <num_heads = 2> (x, i, c, d)",
    ),
    "RotaryEmbedding of heads": (
        "float[b, 2, s, 8] x, int64[1] i, float[20, 4] c, float[20, 4] d",
        "y = RotaryEmbedding(x, i, c, d)",
    ),
    "ScaledSiLU": ("float[b, s, 8] x", "y = ScaledSiLU(x)"),
    "SkipLayerNormalization": (
        "float[b, s, 8] x, float[b, s, 8] u, float[8] c",
        "y, _m, _v, t = SkipLayerNormalization(x, u, c)",
    ),
    "SkipLayerNormalization of one row": (
        "float[b, s, 8] x, float[s, 8] u, float[8] c",
        "y, _m, _v, t = SkipLayerNormalization(x, u, c)",
    ),
    "SkipSimplifiedLayerNormalization": (
        "float[b, s, 8] x, float[b, s, 8] u, float[8] c",
        "y, _m, _v, t = SkipSimplifiedLayerNormalization(x, u, c)",
    ),
}
"""Name of a case, which begins with its operator → the inputs, and the node."""

VALUES = {"u": [2], "d": [3], "l": [6], "n": [7], "o": [0, 3, 6]}
"""Operand → its elements where they may not all be 1: lengths and offsets."""
SPARSE = {"i": [[0, 1]], "j": [[0]], "n": [3], "l": [3, 3]}
"""The same for SparseAttention, with the rows and columns of its mask."""
SHARED = {"rk": "pk", "rv": "pv"}
"""Result of SparseAttention → the operand in whose memory it must be."""
KERNELS = {kernel.op_name for kernel in get_all_opkernel_def() if kernel.domain == "com.microsoft"}
SCHEMAS = {schema.name: schema for schema in get_all_operator_schema() if schema.domain == "com.microsoft"}
"""What the installed onnxruntime has. Other versions lack some of these operators."""
UNREGISTERED = {"LayerNormalization", "SimplifiedLayerNormalization"}
"""Operators of the library that onnxruntime does not have in this domain."""


def text_of(case: str) -> str:
    inputs, node = CALLS[case]
    results, call = node.split(" = ", 1)
    named = [name for name in results.split(", ") if not name.startswith("_")]
    written = ", ".join("" if name.startswith("_") else name for name in results.split(", "))
    opsets = '"" : 17, "com.microsoft" : 1'
    return (
        f"<ir_version: 10, opset_import: [{opsets}]> g ({inputs}) => ({', '.join(named)}) {{ {written} = com.microsoft.{call} }}"
    )


def operator_of(case: str) -> str:
    return case.split(maxsplit=1)[0].strip(",")


def run(case: str) -> dict[str, np.ndarray]:
    """The results of onnxruntime; most operands are ones."""
    if operator_of(case) not in KERNELS:
        pytest.skip("this onnxruntime has no kernel of it")
    model = onnx.parser.parse_model(text_of(case))
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    sparse = case.startswith("SparseAttention")
    feeds = {}
    for given in model.graph.input:
        dtype = onnx.helper.tensor_dtype_to_np_dtype(given.type.tensor_type.elem_type)
        shape = [SIZES[dim.dim_param] if dim.dim_param else dim.dim_value for dim in given.type.tensor_type.shape.dim]
        known = (SPARSE if sparse else VALUES).get(given.name) if dtype == np.int32 else None
        feeds[given.name] = np.ones(shape, dtype) if known is None else np.array(known, dtype).reshape(shape)
    binding = session.io_binding()
    operands = {name: onnxruntime.OrtValue.ortvalue_from_numpy(value) for name, value in feeds.items()}
    for name, value in operands.items():
        binding.bind_ortvalue_input(name, value)
    results = [result.name for result in session.get_outputs()]
    for name in results:
        if sparse and name in SHARED:
            binding.bind_ortvalue_output(name, operands[SHARED[name]])
        else:
            binding.bind_output(name)
    session.run_with_iobinding(binding)
    return dict(zip(results, binding.copy_outputs_to_cpu(), strict=True))


def less_known(case: str) -> Iterator[tuple[ir.Model, dict[str, int]]]:
    """The model of a case, as it is and with less known of its operands; and the sizes of its symbols."""
    yield ir.from_onnx_text(text_of(case)), SIZES
    for index in range(len(ir.from_onnx_text(text_of(case)).graph.inputs)):
        model = ir.from_onnx_text(text_of(case))
        operand = model.graph.inputs[index]
        assert operand.shape is not None
        names = [f"z{axis}" for axis in range(len(operand.shape))]
        sizes = [dim if isinstance(dim, int) else SIZES[str(dim.value)] for dim in operand.shape]
        operand.shape = ir.Shape(names)
        yield model, {**SIZES, **dict(zip(names, sizes, strict=True))}
        model = ir.from_onnx_text(text_of(case))
        model.graph.inputs[index].shape = None
        yield model, SIZES


def size_of(dim: int | ir.SymbolicDim, sizes: dict[str, int]) -> int | None:
    """The size of an inferred dimension; None where it is unknown."""
    if isinstance(dim, int):
        return dim
    symbols = {name: sympy.Symbol(name) for name in sizes}
    expression = sympy.sympify(dim.value, locals=symbols).subs({symbols[name]: size for name, size in sizes.items()})
    return int(expression) if expression.is_number else None


@pytest.mark.parametrize("case", CALLS)
def test_what_is_inferred_is_what_a_run_gives(case: str) -> None:
    results = run(case)
    for model, sizes in less_known(case):
        infer_shapes(model)
        for found in next(iter(model.graph)).outputs:
            if (expected := results.get(found.name or "")) is None:
                continue
            assert found.dtype in (None, ir.DataType.from_numpy(expected.dtype))
            if found.shape is not None:
                inferred = [size_of(dim, sizes) for dim in found.shape]
                assert len(inferred) == expected.ndim
                assert inferred == [None if size is None else real for size, real in zip(inferred, expected.shape, strict=True)]


@pytest.mark.parametrize("case", CALLS)
def test_type_and_rank_of_the_first_result_are_known(case: str) -> None:
    model = ir.from_onnx_text(text_of(case))
    infer_shapes(model)
    found = next(iter(model.graph)).outputs[0]
    assert found.dtype is not None and found.shape is not None


def rules() -> set[str]:
    install()
    return {operator for domain, operator, _ in registry.iter_supported() if domain == "com.microsoft"} - UNREGISTERED


def test_every_rule_with_a_kernel_is_tested() -> None:
    added = {"DynamicQuantizeMatMul", "FusedConv", "FusedGemm", "MatMulIntegerToFloat"}  # tests of their own
    assert rules() & KERNELS - added <= set(map(operator_of, CALLS)) <= rules()


TYPES = ("FLOAT", "FLOAT16", "INT8", "UINT8", "INT32", "INT64", "BOOL", "BFLOAT16", "DOUBLE")


@pytest.mark.parametrize("operator", sorted(rules() & set(SCHEMAS)))
def test_a_type_is_that_of_the_schema(operator: str) -> None:
    """Also without a kernel: each type variable of onnxruntime's schema gets a type of its own, and every operand is given."""
    schema = SCHEMAS[operator]
    types = {
        written: ir.DataType[TYPES[index]] for index, written in enumerate(dict.fromkeys(each.typeStr for each in schema.inputs))
    }
    inputs = [ir.val(f"x{index}", types[each.typeStr]) for index, each in enumerate(schema.inputs)]
    known = {"update_rule": "linear", "policy_mode": "qsa"}
    attributes = {name: known.get(name, 1) for name, each in schema.attributes.items() if each.required}
    node = ir.node(operator, inputs, attributes, domain="com.microsoft", num_outputs=len(schema.outputs))
    model = ir.Model(ir.Graph(inputs, node.outputs, nodes=[node], opset_imports={"": 17, "com.microsoft": 1}), ir_version=10)
    infer_shapes(model)
    for found, each in zip(node.outputs, schema.outputs, strict=True):
        if each.typeStr in types:
            assert found.dtype in (None, types[each.typeStr])


def test_every_correction_has_a_rule() -> None:
    assert set(MICROSOFT) <= rules()
