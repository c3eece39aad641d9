/* Kernels on rows, and elementwise ones. A row is read again while it is in L1. Part of kernels.c. */

#ifndef ONNX_SUBGRAPH_ROWS_H
#define ONNX_SUBGRAPH_ROWS_H

#include "activate.h"

#include <math.h>

INLINE void activate_all(Activation activation, float alpha, const float *x, float *y, int64_t count) {
    int64_t i = 0;
    for (; i + WIDTH <= count; i += WIDTH) store(y + i, activated(activation, load(x + i), all(alpha)));
    if (i < count) store_part(y + i, activated(activation, load_part(x + i, count - i), all(alpha)), count - i);
}

static void activate(Activation activation, float alpha, const float *x, float *y, int64_t count) {
    FOR_ACTIVATION(activation, activate_all, alpha, x, y, count)
}

/* The sum of x, or of the squares of x - mean. Four sums at once hide the latency of an addition. */
INLINE float row_sum(Storage storage, const void *x, int64_t count, const bool squares, float mean) {
    V sums[4] = {all(0.0f), all(0.0f), all(0.0f), all(0.0f)};
    const V middle = all(mean);
    int64_t i = 0;
#define TERM(v) (squares ? ((v) - middle) * ((v) - middle) : (v))
    for (; i + 4 * WIDTH <= count; i += 4 * WIDTH)
#pragma GCC unroll 4
        for (int s = 0; s < 4; s++) sums[s] += TERM(load_as(storage, x, i + s * WIDTH, WIDTH));
    for (; i + WIDTH <= count; i += WIDTH) sums[0] += TERM(load_as(storage, x, i, WIDTH));
    float rest = 0.0f;
    for (; i < count; i++) {
        const float v = load_one(storage, x, i);
        rest += squares ? (v - mean) * (v - mean) : v;
    }
#undef TERM
    return sum_of((sums[0] + sums[1]) + (sums[2] + sums[3])) + rest;
}

INLINE void add(const float *a, const float *b, float *y, int64_t count) {
    int64_t i = 0;
    for (; i + WIDTH <= count; i += WIDTH) store(y + i, load(a + i) + load(b + i));
    if (i < count) store_part(y + i, load_part(a + i, count - i) + load_part(b + i, count - i), count - i);
}

INLINE V scaled_by(V v, const float *scale, const float *shift, int64_t i, int64_t count) {
    if (scale) v *= load_as(AS_FLOAT32, scale, i, count);
    if (shift) v += load_as(AS_FLOAT32, shift, i, count);
    return v;
}

INLINE void norm_row(Storage storage, const Norm *n, const void *x, void *y) {
    const int64_t columns = n->columns;
    const float count = (float)columns, *scale = n->scale, *shift = n->shift;
    const float mean = n->centred ? row_sum(storage, x, columns, false, 0.0f) / count : 0.0f;
    const float factor = 1.0f / sqrtf(row_sum(storage, x, columns, true, mean) / count + n->epsilon);
    int64_t i = 0;
#define VECTOR(count) \
    store_as(storage, y, i, scaled_by((load_as(storage, x, i, count) - all(mean)) * all(factor), scale, shift, i, count), count)
    for (; i + WIDTH <= columns; i += WIDTH) VECTOR(WIDTH);
    if (i < columns) VECTOR(columns - i);
#undef VECTOR
}

static void norm_float32(const Norm *n, const float *x, float *y) { norm_row(AS_FLOAT32, n, x, y); }
static void norm_float16(const Norm *n, const uint16_t *x, uint16_t *y) { norm_row(AS_FLOAT16, n, x, y); }
static void norm_bfloat16(const Norm *n, const uint16_t *x, uint16_t *y) { norm_row(AS_BFLOAT16, n, x, y); }

static void norm(const Norm *n, int64_t row, int64_t row_end) {
    for (; row < row_end; row++) {
        const int64_t at = row * n->columns;
        if (n->storage == AS_FLOAT16) {
            norm_float16(n, (const uint16_t *)n->x + at, (uint16_t *)n->y + at);
            continue;
        }
        if (n->storage == AS_BFLOAT16) {
            norm_bfloat16(n, (const uint16_t *)n->x + at, (uint16_t *)n->y + at);
            continue;
        }
        const float *x = (const float *)n->x + at;
        float *y = (float *)n->y + at;
        if (n->other) {
            float *sum = n->sum ? n->sum + at : y;
            add(x, n->other + at, sum, n->columns);
            x = sum;
        }
        norm_float32(n, x, y);
    }
}

static void softmax_row(const float *x, float *y, int64_t count) {
    V most[4] = {all(-INFINITY), all(-INFINITY), all(-INFINITY), all(-INFINITY)}, sum = all(0.0f);
    int64_t i = 0;
    for (; i + 4 * WIDTH <= count; i += 4 * WIDTH)
#pragma GCC unroll 4
        for (int s = 0; s < 4; s++) most[s] = larger(most[s], load(x + i + s * WIDTH));
    for (; i + WIDTH <= count; i += WIDTH) most[0] = larger(most[0], load(x + i));
    float largest = largest_of(larger(larger(most[0], most[1]), larger(most[2], most[3])));
    for (; i < count; i++) largest = x[i] > largest ? x[i] : largest;
    for (i = 0; i + WIDTH <= count; i += WIDTH) {
        const V e = exponential(load(x + i) - all(largest));
        store(y + i, e);
        sum += e;
    }
    if (i < count) {
        store_part(y + i, exponential(load_part(x + i, count - i) - all(largest)), count - i);
        sum += load_part(y + i, count - i);
    }
    const V factor = all(1.0f / sum_of(sum));
    for (i = 0; i + WIDTH <= count; i += WIDTH) store(y + i, load(y + i) * factor);
    if (i < count) store_part(y + i, load_part(y + i, count - i) * factor, count - i);
}

static void softmax(const float *x, float *y, int64_t rows, int64_t columns) {
    for (; rows > 0; rows--, x += columns, y += columns) softmax_row(x, y, columns);
}

INLINE void turn_halves(Storage storage, const void *x, int64_t at, const float *cosines, const float *sines, void *y, int64_t half) {
    for (int64_t i = 0; i < half; i += WIDTH) {
        const int64_t left = half - i;
        const V low = load_as(storage, x, at + i, left), high = load_as(storage, x, at + half + i, left);
        const V c = load_as(AS_FLOAT32, cosines, i, left), s = load_as(AS_FLOAT32, sines, i, left);
        store_as(storage, y, at + i, low * c - high * s, left);
        store_as(storage, y, at + half + i, high * c + low * s, left);
    }
}

INLINE void turn_neighbours(const float *restrict x, const float *restrict cosines, const float *restrict sines, float *restrict y, int64_t half) {
    for (int64_t i = 0; i < half; i++) {
        const float low = x[2 * i], high = x[2 * i + 1];
        y[2 * i] = low * cosines[i] - high * sines[i];
        y[2 * i + 1] = high * cosines[i] + low * sines[i];
    }
}

static void rotary(const Rotary *r, int64_t row, int64_t row_end) {
    const int64_t half = r->size / 2;
    int64_t batch = row / r->rows_of_batch, left = r->rows_of_batch - row % r->rows_of_batch; /* left: remaining rows of this batch element */
    int64_t position = row / r->repeat % r->length, again = r->repeat - row % r->repeat;      /* again: remaining rows of this position */
    int64_t x = 0;
    for (; row < row_end; row++, x += r->size) {
        const int64_t at = batch * r->batch_step + position * half;
        const float *cosines = r->cos + at, *sines = r->sin + at;
        if (--again == 0) again = r->repeat, position = position + 1 == r->length ? 0 : position + 1;
        if (--left == 0) left = r->rows_of_batch, batch++;
        if (r->interleaved) turn_neighbours((const float *)r->x + x, cosines, sines, (float *)r->y + x, half);
        else if (r->storage == AS_FLOAT16) turn_halves(AS_FLOAT16, r->x, x, cosines, sines, r->y, half);
        else if (r->storage == AS_BFLOAT16) turn_halves(AS_BFLOAT16, r->x, x, cosines, sines, r->y, half);
        else turn_halves(AS_FLOAT32, r->x, x, cosines, sines, r->y, half);
    }
}

#endif
