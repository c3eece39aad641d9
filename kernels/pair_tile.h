/* The product of a few rows and one panel in bfloat16, with AVX512_BF16 or AMX. Part of kernels.c.

   One instruction multiplies pairs of bfloat16 and adds both products to a float32. A pair is two neighbours along the depth in one word, the
   first in the lower half. */

#ifndef ONNX_SUBGRAPH_PAIR_TILE_H
#define ONNX_SUBGRAPH_PAIR_TILE_H

#include "tile.h"
#include "tiles.h"

enum {
    PAIR = 2,                     /* elements of a pair */
#if defined(__AMX_BF16__)
    WHOLE_PAIRS = AMX_DEPTH / PAIR, /* panels and rows are padded with zeros to a multiple of it */
    PAIR_ROWS = AMX_ROWS,           /* the most rows of a product of pairs, and the rows of its operand and its sums in memory */
#else
    WHOLE_PAIRS = 1,
    PAIR_ROWS = TILE_ROWS,
#endif
    PAIR_STRIDE = DEPTH / 2 + 16, /* from one row of pairs to the next; as for STRIDE, no two rows share a cache set */
    PAIR_BYTES = PANEL * 4,       /* bytes of a panel for each pair */
};

INLINE int64_t pairs_of(int64_t depth) { return (depth + PAIR * WHOLE_PAIRS - 1) / (PAIR * WHOLE_PAIRS) * WHOLE_PAIRS; }

#if defined(__AMX_BF16__)

_Static_assert(PANEL == 32, "a panel is two tiles wide");

/* Like tile_of, for pairs, between tiles_on and tiles_off. All PAIR_ROWS rows are read and written. */
static void tile_pairs(int count, const uint32_t *rows, const char *panel, int64_t pairs, const char *next, int64_t ahead, float *sums,
                       int64_t step, bool add) {
    (void)count, (void)next, (void)ahead;
    TILES_SEE_MEMORY();
    if (add) {
        TILE_LOAD(0, sums, step * (int64_t)sizeof(float));
        TILE_LOAD(1, sums + WIDTH, step * (int64_t)sizeof(float));
    } else {
        TILE_ZERO(0);
        TILE_ZERO(1);
    }
    for (int64_t k = 0; k < pairs; k += WHOLE_PAIRS, panel += WHOLE_PAIRS * PAIR_BYTES) {
        TILE_LOAD(4, rows + k, PAIR_STRIDE * sizeof(uint32_t));
        TILE_LOAD(6, panel, PAIR_BYTES);
        TILE_LOAD(7, panel + 64, PAIR_BYTES);
        TILE_PRODUCT(0, 4, 6);
        TILE_PRODUCT(1, 4, 7);
    }
    TILE_STORE(0, sums, step * (int64_t)sizeof(float));
    TILE_STORE(1, sums + WIDTH, step * (int64_t)sizeof(float));
    TILES_SEE_MEMORY();
}

#elif defined(__AVX512BF16__)

/* Like tile_of, for pairs. */
INLINE void tile_of_pairs(const int count, const uint32_t *rows, const char *panel, int64_t pairs, const char *next, int64_t ahead, float *sums,
                          int64_t step, bool add) {
    V acc[TILE_ROWS * 2];
#pragma GCC unroll 32
    for (int i = 0; i < count * 2; i++) acc[i] = all(0.0f);
    for (int64_t k = 0; k < pairs; k++, panel += PAIR_BYTES, next += ahead) {
        const __m512bh left = (__m512bh)load((const float *)panel), right = (__m512bh)load((const float *)panel + WIDTH);
        __builtin_prefetch(next, 0, 2);
        __builtin_prefetch(next + 64, 0, 2);
#pragma GCC unroll 16
        for (int i = 0; i < count; i++) {
            const __m512bh x = (__m512bh)_mm512_set1_epi32((int)rows[i * PAIR_STRIDE + k]);
            acc[i * 2] = _mm512_dpbf16_ps(acc[i * 2], x, left);
            acc[i * 2 + 1] = _mm512_dpbf16_ps(acc[i * 2 + 1], x, right);
        }
    }
#pragma GCC unroll 32
    for (int i = 0; i < count * 2; i++) {
        float *to = sums + i / 2 * step + i % 2 * WIDTH;
        store(to, add ? load(to) + acc[i] : acc[i]);
    }
}

static void tile_pairs(int count, const uint32_t *rows, const char *panel, int64_t pairs, const char *next, int64_t ahead, float *sums,
                       int64_t step, bool add) {
#define ROWS(n) case n: tile_of_pairs(n, rows, panel, pairs, next, ahead, sums, step, add); break;
    switch (count) {
        ROWS(1) ROWS(2) ROWS(3) ROWS(4) ROWS(5) ROWS(6) ROWS(7) ROWS(8) ROWS(9) ROWS(10) ROWS(11) ROWS(12) ROWS(13) ROWS(14)
    }
#undef ROWS
}

#endif

#endif
