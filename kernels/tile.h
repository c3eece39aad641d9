/* The product of a few rows and one panel of columns, held in registers. Part of kernels.c.

   A panel is two vectors wide. The rows stand in a small buffer with a stride that is known when this is compiled: no address is
   computed in the loop, and no two rows fall on the same set of the L1 cache, as rows of 1,024 floats would. */

#ifndef ONNX_SUBGRAPH_TILE_H
#define ONNX_SUBGRAPH_TILE_H

#include "vector.h"

enum {
    PANEL = 2 * WIDTH,
#if WIDTH == 16
    TILE_ROWS = 14, /* 28 sums, two vectors of the panel and one element of x: 31 of 32 registers */
#elif WIDTH == 8 || !defined(__SSE2__)
    TILE_ROWS = 6, /* 12 sums: 15 of 16 registers */
#else
    TILE_ROWS = 4, /* without fused multiply-add, products take registers as well */
#endif
    DEPTH = 256,         /* the most of depth that one tile sums up: longer sums of float32 lose digits, and the rows stay in L1 */
    STRIDE = DEPTH + 16, /* from one row of the buffer to the next */
};

/* sums[i][j] = sum over k of rows[i][k] · panel[k][j], with `count` rows known when this is compiled. step: from one row of sums to the next.
   next: what is read afterwards; it is fetched meanwhile. Few rows are bound by the latency of a sum, so that they have several sums,
   of every second or fourth k. */
INLINE void tile_of(const int count, const float *rows, const float *panel, int64_t depth, const float *next, float *sums, int64_t step) {
    enum { MOST = TILE_ROWS };
    const int chains = count == 1 ? 4 : count <= 3 ? 2 : 1;
    V acc[MOST * 2 > 12 ? MOST * 2 : 12];
#pragma GCC unroll 32
    for (int i = 0; i < count * chains * 2; i++) acc[i] = all(0.0f);
    int64_t k = 0;
    for (; k + chains <= depth; k += chains) {
#pragma GCC unroll 4
        for (int c = 0; c < chains; c++) {
            const V left = load(panel), right = load(panel + WIDTH);
            __builtin_prefetch(next, 0, 2);
            if (WIDTH == 16) __builtin_prefetch(next + WIDTH, 0, 2);
            panel += PANEL, next += PANEL;
#pragma GCC unroll 16
            for (int i = 0; i < count; i++) {
                const V x = all(rows[i * STRIDE + k + c]);
                acc[(c * count + i) * 2] += x * left;
                acc[(c * count + i) * 2 + 1] += x * right;
            }
        }
    }
    for (; k < depth; k++, panel += PANEL)
#pragma GCC unroll 16
        for (int i = 0; i < count; i++) {
            const V x = all(rows[i * STRIDE + k]);
            acc[i * 2] += x * load(panel);
            acc[i * 2 + 1] += x * load(panel + WIDTH);
        }
#pragma GCC unroll 32
    for (int i = 0; i < count * 2; i++) {
        V sum = acc[i];
#pragma GCC unroll 4
        for (int c = 1; c < chains; c++) sum += acc[c * count * 2 + i];
        store(sums + i / 2 * step + i % 2 * WIDTH, sum);
    }
}

/* tile_of for any count up to TILE_ROWS. */
static void tile(int count, const float *rows, const float *panel, int64_t depth, const float *next, float *sums, int64_t step) {
#define ROWS(n) case n: tile_of(n, rows, panel, depth, next, sums, step); break;
    switch (count) {
        ROWS(1) ROWS(2) ROWS(3) ROWS(4)
#if WIDTH > 4 || !defined(__SSE2__)
        ROWS(5) ROWS(6)
#endif
#if WIDTH == 16
        ROWS(7) ROWS(8) ROWS(9) ROWS(10) ROWS(11) ROWS(12) ROWS(13) ROWS(14)
#endif
    }
#undef ROWS
}

/* The rows of the next tile, of `left` rows: as even as possible, so that no tile is left with a row or two. */
INLINE int tile_rows(int64_t left) {
    const int64_t tiles = (left + TILE_ROWS - 1) / TILE_ROWS;
    return (int)((left + tiles - 1) / tiles);
}

#endif
