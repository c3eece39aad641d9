/* The instructions of AMX: operations on tiles of 16 rows of 64 bytes. Part of kernels.c. */

#ifndef ONNX_SUBGRAPH_TILES_H
#define ONNX_SUBGRAPH_TILES_H

enum {
    AMX_ROWS = 16,    /* of a tile of x and of a tile of sums */
    AMX_DEPTH = 32,   /* of a tile of x or of weights */
    AMX_BYTES = 1024, /* of any tile */
};

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

INLINE void tiles_on(void) { TILES_ON(&TILE_CONFIG); }
INLINE void tiles_off(void) { TILES_OFF(); }

#else

INLINE void tiles_on(void) {}
INLINE void tiles_off(void) {}

#endif

#endif
