/* What every operator has: how it is described to onnxruntime, and how it reads its inputs and attributes.

   Whatever a model gives that an operator cannot take becomes an OrtStatus, which onnxruntime reports with the name of the node. */

#ifndef ONNX_SUBGRAPH_OP_H
#define ONNX_SUBGRAPH_OP_H

#include "isa.h"
#include "ort.h"

#include <stdbool.h>

enum { MOST_AXES = 8, MOST_INPUTS = 6 };

/* A tensor as a node gives it; data is NULL where it is absent. */
typedef struct {
    const char *name;
    const void *data; /* elements of the kernel's storage */
    int64_t count;    /* of elements */
    int axes;
    int64_t sizes[MOST_AXES];
} Tensor;

typedef struct Kind Kind;

/* What every kernel, a node in a session, begins with. */
typedef struct {
    const OrtApi *api;
    const Isa *isa;
    const Kind *kind;
    Storage storage; /* of its inputs and outputs */
} Kernel;

/* An operator. The kernel that `create` fills has `bytes` bytes, zeros behind its Kernel; `destroy` is called on it even where `create`
   has failed, and may be NULL. */
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

/* Gives back an error from a function that returns OrtStatus *. */
#define TRY(call) \
    do { \
        OrtStatus *status_ = (call); \
        if (status_) return status_; \
    } while (0)

OrtStatus *failed(const Kernel *kernel, const char *format, ...) __attribute__((format(printf, 2, 3)));

OrtStatus *read_input(const Kernel *kernel, const OrtKernelContext *context, int index, Tensor *out);
OrtStatus *read_inputs(const Kernel *kernel, const OrtKernelContext *context, Tensor *out);
/* A constant input, when the kernel is made; data is NULL where it is not constant. */
OrtStatus *read_constant(const Kernel *kernel, const OrtKernelInfo *info, int index, Tensor *out);
/* NULL in *out where nobody reads the output. */
OrtStatus *write_output(const Kernel *kernel, OrtKernelContext *context, int index, const int64_t *sizes, int axes, void **out);

/* Attributes. *out stays as it is where the node has none of that name; one of another type is an error. What has no default in the definition
   has none here: a function whose definition holds its number itself, as --target function writes it, is refused and not misread. */
OrtStatus *read_float(const Kernel *kernel, const OrtKernelInfo *info, const char *name, float *out);
OrtStatus *read_int(const Kernel *kernel, const OrtKernelInfo *info, const char *name, int64_t *out);
OrtStatus *read_ints(const Kernel *kernel, const OrtKernelInfo *info, const char *name, int64_t *out, size_t most, size_t *count);
OrtStatus *read_word(const Kernel *kernel, const OrtKernelInfo *info, const char *name, char *out, size_t most);

/* Memory aligned to a line of the cache; NULL where there is none. */
void *aligned(int64_t bytes);
void release(void *memory);

int64_t bytes_of(Storage storage, int64_t count);
/* Where the element `at` of a tensor is. */
const void *element(Storage storage, const void *data, int64_t at);

/* A tensor as floats: its own, or copies in *memory, which the caller releases. data is NULL where it is absent. */
typedef struct {
    const float *data;
    void *memory;
} Floats;

OrtStatus *floats_of(const Kernel *kernel, const Tensor *tensor, Floats *out);

bool same_shape(const Tensor *tensor, const int64_t *sizes, int axes);
/* "[2, 3]", in one of a few buffers of this thread. */
const char *shape_of(const Tensor *tensor);
const char *shape_text(const int64_t *sizes, int axes);

/* Runs work(data, 0) … work(data, total - 1), on onnxruntime's threads where there is work for more than one. cost: operations of all. */
OrtStatus *in_parallel(const Kernel *kernel, OrtKernelContext *context, void (*work)(void *data, size_t index), int64_t total, double cost,
                       void *data);

#endif
