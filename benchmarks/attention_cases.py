"""The graphs of attention that `operator_costs.py` measures, as exporters write them, without the projections.

`N` heads of 64, `H` = 64 · `N`. The masks are those of exports: none, an additive padding mask (one row for all queries), or an
additive causal mask. The scales are those of eager code (a quotient) and of torch's scaled_dot_product_attention (a factor of
query and key).
"""

from __future__ import annotations

from cost_cases import Case, grid

HEADS = (*grid((16, 128, 384), N=(6, 12), H=(384, 768)), {"b": 1, "s": 1500, "N": 6, "H": 384})
QKV = "$T[$b,$s,$H] q, $T[$b,$s,$H] k, $T[$b,$s,$H] v"
MASKS = {"": "", "causal": ", $T[1,1,$s,$s] mask", "padding": ", $T[$b,1,1,$s] mask"}
BIAS = {
    "": "{",
    "causal": "{ bias = Identity(mask)",
    "padding": """<int64[1] one = {1}> { n = Shape <start = 1, end = 2> (q)
        rows = Concat <axis = 0> (one, one, n, one) bias = Expand(mask, rows)""",
}
NUMBERS = "<int64[4] heads = {0, 0, $N, 64}, int64[3] joined = {0, 0, $H}, float e = {8.0}, float r = {0.35355339}>"
BY_HEADS = """qh = Reshape(q, heads) kh = Reshape(k, heads) vh = Reshape(v, heads) qt = Transpose <perm = [0, 2, 1, 3]> (qh)
    kt = Transpose <perm = [0, 2, 3, 1]> (kh) vt = Transpose <perm = [0, 2, 1, 3]> (vh)"""
EAGER = "d = MatMul(qt, kt) u = Div(d, e)"
SDPA = "qs = Mul(qt, r) ks = Mul(kt, r) u = MatMul(qs, ks)"
WEIGHTED = "p = Softmax <axis = -1> (w) o = MatMul(p, vt)"
JOINED = "ot = Transpose <perm = [0, 2, 1, 3]> (o) y = Reshape(ot, joined)"


def attention(mask: str, scaled: str) -> str:
    """Attention on projections, written out in primitive operators."""
    masked = "w = Add(u, mask)" if mask else "w = Identity(u)"
    graph = f"{BY_HEADS} {scaled} {masked} {WEIGHTED} {JOINED}"
    return f"({QKV}{MASKS[mask]}) => ($T[$b,$s,$H] y) {NUMBERS} {{ {graph} }}"


PROJECTIONS = tuple(Case(("multi-head-attention",), attention(mask, scaled), HEADS) for mask in MASKS for scaled in (EAGER, SDPA))

BIASES = tuple(
    Case(
        ("multi-head-attention-bias",),
        f"""({QKV}, $T[$H] A, $T[$H] B, $T[$H] C{MASKS[mask]}) => ($T[$b,$s,$H] y) {{
            i = Add(q, A) j = Add(k, B) l = Add(v, C)
            y = com.microsoft.MultiHeadAttention <num_heads = $N> (i, j, l{", , , mask" if mask else ""}) }}""",
        HEADS,
    )
    for mask in ("", "causal")
)
"""Biases as separate Adds, and as the operator's bias."""

PACKED_ATTENTION = tuple(
    Case(
        (pattern,),
        f"""($T[$b,$s,$H] x, $T[$H,$W] P, $T[$W] B{MASKS[mask]}) => ($T[$b,$s,$H] y) <int64[3] parts = {{$H, $H, $H}}> {{
            w = MatMul(x, P) i = Add(w, B) q, k, v = Split <axis = -1> (i, parts)
            y = {operator} (q, k, v{before + "mask" if mask else ""}) }}""",
        tuple({**sizes, "W": 3 * sizes["H"]} for sizes in HEADS),
        opset=opset,
    )
    for pattern, operator, before, opset in (
        ("packed-attention", "com.microsoft.MultiHeadAttention <num_heads = $N>", ", , , ", 17),
        ("packed-attention-operator", "Attention <q_num_heads = $N, kv_num_heads = $N, scale = 0.125>", ", ", 23),
    )
    for mask in ("", "causal")
)
"""A packed projection before an attention, or as weights of com.microsoft's Attention."""

PROJECTED = tuple(
    Case(
        ("projected-attention",),
        f"""($T[$b,$s,$H] x, $T[$H,$H] Q, $T[$H,$H] K, $T[$H,$H] V, $T[$W] B{MASKS[mask]}) => ($T[$b,$s,$H] y) {{
            q = MatMul(x, Q) k = MatMul(x, K) v = MatMul(x, V)
            y = com.microsoft.MultiHeadAttention <num_heads = $N> (q, k, v, B{", , mask" if mask else ""}) }}""",
        tuple({**sizes, "W": 3 * sizes["H"]} for sizes in HEADS),
    )
    for mask in ("", "causal")
)
"""Projections before an attention, or together as weights of com.microsoft's Attention."""

APART = """r = Reshape(x, apart) t = Transpose <perm = [2, 0, 3, {perm}]> (r) {parts} = Split <axis = 0> (t, ones) """
PACKED_HEADS = tuple(
    Case(
        (pattern,),
        f"""($T[$b,$s,$W] x{others}) => ($T[$b,$s,$H] y)
            <int64[5] apart = {{0, 0, {parts}, $N, $D}}, int64[{parts}] ones = {{{ones}}},
             int64[1] zero = {{0}}, int64[3] joined = {{0, 0, $H}}> {{
            {APART.format(perm=perm, parts=names)} {graph} }}""",
        tuple({**sizes, "W": parts * sizes["H"], "D": sizes["H"] // sizes["N"]} for sizes in HEADS),
        dtypes=("float",),
        opset=opset,
    )
    for pattern, parts, ones, names, others, perm, opset, graph in (
        (
            *("attention-packed-heads", 3, "1, 1, 1", "i, j, l", "", "1, 4", 23),
            """q = Squeeze(i, zero) k = Squeeze(j, zero) v = Squeeze(l, zero) o = Attention(q, k, v)
            u = Transpose <perm = [0, 2, 1, 3]> (o) y = Reshape(u, joined)""",
        ),
        (
            *("unpacked-heads", 3, "1, 1, 1", "i, j, l", "", "4, 1", 17),
            """q = Squeeze(i, zero) k = Squeeze(j, zero) v = Squeeze(l, zero) n = ReduceL2 <axes = [-1]> (q) qn = Div(q, n)
            m = ReduceL2 <axes = [-1]> (k) kn = Div(k, m) kt = Transpose <perm = [0, 1, 3, 2]> (kn) d = MatMul(qn, kt)
            p = Softmax <axis = -1> (d) o = MatMul(p, v) u = Transpose <perm = [0, 3, 1, 2]> (o) y = Reshape(u, joined)""",
        ),
        (
            *("attention-packed-keys", 2, "1, 1", "j, l", ", $T[$b,$s,$N,$D] z", "1, 4", 23),
            """q = Transpose <perm = [0, 2, 1, 3]> (z) k = Squeeze(j, zero) v = Squeeze(l, zero) o = Attention(q, k, v)
            u = Transpose <perm = [0, 2, 1, 3]> (o) y = Reshape(u, joined)""",
        ),
    )
)
"""Heads of one projection, which are moved together: before an attention, in XCiT, and of keys and values only."""

HEADS_OF_IMAGES = Case(
    ("unpacked-heads-image",),
    """($T[$b,$W,$S,$S] x) => ($T[$b,$H,$S,$S] y)
        <int64[5] apart = {-1, 3, $N, $D, $P}, int64[3] ones = {1, 1, 1}, int64[1] zero = {0}, int64[4] joined = {-1, $H, $S, $S},
         float e = {0.125}> {
        r = Reshape(x, apart) t = Transpose <perm = [1, 0, 2, 4, 3]> (r) i, j, l = Split <axis = 0> (t, ones)
        q = Squeeze(i, zero) k = Squeeze(j, zero) v = Squeeze(l, zero) kt = Transpose <perm = [0, 1, 3, 2]> (k) d = MatMul(q, kt)
        w = Mul(d, e) p = Softmax <axis = -1> (w) o = MatMul(p, v) u = Transpose <perm = [0, 1, 3, 2]> (o)
        y = Reshape(u, joined) }""",
    tuple(
        {"b": b, "S": s, "H": h, "W": 3 * h, "N": n, "D": h // n, "P": s * s}
        for b, s, h, n in ((1, 28, 96, 3), (1, 14, 192, 3), (1, 7, 384, 6), (1, 16, 512, 8), (4, 14, 192, 6))
    ),
    dtypes=("float",),
)
"""Heads of a convolution. The attention is over pixels."""

STEPS = tuple(
    {"b": b, "s": s, "t": t, "N": n} for n in (6, 12) for b, s, t in ((1, 1, 64), (1, 1, 512), (1, 128, 128), (8, 1, 128))
)
CACHED = tuple(
    Case(
        ("multi-head-attention",),
        f"""($T[$b,$N,$s,64] qt, $T[$b,$N,$t,64] kh, $T[$b,$N,$t,64] vt, $T[1,1,$s,$t] mask) => ($T[$b,$N,$s,64] o)
            <float e = {{8.0}}, float r = {{0.35355339}}> {{
            kt = Transpose <perm = [0, 1, 3, 2]> (kh) {scaled} w = Add(u, mask) {WEIGHTED} }}""",
        STEPS,
    )
    for scaled in (EAGER, SDPA)
)

PAST = Case(
    ("attention-cache",),
    """($T[$b,$N,$s,64] q, $T[$b,$N,$s,64] k, $T[$b,$N,$s,64] v, $T[$b,$N,$t,64] pk, $T[$b,$N,$t,64] pv, $T[1,1,$s,n] mask)
        => ($T[$b,$N,$s,64] y, $T[$b,$N,n,64] keys, $T[$b,$N,n,64] values) {
        keys = Concat <axis = 2> (pk, k) values = Concat <axis = 2> (pv, v)
        y = Attention <scale = 0.125> (q, keys, values, mask) }""",
    tuple({**step, "n": step["t"] + step["s"]} for step in STEPS),
    opset=23,
)
"""A cache that Concat joins to keys and values, or the operator's own cache."""

RECURRENT = tuple(
    Case(
        ("linear-attention",),
        f"""($T[$b,$N,$D] q, $T[$b,$N,$D] k, $T[$b,$N,$D] v, $T[$b,$N{keyed}] g, $T[$b,$N] beta, $T[$b,$N,$D,$D] state)
        => ($T[$b,$N,$D] y, $T[$b,$N,$D,$D] next)
        <int64[1] l = {{-1}}, int64[1] m = {{-2}}, int64[{axes.count(",") + 1}] w = {{{axes}}}> {{
        e = Exp(g) f = Unsqueeze(e, w) s = Mul(state, f) c = Unsqueeze(k, l)
        x = Mul(s, c) o = ReduceSum <keepdims = 0> (x, m) d = Sub(v, o) r = Unsqueeze(beta, l) t = Mul(d, r)
        z = Unsqueeze(t, m) p = Mul(c, z) next = Add(s, p)
        u = Unsqueeze(q, l) a = Mul(next, u) y = ReduceSum <keepdims = 0> (a, m) }}""",
        tuple({"b": b, "N": n, "D": d} for n, d in ((8, 64), (16, 128), (32, 128)) for b in (1, 4)),
        dtypes=("float",),
    )
    for keyed, axes in (("", "-1, -2"), (",$D", "-1"))
)
"""One token of Gated DeltaNet, and of Kimi Delta Attention."""

STATE = Case(
    ("state-update",),
    """($T[$b,$N,1,1] g, $T[$b,$N,$P,1] c, $T[$b,$N,1,$D] r, $T[$b,$N,$P,$D] state) => ($T[$b,$N,$P,$D] next) {
        e = Exp(g) s = Mul(state, e) p = Mul(c, r) next = Add(s, p) }""",
    tuple({"b": b, "N": n, "P": p, "D": d} for n, p, d in ((8, 64, 64), (24, 64, 128), (128, 64, 128)) for b in (1, 4)),
    dtypes=("float",),
)
"""The state of Mamba-2 behind one token."""

STANDARD = tuple(
    Case(
        ("attention",),
        attention(mask, EAGER),
        HEADS,
        opset=23,
        fused=f"({QKV}{MASKS[mask]}) => ($T[$b,$s,$H] y) {BIAS[mask]}"
        f" y = Attention <q_num_heads = $N, kv_num_heads = $N> (q, k, v{', bias' if mask else ''}) }}",
    )
    for mask in MASKS
)
"""The operator of the ONNX standard instead of com.microsoft's."""

TRIANGLE = """n = Shape <start = 1, end = 2> (q) size = Concat <axis = 0> (ones, n, n) one = Expand(i, size)
    low = Trilu <upper = 0> (one) hidden = Equal(low, z) mask = Where(hidden, lowest, z)"""
CAUSAL = tuple(
    Case(
        (pattern,),
        f"""({QKV}) => ($T[$b,$s,$H] y) <$T i = {{1}}, $T z = {{0}}, $T lowest = {{-1e38}}, int64[2] ones = {{1, 1}}> {{
            {TRIANGLE} y = {operator.format("", "mask")} }}""",
        HEADS,
        dtypes=("float",),
        opset=opset,
        fused=f"({QKV}) => ($T[$b,$s,$H] y) {{ y = {operator.format(causal, '')} }}",
    )
    for pattern, operator, causal, opset in (
        ("causal-attention", "Attention <q_num_heads = $N, kv_num_heads = $N{}> (q, k, v, {})", ", is_causal = 1", 23),
        (
            "causal-multi-head-attention",
            "com.microsoft.MultiHeadAttention <num_heads = $N{}> (q, k, v, , , {})",
            ", unidirectional = 1, mask_filter_value = -3.4028235e38",
            17,
        ),
    )
)
"""A causal mask of any length, as scaled_dot_product_attention makes it, or the operator's own. A constant one costs no time."""

SINK = Case(
    ("multi-head-attention",),
    f"""({QKV}, $T[1,1,$s,$s] mask, $T[1,$N,1,1] sink) => ($T[$b,$s,$H] y) <int64[4] heads = {{0, 0, $N, 64}},
        int64[3] joined = {{0, 0, $H}}, float e = {{8.0}}, int64[1] one = {{1}}, int64[1] zero = {{0}},
        int64[1] last = {{-1}}> {{ {BY_HEADS} {EAGER} scores = Add(u, mask) rows = Shape <start = 0, end = 3> (u)
        places = Concat <axis = 0> (rows, one) column = Expand(sink, places) w = Concat <axis = -1> (scores, column)
        t = Softmax <axis = -1> (w) p = Slice(t, zero, last, last) o = MatMul(p, vt) {JOINED} }}""",
    HEADS,
)
"""A sink as a column of the scores, or as an input of GroupQueryAttention."""

ROTARY = Case(
    ("rotary-embedding",),
    """($T[$b,$s,$H] q, $T[1,$s,32] freqs) => ($T[$b,$s,$H] y) <int64[4] heads = {0, 0, $N, 64}, int64[1] one = {1},
        int64[2] halves = {32, 32}, int64[3] joined = {0, 0, $H}> {
        angles = Concat <axis = -1> (freqs, freqs) c = Cos(angles) s = Sin(angles) cos = Unsqueeze(c, one) sin = Unsqueeze(s, one)
        qh = Reshape(q, heads) x = Transpose <perm = [0, 2, 1, 3]> (qh) lo, hi = Split <axis = -1> (x, halves)
        n = Neg(hi) r = Concat <axis = -1> (n, lo) a = Mul(x, cos) d = Mul(r, sin) o = Add(a, d)
        ot = Transpose <perm = [0, 2, 1, 3]> (o) y = Reshape(ot, joined) }""",
    HEADS,
)

QUERY_KEY_VALUE = "($T[$b,$s,$H] x, $T[$H,$H] Q, $T[$H,$H] K, $T[$H,$H] V"
RESULTS = "=> ($T[$b,$s,$H] q, $T[$b,$s,$H] k, $T[$b,$s,$H] v)"
WIDTHS = (
    *grid((1, 16, 128), H=(384, 768)),
    {"b": 8, "s": 128, "H": 384},
    {"b": 8, "s": 128, "H": 768},
    {"b": 4, "s": 384, "H": 768},
)
PACKED = (
    Case(
        ("packed-projections",),
        f"{QUERY_KEY_VALUE}) {RESULTS} {{ q = MatMul(x, Q) k = MatMul(x, K) v = MatMul(x, V) }}",
        WIDTHS,
    ),
    Case(
        ("packed-projections-bias",),
        f"""{QUERY_KEY_VALUE}, $T[$H] A, $T[$H] B, $T[$H] C) {RESULTS} {{ i = MatMul(x, Q) j = MatMul(x, K) l = MatMul(x, V)
            q = Add(i, A) k = Add(j, B) v = Add(l, C) }}""",
        WIDTHS,
    ),
    Case(
        ("packed-projections-2",),
        """($T[$b,$s,$H] x, $T[$H,$F] G, $T[$H,$F] U) => ($T[$b,$s,$F] gate, $T[$b,$s,$F] up) {
            gate = MatMul(x, G) up = MatMul(x, U) }""",
        (*grid((1, 16, 128), H=(512, 1024), F=(1536, 2816)), {"b": 8, "s": 128, "H": 512, "F": 1536}),
    ),
)

ATTENTION = (
    *PROJECTIONS,
    *BIASES,
    *PACKED_ATTENTION,
    *PROJECTED,
    *PACKED_HEADS,
    HEADS_OF_IMAGES,
    *CACHED,
    PAST,
    *RECURRENT,
    STATE,
    *STANDARD,
    *CAUSAL,
    SINK,
    ROTARY,
    *PACKED,
)
