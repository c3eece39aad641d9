/* Products with AMX. Part of kernels.c; linear.h defines the block of rows before it.

   A tile of weights is 16 pairs of depths by 16 columns, as panels of pairs have them in memory. So bf16, which is one product, loads its
   weights as they are. bf16x3 splits each operand into two bfloat16, a = a1 + a2, and a product of matrices is a2 b1 + a1 b1 + a1 b2, each
   summed in float32; its weights are float32, and are split when they are used. float32's own accuracy takes three pieces and six products;
   on a Xeon, 8 to 128 rows then took 1.0 to 2.7 times the time of AVX-512, and 512 rows 0.8, so float32 does not use AMX. Rows are split once
   for a block. */

#ifndef ONNX_SUBGRAPH_AMX_H
#define ONNX_SUBGRAPH_AMX_H

#if defined(__AMX_BF16__)

enum {
    FEWEST_IN_TILES = 256, MOST_IN_TILES = 256, /* rows of a part of a product: to read weights again takes longer than to round rows again */
    AMX_SUMS = 2 * AMX_ROWS * PANEL,       /* of a group: two tiles of rows, multiplied together */
    AMX_PIECE = DEPTH / PAIR * PAIR_BYTES, /* bytes of a piece of a part of a panel; they stay in L1 */
};

/* The nearest bfloat16 of each element. Subtracts it from *left. */
INLINE __m256i piece_of(V *left) {
    const __m256i near = (__m256i)_mm512_cvtneps_pbh(*left);
    *left -= (V)_mm512_slli_epi32(_mm512_cvtepu16_epi32(near), 16);
    return near;
}

INLINE V load_some(Storage storage, const void *from, int64_t at, int64_t count) {
    return count > 0 ? load_as(storage, from, at, count) : all(0.0f);
}

/* The tiles of AMX_ROWS rows for one part, and their size. */
INLINE int64_t rows_bytes(int pieces) { return DEPTH / AMX_DEPTH * pieces * AMX_BYTES; }
INLINE char *rows_of(const RowBlock *b, int64_t part, int64_t tile, int pieces) {
    return (char *)b->copies + ((part - b->begin) * (b->tiles * 2) + tile) * rows_bytes(pieces);
}

INLINE int64_t steps_of(int64_t depth) { return (depth + AMX_DEPTH - 1) / AMX_DEPTH; }

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
                _mm256_store_si256((__m256i *)to, piece_of(&left));
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

/* A part of a panel of floats as panels of pairs, one for each piece: split[piece][pair of depths][column]. next: is prefetched. */
static void split_weights(const char *panel, int64_t depth, int pieces, const char *next, char *split) {
    enum { LINE = PANEL * sizeof(float) };
    for (int64_t k = 0; k < steps_of(depth) * AMX_DEPTH; k += PAIR) {
        V even[2] = {all(0.0f), all(0.0f)}, odd[2] = {all(0.0f), all(0.0f)};
        if (k < depth) read_weights(AS_FLOAT32, panel, k, even, even + 1);
        if (k + 1 < depth) read_weights(AS_FLOAT32, panel, k + 1, odd, odd + 1);
        for (int64_t ahead = 0; ahead < 2 * LINE; ahead += 64) __builtin_prefetch(next + k * LINE + ahead, 0, 2);
        for (int piece = 0; piece < pieces; piece++)
            for (int side = 0; side < 2; side++) {
                const U first = words_of((H)piece_of(even + side)), second = words_of((H)piece_of(odd + side));
                store((float *)(split + piece * AMX_PIECE + k / PAIR * PAIR_BYTES + side * 64), (V)(first | second << 16));
            }
    }
}

/* Adds the products of a group of rows and a part of a panel to the sums. both: whether the group has a second tile of rows. Each product
   shares an operand with the one before it, so three products need 8 loads. next: data that is read afterwards; `lines` of 64 bytes of it are
   prefetched at each step. */
INLINE void multiply(const int pieces, const bool both, const char *rows, const char *others, const char *weights, int64_t steps, bool first,
                     const char *next, int64_t lines, float *sums) {
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
    for (int64_t s = 0; s < steps; s++, rows += pieces * AMX_BYTES, others += pieces * AMX_BYTES, weights += AMX_DEPTH / PAIR * PAIR_BYTES) {
#define ROWS(piece) \
    TILE_LOAD(4, rows + (piece) * AMX_BYTES, 64); \
    if (both) { TILE_LOAD(5, others + (piece) * AMX_BYTES, 64); }
#define WEIGHTS(piece) \
    TILE_LOAD(6, weights + (piece) * AMX_PIECE, PAIR_BYTES); \
    TILE_LOAD(7, weights + (piece) * AMX_PIECE + 64, PAIR_BYTES);
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
        for (int64_t line = 0; line < lines; line++, next += 64) __builtin_prefetch(next, 0, 2);
#undef ROWS
#undef WEIGHTS
#undef PRODUCT
    }
    TILE_STORE(0, sums, STEP);
    TILE_STORE(1, sums + WIDTH, STEP);
    TILE_STORE(2, below, STEP);
    TILE_STORE(3, below + WIDTH, STEP);
}

/* All rows, for one part of one panel; like `pass`. Every group of rows prefetches a share of the weights that follow. */
INLINE void pass_tiles(const RowBlock *b, const int pieces, int64_t part, int64_t p, const char *next, char *split) {
    const Linear *l = b->linear;
    const int64_t k = depth_of(b, part), depth = depth_of(b, part + 1) - k, steps = steps_of(depth);
    const int64_t lines = pieces > 1 ? 0 : (AMX_DEPTH / PAIR * PAIR_BYTES / 64 + b->tiles - 1) / b->tiles;
    const char *from = weights(l, b->held, p, k);
    if (pieces > 1) {
        split_weights(from, depth, pieces, next, split);
        from = split;
    }
    TILES_SEE_MEMORY();
    for (int64_t i = 0; i < b->rows; i += 2 * AMX_ROWS, next += lines * 64 * steps) {
        const int count = (int)least(b->rows - i, 2 * AMX_ROWS);
        const char *rows = rows_of(b, part, i / AMX_ROWS, pieces), *others = rows_of(b, part, i / AMX_ROWS + 1, pieces);
        float *sums = b->sums + i / (2 * AMX_ROWS) * AMX_SUMS;
        if (count > AMX_ROWS) multiply(pieces, true, rows, others, from, steps, part == b->begin, next, lines, sums);
        else multiply(pieces, false, rows, others, from, steps, part == b->begin, next, lines, sums);
        TILES_SEE_MEMORY();
        if (part + 1 == b->end) finish_rows(l, b->row + i, count, p * PANEL, earlier_of(b, i, p), sums);
    }
}

INLINE void pass_all(const RowBlock *b, const int pieces, int64_t panel, int64_t panel_end, char *split) {
    for (int64_t p = panel; p < panel_end; p++)
        for (int64_t part = b->begin; part < b->end; part++) pass_tiles(b, pieces, part, p, following(b, part, p), split);
}

INLINE int64_t groups_of(int64_t rows) { return (rows + 2 * AMX_ROWS - 1) / (2 * AMX_ROWS); }

/* Scratch memory: copies of the rows, split weights, the sums of a panel, and those of earlier blocks. */
typedef struct {
    int64_t copies, split, sums, earlier;
} TileBytes;

INLINE TileBytes tile_bytes(const Linear *l, int64_t rows, int64_t panels, int pieces) {
    const int64_t parts = parts_of(l->depth);
    return (TileBytes){
        .copies = least(parts, BLOCK_PARTS) * groups_of(rows) * 2 * rows_bytes(pieces),
        .split = pieces > 1 ? pieces * AMX_PIECE : 0,
        .sums = groups_of(rows) * AMX_SUMS * (int64_t)sizeof(float),
        .earlier = bytes_of_earlier(l, rows, panels, parts > BLOCK_PARTS),
    };
}

static int64_t bytes_of_tiles(const Linear *l, int64_t rows, int64_t panels, int pieces) {
    const TileBytes bytes = tile_bytes(l, rows, panels, pieces);
    return bytes.copies + bytes.split + bytes.sums + bytes.earlier;
}

/* Whether AMX was measured to be faster than AVX-512, on a Xeon. rows: of the whole product. */
INLINE bool tiles_pay(int pieces, int64_t rows) { return pieces && rows >= (pieces == 1 ? 3 : 64); }

/* Returns whether the rows were computed. They are not where they exceed the range of bfloat16, because infinity times a zero piece is NaN. */
static bool by_tiles(Storage held, int pieces, const Linear *l, int64_t row, int64_t rows, int64_t panel, int64_t panel_end, float *scratch) {
    if (!tiles_pay(pieces, l->rows) || l->huge) return false;
    const TileBytes bytes = tile_bytes(l, rows, panel_end - panel, pieces);
    char *split = (char *)scratch + bytes.copies, *sums = split + bytes.split;
    RowBlock b = {
        .linear = l, .held = held, .row = row, .rows = rows, .tiles = groups_of(rows), .parts = parts_of(l->depth), .unit = AMX_DEPTH,
        .panel = panel, .panels = panel_end - panel, .copies = scratch, .sums = (float *)sums, .earlier = (float *)(sums + bytes.sums),
    };
    for (; b.begin < b.parts; b.begin = b.end) {
        b.end = least(b.begin + BLOCK_PARTS, b.parts);
        if (!split_rows(&b, pieces)) return false;
        tiles_on();
        if (pieces == 2) pass_all(&b, 2, panel, panel_end, split);
        else pass_all(&b, 1, panel, panel_end, split);
        tiles_off();
    }
    return true;
}

#else

enum { FEWEST_IN_TILES = FEWEST_ROWS, MOST_IN_TILES = MOST_ROWS };

static int64_t bytes_of_tiles(const Linear *l, int64_t rows, int64_t panels, int pieces) { return (void)l, 0 * rows * panels * pieces; }
static bool by_tiles(Storage held, int pieces, const Linear *l, int64_t row, int64_t rows, int64_t panel, int64_t panel_end, float *scratch) {
    (void)held, (void)pieces, (void)l, (void)row, (void)rows, (void)panel, (void)panel_end, (void)scratch;
    return false;
}

#endif

#endif
