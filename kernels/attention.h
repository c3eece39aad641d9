/* Attention with an online softmax (Milakov and Gimelshein 2018, https://arxiv.org/abs/1805.02867; Dao et al. 2022,
   https://arxiv.org/abs/2205.14135): keys are processed in blocks, and only the scores of a few rows and one block are in memory. Part of
   kernels.c. */

#ifndef ONNX_SUBGRAPH_ATTENTION_H
#define ONNX_SUBGRAPH_ATTENTION_H

#include "isa.h"
#include "pair_tile.h"

#include <math.h>

enum {
    KEYS = DEPTH,         /* keys of a block: the softmax weights of a row over a block have the depth of a tile */
    FEW_ROWS = PAIR_ROWS, /* the most rows that are processed together */
};

INLINE int64_t up_to(int64_t count, int64_t multiple) { return (count + multiple - 1) / multiple * multiple; }

/* Rows of floats. data: the first row of a call, or the first key of a block. step: from one row to the next. They are in the tensor itself
   if it is float32, else in scratch memory. */
typedef struct {
    const float *data;
    int64_t step;
} Lines;

/* The state of one call. The sums and the largest scores of all rows are kept between blocks; a single block needs no sums. */
typedef struct {
    const Attention *a;
    Lines query, key, value;       /* of this batch and head */
    int64_t mask;                  /* start of the mask of the first row */
    float *y;                      /* of the first row */
    int64_t y_step;
    float *keys, *values;          /* the block, packed in panels */
    float *sums;                   /* [rows, width]: weights · values so far */
    float *largest, *totals;       /* [rows]: the largest score so far, and the sum of the weights relative to it */
    int64_t width, most_keys;      /* value_size rounded up to panels; the most keys of a block */
    bool single;
    bool pairs;                    /* keys, values and weights are pairs of bfloat16 */
} Block;

INLINE int64_t keys_of_block(const Attention *a) { return a->keys < KEYS ? up_to(a->keys, PANEL) : KEYS; }

/* The words of a packed key: its elements, or its pairs. */
INLINE int64_t words_of_key(const Attention *a) { return a->size > pairs_of(a->size) ? a->size : pairs_of(a->size); }

static int64_t attention_scratch(const Attention *a) {
    const int64_t width = up_to(a->value_size, PANEL), rows = a->length < ATTENTION_ROWS ? a->length : ATTENTION_ROWS;
    const int64_t wide = a->storage == AS_FLOAT32 ? 0 : (rows + KEYS) * (a->size + a->value_size);
    return keys_of_block(a) * (words_of_key(a) + width) + rows * (width + 2) + 64 + wide;
}

/* `count` rows of `size` elements, from the element `at` of a tensor. `wide`: memory for them as floats if the tensor is not float32. */
static Lines lines_of(Storage storage, const void *tensor, int64_t at, int64_t step, int64_t count, int64_t size, float *wide) {
    if (storage == AS_FLOAT32) return (Lines){(const float *)tensor + at, step};
    for (int64_t i = 0; i < count; i++) widen(storage, (const uint16_t *)tensor + at + i * step, wide + i * size, size);
    return (Lines){wide, size};
}

/* Transposes four elements of four keys. */
INLINE void turn_four(const float *from, int64_t step, float *to) {
#if defined(__SSE2__)
    __m128 a = _mm_loadu_ps(from), b = _mm_loadu_ps(from + step), c = _mm_loadu_ps(from + 2 * step), d = _mm_loadu_ps(from + 3 * step);
    _MM_TRANSPOSE4_PS(a, b, c, d);
    _mm_storeu_ps(to, a), _mm_storeu_ps(to + PANEL, b), _mm_storeu_ps(to + 2 * PANEL, c), _mm_storeu_ps(to + 3 * PANEL, d);
#else
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < 4; k++) to[k * PANEL + i] = from[i * step + k];
#endif
}

#include "attention_pairs.h"

/* The keys as panels of columns: keys[panel][element][key]. Padded with zeros after the last key. */
static void pack_keys(const Block *b, int64_t count) {
    const int64_t size = b->a->size, step = b->key.step;
    if (b->pairs) {
        pack_keys_as_pairs(b, count);
        return;
    }
    for (int64_t start = 0; start < count; start += PANEL) {
        float *panel = b->keys + start * size;
        const float *from = b->key.data + start * step;
        const int64_t here = count - start < PANEL ? count - start : PANEL;
        if (here < PANEL) memset(panel, 0, (size_t)(size * PANEL) * sizeof(float));
        for (int64_t i = 0; i < here; i += 4) {
            int64_t k = 0;
            if (i + 4 <= here)
                for (; k + 4 <= size; k += 4) turn_four(from + i * step + k, step, panel + k * PANEL + i);
            for (; k < size; k++)
                for (int64_t j = i; j < i + 4 && j < here; j++) panel[k * PANEL + j] = from[j * step + k];
        }
    }
}

/* The values as panels: values[panel][key][element]. */
static void pack_values(const Block *b, int64_t count) {
    if (b->pairs) {
        pack_values_as_pairs(b, count);
        return;
    }
    for (int64_t start = 0; start < b->width; start += PANEL) {
        float *panel = b->values + start * b->most_keys;
        const int64_t left = b->a->value_size - start, here = left < PANEL ? left : PANEL;
        for (int64_t k = 0; k < count; k++, panel += PANEL) {
            const float *value = b->value.data + k * b->value.step + start;
            if (here == PANEL) {
                store(panel, load(value)), store(panel + WIDTH, load(value + WIDTH));
                continue;
            }
            memcpy(panel, value, (size_t)here * sizeof(float));
            memset(panel + here, 0, (size_t)(PANEL - here) * sizeof(float));
        }
    }
}

INLINE void scale_row(const float *x, int64_t count, float scale, float *y) {
    int64_t i = 0;
    for (; i + WIDTH <= count; i += WIDTH) store(y + i, load(x + i) * all(scale));
    if (i < count) store_part(y + i, load_part(x + i, count - i) * all(scale), count - i);
}

/* scores[i][key] = scale · query keyᵀ of a few rows, for whole panels. A head longer than the depth of a tile is summed in parts. */
static void score(const Block *b, int64_t row, int rows, int64_t count, float *scores) {
    float parts[TILE_ROWS * STRIDE] __attribute__((aligned(64)));
    float sums[FEW_ROWS * PANEL] __attribute__((aligned(64)));
    const int64_t size = b->a->size;
    int64_t k = 0;
    if (b->pairs) {
        score_by_pairs(b, row, rows, count, scores);
        return;
    }
    do {
        const int64_t depth = size - k < DEPTH ? size - k : DEPTH;
        for (int i = 0; i < rows; i++) scale_row(b->query.data + (row + i) * b->query.step + k, depth, b->a->scale, parts + i * STRIDE);
        for (int64_t start = 0; start < count; start += PANEL) {
            const float *panel = b->keys + start * size + k * PANEL;
            if (k == 0) {
                tile(rows, parts, panel, depth, panel, scores + start, STRIDE);
                continue;
            }
            tile(rows, parts, panel, depth, panel, sums, PANEL);
            for (int i = 0; i < rows; i++)
                for (int half = 0; half < PANEL; half += WIDTH) {
                    float *to = scores + i * STRIDE + start + half;
                    store(to, load(to) + load(sums + i * PANEL + half));
                }
        }
        k += depth;
    } while (k < size);
}

/* sums[i][element] = Σ weights[i][key] · value[key][element], for one panel of values. rounded: the weights as pairs. */
INLINE void gather(const Block *b, int rows, const float *weights, const uint32_t *rounded, int64_t start, int64_t count, float *sums) {
    const float *panel = b->values + start * b->most_keys;
    if (b->pairs) gather_by_pairs(b, rows, rounded, start, count, sums);
    else tile(rows, weights, panel, count, panel, sums, PANEL);
}

/* The first `count` elements of v, and the others of `rest`. */
INLINE V first_of(V v, int32_t count, V rest) {
    I index;
    for (int32_t i = 0; i < WIDTH; i++) index[i] = i;
    const I mask = index < (I){0} + count;
    return (V)(((I)v & mask) | ((I)rest & ~mask));
}

/* Caps and masks the scores of one row; scores after the last key become -infinity. Returns the largest. */
INLINE float mask_row(const Block *b, int64_t row, int64_t first, int64_t count, float *scores) {
    const Attention *a = b->a;
    const int64_t mask = b->mask + row * a->mask_step[2] + first * a->mask_step[3];
    const V same = a->mask && a->mask_step[3] == 0 ? all(load_one(a->storage, a->mask, mask)) : all(0.0f);
    V most = all(-INFINITY);
    int64_t i = 0;
    if (!a->mask && a->cap <= 0)
        for (; i + WIDTH <= count; i += WIDTH) most = larger(most, load(scores + i));
    for (; i < count; i += WIDTH) {
        const int64_t left = count - i;
        V v = load(scores + i);
        if (a->cap > 0) v = all(a->cap) * tangent(v / all(a->cap));
        if (a->mask) v += a->mask_step[3] ? load_as(a->storage, a->mask, mask + i, left) : same;
        if (left < WIDTH) v = first_of(v, (int32_t)left, all(-INFINITY));
        store(scores + i, v);
        most = larger(most, v);
    }
    return largest_of(most);
}

INLINE float exponential_of_one(float x) {
    float part[WIDTH];
    store(part, exponential(all(x)));
    return part[0];
}

/* Turns the scores of one row into weights relative to `base`. Returns their sums by lane. */
INLINE V weigh(int64_t count, float base, float *scores) {
    V total = all(0.0f);
    for (int64_t i = 0; i < count; i += WIDTH) {
        const V weight = exponential(load(scores + i) - all(base));
        store(scores + i, weight);
        total += weight;
    }
    return total;
}

/* Turns the scores of one row into weights relative to the largest score so far. Returns the factor for the sums so far. */
INLINE float weigh_row(const Block *b, int64_t row, int64_t count, float most, float *scores) {
    const float before = b->largest[row], after = most > before ? most : before;
    const float base = after == -INFINITY ? 0.0f : after; /* all keys so far are masked: the weights are 0, not NaN */
    const float factor = before == -INFINITY ? 0.0f : exponential_of_one(before - base);
    b->largest[row] = after;
    b->totals[row] = b->totals[row] * factor + sum_of(weigh(count, base, scores));
    return factor;
}

/* `score` for one row, directly from the keys: packing them takes longer than using them once. */
static void score_one(const Block *b, int64_t count, float *scores) {
    const int64_t size = b->a->size;
    const float *query = b->query.data, scale = b->a->scale;
    const Lines keys = b->key;
    for (int64_t key = 0; key < count; key++) {
        const float *one = keys.data + key * keys.step;
        V sum = all(0.0f);
        int64_t d = 0;
        for (; d + WIDTH <= size; d += WIDTH) sum += load(query + d) * load(one + d);
        if (d < size) sum += load_part(query + d, size - d) * load_part(one + d, size - d);
        scores[key] = sum_of(sum) * scale;
    }
}

/* One block of keys for one row. */
static void attend_one(const Block *b, int64_t first, int64_t count) {
    float scores[STRIDE] __attribute__((aligned(64)));
    const int64_t size = b->a->value_size;
    const Lines values = b->value;
    memset(scores, 0, sizeof scores); /* scores after the last are read, and then masked */
    score_one(b, count, scores);
    const float factor = weigh_row(b, 0, count, mask_row(b, 0, first, count, scores), scores);
    for (int64_t d = 0; d < size; d += 4 * WIDTH) {
        const float *value = values.data + d;
        V sums[4];
        for (int i = 0; i < 4; i++) sums[i] = d + i * WIDTH < b->width ? load(b->sums + d + i * WIDTH) * all(factor) : all(0.0f);
        if (d + 4 * WIDTH <= size)
            for (int64_t key = 0; key < count; key++, value += values.step)
#pragma GCC unroll 4
                for (int i = 0; i < 4; i++) sums[i] += all(scores[key]) * load(value + i * WIDTH);
        else
            for (int64_t key = 0; key < count; key++, value += values.step)
                for (int i = 0; i < 4 && d + i * WIDTH < size; i++) {
                    const int64_t left = size - d - i * WIDTH;
                    sums[i] += all(scores[key]) * (left >= WIDTH ? load(value + i * WIDTH) : load_part(value + i * WIDTH, left));
                }
        for (int i = 0; i < 4 && d + i * WIDTH < b->width; i++) store(b->sums + d + i * WIDTH, sums[i]);
    }
}

/* The final factor for the sums of a row. A row without any weight is NaN, as in Softmax. */
INLINE float last_factor(const Attention *a, float total) { return a->keys == 0 ? 0.0f : total > 0.0f ? 1.0f / total : NAN; }

INLINE bool is_empty(const Attention *a, float total) { return a->guarded && !(total > 0.0f); }

/* The results of a few rows if there is only one block of keys. */
static void attend_all(const Block *b, int64_t row, int rows) {
    float scores[FEW_ROWS * STRIDE] __attribute__((aligned(64)));
    float sums[FEW_ROWS * PANEL] __attribute__((aligned(64)));
    uint32_t rounded[FEW_ROWS * PAIR_STRIDE] __attribute__((aligned(64)));
    const Attention *a = b->a;
    score(b, row, rows, a->keys, scores);
    float most[FEW_ROWS], totals[FEW_ROWS];
    for (int i = 0; i < rows; i++) {
        most[i] = mask_row(b, row + i, 0, a->keys, scores + i * STRIDE);
        weigh_row(b, row + i, a->keys, most[i], scores + i * STRIDE);
        totals[i] = b->totals[row + i];
    }
    if (b->pairs) round_weights(rows, a->keys, scores, rounded);
    for (int64_t start = 0; start < b->width; start += PANEL) {
        gather(b, rows, scores, rounded, start, a->keys, sums);
        for (int i = 0; i < rows; i++) {
            const V factor = all(last_factor(a, totals[i]));
            for (int64_t half = 0; half < PANEL && start + half < a->value_size; half += WIDTH) {
                const int64_t left = a->value_size - start - half;
                float *y = b->y + (row + i) * b->y_step + start + half;
                const V v = is_empty(a, totals[i]) ? all(0.0f) : load(sums + i * PANEL + half) * factor;
                if (left >= WIDTH) store(y, v);
                else store_part(y, v, left);
            }
        }
    }
}

/* One block of keys for a few rows. */
static void attend(const Block *b, int64_t row, int rows, int64_t first, int64_t count) {
    float scores[FEW_ROWS * STRIDE] __attribute__((aligned(64)));
    float sums[FEW_ROWS * PANEL] __attribute__((aligned(64)));
    uint32_t rounded[FEW_ROWS * PAIR_STRIDE] __attribute__((aligned(64)));
    float most[FEW_ROWS], factors[FEW_ROWS];
    score(b, row, rows, count, scores);
    for (int i = 0; i < rows; i++) most[i] = mask_row(b, row + i, first, count, scores + i * STRIDE);
    for (int i = 0; i < rows; i++) factors[i] = weigh_row(b, row + i, count, most[i], scores + i * STRIDE);
    if (b->pairs) round_weights(rows, count, scores, rounded);
    for (int64_t start = 0; start < b->width; start += PANEL) {
        gather(b, rows, scores, rounded, start, count, sums);
        for (int i = 0; i < rows; i++)
            for (int half = 0; half < PANEL; half += WIDTH) {
                float *to = b->sums + (row + i) * b->width + start + half;
                store(to, load(to) * all(factors[i]) + load(sums + i * PANEL + half));
            }
    }
}

/* Writes the results: the sums divided by the sums of the weights. */
static void write_rows(const Block *b, int64_t rows) {
    const Attention *a = b->a;
    float *y = b->y;
    for (int64_t row = 0; row < rows; row++, y += b->y_step) {
        const bool empty = is_empty(a, b->totals[row]);
        const V factor = all(last_factor(a, b->totals[row]));
        for (int64_t i = 0; i < a->value_size; i += WIDTH) {
            const int64_t left = a->value_size - i;
            const V v = empty ? all(0.0f) : load(b->sums + row * b->width + i) * factor;
            if (left >= WIDTH) store(y + i, v);
            else store_part(y + i, v, left);
        }
    }
}

/* The start of a head in elements. */
INLINE int64_t head_at(const int64_t *step, int64_t batch, int64_t head) { return batch * step[0] + head * step[1]; }

static void attention(const Attention *a, int64_t batch, int64_t head, int64_t row, int64_t row_end, float *scratch) {
    const int64_t group = head / a->repeats, rows = row_end - row, width = up_to(a->value_size, PANEL);
    const int64_t key = head_at(a->key_step, batch, group), value = head_at(a->value_step, batch, group);
    const int64_t y = head_at(a->y_step, batch, head) + row * a->y_step[2];
    Block b = {
        .a = a,
        .mask = batch * a->mask_step[0] + head * a->mask_step[1] + row * a->mask_step[2],
        .keys = scratch,
        .width = width,
        .most_keys = keys_of_block(a),
        .single = rows > 1 && a->keys > 0 && a->keys <= KEYS,
        .pairs = HAS_PAIRS && a->rounds && rows > 1,
    };
    b.values = b.keys + b.most_keys * words_of_key(a);
    b.sums = b.values + b.most_keys * width;
    b.largest = b.sums + rows * width;
    b.totals = b.largest + rows;
    float *wide_query = b.totals + rows, *wide_key = wide_query + rows * a->size, *wide_value = wide_key + KEYS * a->size;
    const bool narrows = a->storage != AS_FLOAT32;
    b.y = narrows ? wide_value + KEYS * a->value_size : (float *)a->y + y;
    b.y_step = narrows ? a->value_size : a->y_step[2];
    const int64_t query = head_at(a->query_step, batch, head) + row * a->query_step[2];
    b.query = lines_of(a->storage, a->query, query, a->query_step[2], rows, a->size, wide_query);
    if (!b.single) memset(b.sums, 0, (size_t)(rows * width) * sizeof(float));
    const float sink = a->sink ? load_one(a->storage, a->sink, head) : -INFINITY;
    for (int64_t i = 0; i < rows; i++) b.largest[i] = sink, b.totals[i] = sink > -INFINITY ? 1.0f : 0.0f;
    if (b.pairs) tiles_on();
    for (int64_t first = 0; first < a->keys; first += KEYS) {
        const int64_t count = a->keys - first < KEYS ? a->keys - first : KEYS;
        b.key = lines_of(a->storage, a->key, key + first * a->key_step[2], a->key_step[2], count, a->size, wide_key);
        b.value = lines_of(a->storage, a->value, value + first * a->value_step[2], a->value_step[2], count, a->value_size, wide_value);
        if (rows == 1) {
            attend_one(&b, first, count);
            continue;
        }
        pack_keys(&b, count);
        pack_values(&b, count);
        for (int64_t done = 0; done < rows;) {
            const int some = even_rows(rows - done, b.pairs ? PAIR_ROWS : TILE_ROWS);
            if (b.single) attend_all(&b, done, some);
            else attend(&b, done, some, first, count);
            done += some;
        }
    }
    if (b.pairs) tiles_off();
    if (!b.single) write_rows(&b, rows);
    for (int64_t i = 0; i < rows && narrows; i++)
        narrow(a->storage, b.y + i * a->value_size, (uint16_t *)a->y + y + i * a->y_step[2], a->value_size);
}

#endif
