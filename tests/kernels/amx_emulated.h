/* The operations of AMX that kernels/amx.h uses, in C, as Intel's manual has them (volume 2, TDPBF16PS): what is not a normalized number counts as
   zero, even and odd depths are summed apart, and both are then added to the sum. Tiles are all of 16 rows of 64 bytes. */

#ifndef AMX_EMULATED_H
#define AMX_EMULATED_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static _Thread_local struct {
    uint32_t words[8][16][16];
    int on;
} emulated;

static float emulated_float(uint32_t bits) {
    float value;
    if ((bits & 0x7f800000) == 0) bits &= 0x80000000;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static float emulated_normalized(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return emulated_float(bits);
}

/* A use of tiles that are not configured, or memory that is not aligned, ends the program. */
static void emulated_check(const void *memory) {
    if (!emulated.on || (uintptr_t)memory % 64) abort();
}

static void emulated_load(int tile, const void *from, int64_t step) {
    emulated_check(from);
    for (int i = 0; i < 16; i++) memcpy(emulated.words[tile][i], (const char *)from + i * step, 64);
}

static void emulated_store(int tile, void *to, int64_t step) {
    emulated_check(to);
    for (int i = 0; i < 16; i++) memcpy((char *)to + i * step, emulated.words[tile][i], 64);
}

static void emulated_product(int sums, int rows, int weights) {
    emulated_check(NULL);
    for (int m = 0; m < 16; m++)
        for (int n = 0; n < 16; n++) {
            float even = 0.0f, odd = 0.0f;
            for (int k = 0; k < 16; k++) {
                const uint32_t a = emulated.words[rows][m][k], b = emulated.words[weights][k][n];
                even = emulated_normalized(even + emulated_float(a << 16) * emulated_float(b << 16));
                odd = emulated_normalized(odd + emulated_float(a & 0xffff0000) * emulated_float(b & 0xffff0000));
            }
            const float sum = emulated_normalized(emulated_float(emulated.words[sums][m][n]) + emulated_normalized(even + odd));
            memcpy(&emulated.words[sums][m][n], &sum, sizeof sum);
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
