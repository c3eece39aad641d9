/* act(x w + bias) * gate + residual. Part of kernels.c.

   The depth is divided into parts, each summed by one tile. The parts do not depend on the number of rows, and their sums are added in order.
   Weights are packed in panels, one depth after another, as float32 or in half the memory: as float16 or bfloat16 if they are that, or as
   bfloat16 if the user allows it. Products are float32. */

#ifndef ONNX_SUBGRAPH_LINEAR_H
#define ONNX_SUBGRAPH_LINEAR_H

#include "activate.h"
#include "pair_tile.h"

enum {
    TILE_SIZE = TILE_ROWS * STRIDE,
    TILE_SUMS = TILE_ROWS * PANEL,
    BLOCK_PARTS = 4, /* parts of the depth whose rows are copied at once: 600 KB for 128 rows, which stay in L2 */
    FEW = TILE_ROWS / 2,
    FEWEST_ROWS = 32, MOST_ROWS = 128, /* of a part of a product */
    SIDE = 4, /* the most panels side by side: this many streams of weights use the full memory bandwidth */
};

/* The start of share `index` if `total` is divided as evenly as possible into `count` shares. */
INLINE int64_t share(int64_t total, int64_t index, int64_t count) { return total * index / count; }

/* The same for a depth, in multiples of `unit`. */
INLINE int64_t share_of_depth(int64_t depth, int64_t part, int64_t parts, int64_t unit) {
    return part == parts ? depth : (share(depth, part, parts) + unit - 1) / unit * unit;
}

INLINE int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
INLINE int64_t parts_of(int64_t depth) { return depth > DEPTH ? (depth + DEPTH - 1) / DEPTH : 1; }
INLINE int64_t tiles_of(int64_t rows) { return (rows + TILE_ROWS - 1) / TILE_ROWS; }

static void pack_float32(const float *w, int64_t depth, int64_t columns, int64_t panel, void *packed) {
    const int64_t first = panel * PANEL, count = least(columns - first, PANEL);
    float *to = packed;
    for (int64_t k = 0; k < depth; k++, to += PANEL) {
        memcpy(to, w + k * columns + first, (size_t)count * sizeof(float));
        if (count < PANEL) memset(to + count, 0, (size_t)(PANEL - count) * sizeof(float));
    }
}

/* The nearest bfloat16 (ties to even), in the upper half. NaN stays NaN, and only infinity becomes infinite. */
INLINE uint32_t bfloat16(float v) {
    enum { INFINITE = 0x7f800000 };
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    if ((bits & INT32_MAX) > INFINITE) return (bits | 0x400000) & 0xffff0000;
    const uint32_t near = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000;
    return (near & INT32_MAX) == INFINITE ? bits & 0xffff0000 : near;
}

static void pack_float16(const float *w, int64_t depth, int64_t columns, int64_t panel, void *packed) {
    const int64_t first = panel * PANEL, count = least(columns - first, PANEL);
    uint16_t *to = packed;
    for (int64_t k = 0; k < depth; k++, to += PANEL) {
        narrow_all(AS_FLOAT16, w + k * columns + first, to, count);
        memset(to + count, 0, (size_t)(PANEL - count) * sizeof *to);
    }
}

/* Packs for read_weights. depth_packed: the depth, rounded up to whole pairs where read_weights needs that, or to whole tiles of AMX. */
#if defined(__AVX512BF16__)
INLINE int64_t depth_packed(Storage held, int64_t depth) { return held == AS_BFLOAT16 ? PAIR * pairs_of(depth) : depth; }

static void pack_bfloat16(const float *w, int64_t depth, int64_t columns, int64_t panel, void *packed) {
    const int64_t first = panel * PANEL, left = columns - first;
    uint32_t *to = packed;
    for (int64_t k = 0; k < depth; k += 2, to += PANEL)
        for (int64_t j = 0; j < PANEL; j++) {
            const float *from = w + k * columns + first + j;
            to[j] = j < left ? bfloat16(from[0]) >> 16 | (k + 1 < depth ? bfloat16(from[columns]) : 0) : 0;
        }
    memset(to, 0, (size_t)(depth_packed(AS_BFLOAT16, depth) / 2 - (depth + 1) / 2) * PANEL * sizeof *to);
}
#else
INLINE int64_t depth_packed(Storage held, int64_t depth) {
    (void)held;
    return depth;
}

static void pack_bfloat16(const float *w, int64_t depth, int64_t columns, int64_t panel, void *packed) {
    const int64_t first = panel * PANEL, left = columns - first;
    uint32_t *to = packed;
    for (int64_t k = 0; k < depth; k++, to += WIDTH)
        for (int64_t j = 0; j < WIDTH; j++) {
            const float *from = w + k * columns + first + j;
            to[j] = (j < left ? bfloat16(from[0]) >> 16 : 0) | (j + WIDTH < left ? bfloat16(from[WIDTH]) : 0);
        }
}
#endif

/* The weights of panel p, from depth k. */
INLINE const char *weights(const Linear *l, Storage held, int64_t p, int64_t k) {
    return (const char *)l->packed + (p * depth_packed(held, l->depth) + k) * line_of(held);
}

/* The sums of a row from earlier blocks of the depth, from the first column of a panel; in y itself if that is float32. step: from one row to
   the next. first: there are none. last: no block follows. */
typedef struct {
    float *sums;
    int64_t step;
    bool first, last;
} Earlier;

/* Everything after the product, for `count` columns of one row: a whole vector or a part of one. */
INLINE void finish_vector(Activation activation, Storage storage, const Linear *l, int64_t at, int64_t column, int64_t count, const Earlier *e,
                          float *earlier, V v) {
    if (!e->first) v += load_as(AS_FLOAT32, earlier, 0, count);
    if (!e->last) {
        store_as(AS_FLOAT32, earlier, 0, v, count);
        return;
    }
    if (l->bias) v += load_as(storage, l->bias, column, count);
    v = activated(activation, v, all(l->alpha));
    if (l->gate) v *= load_as(storage, l->gate, at, count);
    if (l->residual) v += load_as(storage, l->residual, at, count);
    store_as(storage, l->y, at, v, count);
}

INLINE void finish(Activation activation, Storage storage, const Linear *l, int64_t row, int count, int64_t column, const Earlier *e,
                   const float *sums) {
    const int64_t left = l->columns - column;
    for (int i = 0; i < count; i++, sums += PANEL) {
        const int64_t at = (row + i) * l->columns + column;
        float *earlier = e->sums + i * e->step;
        if (left >= PANEL) {
            finish_vector(activation, storage, l, at, column, WIDTH, e, earlier, load(sums));
            finish_vector(activation, storage, l, at + WIDTH, column + WIDTH, WIDTH, e, earlier + WIDTH, load(sums + WIDTH));
        } else {
            finish_vector(activation, storage, l, at, column, left, e, earlier, load(sums));
            if (left > WIDTH)
                finish_vector(activation, storage, l, at + WIDTH, column + WIDTH, left - WIDTH, e, earlier + WIDTH, load(sums + WIDTH));
        }
    }
}

static void finish_rows(const Linear *l, int64_t row, int count, int64_t column, Earlier e, const float *sums) {
    const Activation activation = e.last ? l->activation : IDENTITY;
    if (l->storage == AS_FLOAT32) FOR_ACTIVATION(activation, finish, AS_FLOAT32, l, row, count, column, &e, sums)
    else FOR_ACTIVATION(activation, finish, l->storage, l, row, count, column, &e, sums)
}

/* Adds the products at one depth to the sums of few_of. step: from one row of x to the next. */
INLINE void few_line(Storage held, const int count, const int side, const float *x, int64_t step, const char *const *from, int64_t d, V *acc) {
#pragma GCC unroll 4
    for (int s = 0; s < side; s++) {
        V left, right;
        read_weights(held, from[s], d, &left, &right);
#pragma GCC unroll 8
        for (int i = 0; i < count; i++) {
            const V each = all(x[i * step + d]);
            acc[(s * count + i) * 2] += each * left;
            acc[(s * count + i) * 2 + 1] += each * right;
        }
    }
}

/* A few rows are limited by memory: they read each weight once, from `side` panels at the same time, and read x in place if it is float32. */
INLINE void few_of(Storage held, const int count, const int side, const Linear *l, int64_t row, int64_t p, int64_t last_panel, int64_t k,
                   int64_t depth, float *sums) {
    float copies[FEW * DEPTH];
    const bool narrow = l->storage != AS_FLOAT32;
    const int64_t at = row * l->depth + k, step = narrow ? DEPTH : l->depth;
    const char *from[SIDE];
    V acc[TILE_ROWS * 2];
    if (narrow)
        for (int i = 0; i < count; i++) widen(l->storage, (const uint16_t *)l->x + at + i * l->depth, copies + i * DEPTH, depth);
    const float *x = narrow ? copies : (const float *)l->x + at;
#pragma GCC unroll 4
    for (int s = 0; s < side; s++) from[s] = weights(l, held, least(p + s, last_panel), k);
#pragma GCC unroll 32
    for (int i = 0; i < count * side * 2; i++) acc[i] = all(0.0f);
    int64_t d = 0;
    for (; d + 2 <= depth; d += 2) {
        few_line(held, count, side, x, step, from, d, acc);
        few_line(held, count, side, x, step, from, d + 1, acc);
    }
    if (d < depth) few_line(held, count, side, x, step, from, d, acc);
#pragma GCC unroll 32
    for (int i = 0; i < count * side * 2; i++) store(sums + i * WIDTH, k ? load(sums + i * WIDTH) + acc[i] : acc[i]);
}

/* The most rows for `few`. Two with AVX512_BF16, because products of pairs take half the time of float products. */
INLINE int64_t few_rows(Storage held) {
#if defined(__AVX512BF16__)
    return held == AS_BFLOAT16 ? 2 : FEW;
#else
    (void)held;
    return FEW;
#endif
}

static int side_of(int count) { return TILE_ROWS / count < SIDE ? TILE_ROWS / count : SIDE; }

INLINE void few(Storage held, const Linear *l, int64_t row, int count, int64_t panel, int64_t panel_end) {
    float sums[TILE_SUMS] __attribute__((aligned(64)));
    const int64_t parts = parts_of(l->depth);
    for (int64_t p = panel; p < panel_end; p += side_of(count)) {
        for (int64_t part = 0; part < parts; part++) {
            const int64_t k = share_of_depth(l->depth, part, parts, PAIR), depth = share_of_depth(l->depth, part + 1, parts, PAIR) - k;
#define ROWS(n) case n: few_of(held, n, TILE_ROWS / n < SIDE ? TILE_ROWS / n : SIDE, l, row, p, panel_end - 1, k, depth, sums); break;
            switch (count) {
                ROWS(1) ROWS(2)
#if WIDTH > 4 || !defined(__SSE2__)
                ROWS(3)
#endif
#if WIDTH == 16
                ROWS(4) ROWS(5) ROWS(6) ROWS(7)
#endif
            }
#undef ROWS
        }
        for (int64_t s = 0; s < side_of(count) && p + s < panel_end; s++)
            finish_rows(l, row, count, (p + s) * PANEL, (Earlier){sums, 0, true, true}, sums + s * count * PANEL);
    }
}

/* Copies of rows of x, tile after tile, for some parts of the depth. */
typedef struct {
    const Linear *linear;
    Storage held; /* storage of the packed weights */
    int64_t row, rows, tiles;
    int64_t parts, unit;       /* the whole depth has so many parts, which are multiples of the unit */
    int64_t begin, end;        /* the parts of this block */
    int64_t panel, panels;     /* the first panel of this call, and their number */
    float *copies, *sums;
    float *earlier;            /* [rows, columns of the panels]: sums from earlier blocks of the depth, if y is not float32 */
} RowBlock;

INLINE int64_t row_of(const RowBlock *b, int64_t tile) { return share(b->rows, tile, b->tiles); }
INLINE int64_t depth_of(const RowBlock *b, int64_t part) { return share_of_depth(b->linear->depth, part, b->parts, b->unit); }
INLINE float *copy_of(const RowBlock *b, int64_t part, int64_t tile) { return b->copies + ((part - b->begin) * b->tiles + tile) * TILE_SIZE; }

/* Copies a part of row i of x as floats. */
INLINE void copy_row(const RowBlock *b, int64_t i, int64_t k, int64_t depth, float *to) {
    const Linear *l = b->linear;
    const int64_t at = (b->row + i) * l->depth + k;
    widen(l->storage, (const char *)l->x + at * size_of(l->storage), to, depth);
}

INLINE Earlier earlier_of(const RowBlock *b, int64_t i, int64_t panel) {
    const Linear *l = b->linear;
    const bool first = b->begin == 0, last = depth_of(b, b->end) == l->depth;
    if (first && last) return (Earlier){b->sums, 0, first, last}; /* not read */
    if (l->storage == AS_FLOAT32) return (Earlier){(float *)l->y + (b->row + i) * l->columns + panel * PANEL, l->columns, first, last};
    return (Earlier){b->earlier + (i * b->panels + panel - b->panel) * PANEL, b->panels * PANEL, first, last};
}

static void copy_rows(const RowBlock *b) {
    for (int64_t part = b->begin; part < b->end; part++) {
        const int64_t k = depth_of(b, part), depth = depth_of(b, part + 1) - k;
        for (int64_t t = 0; t < b->tiles; t++) {
            float *to = copy_of(b, part, t);
            for (int64_t i = row_of(b, t); i < row_of(b, t + 1); i++, to += STRIDE) copy_row(b, i, k, depth, to);
        }
    }
}

/* Converts a part of a 16-bit panel to floats. */
static void widen_weights(Storage held, const char *panel, int64_t depth, float *to) {
    for (int64_t k = 0; k < depth; k++, to += PANEL) {
        V left, right;
        if (held == AS_FLOAT16) read_weights(AS_FLOAT16, panel, k, &left, &right);
        else read_weights(AS_BFLOAT16, panel, k, &left, &right);
        store(to, left), store(to + WIDTH, right);
    }
}

/* All rows, for one part of one panel. next: the part of a panel that follows; every tile prefetches a share of it. 16-bit weights that
   several tiles read are converted once. */
static void pass(const RowBlock *b, int64_t part, int64_t p, const char *next) {
    const Linear *l = b->linear;
    const int64_t k = depth_of(b, part), depth = depth_of(b, part + 1) - k;
    const int64_t ahead = (line_of(b->held) + b->tiles - 1) / b->tiles;
    const bool widens = b->held != AS_FLOAT32 && b->tiles > 1;
    const Storage held = widens ? AS_FLOAT32 : b->held;
    const char *from = weights(l, b->held, p, k);
    float wide[DEPTH * PANEL] __attribute__((aligned(64)));
    if (widens) {
        widen_weights(b->held, from, depth, wide);
        from = (const char *)wide;
    }
    for (int64_t t = 0; t < b->tiles; t++) {
        const int64_t i = row_of(b, t);
        const int count = (int)(row_of(b, t + 1) - i);
        float *sums = b->sums + t * TILE_SUMS;
        tile_ahead(held, count, copy_of(b, part, t), from, depth, next + t * ahead * depth, ahead, sums, PANEL, part > b->begin);
        if (part + 1 == b->end) finish_rows(l, b->row + i, count, p * PANEL, earlier_of(b, i, p), sums);
    }
}

/* The weights that are read after this part of panel p: the next part, or the first part of the next panel. */
INLINE const char *following(const RowBlock *b, int64_t part, int64_t p) {
    const bool more = part + 1 < b->end;
    return weights(b->linear, b->held, more ? p : p + 1, depth_of(b, more ? part + 1 : b->begin));
}

#include "pairs.h"

/* The rows of a single tile fit in L1 only for one part of the depth. */
static int64_t parts_of_block(int64_t rows, int64_t depth) { return tiles_of(rows) == 1 ? 1 : least(parts_of(depth), BLOCK_PARTS); }

INLINE int64_t bytes_of_blocks(int64_t rows, int64_t depth) {
    return tiles_of(rows) * (parts_of_block(rows, depth) * TILE_SIZE + TILE_SUMS) * (int64_t)sizeof(float);
}

/* The sums of earlier blocks of the depth are in scratch memory if y is not float32. */
INLINE int64_t bytes_of_earlier(const Linear *l, int64_t rows, int64_t panels, bool blocks) {
    return l->storage != AS_FLOAT32 && blocks ? rows * panels * PANEL * (int64_t)sizeof(float) : 0;
}

#include "amx.h"

INLINE int64_t scratch_of(Storage held, int pieces, const Linear *l, int64_t rows, int64_t panels) {
    if (rows <= few_rows(held)) return 0;
    const bool blocks = parts_of(l->depth) > parts_of_block(rows, l->depth);
    const int64_t bytes = bytes_of_blocks(rows, l->depth) + bytes_of_earlier(l, rows, panels, blocks);
    const int64_t tiled = pieces ? bytes_of_tiles(l, rows, panels, pieces) : 0;
    return bytes > tiled ? bytes : tiled;
}

/* Each weight is read once; in memory order if the depth is one block. */
static void many(Storage held, int pieces, const Linear *l, int64_t row, int64_t rows, int64_t panel, int64_t panel_end, float *scratch) {
    const int64_t parts = parts_of(l->depth), tiles = tiles_of(rows), most = parts_of_block(rows, l->depth);
    if (by_tiles(held, pieces, l, row, rows, panel, panel_end, scratch)) return;
    for (int64_t begin = 0; begin < parts; begin += most) {
        const RowBlock b = {
            .linear = l, .held = held, .row = row, .rows = rows, .tiles = tiles, .parts = parts, .unit = PAIR,
            .begin = begin, .end = least(begin + most, parts), .panel = panel, .panels = panel_end - panel, .copies = scratch,
            .sums = scratch + tiles * most * TILE_SIZE, .earlier = scratch + bytes_of_blocks(rows, l->depth) / (int64_t)sizeof(float),
        };
        if (held == AS_BFLOAT16 && by_pairs(&b, panel, panel_end)) continue;
        copy_rows(&b);
        for (int64_t p = panel; p < panel_end; p++)
            for (int64_t part = begin; part < b.end; part++) pass(&b, part, p, following(&b, part, p));
    }
}

INLINE void linear_of(Storage held, int pieces, const Linear *l, int64_t row, int64_t row_end, int64_t panel, int64_t panel_end, float *scratch) {
    if (row == row_end) return;
    if (row_end - row <= few_rows(held)) few(held, l, row, (int)(row_end - row), panel, panel_end);
    else many(held, pieces, l, row, row_end - row, panel, panel_end, scratch);
}

/* A product. held: the storage of packed weights; packing: packs them; pieces: the bfloat16 pieces into which AMX splits an element, 0 where
   AMX is not used. */
#define PRODUCT(name, held, packing, pieces) \
    static int64_t name##_bytes(int64_t depth) { return depth_packed(held, depth) * line_of(held); } \
    static int64_t name##_scratch(const Linear *l, int64_t rows, int64_t panels) { return scratch_of(held, pieces, l, rows, panels); } \
    static void name##_linear(const Linear *l, int64_t row, int64_t row_end, int64_t panel, int64_t panel_end, void *scratch) { \
        linear_of(held, pieces, l, row, row_end, panel, panel_end, scratch); \
    } \
    static const Product product_##name = { \
        PANEL, pieces ? FEWEST_IN_TILES : FEWEST_ROWS, pieces ? MOST_IN_TILES : MOST_ROWS, name##_bytes, packing, name##_scratch, name##_linear, \
    };

PRODUCT(float32, AS_FLOAT32, pack_float32, 0)
PRODUCT(float16, HELD_FLOAT16, HELD_FLOAT16 == AS_FLOAT16 ? pack_float16 : pack_float32, 0)
PRODUCT(bf16x3, AS_FLOAT32, pack_float32, 2)
PRODUCT(bf16, AS_BFLOAT16, pack_bfloat16, 1)
#undef PRODUCT

#endif
