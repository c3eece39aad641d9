/* Convolutions by the means of kernels/, as a prototype that benchmarks/convolution.py holds against onnxruntime's.

   Tensors are [channels, height, width], one image. A convolution of all channels is a product of its weights with panels of PANEL
   output positions, which are gathered block after block (implicit GEMM); one of single channels runs over a padded copy of the plane.
   Bias, activation and residual follow while the result is in the cache. */

#define _POSIX_C_SOURCE 200809L

#include "isa.h"
#include "activate.h"
#include "tile.h"

#include <stdlib.h>
#include <time.h>

enum { HARD_SWISH = ACTIVATIONS, PANELS = 8 /* gathered at once */ };

typedef struct {
    int64_t channels, height, width, filters, y_height, y_width, kernel_y, kernel_x, stride, top, left, activation, alone /* each channel alone */;
    const float *x, *w, *bias, *residual;
    float *y;
} Convolution;

INLINE int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

INLINE V follow(const Convolution *c, V v) {
    switch (c->activation) {
    case HARD_SWISH: return v * smaller(larger(v * all(1.0f / 6) + all(0.5f), all(0.0f)), all(1.0f));
    case RELU: return activated(RELU, v, v);
    case SWISH: return activated(SWISH, v, all(1.0f));
    case SIGMOID: return activated(SIGMOID, v, v);
    default: return v;
    }
}

/* `count` results of one channel, whose sums are in `from`. */
INLINE void follow_row(const Convolution *c, const float *from, int64_t filter, int64_t at, int64_t count) {
    const V bias = all(c->bias[filter]);
    at += filter * c->y_height * c->y_width;
    for (int64_t i = 0; i < count; i += WIDTH) {
        const bool whole = count - i >= WIDTH;
        V v = load(from + i) + bias;
        if (c->residual) v += whole ? load(c->residual + at + i) : load_part(c->residual + at + i, count - i);
        v = follow(c, v);
        if (whole) store(c->y + at + i, v);
        else store_part(c->y + at + i, v, count - i);
    }
}

/* A panel: x at each channel and kernel position, for `count` output positions from `at` on, zeros outside of the image. */
static void gather(const Convolution *c, int64_t at, int64_t count, float *to) {
    const int64_t area = c->height * c->width;
    if (c->kernel_y * c->kernel_x * c->stride == 1) {
        const float *x = c->x + at;
        for (int64_t d = 0; d < c->channels; d++, x += area, to += PANEL) {
            if (count == PANEL) store(to, load(x)), store(to + WIDTH, load(x + WIDTH));
            else memcpy(to, x, (size_t)count * sizeof *to);
        }
        return;
    }
    int64_t row[PANEL], column[PANEL]; /* where the window of each position begins */
    for (int64_t i = 0; i < count; i++)
        row[i] = (at + i) / c->y_width * c->stride - c->top, column[i] = (at + i) % c->y_width * c->stride - c->left;
    for (int64_t ky = 0; ky < c->kernel_y; ky++)
        for (int64_t kx = 0; kx < c->kernel_x; kx++) {
            int32_t offset[PANEL];
            bool inside[PANEL], together = count == PANEL;
            for (int64_t i = 0; i < count; i++) {
                const int64_t y = row[i] + ky, x = column[i] + kx;
                inside[i] = y >= 0 && y < c->height && x >= 0 && x < c->width;
                offset[i] = inside[i] ? (int32_t)(y * c->width + x) : 0;
                together = together && inside[i] && offset[i] == offset[0] + i;
            }
            const float *x = c->x;
            float *line = to + (ky * c->kernel_x + kx) * PANEL;
            for (int64_t d = 0; d < c->channels; d++, x += area, line += c->kernel_y * c->kernel_x * PANEL) {
                if (together) store(line, load(x + offset[0])), store(line + WIDTH, load(x + offset[0] + WIDTH));
                else
                    for (int64_t i = 0; i < count; i++) line[i] = inside[i] ? x[offset[i]] : 0.0f;
            }
        }
}

/* packed: rows of weights, tile after tile, part of the depth after part, STRIDE apart. panels, sums: scratch. */
static void of_all(const Convolution *c, const float *packed, float *panels, float *sums) {
    const int64_t depth = c->channels * c->kernel_y * c->kernel_x, positions = c->y_height * c->y_width;
    const int64_t parts = (depth + DEPTH - 1) / DEPTH;
    for (int64_t at = 0; at < positions; at += PANELS * PANEL) {
        const int64_t wide = least(positions - at, PANELS * PANEL), count = (wide + PANEL - 1) / PANEL;
        for (int64_t p = 0; p < count; p++) gather(c, at + p * PANEL, least(wide - p * PANEL, PANEL), panels + p * depth * PANEL);
        const float *rows = packed;
        for (int64_t filter = 0, tall; filter < c->filters; filter += tall) {
            tall = tile_rows(c->filters - filter);
            for (int64_t part = 0; part < parts; part++, rows += tall * STRIDE) {
                const int64_t from = part * DEPTH, deep = least(depth - from, DEPTH);
                for (int64_t p = 0; p < count; p++) {
                    const float *panel = panels + (p * depth + from) * PANEL;
                    tile_ahead(false, (int)tall, rows, (const char *)panel, deep, (const char *)panel, line_of(false), sums + p * PANEL, PANELS * PANEL, part > 0);
                }
            }
            for (int64_t i = 0; i < tall; i++) follow_row(c, sums + i * PANELS * PANEL, filter + i, at, wide);
        }
    }
}

/* `count` sums of a padded plane, whose columns stand by their remainder of the stride, `phase` apart. */
INLINE void plane(const int64_t size, const int64_t stride, const Convolution *c, const float *restrict w, const float *restrict padded,
                  int64_t line, int64_t phase, float *restrict sums) {
    const int64_t ky = size ? size : c->kernel_y, kx = size ? size : c->kernel_x;
    const int64_t count = (c->y_height - 1) * line + c->y_width;
    for (int64_t i = 0; i < count; i += 2 * WIDTH) {
        V one = all(0.0f), two = all(0.0f);
#pragma GCC unroll 5
        for (int64_t y = 0; y < ky; y++)
#pragma GCC unroll 5
            for (int64_t x = 0; x < kx; x++) {
                /* Of rows, too: row y of the kernel is in the plane of rows with its remainder. */
                const float *from = padded + (y % stride * stride + x % stride) * phase + y / stride * line + x / stride + i;
                one += all(w[y * kx + x]) * load(from);
                two += all(w[y * kx + x]) * load(from + WIDTH);
            }
        store(sums + i, one);
        store(sums + i + WIDTH, two);
    }
}

/* Copies the plane x, so that what a tap reads for the outputs of a row is contiguous. */
INLINE void pad(const int64_t s, const Convolution *c, const float *x, int64_t line, int64_t phase, float *padded) {
    for (int64_t y = 0; y < c->height; y++, x += c->width) {
        const int64_t row = y + c->top;
        float *to = padded + row % s * s * phase + row / s * line;
        if ((row / s + 1) * line > phase) continue;
        if (s == 1) memcpy(to + c->left, x, (size_t)least(c->width, line - c->left) * sizeof *x);
        else
            for (int64_t remainder = 0; remainder < s; remainder++) {
                const int64_t first = (remainder - c->left % s + s) % s, begin = (first + c->left) / s;
                float *from = to + remainder * phase + begin;
                for (int64_t i = 0; first + i * s < c->width && begin + i < line; i++) from[i] = x[first + i * s];
            }
    }
}

static void of_each(const Convolution *c, float *padded, float *sums) {
    const int64_t s = c->stride, line = c->y_width + (c->kernel_x - 1) / s, phase = line * (c->y_height + (c->kernel_y - 1) / s) + 4 * WIDTH;
    memset(padded, 0, (size_t)(phase * s * s) * sizeof *padded);
    for (int64_t filter = 0; filter < c->filters; filter++) {
        const float *x = c->x + filter * c->height * c->width, *taps = c->w + filter * c->kernel_y * c->kernel_x;
        float w[128];
        memcpy(w, taps, (size_t)(c->kernel_y * c->kernel_x) * sizeof *w);
        if (s == 1) pad(1, c, x, line, phase, padded);
        else if (s == 2) pad(2, c, x, line, phase, padded);
        else pad(s, c, x, line, phase, padded);
        if (c->kernel_x == 3 && c->kernel_y == 3 && s == 1) plane(3, 1, c, w, padded, line, phase, sums);
        else if (c->kernel_x == 5 && c->kernel_y == 5 && s == 1) plane(5, 1, c, w, padded, line, phase, sums);
        else if (c->kernel_x == 3 && c->kernel_y == 3 && s == 2) plane(3, 2, c, w, padded, line, phase, sums);
        else if (c->kernel_x == 5 && c->kernel_y == 5 && s == 2) plane(5, 2, c, w, padded, line, phase, sums);
        else plane(0, s, c, w, padded, line, phase, sums);
        for (int64_t y = 0; y < c->y_height; y++) follow_row(c, sums + y * line, filter, y * c->y_width, c->y_width);
    }
}

/* Zeros, in pages that are there. */
static float *floats(int64_t count) {
    const size_t bytes = (size_t)(count + 63) / 16 * 64;
    float *made = aligned_alloc(64, bytes);
    return made ? memset(made, 0, bytes) : NULL;
}

/* Runs the convolution once: gives the seconds that it took, the packing of weights and scratch memory left out, or -1 without memory. */
__attribute__((visibility("default"))) double convolve(const Convolution *c) {
    const int64_t depth = c->channels * c->kernel_y * c->kernel_x, parts = (depth + DEPTH - 1) / DEPTH, s = c->stride;
    const int64_t line = c->y_width + c->kernel_x, plane_floats = (line * (c->y_height + c->kernel_y) + 4 * WIDTH) * s * s;
    float *packed = floats(c->alone ? 1 : c->filters * parts * STRIDE);
    const int64_t gathered = PANELS * PANEL * depth, sums_of = TILE_ROWS * PANELS * PANEL;
    float *panels = floats(c->alone ? plane_floats : gathered), *sums = floats(c->alone ? plane_floats : sums_of);
    struct timespec begun, done;
    double seconds = -1.0;
    if (packed && panels && sums) {
        float *to = packed;
        for (int64_t filter = 0, tall; !c->alone && filter < c->filters; filter += tall) {
            tall = tile_rows(c->filters - filter);
            for (int64_t part = 0; part < parts; part++)
                for (int64_t i = 0; i < tall; i++, to += STRIDE)
                    memcpy(to, c->w + (filter + i) * depth + part * DEPTH, (size_t)least(depth - part * DEPTH, DEPTH) * sizeof *to);
        }
        clock_gettime(CLOCK_MONOTONIC, &begun);
        if (c->alone) of_each(c, panels, sums);
        else of_all(c, packed, panels, sums);
        clock_gettime(CLOCK_MONOTONIC, &done);
        seconds = (double)(done.tv_sec - begun.tv_sec) + 1e-9 * (double)(done.tv_nsec - begun.tv_nsec);
    }
    free(packed), free(panels), free(sums);
    return seconds;
}
