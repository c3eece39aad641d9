/* The common part of all operators: their description for onnxruntime, and functions that read inputs and attributes.

   If a model gives an operator something that it does not accept, the result is an OrtStatus. onnxruntime reports it with the name of the
   node. */

#ifndef ONNX_SUBGRAPH_OP_H
#define ONNX_SUBGRAPH_OP_H

#include "isa.h"
#include "ort.h"

#include <stdbool.h>

enum { MOST_AXES = 8, MOST_INPUTS = 6 };

/* An input tensor of a node; data is NULL where it is absent. */
typedef struct {
    const char *name;
    const void *data; /* elements of the kernel's storage */
    int64_t count;    /* of elements */
    int axes;
    int64_t sizes[MOST_AXES];
} Tensor;

typedef struct Kind Kind;

/* The start of every kernel struct. A kernel is a node in a session. */
typedef struct {
    const OrtApi *api;
    const Isa *isa;
    const Kind *kind;
    Storage storage; /* of its inputs and outputs */
} Kernel;

/* An operator. The kernel that `create` fills has `bytes` bytes, zero after its Kernel. `destroy` is also called if `create` failed; it may
   be NULL. */
struct Kind {
    const char *name;
    const char *inputs[MOST_INPUTS]; /* their names */
    int required, most;              /* inputs */
    int outputs;                     /* the first is required */
    size_t bytes;
    OrtStatus *(*create)(Kernel *kernel, const OrtKernelInfo *info);
    OrtStatus *(*compute)(const Kernel *kernel, OrtKernelContext *context);
    void (*destroy)(Kernel *kernel);
};

extern const Kind *const kinds[]; /* NULL ends the list */

/* Returns the error of a call, if any, from a function that returns OrtStatus *. */
#define TRY(call) \
    do { \
        OrtStatus *status_ = (call); \
        if (status_) return status_; \
    } while (0)

OrtStatus *failed(const Kernel *kernel, const char *format, ...) __attribute__((format(printf, 2, 3)));

OrtStatus *read_input(const Kernel *kernel, const OrtKernelContext *context, int index, Tensor *out);
OrtStatus *read_inputs(const Kernel *kernel, const OrtKernelContext *context, Tensor *out);
/* Reads a constant input while the kernel is created; data is NULL where it is not constant. */
OrtStatus *read_constant(const Kernel *kernel, const OrtKernelInfo *info, int index, Tensor *out);
/* *out is NULL if the output is unused. */
OrtStatus *write_output(const Kernel *kernel, OrtKernelContext *context, int index, const int64_t *sizes, int axes, void **out);

/* Read attributes. *out is unchanged if the node has no such attribute; another type is an error. An attribute without a default in the
   definition has none here. So a function whose definition contains the number itself (from --target function) is refused, not misread. */
OrtStatus *read_float(const Kernel *kernel, const OrtKernelInfo *info, const char *name, float *out);
OrtStatus *read_int(const Kernel *kernel, const OrtKernelInfo *info, const char *name, int64_t *out);
OrtStatus *read_ints(const Kernel *kernel, const OrtKernelInfo *info, const char *name, int64_t *out, size_t most, size_t *count);
OrtStatus *read_word(const Kernel *kernel, const OrtKernelInfo *info, const char *name, char *out, size_t most);
/* Reads the attribute `numerics`. */
OrtStatus *read_numerics(const Kernel *kernel, const OrtKernelInfo *info, Numerics *out);

/* Memory aligned to a cache line; NULL if there is none. */
void *aligned(int64_t bytes);
void release(void *memory);

int64_t bytes_of(Storage storage, int64_t count);
/* The address of element `at` of a tensor. */
const void *element(Storage storage, const void *data, int64_t at);

/* A tensor as floats: its own data, or a copy in *memory, which the caller releases. data is NULL where the tensor is absent. */
typedef struct {
    const float *data;
    void *memory;
} Floats;

OrtStatus *floats_of(const Kernel *kernel, const Tensor *tensor, Floats *out);

bool same_shape(const Tensor *tensor, const int64_t *sizes, int axes);
/* For example "[2, 3]", in one of a few buffers of this thread. */
const char *shape_of(const Tensor *tensor);
const char *shape_text(const int64_t *sizes, int axes);

/* Calls work(data, 0) … work(data, total - 1), on onnxruntime's threads if the work is large enough. cost: the total number of operations. */
OrtStatus *in_parallel(const Kernel *kernel, OrtKernelContext *context, void (*work)(void *data, size_t index), int64_t total, double cost,
                       void *data);

#endif
