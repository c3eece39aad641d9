/* Operators along rows, and elementwise ones:

   LayerNorm(x, scale?, shift?), RMSNorm(x, scale?), Gelu(x), FastGelu(x), Swish(x) and Rotary(x, cos, sin), as docs/operators.md defines them;
   AddLayerNorm(x, other, scale?, shift?) = (LayerNorm(x + other, scale, shift), x + other);
   AddRMSNorm(x, other, scale?) = (RMSNorm(x + other, scale), x + other);
   Softmax(x), along the last axis. */

#include "op.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

enum {
    PART = 16384,   /* elements of one part of the work: it reads 64 KiB, and its results stay in L2 */
    WIDENED = 2048, /* 16-bit elements that are converted at a time; they stay in L1 */
};

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

static int64_t rows_of(int64_t elements, int64_t columns) { return columns >= elements ? 1 : elements / (columns > 0 ? columns : 1); }

/* Some rows. other and sum are NULL if the operator has none or the output is unused. */
typedef struct {
    const void *x, *other;
    void *y, *sum;
} Lines;

/* Work along rows; the first field of an operator's own struct. `run` gets rows starting at `row`: the tensors themselves if they are float32
   or the kernel converts them, else float32 copies in memory that stays in L1. */
typedef struct Rows {
    const Kernel *kernel;
    const void *x, *other;
    void *y, *sum;
    int64_t columns, count;
    bool widens; /* the kernel converts 16-bit elements itself */
    bool apart;  /* y must not overlap x */
    void (*run)(const struct Rows *rows, int64_t row, int64_t count, Lines lines);
    atomic_bool no_memory;
} Rows;

static void *row_at(const Rows *rows, const void *data, int64_t row) {
    return data ? (void *)element(rows->kernel->storage, data, row * rows->columns) : NULL;
}

static void run_widened(Rows *rows, int64_t row, int64_t end) {
    const Storage storage = rows->kernel->storage;
    const Isa *isa = rows->kernel->isa;
    const int64_t most = least(rows_of(WIDENED, rows->columns), end - row), place = (most * rows->columns + 15) / 16 * 16;
    float *x = aligned(2 * bytes_of(AS_FLOAT32, place)), *second = x + place;
    if (!x) {
        atomic_store(&rows->no_memory, true);
        return;
    }
    const Lines lines = {x, rows->other ? second : NULL, rows->other || rows->apart ? second : x, rows->other ? x : NULL};
    for (; row < end; row += most) {
        const int64_t count = least(most, end - row), elements = count * rows->columns;
        isa->widen(storage, row_at(rows, rows->x, row), x, elements);
        if (rows->other) isa->widen(storage, row_at(rows, rows->other, row), second, elements);
        rows->run(rows, row, count, lines);
        isa->narrow(storage, lines.y, row_at(rows, rows->y, row), elements);
        if (rows->sum) isa->narrow(storage, lines.sum, row_at(rows, rows->sum, row), elements);
    }
    release(x);
}

static void rows_part(void *data, size_t index) {
    Rows *rows = data;
    const int64_t each = rows_of(PART, rows->columns), row = (int64_t)index * each, end = least(row + each, rows->count);
    if (rows->kernel->storage != AS_FLOAT32 && !rows->widens) run_widened(rows, row, end);
    else rows->run(rows, row, end - row, (Lines){row_at(rows, rows->x, row), row_at(rows, rows->other, row), row_at(rows, rows->y, row),
                                                 row_at(rows, rows->sum, row)});
}

/* cost: operations per element. */
static OrtStatus *run_rows(Rows *rows, OrtKernelContext *context, double cost) {
    const int64_t each = rows_of(PART, rows->columns);
    if (rows->count * rows->columns == 0) return NULL;
    TRY(in_parallel(rows->kernel, context, rows_part, (rows->count + each - 1) / each, cost * (double)(rows->count * rows->columns), rows));
    return atomic_load(&rows->no_memory) ? failed(rows->kernel, "no memory for a block") : NULL;
}

/* Normalizations. Inputs: x, other (if it adds), scale, shift (if centred). */

typedef struct {
    Kernel kernel;
    float epsilon;
    int64_t axes; /* the number of last axes that are normalized */
    bool centred, adds;
} NormKernel;

static OrtStatus *read_axes(NormKernel *self, const OrtKernelInfo *info) {
    int64_t axes[MOST_AXES] = {-1};
    size_t count = 1;
    bool seen[MOST_AXES] = {false};
    TRY(read_ints(&self->kernel, info, "axes", axes, MOST_AXES, &count));
    if (count == 0) return failed(&self->kernel, "the attribute axes must be a list of ints, and not empty");
    for (size_t i = 0; i < count; i++) {
        if (axes[i] >= 0 || axes[i] < -(int64_t)count || seen[-axes[i] - 1])
            return failed(&self->kernel, "axes must be the last ones, counted from the end: -%zu to -1, each once", count);
        seen[-axes[i] - 1] = true;
    }
    self->axes = (int64_t)count;
    return NULL;
}

static OrtStatus *create_norm(Kernel *kernel, const OrtKernelInfo *info, bool centred, bool adds) {
    NormKernel *self = (NormKernel *)kernel;
    self->centred = centred, self->adds = adds, self->epsilon = NAN;
    TRY(read_axes(self, info));
    TRY(read_float(kernel, info, "epsilon", &self->epsilon));
    return self->epsilon >= 0 ? NULL : failed(kernel, "the attribute epsilon must be given, and not below 0");
}

static OrtStatus *create_layer_norm(Kernel *kernel, const OrtKernelInfo *info) { return create_norm(kernel, info, true, false); }
static OrtStatus *create_rms_norm(Kernel *kernel, const OrtKernelInfo *info) { return create_norm(kernel, info, false, false); }
static OrtStatus *create_add_layer_norm(Kernel *kernel, const OrtKernelInfo *info) { return create_norm(kernel, info, true, true); }
static OrtStatus *create_add_rms_norm(Kernel *kernel, const OrtKernelInfo *info) { return create_norm(kernel, info, false, true); }

/* A tensor that broadcasts to x. step: in it, for one step along an axis of x. */
typedef struct {
    const float *data;
    int axes;
    int64_t sizes[MOST_AXES], step[MOST_AXES];
} Spread;

typedef struct {
    Rows rows;
    Norm norm;
    Spread shift; /* a shift that is not a single row, as norm.shift is */
} NormRows;

/* Adds it to y, which holds the runs from `run` up to `run_end`. A run is a line along the last axis. */
static void add_spread(const Spread *spread, float *y, int64_t run, int64_t run_end) {
    const int64_t length = spread->sizes[spread->axes - 1], step = spread->step[spread->axes - 1];
    for (; run < run_end; run++, y += length) {
        const float *from = spread->data;
        int64_t rest = run;
        for (int i = spread->axes - 2; i >= 0; rest /= spread->sizes[i--]) from += rest % spread->sizes[i] * spread->step[i];
        for (int64_t k = 0; k < length; k++) y[k] += from[k * step];
    }
}

static void norm_some(const Rows *rows, int64_t row, int64_t count, Lines lines) {
    const NormRows *self = (const NormRows *)rows;
    Norm norm = self->norm;
    norm.x = lines.x, norm.other = lines.other, norm.y = lines.y, norm.sum = lines.sum;
    rows->kernel->isa->norm(&norm, 0, count);
    if (!self->shift.data) return;
    const int64_t runs = norm.columns / self->shift.sizes[self->shift.axes - 1]; /* per row */
    add_spread(&self->shift, lines.y, row * runs, (row + count) * runs);
}

/* Whether a tensor has the size and axes of a row, apart from leading axes of size 1. */
static bool is_row(const Tensor *tensor, const int64_t *sizes, int axes, int64_t columns) {
    bool fits = tensor->count == columns;
    for (int i = 1; i <= tensor->axes && fits; i++) fits = tensor->sizes[tensor->axes - i] == (i <= axes ? sizes[axes - i] : 1);
    return fits;
}

static OrtStatus *spread_to(const Kernel *kernel, const Tensor *tensor, const Tensor *x, Spread *out) {
    bool fits = tensor->axes <= x->axes;
    int64_t next = 1;
    *out = (Spread){.axes = x->axes};
    memcpy(out->sizes, x->sizes, sizeof x->sizes);
    for (int i = 1; i <= tensor->axes && fits; i++) {
        const int64_t size = tensor->sizes[tensor->axes - i];
        fits = size == 1 || size == x->sizes[x->axes - i];
        out->step[x->axes - i] = size == 1 ? 0 : next;
        next *= size;
    }
    return fits ? NULL : failed(kernel, "%s is %s, and must broadcast to %s", tensor->name, shape_of(tensor), shape_of(x));
}

static OrtStatus *compute_norm(const Kernel *kernel, OrtKernelContext *context) {
    const NormKernel *self = (const NormKernel *)kernel;
    Tensor in[MOST_INPUTS];
    TRY(read_inputs(kernel, context, in));
    const Tensor absent = {0}, *x = in, *other = self->adds ? in + 1 : &absent, *scale = in + 1 + self->adds;
    const Tensor *shift = self->centred ? scale + 1 : &absent;
    if (x->axes < self->axes) return failed(kernel, "x is %s, and has fewer than %lld axes", shape_of(x), (long long)self->axes);
    const int first = x->axes - (int)self->axes;
    int64_t columns = 1, rows = 1;
    for (int i = 0; i < x->axes; i++) *(i < first ? &rows : &columns) *= x->sizes[i];
    if (scale->data && !is_row(scale, x->sizes + first, (int)self->axes, columns))
        return failed(kernel, "scale is %s, and must be %s", shape_of(scale), shape_text(x->sizes + first, (int)self->axes));
    const bool shifts_rows = !shift->data || is_row(shift, x->sizes + first, (int)self->axes, columns);
    if (other->data && !same_shape(other, x->sizes, x->axes))
        return failed(kernel, "other is %s, and must be %s as x is", shape_of(other), shape_of(x));

    NormRows self_rows = {
        .rows = {.kernel = kernel, .x = x->data, .other = other->data, .columns = columns, .count = rows, .run = norm_some},
        .norm = {.columns = columns, .epsilon = self->epsilon, .centred = self->centred},
    };
    if (!shifts_rows) TRY(spread_to(kernel, shift, x, &self_rows.shift));
    TRY(write_output(kernel, context, 0, x->sizes, x->axes, &self_rows.rows.y));
    if (self->adds) TRY(write_output(kernel, context, 1, x->sizes, x->axes, &self_rows.rows.sum));
    Floats scales, shifts = {0};
    OrtStatus *status = floats_of(kernel, scale, &scales);
    if (!status) status = floats_of(kernel, shift, &shifts);
    self_rows.rows.widens = !other->data && shifts_rows;
    self_rows.norm.storage = self_rows.rows.widens ? kernel->storage : AS_FLOAT32;
    self_rows.norm.scale = scales.data;
    *(shifts_rows ? &self_rows.norm.shift : &self_rows.shift.data) = shifts.data;
    if (!status) status = run_rows(&self_rows.rows, context, 8.0);
    release(scales.memory);
    release(shifts.memory);
    return status;
}

#define NORM(KIND, NAME, REQUIRED, MOST, OUTPUTS, CREATE, ...) \
    const Kind KIND = {.name = NAME, .inputs = {__VA_ARGS__}, .required = REQUIRED, .most = MOST, .outputs = OUTPUTS, \
                       .bytes = sizeof(NormKernel), .create = CREATE, .compute = compute_norm}
NORM(LAYER_NORM, "LayerNorm", 1, 3, 1, create_layer_norm, "x", "scale", "shift");
NORM(RMS_NORM, "RMSNorm", 1, 2, 1, create_rms_norm, "x", "scale");
NORM(ADD_LAYER_NORM, "AddLayerNorm", 2, 4, 2, create_add_layer_norm, "x", "other", "scale", "shift");
NORM(ADD_RMS_NORM, "AddRMSNorm", 2, 3, 2, create_add_rms_norm, "x", "other", "scale");

/* Elementwise operators and Softmax: one input, and a result of its shape. */

typedef struct {
    Kernel kernel;
    Activation activation;
    float alpha;
} ActivateKernel;

static OrtStatus *create_gelu(Kernel *kernel, const OrtKernelInfo *info) {
    (void)info;
    ((ActivateKernel *)kernel)->activation = GELU;
    return NULL;
}

static OrtStatus *create_fast_gelu(Kernel *kernel, const OrtKernelInfo *info) {
    (void)info;
    ((ActivateKernel *)kernel)->activation = FAST_GELU;
    return NULL;
}

static OrtStatus *create_swish(Kernel *kernel, const OrtKernelInfo *info) {
    ActivateKernel *self = (ActivateKernel *)kernel;
    self->activation = SWISH;
    self->alpha = NAN;
    TRY(read_float(kernel, info, "alpha", &self->alpha));
    return isnan(self->alpha) ? failed(kernel, "the attribute alpha must be given") : NULL;
}

static OrtStatus *create_softmax(Kernel *kernel, const OrtKernelInfo *info) {
    int64_t axis = -1;
    TRY(read_int(kernel, info, "axis", &axis));
    return axis == -1 ? NULL : failed(kernel, "axis is %lld, and must be -1", (long long)axis);
}

static void activate_some(const Rows *rows, int64_t row, int64_t count, Lines lines) {
    const ActivateKernel *self = (const ActivateKernel *)rows->kernel;
    (void)row;
    self->kernel.isa->activate(self->activation, self->alpha, lines.x, lines.y, count);
}

static OrtStatus *compute_activate(const Kernel *kernel, OrtKernelContext *context) {
    Tensor x;
    TRY(read_input(kernel, context, 0, &x));
    Rows rows = {.kernel = kernel, .x = x.data, .columns = 1, .count = x.count, .run = activate_some};
    TRY(write_output(kernel, context, 0, x.sizes, x.axes, &rows.y));
    return run_rows(&rows, context, 20.0);
}

static void softmax_some(const Rows *rows, int64_t row, int64_t count, Lines lines) {
    (void)row;
    rows->kernel->isa->softmax(lines.x, lines.y, count, rows->columns);
}

static OrtStatus *compute_softmax(const Kernel *kernel, OrtKernelContext *context) {
    Tensor x;
    TRY(read_input(kernel, context, 0, &x));
    if (x.axes < 1) return failed(kernel, "x is a single number, and must have an axis");
    Rows rows = {.kernel = kernel, .x = x.data, .columns = x.sizes[x.axes - 1], .run = softmax_some};
    TRY(write_output(kernel, context, 0, x.sizes, x.axes, &rows.y));
    if (x.count == 0) return NULL;
    rows.count = x.count / rows.columns;
    return run_rows(&rows, context, 20.0);
}

#define ELEMENTWISE(KIND, NAME, CREATE, COMPUTE) \
    const Kind KIND = {.name = NAME, .inputs = {"x"}, .required = 1, .most = 1, .outputs = 1, \
                       .bytes = sizeof(ActivateKernel), .create = CREATE, .compute = COMPUTE}
ELEMENTWISE(GELU_OF, "Gelu", create_gelu, compute_activate);
ELEMENTWISE(FAST_GELU_OF, "FastGelu", create_fast_gelu, compute_activate);
ELEMENTWISE(SWISH_OF, "Swish", create_swish, compute_activate);
ELEMENTWISE(SOFTMAX, "Softmax", create_softmax, compute_softmax);

/* Rotary. x: [batch, heads, length, size], or [batch, length, heads · size] with the attribute heads. */

typedef struct {
    Kernel kernel;
    int64_t heads, interleaved;
} RotaryKernel;

static OrtStatus *create_rotary(Kernel *kernel, const OrtKernelInfo *info) {
    RotaryKernel *self = (RotaryKernel *)kernel;
    self->interleaved = -1;
    TRY(read_int(kernel, info, "heads", &self->heads));
    TRY(read_int(kernel, info, "interleaved", &self->interleaved));
    if (self->heads < 0) return failed(kernel, "heads is %lld", (long long)self->heads);
    return self->interleaved == 0 || self->interleaved == 1 ? NULL : failed(kernel, "the attribute interleaved must be given, 0 or 1");
}

typedef struct {
    Rows rows;
    Rotary rotary;
} RotaryRows;

static void rotary_some(const Rows *rows, int64_t row, int64_t count, Lines lines) {
    Rotary rotary = ((const RotaryRows *)rows)->rotary;
    rotary.x = lines.x, rotary.y = lines.y;
    rows->kernel->isa->rotary(&rotary, row, row + count);
}

static OrtStatus *compute_rotary(const Kernel *kernel, OrtKernelContext *context) {
    const RotaryKernel *self = (const RotaryKernel *)kernel;
    Tensor in[MOST_INPUTS];
    TRY(read_inputs(kernel, context, in));
    const Tensor *x = in, *cosines = in + 1, *sines = in + 2;
    if (x->axes != 3 && x->axes != 4) return failed(kernel, "x is %s, and must have 3 or 4 axes", shape_of(x));
    const bool apart = x->axes == 4;
    if (!apart && self->heads == 0) return failed(kernel, "x has 3 axes, and so the attribute heads must be given");
    const int64_t batch = x->sizes[0], heads = apart ? x->sizes[1] : self->heads, length = x->sizes[apart ? 2 : 1];
    if (self->heads && heads != self->heads) return failed(kernel, "x is %s, and heads is %lld", shape_of(x), (long long)self->heads);
    const int64_t last = x->sizes[x->axes - 1], size = apart ? last : last / heads;
    if ((!apart && last % heads) || size % 2) return failed(kernel, "x is %s: a head must have an even size", shape_of(x));
    const int64_t angles[3] = {cosines->axes ? cosines->sizes[0] : 0, length, size / 2};
    if (!same_shape(cosines, angles, 3) || (angles[0] != 1 && angles[0] != batch))
        return failed(kernel, "cos is %s, and must be [1, %lld, %lld] or [%lld, %lld, %lld]", shape_of(cosines), (long long)length,
                      (long long)angles[2], (long long)batch, (long long)length, (long long)angles[2]);
    if (!same_shape(sines, cosines->sizes, 3)) return failed(kernel, "sin is %s, and cos %s", shape_of(sines), shape_of(cosines));

    RotaryRows turned = {
        .rows = {.kernel = kernel, .x = x->data, .columns = size, .count = batch * heads * length, .widens = !self->interleaved,
                 .apart = true, .run = rotary_some},
        .rotary = {
            .storage = self->interleaved ? AS_FLOAT32 : kernel->storage,
            .rows_of_batch = heads * length, .repeat = apart ? 1 : heads, .length = length, .size = size,
            .batch_step = angles[0] == 1 ? 0 : length * (size / 2), .interleaved = self->interleaved,
        },
    };
    TRY(write_output(kernel, context, 0, x->sizes, x->axes, &turned.rows.y));
    Floats cos, sin = {0};
    OrtStatus *status = floats_of(kernel, cosines, &cos);
    if (!status) status = floats_of(kernel, sines, &sin);
    turned.rotary.cos = cos.data, turned.rotary.sin = sin.data;
    if (!status) status = run_rows(&turned.rows, context, 6.0);
    release(cos.memory);
    release(sin.memory);
    return status;
}

const Kind ROTARY = {
    .name = "Rotary",
    .inputs = {"x", "cos", "sin"},
    .required = 3,
    .most = 3,
    .outputs = 1,
    .bytes = sizeof(RotaryKernel),
    .create = create_rotary,
    .compute = compute_rotary,
};
