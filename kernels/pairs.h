/* Linear with AVX512_BF16. Part of kernels.c; linear.h defines the block of rows before it.

   Weights are packed in pairs along the depth, and rows are rounded to pairs once for a block. A few rows are limited by memory: they read the
   same weights, and are not rounded. */

#ifndef ONNX_SUBGRAPH_PAIRS_H
#define ONNX_SUBGRAPH_PAIRS_H

#if defined(__AVX512BF16__) && !defined(__AMX_BF16__)

INLINE uint32_t *pairs_at(const RowBlock *b, int64_t part, int64_t tile) {
    return (uint32_t *)b->copies + ((part - b->begin) * b->tiles + tile) * TILE_ROWS * PAIR_STRIDE;
}

/* Rounds one row. Returns whether all of it is in the range of bfloat16. */
INLINE bool round_row(Storage storage, const void *x, int64_t at, int64_t depth, uint32_t *to) {
    bool holds = true;
    for (int64_t k = 0; k < depth; k += WIDTH) {
        const V v = load_as(storage, x, at + k, depth - k);
        holds &= _mm512_cmp_ps_mask(absolute(v), all(0x1.fep127f), _CMP_LE_OQ) == 0xffff;
        _mm256_storeu_si256((__m256i *)(to + k / 2), (__m256i)_mm512_cvtneps_pbh(v));
    }
    return holds;
}

static bool round_rows(const RowBlock *b) {
    bool holds = true;
    for (int64_t part = b->begin; part < b->end; part++) {
        const int64_t k = depth_of(b, part), depth = depth_of(b, part + 1) - k;
        for (int64_t t = 0; t < b->tiles; t++) {
            uint32_t *to = pairs_at(b, part, t);
            for (int64_t i = row_of(b, t); i < row_of(b, t + 1); i++, to += PAIR_STRIDE)
                holds &= round_row(b->linear->storage, b->linear->x, (b->row + i) * b->linear->depth + k, depth, to);
        }
    }
    return holds;
}

/* All rows, for one part of one panel; like `pass`. */
static void pass_pairs(const RowBlock *b, int64_t part, int64_t p, const char *next) {
    const Linear *l = b->linear;
    const int64_t k = depth_of(b, part), depth = depth_of(b, part + 1) - k;
    const int64_t ahead = (PAIR_BYTES + b->tiles - 1) / b->tiles, pairs = (depth + 1) / 2;
    for (int64_t t = 0; t < b->tiles; t++) {
        const int count = (int)(row_of(b, t + 1) - row_of(b, t));
        float *sums = b->sums + t * TILE_SUMS;
        tile_pairs(count, pairs_at(b, part, t), weights(l, AS_BFLOAT16, p, k), pairs, next + t * ahead * pairs, ahead, sums, PANEL,
                   part > b->begin);
        if (part + 1 == b->end) finish_rows(l, b->row + row_of(b, t), count, p * PANEL, earlier_of(b, row_of(b, t), p), sums);
    }
}

/* Returns whether the block was computed. It is not where its rows exceed the range of bfloat16, because they would become infinite. */
static bool by_pairs(const RowBlock *b, int64_t panel, int64_t panel_end) {
    if (b->linear->huge || !round_rows(b)) return false;
    for (int64_t p = panel; p < panel_end; p++)
        for (int64_t part = b->begin; part < b->end; part++) pass_pairs(b, part, p, following(b, part, p));
    return true;
}

#else

static bool by_pairs(const RowBlock *b, int64_t panel, int64_t panel_end) {
    (void)b, (void)panel, (void)panel_end;
    return false;
}

#endif

#endif
