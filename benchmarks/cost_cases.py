"""The graphs that `operator_costs.py` measures: for each operator that a pattern emits, what an exporter writes.

A graph is ONNX's text form, with `$b` and the like for the sizes. Sizes in lower case stay symbolic in the model, and the feeds
have them. Sizes in capitals are written into the model. Inputs in capitals become initializers: kernels prepare constants.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

Sizes = Mapping[str, int]


@dataclass(frozen=True)
class Case:
    """A site to measure.

    patterns: the ids that fuse it; the last one is measured. graph: unfused, `$T` is the dtype. sizes: those measured.
    fused: a graph to compare with it, in place of the patterns' result. around: for a site that needs surroundings to run as in a
    model, the graph without the site, whose time is subtracted. apart: whether onnxruntime may leave the site unfused. It may not
    if the pattern has the same conditions as onnxruntime's own fusion. provider: the only one with the operator.
    """

    patterns: tuple[str, ...]
    graph: str
    sizes: tuple[Sizes, ...]
    dtypes: tuple[str, ...] = ("float", "float16")
    opset: int = 17
    fused: str = ""
    around: str = ""
    apart: bool = True
    provider: str = ""

    @property
    def name(self) -> str:
        """The id of the pattern that is measured."""
        return self.patterns[-1]


def grid(lengths: tuple[int, ...], **fixed: tuple[int, ...]) -> tuple[Sizes, ...]:
    """Batch 1 at each length, and batch 8 at a middle one, for each set of the fixed sizes (given as columns)."""
    columns = [dict(zip(fixed, values, strict=True)) for values in zip(*fixed.values(), strict=True)]
    return tuple(
        {"b": b, "s": s, **sizes} for sizes in columns for b, s in (*((1, s) for s in lengths), (8, lengths[len(lengths) // 2]))
    )


HIDDEN = grid((16, 128, 512), H=(384, 768))
NARROW = grid((64, 4096), H=(8, 16, 32, 64, 128))
"""Rows of few elements: channels of an image, or one head."""
CHANNELS = grid((8, 32), C=(8, 16, 32, 64, 256))
"""Images whose channels are reduced, which onnxruntime does slowly for one image, and fast for several."""
WIDE = grid((16, 128, 512), H=(1536, 3072))

ADDED = "($T[$b,$s,$H] x, $T[$b,$s,$H] z, $T[$H] G, $T[$H] B) => ($T[$b,$s,$H] y)"
ADDED_AND_KEPT = ADDED.replace(" y)", " y, $T[$b,$s,$H] t)")
BIASED = ADDED.replace("$T[$H] G", "$T[$H] C, $T[$H] G")
FEED_FORWARD = grid((64, 128, 197), H=(64, 64), F=(1536, 3072))
"""H is small: with the products of a real model, their noise would hide the time of the site."""
ONE = "($T[$b,$s,$H] x) => ($T[$b,$s,$H] y)"


def feed_forward(site: str, layers: int = 3) -> str:
    """A chain of feed-forward blocks with `site` between their products, since its time depends on what is in the caches."""
    weights = "".join(f", $T[$H,$F] W{n}, $T[$F] B{n}, $T[$F,$H] V{n}, $T[$H] G{n}, $T[$H] D{n}" for n in range(layers))
    block = "l@ = LayerNormalization(x@, G@, D@) m@ = MatMul(l@, W@) " + site + " o@ = MatMul(g@, V@) x& = Add(o@, x@)"
    blocks = " ".join(block.replace("@", str(n)).replace("&", str(n + 1)) for n in range(layers))
    return f"($T[$b,$s,$H] x0{weights}) => ($T[$b,$s,$H] x{layers}) {{ {blocks} }}"


NORMALIZATION = (
    Case(
        ("skip-layer-normalization",),
        f"{ADDED} {{ t = Add(x, z) y = LayerNormalization <epsilon = 1e-5> (t, G, B) }}",
        HIDDEN,
    ),
    Case(
        ("skip-layer-normalization",),
        f"{ADDED_AND_KEPT} {{ t = Add(x, z) y = LayerNormalization <epsilon = 1e-5> (t, G, B) }}",
        HIDDEN,
    ),
    Case(
        ("skip-layer-normalization",),
        f"{BIASED} {{ p = Add(x, C) t = Add(p, z) y = LayerNormalization <epsilon = 1e-5> (t, G, B) }}",
        HIDDEN,
    ),
    Case(
        ("bias-skip-layer-normalization",),
        f"{BIASED} {{ p = Add(x, C) y = com.microsoft.SkipLayerNormalization <epsilon = 1e-5> (p, z, G, B) }}",
        HIDDEN,
    ),
    Case(
        ("sum-layer-normalization",),
        f"{ADDED} {{ t = Add(x, z) y = LayerNormalization <epsilon = 1e-5> (t, G, B) }}",
        HIDDEN,
        apart=False,
    ),
    Case(
        ("rms-normalization",),
        """($T[$b,$s,$H] x, $T[$H] G) => ($T[$b,$s,$H] y) <float two = {2.0}, float e = {1e-6}> {
            p = Pow(x, two) m = ReduceMean <axes = [-1]> (p) q = Add(m, e) r = Sqrt(q) d = Div(x, r) y = Mul(d, G) }""",
        HIDDEN + NARROW,
    ),
    Case(
        ("rms-normalization",),
        """($T[$b,$C,$s,$s] x) => ($T[$b,$C,$s,$s] y) <float two = {2.0}, float e = {1e-6}> {
            p = Pow(x, two) m = ReduceMean <axes = [1]> (p) q = Add(m, e) r = Sqrt(q) y = Div(x, r) }""",
        CHANNELS,
        ("float",),
    ),
    Case(
        ("layer-normalization-channels",),
        """($T[$b,$C,$s,$s] x) => ($T[$b,$C,$s,$s] y) <float two = {2.0}, float e = {1e-6}> {
            a = ReduceMean <axes = [1]> (x) c = Sub(x, a) p = Pow(c, two) m = ReduceMean <axes = [1]> (p)
            q = Add(m, e) r = Sqrt(q) y = Div(c, r) }""",
        CHANNELS,
        ("float",),
    ),
    Case(
        ("lp-normalization",),
        """($T[$b,$s,$H] x) => ($T[$b,$s,$H] y) <int64[1] a = {-1}, float low = {1e-12}> {
            n = ReduceL2(x, a) c = Clip(n, low) s = Shape(x) e = Expand(c, s) y = Div(x, e) }""",
        HIDDEN + NARROW,
        ("float",),
        opset=18,
    ),
    Case(
        ("lp-normalization",),
        """($T[$b,$C,$s,$s] x) => ($T[$b,$C,$s,$s] y) <int64[1] a = {1}, float low = {1e-12}> {
            n = ReduceL2(x, a) c = Clip(n, low) s = Shape(x) e = Expand(c, s) y = Div(x, e) }""",
        CHANNELS,
        ("float",),
        opset=18,
    ),
    Case(
        ("skip-rms-normalization",),
        ADDED_AND_KEPT.replace(", $T[$H] B", "") + " { t = Add(x, z) y = SimplifiedLayerNormalization <epsilon = 1e-6> (t, G) }",
        HIDDEN,
    ),
    Case(
        ("embed-layer-normalization",),
        """(int64[$b,$s] ids, int64[$b,$s] kinds, $T[1000,$H] W, $T[512,$H] P, $T[2,$H] S, $T[$H] G, $T[$H] B)
            => ($T[$b,$s,$H] y) <int64[1] zero = {0}, int64[1] one = {1}, int64[1] two = {2}, int64[1,512] I = {$I}> {
            n = Shape(ids) l = Gather <axis = 0> (n, one) places = Slice(I, zero, l, one)
            w = Gather(W, ids) k = Gather(S, kinds) a = Add(w, k) p = Gather(P, places) t = Add(a, p)
            y = LayerNormalization <epsilon = 1e-12> (t, G, B) }""",
        HIDDEN,
    ),
)

ACTIVATION = (
    Case(
        ("gelu",),
        f"""{ONE} <float a = {{1.41421356}}, float o = {{1.0}}, float h = {{0.5}}> {{
            d = Div(x, a) e = Erf(d) p = Add(e, o) m = Mul(x, p) y = Mul(m, h) }}""",
        WIDE,
    ),
    Case(
        ("fast-gelu",),
        f"""{ONE} <float n = {{3.0}}, float a = {{0.044715}}, float c = {{0.79788456}}, float o = {{1.0}}, float h = {{0.5}}> {{
            p = Pow(x, n) q = Mul(p, a) r = Add(x, q) u = Mul(r, c) v = Tanh(u) w = Add(v, o) m = Mul(x, h) y = Mul(m, w) }}""",
        WIDE,
    ),
    Case(("silu",), f"{ONE} {{ g = Sigmoid(x) y = Mul(x, g) }}", WIDE),
    Case(("quick-gelu",), f"{ONE} <float a = {{1.702}}> {{ m = Mul(x, a) g = Sigmoid(m) y = Mul(x, g) }}", WIDE),
    *(
        Case(
            (f"bias-{name}",),
            feed_forward(f"a@ = Add(m@, B@) g@ = com.microsoft.{operator}(a@)"),
            FEED_FORWARD,
            dtypes=("float",),
            around=feed_forward("g@ = Identity(m@)"),
        )
        for name, operator in (("gelu", "Gelu"), ("fast-gelu", "FastGelu"))
    ),
)

LINEAR = (
    Case(
        ("fused-matmul",),
        """($T[$b,$N,$s,64] x, $T[$b,$N,$s,64] z) => ($T[$b,$N,$s,$s] y) {
            t = Transpose <perm = [0, 1, 3, 2]> (z) y = MatMul(x, t) }""",
        grid((16, 128, 512), N=(12,)),
    ),
    Case(
        ("fused-matmul",),
        """($T[$b,$N,$s,64] x, $T[$b,$N,$s,64] z) => ($T[$b,$N,$s,$s] y) <float c = {0.125}> {
            t = Transpose <perm = [0, 1, 3, 2]> (z) m = MatMul(x, t) y = Mul(m, c) }""",
        grid((16, 128, 512), N=(12,)),
    ),
    Case(
        ("fused-matmul",),
        """($T[$b,$N,$s,64] x, $T[$b,$N,64,$s] z) => ($T[$b,$N,$s,$s] y) <float c = {0.125}> {
            m = MatMul(x, z) y = Mul(m, c) }""",
        grid((16, 128, 512), N=(12,)),
    ),
    Case(
        ("gemm-add",),
        "($T[$b,$H] x, $T[$H,$F] W, $T[$F] B) => ($T[$b,$F] y) { m = MatMul(x, W) y = Add(m, B) }",
        tuple({"b": b, "H": h, "F": f} for b in (1, 128) for h, f in ((768, 768), (768, 3072), (2048, 1000))),
    ),
    Case(
        ("gemm-activation",),
        "($T[$b,$H] x, $T[$H,$F] W, $T[$F] B) => ($T[$b,$F] y) { m = Gemm(x, W, B) y = Relu(m) }",
        tuple({"b": b, "H": h, "F": f} for b in (1, 128) for h, f in ((768, 768), (768, 3072))),
        dtypes=("float",),
    ),
    Case(
        ("gemm-activation",),
        "($T[$b,$H] x, $T[$H,$F] W, $T[$F] B) => ($T[$b,$F] y) { m = Gemm(x, W, B) y = Tanh(m) }",
        tuple({"b": b, "H": h, "F": f} for b in (1, 128) for h, f in ((768, 768), (768, 3072))),
        dtypes=("float",),
    ),
)

IMAGES = tuple({"b": b, "C": c, "s": s} for b, c, s in ((1, 32, 112), (1, 64, 56), (1, 256, 14), (4, 128, 28)))
BLOCKS = tuple(
    {"b": b, "C": c, "s": s, "F": f}
    for b, c, s, hidden in (
        (1, 48, 64, (48, 192)),
        (1, 96, 32, (96, 384)),
        (1, 192, 16, (192, 768)),
        (1, 384, 8, (384, 1536)),
        (1, 384, 14, (1536,)),
        (1, 256, 56, (64,)),
        (1, 512, 28, (128,)),
        (1, 1024, 14, (256,)),
        (4, 128, 28, (128, 512)),
    )
    for f in hidden
)
"""Images, and the channels of the hidden layer of a block."""

LINES = tuple(
    {"b": 1, "s": s, "C": c, "O": o, "G": g, "D": c // g, "K": k, "S": stride, "P": k // 2, "m": (s - 1) // stride + 1}
    for c, o, g, k, stride in (
        *((1, 64, 1, 3, 1), (12, 12, 1, 5, 1), (16, 16, 1, 3, 1), (64, 64, 1, 3, 1), (64, 64, 1, 7, 2), (128, 128, 1, 3, 1)),
        *((128, 64, 1, 5, 2), (80, 384, 1, 3, 1), (384, 384, 1, 3, 2), (512, 512, 1, 5, 1), (1, 258, 1, 255, 64)),
        *((64, 64, 64, 5, 1), (256, 256, 256, 31, 1), (512, 512, 512, 3, 1), (512, 512, 16, 3, 1)),
    )
    for s in (4, 32, 200, 1500)
)
"""Lengths of sequences, by channels, outputs, groups, kernel and stride."""
STEPS = tuple(
    {"b": b, "C": c, "L": length, "K": k} for c, k in ((512, 4), (2048, 3), (6144, 4)) for b, length in ((1, 1), (4, 1), (1, 4))
)
"""Channels of a causal convolution, and a few elements of each."""


def _convolutions(result: str) -> tuple[str, str]:
    """A causal convolution whose `result` is c or its last elements, without and with SiLU."""
    line = "{} = Conv <group = $C> (w, W, B)" + ("" if result == "c" else " {} = Slice({}, l, e, a)")
    names = [("y",), ("c",)] if result == "c" else [("d", "y", "d"), ("d", "t", "d")]
    plain, inner = (line.format(*given) for given in names)
    return plain, f"{inner} g = Sigmoid({result}) y = Mul({result}, g)"


CONVOLUTION = (
    *(
        Case(
            ("conv-activation",),
            f"""($T[$b,$C,$s,$s] x, $T[$C,$C,3,3] W, $T[$C] B, $T[$C,$C,1,1] V, $T[$C] D) => ($T[$b,$C,$s,$s] y) {{
            c = Conv <pads = [1, 1, 1, 1]> (x, W, B) r = {activation}(c) d = Conv(r, V, D) y = {activation}(d) }}""",
            IMAGES,
            dtypes=("float",),
        )
        for activation in ("Relu", "Sigmoid", "Tanh")
    ),
    Case(
        ("conv-activation",),
        """($T[$b,$C,$s,$s] x, $T[$C,$C,3,3] W, $T[$C] B, $T[$C,$C,3,3] V, $T[$C] D) => ($T[$b,$C,$s,$s] y) {
            c = Conv <pads = [1, 1, 1, 1]> (x, W, B) r = Relu(c) d = Conv <pads = [1, 1, 1, 1]> (r, V, D) e = Add(d, x)
            y = Relu(e) }""",
        IMAGES,
        dtypes=("float",),
    ),
    Case(
        ("conv-activation",),
        # Between convolutions, as in networks: alone, only the unfused graph would pay for changes of the layout.
        """($T[$b,$C,$s,$s] x, $T[$C,$C,1,1] W, $T[$C] B, $T[$C,$C,1,1] V, $T[$C] D) => ($T[$b,$C,$s,$s] y) {
            a = Conv(x, W, B) r = Relu(a) c = Conv(r, V, D) e = Add(c, r) y = Conv(e, W, D) }""",
        IMAGES,
        dtypes=("float",),
        apart=False,
    ),
    Case(
        ("conv-activation",),
        # The block of ConvNeXt, FastViT and RepViT: the residual does not come from a convolution.
        """($T[$b,$C,$s,$s] x, $T[$F,$C,1,1] W, $T[$F] B, $T[$C,$F,1,1] V, $T[$C] D) => ($T[$b,$C,$s,$s] y) {
            h = Conv(x, W, B) g = com.microsoft.Gelu(h) c = Conv(g, V, D) y = Add(c, x) }""",
        BLOCKS,
        dtypes=("float",),
        apart=False,
    ),
    Case(
        ("conv-activation",),
        # The block of ResNet v2: normalization and activation come before the convolutions.
        """($T[$b,$C,$s,$s] i, $T[$C] M, $T[$C] N, $T[$C,$C,1,1] P, $T[$F,$C,1,1] W, $T[$F] B, $T[$C,$F,1,1] V, $T[$C] D)
            => ($T[$b,$F,$s,$s] y) {
            x = Conv(i, P) n = BatchNormalization(x, M, N, N, M) r = Relu(n) h = Conv(r, W, B) g = Relu(h) c = Conv(g, V, D)
            e = Add(c, x) m = BatchNormalization(e, M, N, N, M) o = Relu(m) y = Conv(o, W, B) }""",
        BLOCKS,
        dtypes=("float",),
        apart=False,
    ),
    Case(
        ("conv-activation",),
        # A convolution of each channel, as in EfficientFormer, where the residual comes from an attention.
        """($T[$b,$C,$s,$s] i, $T[$b,$C,$s,$s] z, $T[$C,$C,1,1] P, $T[$C,1,3,3] V, $T[$C] D) => ($T[$b,$C,$s,$s] y) {
            x = Conv(i, P) c = Conv <pads = [1, 1, 1, 1], group = $C> (x, V, D) e = Add(c, z) y = com.microsoft.Gelu(e) }""",
        IMAGES,
        dtypes=("float",),
        apart=False,
    ),
    Case(
        ("conv-activation",),
        """($T[$b,$C,$s,$s] x, $T[$C,$C,3,3] W, $T[$C] B, $T[$C,$C,3,3] V, $T[$C] D) => ($T[$b,$C,$s,$s] y) {
            c = Conv <pads = [1, 1, 1, 1]> (x, W, B) r = Relu(c) d = Conv <pads = [1, 1, 1, 1]> (r, V, D) e = Add(d, x)
            y = Relu(e) }""",
        IMAGES,
        dtypes=("float",),
        fused="""($T[$b,$C,$s,$s] x, $T[$C,$C,3,3] W, $T[$C] B, $T[$C,$C,3,3] V, $T[$C] D) => ($T[$b,$C,$s,$s] y) {
            r = com.microsoft.FusedConv <pads = [1, 1, 1, 1], activation = "Relu"> (x, W, B)
            e = com.microsoft.FusedConv <pads = [1, 1, 1, 1]> (r, V, D, x) y = Relu(e) }""",
    ),
    Case(
        ("conv-activation",),
        """($T[$b,$C,$s,$s] x, $T[$C,$C,1,1] W, $T[$C] B, $T[$C,1,3,3] V, $T[$C] D) => ($T[$b,$C,$s,$s] y)
            <$T low = {0.0}, $T high = {6.0}> {
            c = Conv(x, W, B) r = Clip(c, low, high) d = Conv <pads = [1, 1, 1, 1], group = $C> (r, V, D)
            y = Clip(d, low, high) }""",
        IMAGES,
        dtypes=("float",),
    ),
    Case(
        ("conv-activation",),
        """($T[$b,$C,$s,$s] x, $T[$C,$C,1,1] W, $T[$C] B) => ($T[$b,$C,$s,$s] y) {
            c = Conv(x, W, B) y = HardSigmoid <alpha = 0.16666667, beta = 0.5> (c) }""",
        IMAGES,
        dtypes=("float",),
    ),
    Case(
        ("conv-activation",),
        """($T[$b,$C,$s,$s] x, $T[$C,$C,3,3] W, $T[$C] B) => ($T[$b,$C,$s,$s] y) {
            c = Conv <pads = [1, 1, 1, 1]> (x, W, B) y = LeakyRelu <alpha = 0.1> (c) }""",
        IMAGES,
        dtypes=("float",),
    ),
    *(
        Case(
            ("conv-1d",),
            f"""($T[$b,$C,$s] x, $T[$O,$D,$K] W, $T[$O] B) => ($T[$b,$O,$m] y) {{
                y = {convolution}group = $G, strides = [$S], pads = [$P, $P]> (x, W, B) }}""",
            LINES,
            dtypes=("float",),
        )
        for convolution in ("Conv <", 'com.microsoft.FusedConv <activation = "Relu", ')
    ),
    *(
        Case(
            (pattern,),
            f"""($T[$b,$C,$R] past, $T[$b,$C,$L] x, $T[$C,1,$K] W, $T[$C] B) => ($T[$b,$C,$L] y, $T[$b,$C,$R] next)
                <int64[1] f = {{-$R}}, int64[1] l = {{-$L}}, int64[1] e = {{100}}, int64[1] a = {{2}}> {{
                w = Concat <axis = 2> (past, x) next = Slice(w, f, e, a) {convolution} }}""",
            tuple({**sizes, "R": sizes["K"] + more} for sizes in STEPS),
            dtypes=("float",),
        )
        for pattern, more, result in (("causal-conv", -1, "c"), ("causal-conv-cache", 0, "t"))
        for convolution in _convolutions(result)
    ),
    Case(
        ("box-distribution",),
        """($T[$b,$C,$s] x, $T[1,$D,1,1] W) => ($T[$b,4,$s] y) <int64[4] f = {0, 4, $D, -1}, int64[3] g = {0, 4, -1}> {
            r = Reshape(x, f) t = Transpose <perm = [0, 2, 1, 3]> (r) p = Softmax <axis = 1> (t)
            c = Conv(p, W) y = Reshape(c, g) }""",
        tuple({"b": b, "s": s, "C": 64, "D": 16} for b, s in ((1, 84), (1, 2100), (1, 8400), (4, 2100))),
        dtypes=("float",),
    ),
    Case(
        ("conv-pad",),
        """($T[$b,$C,$s,$s] x, $T[$C,$C,3,3] W, $T[$C] B) => ($T[$b,$C,$s,$s] y) <int64[8] p = {0, 0, 1, 1, 0, 0, 1, 1}> {
            c = Pad(x, p) y = Conv(c, W, B) }""",
        IMAGES,
        dtypes=("float",),
    ),
    Case(
        ("global-average-pool",),
        "($T[$b,$C,$s,$s] x) => ($T[$b,$C,1,1] y) { y = ReduceMean <axes = [2, 3]> (x) }",
        IMAGES,
        dtypes=("float",),
    ),
)

FRAMES = ((256, 128), (320, 160), (400, 160), (512, 160), (640, 160), (800, 200), (1000, 250), (1024, 256))
"""Lengths and steps of frames. onnxruntime's transform is quick for powers of two."""
QUANTIZED = (
    Case(
        ("dynamic-quantize-matmul",),
        """($T[$b,$s,$H] x, int8[$H,$F] W, $T[$F] B) => ($T[$b,$s,$F] y) <float scale = {0.01}, int8 zero = {0}> {
            q, qs, qz = DynamicQuantizeLinear(x) p = MatMulInteger(q, W, qz, zero) f = Cast <to = 1> (p) k = Mul(qs, scale)
            m = Mul(f, k) y = Add(m, B) }""",
        grid((1, 16, 128), H=(768, 768), F=(768, 3072)),
        dtypes=("float",),
    ),
    Case(
        ("matmul-integer-to-float",),
        """(uint8[$b,$s,$H] q, $T qs, uint8 qz, int8[$H,$F] W, $T[$F] B) => ($T[$b,$s,$F] y)
            <float scale = {0.01}, int8 zero = {0}> {
            p = MatMulInteger(q, W, qz, zero) f = Cast <to = 1> (p) k = Mul(qs, scale) m = Mul(f, k) y = Add(m, B) }""",
        grid((1, 16, 128), H=(768, 768), F=(768, 3072)),
        dtypes=("float",),
    ),
    Case(
        ("matmul-nbits-bias",),
        """($T[$b,$s,$H] x, uint8[$F,$N,16] W, $T[$F,$N] S, $T[$F] B) => ($T[$b,$s,$F] y) {
            p = com.microsoft.MatMulNBits <K = $H, N = $F, block_size = 32, accuracy_level = 4> (x, W, S) y = Add(p, B) }""",
        grid((1, 16, 128), H=(768, 768, 3072), F=(768, 3072, 768), N=(24, 24, 96)),
        dtypes=("float",),
    ),
)

PRELU = "($T[$b,$C,$s,$s] x, $T[$C,1,1] S) => ($T[$b,$C,$s,$s] y)"
SLOPES = (
    Case(("prelu",), f"{PRELU} {{ a = Abs(S) y = PRelu(x, a) }}", IMAGES, dtypes=("float",)),
    Case(("prelu",), f"{PRELU} {{ a = Abs(S) n = Neg(a) y = PRelu(x, n) }}", IMAGES, dtypes=("float",)),
)

GATES = (
    Case(
        ("residual-gate",),
        "($T[$b,$C,$s,$s] x, $T[$b,$C,1,1] g) => ($T[$b,$C,$s,$s] y) { p = Mul(x, g) y = Add(p, x) }",
        IMAGES,
        dtypes=("float",),
    ),
    Case(
        ("response-normalization",),
        """($T[$b,$s,$s,$C] x, $T[$b,1,1,$C] n, $T[1,1,1,$C] G, $T[1,1,1,$C] B) => ($T[$b,$s,$s,$C] y) {
            p = Mul(x, n) q = Mul(G, p) r = Add(q, B) y = Add(r, x) }""",
        tuple({"b": b, "s": s, "C": c} for c, s, b in ((384, 56, 1), (768, 28, 1), (1536, 14, 1), (1536, 14, 4), (3072, 7, 1))),
        dtypes=("float",),
    ),
    Case(
        ("channel-affine",),
        "($T[$b,$C,$s,$s] x) => ($T[$b,$C,$s,$s] y) <$T a = {1.3}, $T b = {0.2}> { p = Mul(x, a) y = Add(p, b) }",
        IMAGES,
        dtypes=("float",),
    ),
    Case(
        ("pooled-conv",),
        # The transition of a DenseNet.
        """($T[$b,$C,$s,$s] x, $T[$D,$C,1,1] W) => ($T[$b,$D,$p,$p] y) {
            c = Conv(x, W) y = AveragePool <kernel_shape = [2, 2], strides = [2, 2]> (c) }""",
        tuple(
            {"b": b, "s": s, "p": s // 2, "C": c, "D": d}
            for c, s in ((64, 80), (256, 56), (512, 28), (1024, 14))
            for b, d in ((1, c // 2), (1, c), (1, 2 * c), (4, c // 2))
        ),
        dtypes=("float",),
    ),
    Case(
        ("pooled-maximum",),
        """($T[$b,$C,$s,$s] x) => ($T[$b,$C,$p,$p] y) <$T low = {-0.4}> {
            p = Max(x, low) y = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (p) }""",
        tuple({**one, "p": one["s"] // 2} for one in IMAGES),
        dtypes=("float",),
    ),
)

FEATURES = tuple({"b": b, "s": s, "C": c} for c, s in ((320, 64), (640, 32), (1280, 16)) for b in (1, 4))
ONES, ZEROS = (", ".join([number] * 32) for number in "10")
GROUPS = (
    Case(
        ("group-normalization",),
        f"""($T[$b,$C,$s,$s] x, $T[$C,1,1] G, $T[$C,1,1] B) => ($T[$b,$C,$s,$s] y)
            <int64[3] groups = {{0, 32, -1}}, float[32] one = {{{ONES}}}, float[32] zero = {{{ZEROS}}}> {{
            r = Reshape(x, groups) n = InstanceNormalization <epsilon = 1e-5> (r, one, zero) w = Shape(x) i = Reshape(n, w)
            t = Mul(i, G) y = Add(t, B) }}""",
        FEATURES,
        provider="CUDAExecutionProvider",
    ),
)

SIGNAL = (
    Case(
        ("power-of-pairs",),
        "($T[$b,$s,$H,2] x) => ($T[$b,$s,$H] y) { y = ReduceSumSquare <axes = [3], keepdims = 0> (x) }",
        grid((16, 100, 1000), H=(129, 257)),
        dtypes=("float",),
    ),
    Case(
        ("stft-convolution",),
        "($T[$b,$s] x, $T[$N] W) => ($T[$b,f,g,2] y) <int64 step = {$H}> { y = STFT(x, step, W) }",
        tuple(
            {"b": b, "s": s, "N": n, "H": h}
            for n, h in FRAMES
            for b, s in ((1, 16000), (4, 16000), *([(1, 160000)] if n in (256, 400, 512, 1024) else []))
        ),
        dtypes=("float",),
    ),
)

CASES = NORMALIZATION + ACTIVATION + LINEAR + CONVOLUTION + QUANTIZED + SLOPES + GATES + GROUPS + SIGNAL
