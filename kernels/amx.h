/* Products with AMX. Part of kernels.c; linear.h defines the block of rows before it.

   bf16x3 splits each operand into two bfloat16, a = a1 + a2, and a product of matrices is a2 b1 + a1 b1 + a1 b2, each summed in float32. bf16
   is one product. float32's own accuracy takes three pieces and six products; on a Xeon, 8 to 128 rows then took 1.0 to 2.7 times the time of
   AVX-512, and 512 rows 0.8, so float32 does not use AMX. Rows are split once for a block. Weights are split when they are used: their layout
   in memory is that of AVX-512, which few rows read directly. */

#ifndef ONNX_SUBGRAPH_AMX_H
#define ONNX_SUBGRAPH_AMX_H

#if defined(__AMX_BF16__)

#if defined(AMX_EMULATED)
#include "amx_emulated.h" /* tests/kernels: the same operations in C, for processors without AMX */
#else
#define TILES_ON(config) _tile_loadconfig(config)
#define TILES_OFF() _tile_release()
#define TILE_ZERO(tile) _tile_zero(tile)
#define TILE_LOAD(tile, from, step) _tile_loadd(tile, from, step)
#define TILE_STORE(tile, to, step) _tile_stored(tile, to, step)
#define TILE_PRODUCT(sums, rows, weights) _tile_dpbf16ps(sums, rows, weights)
#endif

/* Some compilers do not know that tile instructions read and write memory. */
#define TILES_SEE_MEMORY() __asm__ volatile("" ::: "memory")

enum {
    AMX_ROWS = 16,                        /* of a tile of x and of a tile of sums; a group is two of them, multiplied together */
    AMX_DEPTH = 32,                       /* of a tile of x or of weights */
    AMX_BYTES = 1024,                     /* of any tile: 16 rows of 64 bytes */
    AMX_STEPS = DEPTH / AMX_DEPTH,        /* tiles that cover the depth of a part */
    AMX_SUMS = 2 * AMX_ROWS * PANEL,      /* of a group */
};

_Static_assert(PANEL == 32, "a panel is two tiles wide");

/* Tiles 0 to 3: sums, for each pair of a row tile and a weight tile. 4 and 5: rows. 6 and 7: weights. */
typedef struct {
    uint8_t palette, start, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} TileConfig;

static const TileConfig TILE_CONFIG = {
    .palette = 1,
    .row_bytes = {64, 64, 64, 64, 64, 64, 64, 64},
    .rows = {16, 16, 16, 16, 16, 16, 16, 16},
};

/* The nearest bfloat16 of each element, in the upper half. Subtracts it from *left. */
INLINE U piece_of(V *left) {
    const U bits = (U)*left, near = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000;
    *left -= (V)near;
    return near;
}

INLINE V load_some(Storage storage, const void *from, int64_t at, int64_t count) {
    return count > 0 ? load_as(storage, from, at, count) : all(0.0f);
}

INLINE char *rows_of(const RowBlock *b, int64_t part, int64_t tile, int pieces) {
    return (char *)b->copies + ((part - b->begin) * (b->tiles * 2) + tile) * AMX_STEPS * pieces * AMX_BYTES;
}

/* Writes a row of x, `depth` elements from `first`, as row `i` of its tiles: tile[step][piece][i][depth]. Returns whether all are
   in the range of bfloat16. */
INLINE bool split_row(Storage storage, const void *x, int64_t first, int64_t depth, int64_t i, int pieces, char *tiles) {
    bool holds = true;
    for (int64_t k = 0; k < depth; k += AMX_DEPTH)
        for (int half = 0; half < 2; half++) {
            const int64_t at = k + half * WIDTH;
            V left = load_some(storage, x, first + at, depth - at);
            holds &= _mm512_cmp_ps_mask(absolute(left), all(0x1.fep127f), _CMP_LE_OQ) == 0xffff;
            for (int piece = 0; piece < pieces; piece++) {
                char *to = tiles + (k / AMX_DEPTH * pieces + piece) * AMX_BYTES + i * 64 + half * 32;
                _mm256_store_si256((__m256i *)to, _mm512_cvtepi32_epi16((__m512i)(piece_of(&left) >> 16)));
            }
        }
    return holds;
}

static bool split_rows(const RowBlock *b, int pieces) {
    bool holds = true;
    for (int64_t part = b->begin; part < b->end; part++) {
        const int64_t k = depth_of(b, part), depth = depth_of(b, part + 1) - k;
        for (int64_t i = 0; i < b->rows; i++)
            holds &= split_row(b->linear->storage, b->linear->x, (b->row + i) * b->linear->depth + k, depth, i % AMX_ROWS, pieces,
                               rows_of(b, part, i / AMX_ROWS, pieces));
    }
    return holds;
}

/* A part of a panel as tiles: tile[step][piece][side][pair of depths][column][element of the pair]. next: is prefetched. */
static void split_weights(Storage held, const char *panel, int64_t depth, int pieces, const char *next, char *tiles) {
    for (int64_t k = 0; k < (depth + AMX_DEPTH - 1) / AMX_DEPTH * AMX_DEPTH; k += 2) {
        V even[2] = {all(0.0f), all(0.0f)}, odd[2] = {all(0.0f), all(0.0f)};
        if (k < depth) read_weights(held, panel, k, even, even + 1);
        if (k + 1 < depth) read_weights(held, panel, k + 1, odd, odd + 1);
        for (int64_t ahead = 0; ahead < 2 * line_of(held); ahead += 64) __builtin_prefetch(next + k * line_of(held) + ahead, 0, 2);
        for (int piece = 0; piece < pieces; piece++)
            for (int side = 0; side < 2; side++) {
                const U pair = piece_of(even + side) >> 16 | piece_of(odd + side);
                store((float *)(tiles + ((k / AMX_DEPTH * pieces + piece) * 2 + side) * AMX_BYTES + k % AMX_DEPTH / 2 * 64), (V)pair);
            }
    }
}

/* Adds the products of a group of rows and a part of a panel to the sums. both: whether the group has a second tile of rows. Each product
   shares an operand with the one before it, so three products need 8 loads. */
INLINE void multiply(const int pieces, const bool both, const char *rows, const char *others, const char *weights, int64_t steps, bool first,
                     float *sums) {
    enum { STEP = PANEL * sizeof(float) };
    float *below = sums + AMX_ROWS * PANEL;
    if (first) {
        TILE_ZERO(0);
        TILE_ZERO(1);
        TILE_ZERO(2);
        TILE_ZERO(3);
    } else {
        TILE_LOAD(0, sums, STEP);
        TILE_LOAD(1, sums + WIDTH, STEP);
        TILE_LOAD(2, below, STEP);
        TILE_LOAD(3, below + WIDTH, STEP);
    }
    for (int64_t s = 0; s < steps; s++, rows += pieces * AMX_BYTES, others += pieces * AMX_BYTES, weights += pieces * 2 * AMX_BYTES) {
#define ROWS(piece) \
    TILE_LOAD(4, rows + (piece) * AMX_BYTES, 64); \
    if (both) { TILE_LOAD(5, others + (piece) * AMX_BYTES, 64); }
#define WEIGHTS(piece) \
    TILE_LOAD(6, weights + (piece) * 2 * AMX_BYTES, 64); \
    TILE_LOAD(7, weights + ((piece) * 2 + 1) * AMX_BYTES, 64);
#define PRODUCT \
    TILE_PRODUCT(0, 4, 6); \
    TILE_PRODUCT(1, 4, 7); \
    if (both) { TILE_PRODUCT(2, 5, 6); } \
    if (both) { TILE_PRODUCT(3, 5, 7); }
        if (pieces == 2) {
            ROWS(1) WEIGHTS(0) PRODUCT ROWS(0) PRODUCT WEIGHTS(1) PRODUCT
        } else {
            ROWS(0) WEIGHTS(0) PRODUCT
        }
#undef ROWS
#undef WEIGHTS
#undef PRODUCT
    }
    TILE_STORE(0, sums, STEP);
    TILE_STORE(1, sums + WIDTH, STEP);
    TILE_STORE(2, below, STEP);
    TILE_STORE(3, below + WIDTH, STEP);
}

/* All rows, for one part of one panel; like `pass`. */
INLINE void pass_tiles(const RowBlock *b, const int pieces, int64_t part, int64_t p, const char *next, char *split) {
    const Linear *l = b->linear;
    const int64_t k = depth_of(b, part), depth = depth_of(b, part + 1) - k, steps = (depth + AMX_DEPTH - 1) / AMX_DEPTH;
    split_weights(b->held, weights(l, b->held, p, k), depth, pieces, next, split);
    TILES_SEE_MEMORY();
    for (int64_t i = 0; i < b->rows; i += 2 * AMX_ROWS) {
        const int count = (int)least(b->rows - i, 2 * AMX_ROWS);
        const char *rows = rows_of(b, part, i / AMX_ROWS, pieces), *others = rows_of(b, part, i / AMX_ROWS + 1, pieces);
        float *sums = b->sums + i / (2 * AMX_ROWS) * AMX_SUMS;
        if (count > AMX_ROWS) multiply(pieces, true, rows, others, split, steps, part == b->begin, sums);
        else multiply(pieces, false, rows, others, split, steps, part == b->begin, sums);
        TILES_SEE_MEMORY();
        if (part + 1 == b->end) finish_rows(l, b->row + i, count, p * PANEL, earlier_of(b, i, p), sums);
    }
}

INLINE void pass_all(const RowBlock *b, const int pieces, int64_t panel, int64_t panel_end, char *split) {
    for (int64_t p = panel; p < panel_end; p++)
        for (int64_t part = b->begin; part < b->end; part++) pass_tiles(b, pieces, part, p, following(b, part, p), split);
}

INLINE int64_t groups_of(int64_t rows) { return (rows + 2 * AMX_ROWS - 1) / (2 * AMX_ROWS); }

static int64_t tiles_scratch(int64_t rows, int64_t parts, int pieces) {
    if (!pieces) return 0;
    const int64_t tiles = (parts * groups_of(rows) * 2 * AMX_STEPS + AMX_STEPS * 2) * pieces;
    return tiles * AMX_BYTES + groups_of(rows) * AMX_SUMS * (int64_t)sizeof(float);
}

/* Whether AMX was measured to be faster than AVX-512, on a Xeon. rows: of the whole product. */
INLINE bool tiles_pay(int pieces, int64_t rows) { return pieces && rows >= (pieces == 1 ? 16 : 64); }

/* Returns whether the block was computed. It is not where its rows exceed the range of bfloat16, because infinity times a zero piece is NaN. */
static bool by_tiles(const RowBlock *block, int pieces, int64_t parts, int64_t panel, int64_t panel_end) {
    RowBlock b = *block;
    if (!tiles_pay(pieces, b.linear->rows)) return false;
    b.tiles = groups_of(b.rows);
    char *split = (char *)b.copies + parts * b.tiles * 2 * AMX_STEPS * pieces * AMX_BYTES;
    b.sums = (float *)(split + AMX_STEPS * 2 * pieces * AMX_BYTES);
    if (b.linear->huge || !split_rows(&b, pieces)) return false;
    TILES_ON(&TILE_CONFIG);
    if (pieces == 2) pass_all(&b, 2, panel, panel_end, split);
    else pass_all(&b, 1, panel, panel_end, split);
    TILES_OFF();
    return true;
}

#else

static int64_t tiles_scratch(int64_t rows, int64_t parts, int pieces) { return 0 * rows * parts * pieces; }
static bool by_tiles(const RowBlock *b, int pieces, int64_t parts, int64_t panel, int64_t panel_end) {
    (void)b, (void)pieces, (void)parts, (void)panel, (void)panel_end;
    return false;
}

#endif

#endif
