/* The product of a few rows and one panel of columns, held in registers. Part of kernels.c.

   A panel is two vectors wide. The rows are in a small buffer with a constant stride. So the loop computes no addresses, and no two rows
   share a set of the L1 cache, as rows of 1,024 floats would. */

#ifndef ONNX_SUBGRAPH_TILE_H
#define ONNX_SUBGRAPH_TILE_H

#include "storage.h"

#include <stdbool.h>

enum {
    PANEL = 2 * WIDTH,
#if WIDTH == 16
    TILE_ROWS = 14, /* 28 sums, two vectors of the panel and one element of x: 31 of 32 registers */
#elif WIDTH == 8 || !defined(__SSE2__)
    TILE_ROWS = 6, /* 12 sums: 15 of 16 registers */
#else
    TILE_ROWS = 4, /* without fused multiply-add, products need registers too */
#endif
    DEPTH = 256,         /* the most depth that one tile sums: longer float32 sums lose digits, and the rows must stay in L1 */
    STRIDE = DEPTH + 16, /* from one row of the buffer to the next */
};

/* The storage of float16 weights: float16 only if the processor can convert it. */
#if defined(__F16C__)
#define HELD_FLOAT16 AS_FLOAT16
#else
#define HELD_FLOAT16 AS_FLOAT32
#endif

/* The bytes of a panel for each depth. */
INLINE int64_t line_of(Storage held) { return PANEL * (int64_t)(held == AS_FLOAT32 ? sizeof(float) : sizeof(uint16_t)); }

/* Both vectors of line k of a panel in the storage `held`. With AVX512_BF16 a word of bfloat16 holds two consecutive elements of a column,
   the first in the lower half. Otherwise it holds an element of the left vector and, in the upper half, one of the right vector. */
INLINE void read_weights(Storage held, const char *panel, int64_t k, V *left, V *right) {
#if defined(__AVX512BF16__)
    const char *from = panel + (held == AS_BFLOAT16 ? k & ~(int64_t)1 : k) * line_of(held);
    if (held == AS_BFLOAT16) {
        const U first = (U)load((const float *)from), second = (U)load((const float *)from + WIDTH);
        *left = (V)(k & 1 ? first & 0xffff0000 : first << 16), *right = (V)(k & 1 ? second & 0xffff0000 : second << 16);
#else
    const char *from = panel + k * line_of(held);
    if (held == AS_BFLOAT16) {
        const U both = (U)load((const float *)from);
        *left = (V)(both << 16), *right = (V)(both & 0xffff0000);
#endif
    } else {
        *left = load_as(held, from, 0, WIDTH), *right = load_as(held, from, WIDTH, WIDTH);
    }
}

/* sums[i][j] = sum over k of rows[i][k] · panel[k][j]; `count` is a compile-time constant. step: from one row of sums to the next. next: data
   that is read afterwards, and is prefetched. A few rows are limited by the latency of an addition, so they have several sums, over every
   second or fourth k. */
INLINE void tile_of(const Storage held, const int count, const float *rows, const char *panel, int64_t depth, const char *next, int64_t ahead,
                    float *sums, int64_t step, bool add) {
    enum { MOST = TILE_ROWS };
    const int chains = count == 1 ? 4 : count <= 3 ? 2 : 1;
    V acc[MOST * 2 > 12 ? MOST * 2 : 12];
#pragma GCC unroll 32
    for (int i = 0; i < count * chains * 2; i++) acc[i] = all(0.0f);
    int64_t k = 0;
    for (; k + chains <= depth; k += chains) {
#pragma GCC unroll 4
        for (int c = 0; c < chains; c++) {
            V left, right;
            read_weights(held, panel, k + c, &left, &right);
            __builtin_prefetch(next, 0, 2);
            if (line_of(held) > 64) __builtin_prefetch(next + 64, 0, 2);
            next += ahead;
#pragma GCC unroll 16
            for (int i = 0; i < count; i++) {
                const V x = all(rows[i * STRIDE + k + c]);
                acc[(c * count + i) * 2] += x * left;
                acc[(c * count + i) * 2 + 1] += x * right;
            }
        }
    }
    for (; k < depth; k++) {
        V left, right;
        read_weights(held, panel, k, &left, &right);
#pragma GCC unroll 16
        for (int i = 0; i < count; i++) {
            const V x = all(rows[i * STRIDE + k]);
            acc[i * 2] += x * left;
            acc[i * 2 + 1] += x * right;
        }
    }
#pragma GCC unroll 32
    for (int i = 0; i < count * 2; i++) {
        V sum = acc[i];
#pragma GCC unroll 4
        for (int c = 1; c < chains; c++) sum += acc[c * count * 2 + i];
        float *to = sums + i / 2 * step + i % 2 * WIDTH;
        store(to, add ? load(to) + sum : sum);
    }
}

/* tile_of for any count up to TILE_ROWS. */
static void tile_ahead(Storage held, int count, const float *rows, const char *panel, int64_t depth, const char *next, int64_t ahead, float *sums,
                       int64_t step, bool add) {
#define ROWS(n) \
    case n: tile_of(AS_FLOAT32, n, rows, panel, depth, next, ahead, sums, step, add); break; \
    case n + TILE_ROWS: tile_of(AS_BFLOAT16, n, rows, panel, depth, next, ahead, sums, step, add); break; \
    case n + 2 * TILE_ROWS: tile_of(HELD_FLOAT16, n, rows, panel, depth, next, ahead, sums, step, add); break;
    switch (count + (held == AS_FLOAT32 ? 0 : held == AS_BFLOAT16 ? TILE_ROWS : 2 * TILE_ROWS)) {
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

INLINE void tile(int count, const float *rows, const float *panel, int64_t depth, const float *next, float *sums, int64_t step) {
    tile_ahead(AS_FLOAT32, count, rows, (const char *)panel, depth, (const char *)next, line_of(AS_FLOAT32), sums, step, false);
}

/* The number of rows of the next tile of at most `most` if `left` remain: as even as possible, so that no tile has only a row or two. */
INLINE int even_rows(int64_t left, int64_t most) {
    const int64_t tiles = (left + most - 1) / most;
    return (int)((left + tiles - 1) / tiles);
}

#endif
