/* Vectors of floats, as wide as the instruction set of the compilation, and functions of them.

   Arithmetic uses the vector extensions of GCC and Clang; intrinsics are used for the rest. `coefficients.py` prints the polynomials.
   tests/kernels/test_rows.py checks the errors. */

#ifndef ONNX_SUBGRAPH_VECTOR_H
#define ONNX_SUBGRAPH_VECTOR_H

#include <stdint.h>
#include <string.h>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
#define WIDTH 16
#elif defined(__AVX2__)
#define WIDTH 8
#else
#define WIDTH 4
#endif

typedef float V __attribute__((vector_size(4 * WIDTH)));
typedef int32_t I __attribute__((vector_size(4 * WIDTH)));
typedef uint32_t U __attribute__((vector_size(4 * WIDTH)));
typedef float Unaligned __attribute__((vector_size(4 * WIDTH), aligned(4), may_alias));

/* Tests compile the kernels without inlining: that takes a seventh of the time, and the kernels are slow. */
#if defined(NO_INLINING)
#define INLINE static inline __attribute__((unused))
#else
#define INLINE static inline __attribute__((always_inline, unused))
#endif

INLINE V load(const float *p) { return *(const Unaligned *)p; }
INLINE void store(float *p, V v) { *(Unaligned *)p = v; }

/* a > b ? a : b, where a comparison with NaN is false: the result is b if either is NaN. */
#if WIDTH == 16
INLINE V all(float s) { return _mm512_set1_ps(s); }
INLINE V larger(V a, V b) { return _mm512_max_ps(a, b); }
INLINE V smaller(V a, V b) { return _mm512_min_ps(a, b); }
/* Loads or stores the first `count` elements of a vector, 0 < count < WIDTH; the others are loaded as zero. */
INLINE V load_part(const float *p, int64_t count) { return _mm512_maskz_loadu_ps((__mmask16)((1u << count) - 1), p); }
INLINE void store_part(float *p, V v, int64_t count) { _mm512_mask_storeu_ps(p, (__mmask16)((1u << count) - 1), v); }
/* v · 2ⁿ for integral n, -125 ≤ n ≤ 127. */
INLINE V scaled(V v, V n) { return _mm512_scalef_ps(v, n); }
/* 1 / v for 1 ≤ v < 8e37. The error is half a unit larger than that of a division, which takes several times as long. */
INLINE V reciprocal(V v) {
    const V near = _mm512_rcp14_ps(v);
    return near + near * (all(1.0f) - v * near);
}
/* a where x < limit; b elsewhere, also where x is NaN. */
INLINE V where_below(V x, float limit, V a, V b) { return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(x, all(limit), _CMP_LT_OQ), b, a); }
INLINE V zero_below(V x, float limit, V v) { return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, all(limit), _CMP_NLT_UQ), v); }
INLINE float sum_of(V v) { return _mm512_reduce_add_ps(v); }
INLINE float largest_of(V v) { return _mm512_reduce_max_ps(v); }
#else
#if WIDTH == 8
INLINE V all(float s) { return _mm256_set1_ps(s); }
INLINE V larger(V a, V b) { return _mm256_max_ps(a, b); }
INLINE V smaller(V a, V b) { return _mm256_min_ps(a, b); }
#else
INLINE V all(float s) { return (V){s, s, s, s}; }
#if defined(__SSE2__)
INLINE V larger(V a, V b) { return _mm_max_ps(a, b); }
INLINE V smaller(V a, V b) { return _mm_min_ps(a, b); }
#else
INLINE V larger(V a, V b) { I m = a > b; return (V)(((I)a & m) | ((I)b & ~m)); }
INLINE V smaller(V a, V b) { I m = a < b; return (V)(((I)a & m) | ((I)b & ~m)); }
#endif
#endif
INLINE V load_part(const float *p, int64_t count) {
    float part[WIDTH] = {0};
    for (int64_t i = 0; i < count; i++) part[i] = p[i];
    return load(part);
}
INLINE void store_part(float *p, V v, int64_t count) {
    float part[WIDTH];
    store(part, v);
    for (int64_t i = 0; i < count; i++) p[i] = part[i];
}
INLINE I whole(V n) { return (I)((U)(n + all(0x1.8p23f)) - (U)all(0x1.8p23f)); }
INLINE V scaled(V v, V n) { return v * (V)(((U)whole(n) + 127) << 23); }
INLINE V reciprocal(V v) { return all(1.0f) / v; }
INLINE V where_below(V x, float limit, V a, V b) {
    const I mask = x < all(limit);
    return (V)(((I)a & mask) | ((I)b & ~mask));
}
INLINE V zero_below(V x, float limit, V v) { return (V)((I)v & ~(x < all(limit))); }
INLINE float sum_of(V v) {
    float part[WIDTH];
    store(part, v);
    for (int step = WIDTH / 2; step; step /= 2)
        for (int i = 0; i < step; i++) part[i] += part[i + step];
    return part[0];
}
INLINE float largest_of(V v) {
    float part[WIDTH];
    store(part, v);
    for (int step = WIDTH / 2; step; step /= 2)
        for (int i = 0; i < step; i++) part[i] = part[i] > part[i + step] ? part[i] : part[i + step];
    return part[0];
}
#endif

INLINE V absolute(V v) { return (V)((I)v & 0x7fffffff); }
INLINE V rounded(V v) { const V magic = all(0x1.8p23f); return (v + magic) - magic; } /* |v| < 2²² */

/* eʳ for |r| ≤ ln 2 / 2. */
INLINE V exponential_near_zero(V r) {
    V p = all(0.00138146128f);
    p = p * r + all(0.00836871006f);
    p = p * r + all(0.041668389f);
    p = p * r + all(0.166665211f);
    p = p * r + all(0.49999994f);
    p = p * r + all(1.0f);
    return p * r + all(1.0f);
}

/* x - n ln 2. ln 2 is split into two parts. The first has 15 bits, so that n times it is exact. */
INLINE V without_twos(V x, V n) { return (x - n * all(0x1.62e4p-1f)) - n * all(1.42860677e-6f); }

/* eˣ for x ≤ 87, with a relative error below 1.5e-7. Below x = -86.9 (1.8e-38) the result is 0, not subnormal: processors take a hundred times as
   long for subnormal numbers, and masked scores would be subnormal. The intermediate values are discarded there. */
INLINE V exponential(V x) {
    const V n = rounded(x * all(1.44269504f));
    return zero_below(x, -86.9f, scaled(exponential_near_zero(without_twos(x, n)), n));
}

/* 1 / (1 + e⁻ˣ), with a relative error below 3e-7; 0 below -87. */
INLINE V sigmoid(V x) {
    const V e = exponential(smaller(all(87.0f), -x)); /* this order keeps NaN */
    return zero_below(x, -87.0f, reciprocal(all(1.0f) + e));
}

/* tanh x, with a relative error below 3e-7. Near 0 it is a polynomial, because 1 - 2 / (e²ˣ + 1) would lose digits. */
INLINE V tangent(V x) {
    const V t = absolute(x), s = x * x;
    V p = all(-0.00627423963f);
    p = p * s + all(0.0210716799f);
    p = p * s + all(-0.0538523085f);
    p = p * s + all(0.13332586f);
    p = p * s + all(-0.333333164f);
    const V far = all(1.0f) - all(2.0f) * reciprocal(exponential(smaller(all(87.0f), t + t)) + all(1.0f));
    return where_below(t, 0.55f, x + x * s * p, (V)((I)far | ((I)x & INT32_MIN)));
}

/* x Φ(x), with an error below 1.5e-7 · max(1, |x|): Φ(-t) = 2^p(t) for t ≥ 0, and Φ(t) = 1 - Φ(-t) loses no digits. */
INLINE V gelu(V x) {
    const V t = absolute(x);
    V p = all(-2.3349487e-06f);
    p = p * t + all(3.37378115e-05f);
    p = p * t + all(-0.000161293821f);
    p = p * t + all(-0.000191703584f);
    p = p * t + all(0.00712686498f);
    p = p * t + all(-0.0525336117f);
    p = p * t + all(-0.459198296f);
    p = p * t + all(-1.151106f);
    p = p * t + all(-1.0f);
    const V n = rounded(p);
    const V tail = zero_below(p, -125.0f, scaled(exponential_near_zero((p - n) * all(0.693147181f)), n));
    return x * where_below(x, 0.0f, tail, all(1.0f) - tail);
}

/* x σ(2 √(2/π) (x + 0.044715 x³)) = x / 2 · (1 + tanh(√(2/π) (x + 0.044715 x³))), with an error below 2.5e-7 · max(1, |x|). */
INLINE V fast_gelu(V x) { return x * sigmoid(x * (all(1.59576912f) + all(0.0713548163f) * x * x)); }

#endif
