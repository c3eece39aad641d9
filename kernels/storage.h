/* Conversion between elements in memory and vectors of floats. Part of kernels.c.

   Kernels compute in float32. 16-bit elements are widened when they are read, which is exact, and rounded to the nearest (ties to even) when
   they are written. Infinities, NaN and subnormal numbers are preserved. */

#ifndef ONNX_SUBGRAPH_STORAGE_H
#define ONNX_SUBGRAPH_STORAGE_H

#include "isa.h"
#include "vector.h"

typedef uint16_t H __attribute__((vector_size(2 * WIDTH)));
typedef uint16_t UnalignedH __attribute__((vector_size(2 * WIDTH), aligned(2), may_alias));

INLINE int64_t size_of(Storage storage) { return storage == AS_FLOAT32 ? 4 : 2; }

/* Conversion between 16-bit and 32-bit words. For half a vector of SSE2, compilers need intrinsics to do it without splitting the vector. */
#if defined(__SSE2__) && WIDTH == 4
INLINE U words_of(H bits) {
    __m128i both = _mm_setzero_si128();
    memcpy(&both, &bits, sizeof bits);
    return (U)_mm_unpacklo_epi16(both, _mm_setzero_si128());
}

INLINE H bits_of(U words) {
    const __m128i both = _mm_srai_epi32(_mm_slli_epi32((__m128i)words, 16), 16), packed = _mm_packs_epi32(both, both);
    H bits;
    memcpy(&bits, &packed, sizeof bits);
    return bits;
}
#else
INLINE U words_of(H bits) { return __builtin_convertvector(bits, U); }
INLINE H bits_of(U words) { return __builtin_convertvector(words, H); }
#endif

INLINE U chosen(U mask, U a, U b) { return (a & mask) | (b & ~mask); }

#if defined(__F16C__) && WIDTH == 16
INLINE V of_float16(H bits) { return _mm512_cvtph_ps((__m256i)bits); }
INLINE H to_float16(V v) { return (H)_mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
#elif defined(__F16C__)
INLINE V of_float16(H bits) { return _mm256_cvtph_ps((__m128i)bits); }
INLINE H to_float16(V v) { return (H)_mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT); }
#else
/* The exponent bias changes from 15 to 127. A number below 2⁻¹⁴ is subnormal: its digits times 2⁻²⁴. */
INLINE V of_float16(H bits) {
    const U h = words_of(bits), digits = (h & 0x7fff) << 13, sign = (h & 0x8000) << 16;
    const I exponent = (I)(digits & 0x0f800000);
    const U small = (U)((V)(digits + (113u << 23)) - (V)((U){0} + (113u << 23)));
    const U large = digits + (224u << 23), plain = digits + (112u << 23);
    const U most = (U)(exponent == 0x0f800000), least = (U)(exponent == 0);
    return (V)(chosen(most, large, chosen(least, small, plain)) | sign);
}

/* Below 2⁻¹⁴ an addition of 1/2 rounds, because the last digit of 1/2 is 2⁻²⁴. */
INLINE H to_float16(V v) {
    const I bits = (I)v & 0x7fffffff;
    const U plain = ((U)bits - (112u << 23) + 0xfff + ((U)bits >> 13 & 1)) >> 13;
    const U small = (U)((V)bits + all(0.5f)) - (126u << 23);
    const U special = ((U)(bits > (255 << 23)) & 0x200) + 0x7c00;
    const U large = (U)(bits >= (143 << 23)), least = (U)(bits < (113 << 23));
    return bits_of(chosen(large, special, chosen(least, small, plain)) | ((U)v & 0x80000000) >> 16);
}
#endif

INLINE V of_bfloat16(H bits) { return (V)(words_of(bits) << 16); }

INLINE H to_bfloat16(V v) {
    const U bits = (U)v, nearest = bits + 0x7fff + (bits >> 16 & 1);
    const U is_nan = (U)(((I)v & 0x7fffffff) > (255 << 23));
    return bits_of(chosen(is_nan, bits | 0x400000, nearest) >> 16);
}

INLINE V widened(Storage storage, H bits) { return storage == AS_FLOAT16 ? of_float16(bits) : of_bfloat16(bits); }
INLINE H narrowed(Storage storage, V v) { return storage == AS_FLOAT16 ? to_float16(v) : to_bfloat16(v); }

INLINE H load_bits(const uint16_t *p, int64_t count) {
    if (count >= WIDTH) return *(const UnalignedH *)p;
    uint16_t part[WIDTH] __attribute__((aligned(2 * WIDTH))) = {0};
    for (int64_t i = 0; i < count; i++) part[i] = p[i];
    return *(const UnalignedH *)part;
}

INLINE void store_bits(uint16_t *p, H bits, int64_t count) {
    if (count >= WIDTH) *(UnalignedH *)p = bits;
    else
        for (int64_t i = 0; i < count; i++) p[i] = bits[i];
}

/* A vector of the elements from `at`; if `count` is less than a vector, the rest is zero. */
INLINE V load_as(Storage storage, const void *p, int64_t at, int64_t count) {
    if (storage != AS_FLOAT32) return widened(storage, load_bits((const uint16_t *)p + at, count));
    return count >= WIDTH ? load((const float *)p + at) : load_part((const float *)p + at, count);
}

INLINE float load_one(Storage storage, const void *p, int64_t at) {
    float part[WIDTH];
    store(part, load_as(storage, p, at, 1));
    return part[0];
}

INLINE void store_as(Storage storage, void *p, int64_t at, V v, int64_t count) {
    if (storage != AS_FLOAT32) store_bits((uint16_t *)p + at, narrowed(storage, v), count);
    else if (count >= WIDTH) store((float *)p + at, v);
    else store_part((float *)p + at, v, count);
}

INLINE void widen_all(Storage storage, const uint16_t *from, float *to, int64_t count) {
    int64_t i = 0;
    for (; i + WIDTH <= count; i += WIDTH) store(to + i, widened(storage, load_bits(from + i, WIDTH)));
    if (i < count) store_part(to + i, widened(storage, load_bits(from + i, count - i)), count - i);
}

INLINE void narrow_all(Storage storage, const float *from, uint16_t *to, int64_t count) {
    int64_t i = 0;
    for (; i + WIDTH <= count; i += WIDTH) store_bits(to + i, narrowed(storage, load(from + i)), WIDTH);
    if (i < count) store_bits(to + i, narrowed(storage, load_part(from + i, count - i)), count - i);
}

static void widen(Storage storage, const void *from, float *to, int64_t count) {
    if (storage == AS_FLOAT32) memcpy(to, from, (size_t)count * sizeof(float));
    else if (storage == AS_FLOAT16) widen_all(AS_FLOAT16, from, to, count);
    else widen_all(AS_BFLOAT16, from, to, count);
}

static void narrow(Storage storage, const float *from, void *to, int64_t count) {
    if (storage == AS_FLOAT32) memcpy(to, from, (size_t)count * sizeof(float));
    else if (storage == AS_FLOAT16) narrow_all(AS_FLOAT16, from, to, count);
    else narrow_all(AS_BFLOAT16, from, to, count);
}

#endif
