/* The kernels without onnxruntime: plain functions over rows and panels, compiled once for each instruction set.

   `library.c` chooses an instruction set and `op_*.c` check shapes, cut the work into parts and call these functions. Here nothing is
   allocated and nothing can fail. Tensors are contiguous along their last axis, and float32 where no Storage says what they are. No result
   depends on how the work is cut, and so none on the number of threads. */

#ifndef ONNX_SUBGRAPH_ISA_H
#define ONNX_SUBGRAPH_ISA_H

#include <stdbool.h>
#include <stdint.h>

/* How far a product may round what it multiplies: not at all, to 16 bits (two bfloat16, three products of them), or to bfloat16. A product
   that has something more exact, and as fast, takes that. */
typedef enum { FLOAT32, BF16X3, BF16, NUMERICS } Numerics;

/* What the elements of the tensors of a node are in memory. Kernels compute in float32 whatever it is. */
typedef enum { AS_FLOAT32, AS_FLOAT16, AS_BFLOAT16, STORAGES } Storage;

typedef enum { IDENTITY, RELU, GELU, FAST_GELU, SWISH, TANH, SIGMOID, ACTIVATIONS } Activation;

/* y = act(x w + bias) * gate + residual. bias, gate and residual may be NULL.
   x: [rows, depth]; bias: [columns]; y, gate, residual: [rows, columns]; packed: the panels of w [depth, columns], as the product's `pack` leaves them. */
typedef struct {
    Storage storage; /* of all but the panels */
    const void *x, *bias, *gate, *residual;
    const void *packed;
    void *y;
    int64_t rows, depth, columns;
    Activation activation;
    bool huge;   /* w has an element that is no number, infinite, or larger than any bfloat16 */
    float alpha; /* of SWISH: x * sigmoid(alpha * x) */
} Linear;

/* y = normalized(x + other) * scale + shift of each row; sum = x + other. other, scale, shift and sum may be NULL.
   x, y: [rows, columns]; other, sum: as these, where they are float32; scale, shift: [columns]. */
typedef struct {
    Storage storage; /* of x and y */
    const void *x;
    const float *other, *scale, *shift;
    void *y;
    float *sum;
    int64_t columns;
    float epsilon;
    bool centred; /* the mean is taken off first (LayerNorm), or not (RMSNorm) */
} Norm;

/* Each row of x turned by the angles of its position. x and y begin with the first row of a call. Rows are [batch, heads, length] or, where `repeat` is
   the number of heads and not 1, [batch, length, heads]; x, y: [rows, size]; cos, sin: [length, size / 2] for each of the batch, or the same for
   all. */
typedef struct {
    Storage storage; /* of x and y, which are float32 where neighbours are a pair */
    const void *x;
    const float *cos, *sin;
    void *y;
    int64_t rows_of_batch, repeat, length, size, batch_step; /* batch_step: from the cosines of one of the batch to the next, or 0 */
    bool interleaved;                                        /* neighbours are a pair; else an element and the one half a row further */
} Rotary;

/* softmax(scale * query keyᵀ + mask) value of each head. Steps are in elements, from one of the batch, head or position to the next. */
typedef struct {
    Storage storage;
    const void *query, *key, *value, *mask; /* mask may be NULL */
    void *y;
    int64_t batch, heads, repeats, length, keys, size, value_size;
    int64_t query_step[3], key_step[3], value_step[3], y_step[3]; /* batch, head, position */
    int64_t mask_step[4];                                         /* batch, head, position, key; 0 where it broadcasts */
    float scale, cap;                                             /* cap: 0 for none */
    bool guarded;                                                 /* a row without a number gives zeros */
} Attention;

/* A way to compute Linear. */
typedef struct {
    int64_t panel; /* columns of a panel of packed weights */
    int64_t (*panel_bytes)(int64_t depth);
    /* Packs one panel of w [depth, columns], with zeros beyond the last column. */
    void (*pack)(const float *w, int64_t depth, int64_t columns, int64_t panel, void *packed);
    /* Bytes that `linear` needs for so many rows and panels. */
    int64_t (*scratch)(const Linear *linear, int64_t rows, int64_t panels);
    /* The rows from `row` up to `row_end`, LINEAR_ROWS at most, in the panels from `panel` up to `panel_end`. */
    void (*linear)(const Linear *linear, int64_t row, int64_t row_end, int64_t panel, int64_t panel_end, void *scratch);
} Product;

enum { LINEAR_ROWS = 128 };

typedef struct {
    const char *name;
    const Product *products[STORAGES][NUMERICS];

    /* `count` elements of memory as floats, and floats as elements of memory, rounded to the nearest. */
    void (*widen)(Storage storage, const void *from, float *to, int64_t count);
    void (*narrow)(Storage storage, const float *from, void *to, int64_t count);

    /* Multiplies and adds in registers, as fast as this processor can, for a measurement: gives the number of operations. */
    double (*peak)(int64_t rounds, float *result);
    void (*activate)(Activation activation, float alpha, const float *x, float *y, int64_t count);
    void (*norm)(const Norm *norm, int64_t row, int64_t row_end);
    /* Of each row of `columns` numbers, for `rows` of them. */
    void (*softmax)(const float *x, float *y, int64_t rows, int64_t columns);
    void (*rotary)(const Rotary *rotary, int64_t row, int64_t row_end);
    /* The positions from `row` up to `row_end` of one head of one of the batch. scratch: attention_scratch() floats. */
    void (*attention)(const Attention *attention, int64_t batch, int64_t head, int64_t row, int64_t row_end, float *scratch);
    int64_t (*attention_scratch)(const Attention *attention);
} Isa;

enum { ATTENTION_ROWS = 256 }; /* the most rows of one call of `attention` */

/* The instruction sets that this library was compiled for, from the least on; NULL ends the list. */
extern const Isa *const isas[];
/* Whether this processor, and its system, has the instruction set isas[index]. */
bool isa_is_here(int index);
/* Whether it is faster here than the one before it. */
bool isa_pays(int index);

#endif
