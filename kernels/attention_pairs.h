/* Attention with AVX512_BF16 or AMX: queries, keys, values and weights are rounded to bfloat16, if the user allows it. Part of kernels.c;
   attention.h defines the block of keys before it. */

#ifndef ONNX_SUBGRAPH_ATTENTION_PAIRS_H
#define ONNX_SUBGRAPH_ATTENTION_PAIRS_H

#include "pair_tile.h"

#if defined(__AVX512BF16__)

enum { HAS_PAIRS = 1 };

/* The nearest bfloat16 of each element. Only infinity becomes infinite. */
INLINE __m256i bfloat16_of(V v) {
    const V most = all(0x1.fep127f), size = absolute(v);
    const __mmask16 beyond = _mm512_cmp_ps_mask(size, most, _CMP_GT_OQ) & _mm512_cmp_ps_mask(size, all(INFINITY), _CMP_LT_OQ);
    const V limit = (V)((I)most | ((I)v & INT32_MIN));
    return (__m256i)_mm512_cvtneps_pbh(_mm512_mask_blend_ps(beyond, v, limit));
}

/* A row times `scale`, as pairs; padded with zeros to whole vectors and whole pairs. */
INLINE void round_scaled(const float *x, int64_t count, float scale, uint32_t *to) {
    for (int64_t k = 0; k < PAIR * pairs_of(count); k += WIDTH) {
        const int64_t left = count - k;
        const V v = left >= WIDTH ? load(x + k) : left > 0 ? load_part(x + k, left) : all(0.0f);
        _mm256_storeu_si256((__m256i *)(to + k / PAIR), bfloat16_of(v * all(scale)));
    }
}

/* The softmax weights, from 0 to 1. After `count` they are zero, up to a whole vector. */
static void round_weights(int rows, int64_t count, const float *weights, uint32_t *to) {
    for (int i = 0; i < rows; i++, weights += STRIDE, to += PAIR_STRIDE)
        for (int64_t k = 0; k < PAIR * pairs_of(count); k += WIDTH) {
            const V v = k < count ? load(weights + k) : all(0.0f);
            _mm256_storeu_si256((__m256i *)(to + k / PAIR), (__m256i)_mm512_cvtneps_pbh(v));
        }
}

INLINE uint32_t *keys_as_pairs(const Block *b, int64_t start) { return (uint32_t *)b->keys + start * pairs_of(b->a->size); }
INLINE uint32_t *values_as_pairs(const Block *b, int64_t start) { return (uint32_t *)b->values + start * pairs_of(b->most_keys); }

/* Like pack_keys: keys[panel][pair of elements][key]. */
static void pack_keys_as_pairs(const Block *b, int64_t count) {
    uint32_t rows[4 * PAIR_STRIDE];
    const int64_t size = b->a->size;
    for (int64_t start = 0; start < count; start += PANEL) {
        const int64_t here = count - start < PANEL ? count - start : PANEL;
        if (here < PANEL) memset(keys_as_pairs(b, start), 0, (size_t)(pairs_of(size) * PAIR_BYTES));
        for (int64_t k = 0; k < size; k += DEPTH) {
            const int64_t depth = size - k < DEPTH ? size - k : DEPTH, pairs = pairs_of(depth);
            uint32_t *panel = keys_as_pairs(b, start) + k / 2 * PANEL;
            for (int64_t i = 0; i < here; i += 4) {
                const int64_t some = here - i < 4 ? here - i : 4;
                for (int64_t j = 0; j < some; j++)
                    round_scaled(b->key.data + (start + i + j) * b->key.step + k, depth, 1.0f, rows + j * PAIR_STRIDE);
                int64_t pair = 0;
                if (some == 4)
                    for (; pair + 4 <= pairs; pair += 4) turn_four((const float *)rows + pair, PAIR_STRIDE, (float *)panel + pair * PANEL + i);
                for (; pair < pairs; pair++)
                    for (int64_t j = 0; j < some; j++) panel[pair * PANEL + i + j] = rows[j * PAIR_STRIDE + pair];
            }
        }
    }
}

/* Like pack_values: values[panel][pair of keys][element]. */
static void pack_values_as_pairs(const Block *b, int64_t count) {
    for (int64_t start = 0; start < b->width; start += WIDTH) {
        const int64_t left = b->a->value_size - start;
        uint32_t *to = values_as_pairs(b, start / PANEL * PANEL) + start % PANEL;
        for (int64_t k = 0; k < PAIR * pairs_of(count); k += PAIR, to += PANEL) {
            const float *from = b->value.data + k * b->value.step + start;
            const V zero = all(0.0f), first = left > 0 && k < count ? load_as(AS_FLOAT32, from, 0, left) : zero;
            const V second = left > 0 && k + 1 < count ? load_as(AS_FLOAT32, from + b->value.step, 0, left) : zero;
            const __m512i low = _mm512_cvtepu16_epi32(bfloat16_of(first)), high = _mm512_cvtepu16_epi32(bfloat16_of(second));
            _mm512_storeu_si512(to, _mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
        }
    }
}

/* Like score. */
static void score_by_pairs(const Block *b, int64_t row, int rows, int64_t count, float *scores) {
    uint32_t queries[PAIR_ROWS * PAIR_STRIDE] __attribute__((aligned(64)));
    const int64_t size = b->a->size;
    for (int64_t k = 0; k == 0 || k < size; k += DEPTH) {
        const int64_t depth = size - k < DEPTH ? size - k : DEPTH;
        for (int i = 0; i < rows; i++)
            round_scaled(b->query.data + (row + i) * b->query.step + k, depth, b->a->scale, queries + i * PAIR_STRIDE);
        for (int64_t start = 0; start < count; start += PANEL) {
            const char *panel = (const char *)(keys_as_pairs(b, start) + k / 2 * PANEL);
            tile_pairs(rows, queries, panel, pairs_of(depth), panel, PAIR_BYTES, scores + start, STRIDE, k > 0);
        }
    }
}

static void gather_by_pairs(const Block *b, int rows, const uint32_t *weights, int64_t start, int64_t count, float *sums) {
    const char *panel = (const char *)values_as_pairs(b, start);
    tile_pairs(rows, weights, panel, pairs_of(count), panel, PAIR_BYTES, sums, PANEL, false);
}

#else

enum { HAS_PAIRS = 0 };

static void round_weights(int rows, int64_t count, const float *weights, uint32_t *to) { (void)rows, (void)count, (void)weights, (void)to; }
static void pack_keys_as_pairs(const Block *b, int64_t count) { (void)b, (void)count; }
static void pack_values_as_pairs(const Block *b, int64_t count) { (void)b, (void)count; }
static void score_by_pairs(const Block *b, int64_t row, int rows, int64_t count, float *scores) {
    (void)b, (void)row, (void)rows, (void)count, (void)scores;
}
static void gather_by_pairs(const Block *b, int rows, const uint32_t *weights, int64_t start, int64_t count, float *sums) {
    (void)b, (void)rows, (void)weights, (void)start, (void)count, (void)sums;
}

#endif

#endif
