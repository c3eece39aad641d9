/* The operations of AMX that kernels/amx.h uses, in C, as Intel's manual has them (volume 2, TDPBF16PS): what is not a normalized number counts as
   zero, even and odd depths are summed apart, and both are then added to the sum. Tiles are all of 16 rows of 64 bytes. */

#ifndef AMX_EMULATED_H
#define AMX_EMULATED_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef uint32_t Words __attribute__((vector_size(64))); /* a row of a tile */
typedef float Floats __attribute__((vector_size(64)));

static _Thread_local struct {
    Words words[8][16];
    int on;
} emulated;

static Floats emulated_floats(Words bits) {
    const Words zeros = (Words)((bits & 0x7f800000) == 0);
    return (Floats)(bits & ~(zeros & 0x7fffffff));
}

static Floats emulated_normalized(Floats values) {
    return emulated_floats((Words)values);
}

/* A use of tiles that are not configured, or memory that is not aligned, ends the program. */
static void emulated_check(const void *memory) {
    if (!emulated.on || (uintptr_t)memory % 64) abort();
}

static void emulated_load(int tile, const void *from, int64_t step) {
    emulated_check(from);
    for (int i = 0; i < 16; i++) memcpy(&emulated.words[tile][i], (const char *)from + i * step, 64);
}

static void emulated_store(int tile, void *to, int64_t step) {
    emulated_check(to);
    for (int i = 0; i < 16; i++) memcpy((char *)to + i * step, &emulated.words[tile][i], 64);
}

static void emulated_product(int sums, int rows, int weights) {
    emulated_check(NULL);
    for (int m = 0; m < 16; m++) {
        Floats even = {0.0f}, odd = {0.0f};
        for (int k = 0; k < 16; k++) {
            const Words a = (Words){0} + emulated.words[rows][m][k], b = emulated.words[weights][k];
            even = emulated_normalized(even + emulated_floats(a << 16) * emulated_floats(b << 16));
            odd = emulated_normalized(odd + emulated_floats(a & 0xffff0000) * emulated_floats(b & 0xffff0000));
        }
        const Floats sums_before = emulated_floats(emulated.words[sums][m]);
        emulated.words[sums][m] = (Words)emulated_normalized(sums_before + emulated_normalized(even + odd));
    }
}

/* A thread begins with tiles that hold what nobody may read. */
#define TILES_ON(config) ((void)(config), emulated.on ? abort() : (void)0, memset(&emulated, 0xff, sizeof emulated), (void)(emulated.on = 1))
#define TILES_OFF() ((void)(emulated.on = 0))
#define TILE_ZERO(tile) ((void)memset(emulated.words[tile], 0, sizeof emulated.words[tile]))
#define TILE_LOAD(tile, from, step) emulated_load(tile, from, step)
#define TILE_STORE(tile, to, step) emulated_store(tile, to, step)
#define TILE_PRODUCT(sums, rows, weights) emulated_product(sums, rows, weights)

#endif
