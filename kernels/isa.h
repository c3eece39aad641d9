/* The kernels, independent of onnxruntime: plain functions over rows and panels, compiled once for each instruction set.

   `library.c` selects an instruction set. `op_*.c` check shapes, divide the work into parts and call these functions. They allocate nothing
   and can't fail. Tensors are contiguous along their last axis, and float32 unless a Storage says otherwise. Results do not depend on how the
   work is divided, so they do not depend on the number of threads. */

#ifndef ONNX_SUBGRAPH_ISA_H
#define ONNX_SUBGRAPH_ISA_H

#include <stdbool.h>
#include <stdint.h>

/* How far a product may round its operands: not at all, to 16 bits (two bfloat16, three products of them), or to bfloat16. If a more exact
   product is as fast, it is used instead. */
typedef enum { FLOAT32, BF16X3, BF16, NUMERICS } Numerics;

/* The type of a node's tensors in memory. Kernels always compute in float32. */
typedef enum { AS_FLOAT32, AS_FLOAT16, AS_BFLOAT16, STORAGES } Storage;

typedef enum { IDENTITY, RELU, GELU, FAST_GELU, SWISH, TANH, SIGMOID, ACTIVATIONS } Activation;

/* y = act(x w + bias) * gate + residual. bias, gate and residual may be NULL.
   x: [rows, depth]; bias: [columns]; y, gate, residual: [rows, columns]; packed: the panels of w [depth, columns], from the product's `pack`. */
typedef struct {
    Storage storage; /* of all tensors except the panels */
    const void *x, *bias, *gate, *residual;
    const void *packed;
    void *y;
    int64_t rows, depth, columns;
    Activation activation;
    bool huge;   /* w has an element that is NaN, infinite, or larger than any bfloat16 */
    float alpha; /* of SWISH: x * sigmoid(alpha * x) */
} Linear;

/* y = normalized(x + other) * scale + shift of each row; sum = x + other. other, scale, shift and sum may be NULL.
   x, y: [rows, columns]; other, sum: the same shape, only if x is float32; scale, shift: [columns]. */
typedef struct {
    Storage storage; /* of x and y */
    const void *x;
    const float *other, *scale, *shift;
    void *y;
    float *sum;
    int64_t columns;
    float epsilon;
    bool centred; /* whether the mean is subtracted first (LayerNorm, not RMSNorm) */
} Norm;

/* Rotates each row of x by the angles of its position. x and y point to the first row of a call. Rows are [batch, heads, length]; or
   [batch, length, heads] if `repeat` is the number of heads, not 1. x, y: [rows, size]; cos, sin: [length, size / 2], for each of the batch or the
   same for all. */
typedef struct {
    Storage storage; /* of x and y; float32 if interleaved */
    const void *x;
    const float *cos, *sin;
    void *y;
    int64_t rows_of_batch, repeat, length, size, batch_step; /* batch_step: from the cosines of one batch element to the next, or 0 */
    bool interleaved;                                        /* a pair is two neighbours; else an element and the one half a row further */
} Rotary;

/* softmax(scale * query keyᵀ + mask) value of each head. The sink is one more score of each row of a head, and has no value. Steps are in
   elements, from one batch element, head or position to the next. */
typedef struct {
    Storage storage;
    const void *query, *key, *value, *mask, *sink; /* sink: [heads]; mask and sink may be NULL */
    void *y;
    int64_t batch, heads, repeats, length, keys, size, value_size;
    int64_t query_step[3], key_step[3], value_step[3], y_step[3]; /* batch, head, position */
    int64_t mask_step[4];                                         /* batch, head, position, key; 0 where it broadcasts */
    float scale, cap;                                             /* cap: 0 for none */
    bool guarded;                                                 /* a row without any weight (fully masked, or NaN) gives zeros */
    bool rounds;                                                  /* products may round their operands to bfloat16 */
} Attention;

/* An implementation of Linear. */
typedef struct {
    int64_t panel; /* columns of a panel of packed weights */
    int64_t fewest_rows, most_rows; /* of a call of `linear`: fewer would read the weights too often */
    int64_t (*panel_bytes)(int64_t depth);
    /* Packs one panel of w [depth, columns], padded with zeros after the last column. */
    void (*pack)(const float *w, int64_t depth, int64_t columns, int64_t panel, void *packed);
    /* The bytes of scratch memory that `linear` needs for this many rows and panels. */
    int64_t (*scratch)(const Linear *linear, int64_t rows, int64_t panels);
    /* Computes the rows from `row` to `row_end` for the panels from `panel` to `panel_end`, ends excluded. */
    void (*linear)(const Linear *linear, int64_t row, int64_t row_end, int64_t panel, int64_t panel_end, void *scratch);
} Product;

typedef struct {
    const char *name;
    const Product *products[STORAGES][NUMERICS];

    /* Converts `count` elements in memory to floats, and back, rounded to the nearest. */
    void (*widen)(Storage storage, const void *from, float *to, int64_t count);
    void (*narrow)(Storage storage, const float *from, void *to, int64_t count);

    /* Multiplies and adds in registers as fast as this processor can, as a benchmark. Returns the number of operations. */
    double (*peak)(int64_t rounds, float *result);
    void (*activate)(Activation activation, float alpha, const float *x, float *y, int64_t count);
    void (*norm)(const Norm *norm, int64_t row, int64_t row_end);
    /* Softmax of each of `rows` rows of `columns` numbers. */
    void (*softmax)(const float *x, float *y, int64_t rows, int64_t columns);
    void (*rotary)(const Rotary *rotary, int64_t row, int64_t row_end);
    /* Computes the positions from `row` to `row_end` of one head of one batch element. scratch: attention_scratch() floats. */
    void (*attention)(const Attention *attention, int64_t batch, int64_t head, int64_t row, int64_t row_end, float *scratch);
    int64_t (*attention_scratch)(const Attention *attention);
} Isa;

enum { ATTENTION_ROWS = 256 }; /* the most rows of one call of `attention` */

/* The instruction sets that this library was compiled for, the lowest first; NULL ends the list. */
extern const Isa *const isas[];
/* Whether this processor and its system support the instruction set isas[index]. */
bool isa_is_here(int index);
/* Whether isas[index] is faster on this processor than the one before it. */
bool isa_pays(int index);

#endif
