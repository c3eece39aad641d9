/* Calls every kernel of every instruction set that is here without onnxruntime, in buffers that end where the tensors do, so that a sanitizer
   sees what is read or written beyond them. Gives the number of calls; ends with 1 where a result is not its definition. */

#include "isa.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static unsigned long long state = 1;
static long calls;

static float number(void) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return (float)(state >> 40) / (float)(1 << 24) * 2.0f - 1.0f;
}

static float *tensor(int64_t count) {
    float *made = malloc((size_t)count * sizeof(float) + (count == 0));
    for (int64_t i = 0; i < count; i++) made[i] = number();
    return made;
}

/* The numbers as a kernel reads them: what `storage` does not hold of them is lost in both. */
static void *stored(const Isa *isa, Storage storage, float *numbers, int64_t count) {
    const size_t size = storage == AS_FLOAT32 ? sizeof(float) : sizeof(uint16_t);
    void *made = malloc((size_t)count * size + (count == 0));
    isa->narrow(storage, numbers, made, count);
    isa->widen(storage, made, numbers, count);
    return made;
}

static void near_to(const char *what, const Isa *isa, double found, double expected, double allowed) {
    if (fabs(found - expected) <= allowed) return;
    printf("%s of %s: %.9g, and should be %.9g\n", what, isa->name, found, expected);
    exit(1);
}

static void check_linear(const Isa *isa, Storage storage, Numerics numerics, int64_t rows, int64_t depth, int64_t columns, int parts) {
    static const double exact[NUMERICS] = {[FLOAT32] = 0x1p-22, [BF16X3] = 0x1p-15, [BF16] = 0x1p-7};
    static const double last[STORAGES] = {0.0, 0x1p-11, 0x1p-8};
    const Product *product = isa->products[storage][numerics];
    const int64_t panels = (columns + product->panel - 1) / product->panel, bytes = product->panel_bytes(depth);
    float *x = tensor(rows * depth), *w = tensor(depth * columns), *y = tensor(rows * columns);
    char *packed = aligned_alloc(64, (size_t)(panels * bytes + 63) / 64 * 64 + 64);
    float *bias = parts & 1 ? tensor(columns) : NULL, *gate = parts & 2 ? tensor(rows * columns) : NULL;
    float *residual = parts & 4 ? tensor(rows * columns) : NULL;
    void *all[] = {
        stored(isa, storage, x, rows * depth), stored(isa, storage, w, depth * columns), bias ? stored(isa, storage, bias, columns) : NULL,
        gate ? stored(isa, storage, gate, rows * columns) : NULL, residual ? stored(isa, storage, residual, rows * columns) : NULL,
        stored(isa, storage, y, rows * columns),
    };
    for (int64_t p = 0; p < panels; p++) product->pack(w, depth, columns, p, packed + p * bytes);
    const Linear l = {storage, all[0], all[2], all[3], all[4], packed, all[5], rows, depth, columns, (Activation)(parts % ACTIVATIONS), false, 1.5f};
    void *scratch = aligned_alloc(64, (size_t)(product->scratch(&l, rows, panels) + 63) / 64 * 64 + 64);
    product->linear(&l, 0, rows, 0, panels, scratch);
    isa->widen(storage, all[5], y, rows * columns);
    if (l.activation == IDENTITY)
        for (int64_t i = 0; i < rows * columns; i++) {
            double sum = bias ? bias[i % columns] : 0.0, size = 8.0;
            for (int64_t k = 0; k < depth; k++) {
                const double each = (double)x[i / columns * depth + k] * w[k * columns + i % columns];
                sum += each, size += fabs(each);
            }
            const double expected = sum * (gate ? gate[i] : 1.0) + (residual ? residual[i] : 0.0);
            near_to("linear", isa, y[i], expected, exact[numerics] * size + last[storage] * fabs(expected));
        }
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
    free(x), free(w), free(packed), free(y), free(bias), free(gate), free(residual), free(scratch);
    calls++;
}

static void check_rows(const Isa *isa, int64_t rows, int64_t columns) {
    const int64_t count = rows * columns;
    float *x = tensor(count), *other = tensor(count), *scale = tensor(columns), *shift = tensor(columns), *y = tensor(count), *sum = tensor(count);
    for (int a = 0; a < ACTIVATIONS; a++) isa->activate((Activation)a, 1.0f, x, y, count);
    for (int parts = 0; parts < 16; parts++) {
        const Norm n = {AS_FLOAT32, x, parts & 1 ? other : NULL, parts & 2 ? scale : NULL, parts & 4 ? shift : NULL, y, parts & 8 ? sum : NULL,
                        columns, 1e-5f, parts % 3 == 0};
        if (columns) isa->norm(&n, 0, rows);
    }
    for (int s = 0; s < STORAGES; s++) {
        void *narrow = stored(isa, (Storage)s, x, count), *result = stored(isa, (Storage)s, y, count);
        const Norm n = {(Storage)s, narrow, NULL, scale, shift, result, NULL, columns, 1e-5f, s == 1};
        if (columns) isa->norm(&n, 0, rows);
        free(narrow), free(result);
    }
    if (columns) isa->softmax(x, y, rows, columns);
    for (int64_t r = 0; r < rows && columns; r++) {
        double total = 0.0;
        for (int64_t c = 0; c < columns; c++) total += y[r * columns + c];
        near_to("softmax", isa, total, 1.0, 1e-5);
    }
    free(x), free(other), free(scale), free(shift), free(y), free(sum);
    calls++;
}

static void check_rotary(const Isa *isa, Storage storage, int64_t batch, int64_t heads, int64_t length, int64_t half, bool interleaved, bool behind) {
    const int64_t rows = batch * heads * length;
    float *x = tensor(rows * half * 2), *y = tensor(rows * half * 2), *cosines = tensor(batch * length * half), *sines = tensor(batch * length * half);
    void *from = stored(isa, storage, x, rows * half * 2), *to = stored(isa, storage, y, rows * half * 2);
    Rotary r = {storage, from, cosines, sines, to, heads * length, behind ? heads : 1, length, half * 2, length * half, interleaved};
    const int64_t first = rows / 2 * half * 2 * (storage == AS_FLOAT32 ? 4 : 2);
    isa->rotary(&r, 0, rows / 2);
    r.x = (char *)from + first, r.y = (char *)to + first;
    isa->rotary(&r, rows / 2, rows);
    free(x), free(y), free(cosines), free(sines), free(from), free(to);
    calls++;
}

static void check_attention(const Isa *isa, Storage storage, int64_t length, int64_t keys, int64_t size, int64_t wide, bool masked, bool spread,
                            bool rounds) {
    enum { HEADS = 4, REPEATS = 2 };
    float *query = tensor(HEADS * length * size), *key = tensor(HEADS / REPEATS * keys * size), *value = tensor(HEADS / REPEATS * keys * wide);
    float *sink = tensor(HEADS), *mask = masked ? tensor(length * (spread ? 1 : keys)) : NULL, *y = tensor(HEADS * length * wide);
    void *all[] = {
        stored(isa, storage, query, HEADS * length * size), stored(isa, storage, key, HEADS / REPEATS * keys * size),
        stored(isa, storage, value, HEADS / REPEATS * keys * wide), masked ? stored(isa, storage, mask, length * (spread ? 1 : keys)) : NULL,
        stored(isa, storage, y, HEADS * length * wide), masked ? stored(isa, storage, sink, HEADS) : NULL,
    };
    const Attention a = {
        .storage = storage, .query = all[0], .key = all[1], .value = all[2], .mask = all[3], .sink = all[5], .y = all[4], .batch = 1, .heads = HEADS,
        .repeats = REPEATS, .length = length, .keys = keys, .size = size, .value_size = wide, .query_step = {0, size, HEADS * size},
        .key_step = {0, keys * size, size}, .value_step = {0, keys * wide, wide}, .y_step = {0, length * wide, wide},
        .mask_step = {0, 0, spread ? 1 : keys, spread ? 0 : 1}, .scale = 0.3f, .cap = masked ? 0.0f : 5.0f,
        .rounds = rounds,
    };
    float *scratch = tensor(isa->attention_scratch(&a));
    for (int64_t head = 0; head < HEADS; head++) isa->attention(&a, 0, head, 0, length, scratch);
    isa->widen(storage, all[4], y, HEADS * length * wide);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
    for (int64_t i = 0; i < HEADS * length * wide; i++) near_to("attention", isa, y[i], 0.0, rounds ? 1.02 : 1.001); /* means of numbers between -1 and 1 */
    free(query), free(key), free(value), free(mask), free(sink), free(y), free(scratch);
    calls++;
}

int main(void) {
    static const int64_t some[] = {0, 1, 2, 3, 5, 7, 13, 16, 17, 31, 33, 65};
    const int count = sizeof some / sizeof *some;
    for (int i = 0; isas[i]; i++) {
        if (!isa_is_here(i)) continue;
        for (int64_t rows = 1; rows <= 31; rows++)
            for (int s = 0; s < STORAGES; s++) check_linear(isas[i], (Storage)s, FLOAT32, rows, some[rows % count], 33, (int)rows);
        for (int s = 0; s < STORAGES; s++) check_linear(isas[i], (Storage)s, FLOAT32, 33, 1100, 33, 7 * 8); /* more than one block of the depth */
        for (int d = 0; d < count; d++)
            for (int c = 1; c < count; c++) {
                for (int n = 0; n < NUMERICS; n++)
                    check_linear(isas[i], (Storage)((c + d) % STORAGES), (Numerics)n, some[(c + d) % count], some[d] * 11 + c, some[c], n ? 0 : c * d);
                check_rows(isas[i], some[d], some[c]);
                for (int rounds = 0; rounds < 2 && some[d]; rounds++)
                    check_attention(isas[i], (Storage)((c + d) % STORAGES), some[d], some[c] * 9, some[(c + d) % count], some[c], c % 2, c % 3 == 0, rounds);
            }
        for (int s = 0; s < 2 * STORAGES; s++) check_attention(isas[i], (Storage)(s / 2), ATTENTION_ROWS, 300, 300, 70, true, false, s % 2);
        for (int half = 0; half < count; half++) check_rotary(isas[i], half % 2 ? AS_FLOAT32 : (Storage)(half % STORAGES), 2, 3, 5, some[half], half % 2, half % 3 == 0);
    }
    printf("%ld calls\n", calls);
    return 0;
}
