/* act(x w + bias) * gate + residual. Part of kernels.c. */

#ifndef ONNX_SUBGRAPH_LINEAR_H
#define ONNX_SUBGRAPH_LINEAR_H

#include "activate.h"
#include "tile.h"

static void pack(const float *w, int64_t depth, int64_t columns, int64_t panel, float *packed) {
    const int64_t first = panel * PANEL, count = columns - first < PANEL ? columns - first : PANEL;
    for (int64_t k = 0; k < depth; k++, packed += PANEL) {
        memcpy(packed, w + k * columns + first, (size_t)count * sizeof(float));
        if (count < PANEL) memset(packed + count, 0, (size_t)(PANEL - count) * sizeof(float));
    }
}

/* What is done to `count` columns of one row, a vector of them whole or in part: adds what earlier parts of the depth gave, and after the
   last part all that follows the product. */
INLINE void finish_vector(Activation activation, const Linear *l, int64_t row, int64_t column, int64_t count, bool first, bool last, V v) {
    const bool whole = count >= WIDTH;
    const int64_t at = row * l->columns + column;
#define READ(p) (whole ? load(p) : load_part(p, count))
    if (!first) v += READ(l->y + at);
    if (last) {
        if (l->bias) v += READ(l->bias + column);
        v = activated(activation, v, all(l->alpha));
        if (l->gate) v *= READ(l->gate + at);
        if (l->residual) v += READ(l->residual + at);
    }
#undef READ
    if (whole) store(l->y + at, v);
    else store_part(l->y + at, v, count);
}

INLINE void finish(Activation activation, const Linear *l, int64_t row, int count, int64_t column, bool first, bool last, const float *sums) {
    for (int i = 0; i < count; i++)
        for (int half = 0; half < 2; half++) {
            const int64_t at = column + half * WIDTH;
            if (at >= l->columns) break;
            finish_vector(activation, l, row + i, at, l->columns - at, first, last, load(sums + i * PANEL + half * WIDTH));
        }
}

/* One tile: `count` rows, copied to `rows`, and one panel, from k to k + depth. */
static void step(const Linear *l, int64_t row, int count, const float *rows, int64_t p, int64_t k, int64_t depth, const float *next) {
    float sums[TILE_ROWS * PANEL] __attribute__((aligned(64)));
    const bool first = k == 0, last = k + depth == l->depth;
    tile(count, rows, l->packed + (p * l->depth + k) * PANEL, depth, next, sums, PANEL);
    FOR_ACTIVATION(last ? l->activation : IDENTITY, finish, l, row, count, p * PANEL, first, last, sums)
}

INLINE void copy_rows(const Linear *l, int64_t row, int count, int64_t k, int64_t depth, float *rows) {
    for (int i = 0; i < count; i++) memcpy(rows + i * STRIDE, l->x + (row + i) * l->depth + k, (size_t)depth * sizeof(float));
}

/* The parts of the depth are as even as can be. */
INLINE int64_t depth_of_part(int64_t left) {
    const int64_t parts = (left + DEPTH - 1) / DEPTH;
    return parts ? (left + parts - 1) / parts : 0;
}

/* What is read after the last row has passed the panels: the next part of the depth, or the panels behind these. */
INLINE const float *upcoming(const Linear *l, int64_t panel, int64_t panel_end, int64_t k) {
    return l->packed + (k < l->depth ? panel * l->depth + k : panel_end * l->depth) * PANEL;
}

/* The panels stay in L2 while all rows pass by: the caller gives as many as fit. */
static void linear(const Linear *l, int64_t row_begin, int64_t row_end, int64_t panel, int64_t panel_end) {
    float rows[TILE_ROWS * STRIDE] __attribute__((aligned(64)));
    int64_t k = 0;
    do { /* once where the depth is 0 */
        const int64_t depth = depth_of_part(l->depth - k);
        for (int64_t row = row_begin; row < row_end;) {
            const int count = tile_rows(row_end - row);
            copy_rows(l, row, count, k, depth, rows);
            const float *after = row + count < row_end ? l->packed + (panel * l->depth + k) * PANEL : upcoming(l, panel, panel_end, k + depth);
            for (int64_t p = panel; p < panel_end; p++)
                step(l, row, count, rows, p, k, depth, p + 1 < panel_end ? l->packed + ((p + 1) * l->depth + k) * PANEL : after);
            row += count;
        }
        k += depth;
    } while (k < l->depth);
}

#endif
