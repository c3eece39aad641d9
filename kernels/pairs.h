/* Products with AVX512_BF16. Part of kernels.c; linear.h defines the block of rows before it.

   One instruction multiplies pairs of bfloat16 and adds both products to a float32. So weights are packed in pairs along the depth, and rows
   are rounded to pairs once for a block. A few rows are limited by memory: they read the same weights, and are not rounded. */

#ifndef ONNX_SUBGRAPH_PAIRS_H
#define ONNX_SUBGRAPH_PAIRS_H

#if defined(__AVX512BF16__)

enum {
    PAIR_STRIDE = DEPTH / 2 + 16, /* from one row of pairs to the next; as for STRIDE, no two rows share a cache set */
    PAIR_BYTES = PANEL * 4,       /* bytes of a panel for each pair */
};

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

/* Like tile_of, for pairs. */
INLINE void tile_of_pairs(const int count, const uint32_t *rows, const char *panel, int64_t pairs, const char *next, int64_t ahead, float *sums,
                          bool add) {
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
    for (int i = 0; i < count * 2; i++) store(sums + i * WIDTH, add ? load(sums + i * WIDTH) + acc[i] : acc[i]);
}

static void tile_pairs(int count, const uint32_t *rows, const char *panel, int64_t pairs, const char *next, int64_t ahead, float *sums, bool add) {
#define ROWS(n) case n: tile_of_pairs(n, rows, panel, pairs, next, ahead, sums, add); break;
    switch (count) {
        ROWS(1) ROWS(2) ROWS(3) ROWS(4) ROWS(5) ROWS(6) ROWS(7) ROWS(8) ROWS(9) ROWS(10) ROWS(11) ROWS(12) ROWS(13) ROWS(14)
    }
#undef ROWS
}

/* All rows, for one part of one panel; like `pass`. */
static void pass_pairs(const RowBlock *b, int64_t part, int64_t p, const char *next) {
    const Linear *l = b->linear;
    const int64_t k = depth_of(b, part), depth = depth_of(b, part + 1) - k;
    const int64_t ahead = (PAIR_BYTES + b->tiles - 1) / b->tiles, pairs = (depth + 1) / 2;
    for (int64_t t = 0; t < b->tiles; t++) {
        const int count = (int)(row_of(b, t + 1) - row_of(b, t));
        float *sums = b->sums + t * TILE_SUMS;
        tile_pairs(count, pairs_at(b, part, t), weights(l, AS_BFLOAT16, p, k), pairs, next + t * ahead * pairs, ahead, sums, part > b->begin);
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
