/* Linear(x, w, b?, gate?, residual?): y = act(x w + b) * gate + residual.

   x: [..., depth]; w: [depth, columns]; b: [columns]; y, gate, residual: [..., columns].
   Constant weights are packed when the kernel is created, so they are in memory twice; others are packed in each run. */

#define _DEFAULT_SOURCE /* madvise */

#include "op.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#if defined(__linux__)
#include <sys/mman.h>
#endif

enum { X, W, B, GATE, RESIDUAL };

/* At least four parts, if there is enough work, let threads share the rest at the end. Rows are divided before columns, because each part
   copies its rows. But parts with fewer rows than `fewest_rows`, or with many columns, would read the weights too often. Fewer than FAIR_PARTS are a multiple of
   four: of five equal parts, one of two threads would compute three. */
enum { FEWEST_PARTS = 4, FAIR_PARTS = 16, MOST_COLUMNS = 1024 };

typedef struct {
    Kernel kernel;
    const Product *product;
    Activation activation;
    float alpha;
    int64_t depth, columns; /* of the packed weights */
    bool huge;              /* as in Linear */
    char *packed;           /* NULL where the weights are not constant */
} LinearKernel;

static const char *const WORDS[ACTIVATIONS] = {"Identity", "Relu", "Gelu", "FastGelu", "Swish", "Tanh", "Sigmoid"};

static OrtStatus *read_activation(LinearKernel *self, const OrtKernelInfo *info) {
    char word[16] = "Identity";
    self->alpha = NAN;
    TRY(read_float(&self->kernel, info, "alpha", &self->alpha));
    TRY(read_word(&self->kernel, info, "act", word, sizeof word));
    for (int i = 0; i < ACTIVATIONS; i++)
        if (strcmp(word, WORDS[i]) == 0) {
            self->activation = (Activation)i;
            return i != SWISH || !isnan(self->alpha) ? NULL : failed(&self->kernel, "the attribute alpha must be given with Swish");
        }
    return failed(&self->kernel, "act is \"%s\"; choose one of Identity, Relu, Gelu, FastGelu, Swish, Tanh, Sigmoid", word);
}

static OrtStatus *read_product(LinearKernel *self, const OrtKernelInfo *info) {
    Numerics numerics = FLOAT32;
    TRY(read_numerics(&self->kernel, info, &numerics));
    self->product = self->kernel.isa->products[self->kernel.storage][numerics];
    return NULL;
}

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }
static int64_t parts_of(int64_t total, int64_t each) { return (total + each - 1) / each; }

static bool has_huge(const float *w, int64_t count) {
    bool fine = true;
    for (int64_t i = 0; i < count; i++) fine &= fabsf(w[i]) <= 0x1.fep127f;
    return !fine;
}

/* Memory for weights. They are read as one long stream; large pages make that up to 10% faster. */
static void *large(int64_t bytes) {
#if defined(__linux__) && defined(MADV_HUGEPAGE)
    enum { PAGE = 2 << 20 };
    if (bytes >= PAGE) {
        void *memory = aligned_alloc(PAGE, (size_t)parts_of(bytes, PAGE) * PAGE);
        if (memory) madvise(memory, (size_t)(bytes / PAGE * PAGE), MADV_HUGEPAGE);
        return memory;
    }
#endif
    return aligned(bytes);
}

static OrtStatus *allocate(const LinearKernel *self, int64_t depth, int64_t columns, char **out) {
    const int64_t bytes = parts_of(columns, self->product->panel) * self->product->panel_bytes(depth);
    *out = large(bytes);
    return *out ? NULL : failed(&self->kernel, "no memory for the packed weights, %lld bytes", (long long)bytes);
}

static OrtStatus *check_weights(const Kernel *kernel, const Tensor *w) {
    return w->axes == 2 ? NULL : failed(kernel, "w must have 2 axes, and is %s", shape_of(w));
}

static OrtStatus *create(Kernel *kernel, const OrtKernelInfo *info) {
    LinearKernel *self = (LinearKernel *)kernel;
    Tensor w;
    TRY(read_activation(self, info));
    TRY(read_product(self, info));
    TRY(read_constant(kernel, info, W, &w));
    if (!w.data) return NULL;
    TRY(check_weights(kernel, &w));
    const int64_t depth = self->depth = w.sizes[0], columns = self->columns = w.sizes[1];
    TRY(allocate(self, depth, columns, &self->packed));
    Floats floats;
    TRY(floats_of(kernel, &w, &floats));
    self->huge = has_huge(floats.data, w.count);
    for (int64_t p = 0; p < parts_of(columns, self->product->panel); p++)
        self->product->pack(floats.data, depth, columns, p, self->packed + p * self->product->panel_bytes(depth));
    release(floats.memory);
    return NULL;
}

static void destroy(Kernel *kernel) { release(((LinearKernel *)kernel)->packed); }

/* How one product is divided: `tall` parts of its rows for each part of its panels, whose weights stay in the cache. */
typedef struct {
    const Product *product;
    Linear linear;
    const float *w;
    char *packed; /* to be filled if the weights are not constant */
    int64_t tall, panels, rows_each, panels_each;
    atomic_bool no_memory;
} Cut;

static void pack_one(void *data, size_t index) {
    const Cut *cut = data;
    const Linear *l = &cut->linear;
    cut->product->pack(cut->w, l->depth, l->columns, (int64_t)index, cut->packed + (int64_t)index * cut->product->panel_bytes(l->depth));
}

static void run_one(void *data, size_t index) {
    Cut *cut = data;
    const Linear *l = &cut->linear;
    const int64_t row = (int64_t)index % cut->tall * cut->rows_each, row_end = least(row + cut->rows_each, l->rows);
    const int64_t panel = (int64_t)index / cut->tall * cut->panels_each;
    const int64_t panel_end = least(panel + cut->panels_each, cut->panels);
    void *scratch = aligned(cut->product->scratch(l, row_end - row, panel_end - panel));
    if (scratch) cut->product->linear(l, row, row_end, panel, panel_end, scratch);
    else atomic_store(&cut->no_memory, true);
    release(scratch);
}

/* Packs weights that are not constant. */
static OrtStatus *pack_all(const Kernel *kernel, OrtKernelContext *context, const Tensor *w, Cut *cut) {
    Floats floats;
    TRY(floats_of(kernel, w, &floats));
    cut->w = floats.data, cut->linear.packed = cut->packed, cut->linear.huge = has_huge(floats.data, w->count);
    OrtStatus *status = in_parallel(kernel, context, pack_one, cut->panels, (double)w->count, cut);
    release(floats.memory);
    return status;
}

static OrtStatus *run(const Kernel *kernel, OrtKernelContext *context, Cut *cut) {
    const Linear *l = &cut->linear;
    const double cost = 2.0 * (double)l->rows * (double)l->columns * (double)(l->depth + 1);
    const Product *product = cut->product;
    const int64_t columns = parts_of(l->columns, MOST_COLUMNS);
    const int64_t rows = least(parts_of(FEWEST_PARTS, columns), parts_of(l->rows, product->fewest_rows));
    const int64_t tall = most(parts_of(l->rows, product->most_rows), rows);
    int64_t wide = most(columns, parts_of(FEWEST_PARTS, tall));
    while (tall * wide < FAIR_PARTS && tall * wide % FEWEST_PARTS) wide++;
    cut->rows_each = parts_of(l->rows, tall);
    cut->panels_each = parts_of(cut->panels, wide);
    cut->tall = parts_of(l->rows, cut->rows_each);
    TRY(in_parallel(kernel, context, run_one, cut->tall * parts_of(cut->panels, cut->panels_each), cost, cut));
    return atomic_load(&cut->no_memory) ? failed(kernel, "no memory for a block") : NULL;
}

static OrtStatus *check_like_y(const Kernel *kernel, const Tensor *tensor, const int64_t *sizes, int axes) {
    if (!tensor->data || same_shape(tensor, sizes, axes)) return NULL;
    return failed(kernel, "%s is %s, and must be %s as the result is", tensor->name, shape_of(tensor), shape_text(sizes, axes));
}

static OrtStatus *compute(const Kernel *kernel, OrtKernelContext *context) {
    const LinearKernel *self = (const LinearKernel *)kernel;
    Tensor in[MOST_INPUTS];
    TRY(read_inputs(kernel, context, in));
    const Tensor *x = in + X, *w = in + W, *b = in + B;
    TRY(check_weights(kernel, w));
    const int64_t depth = w->sizes[0], columns = w->sizes[1];
    if (x->axes < 1 || x->sizes[x->axes - 1] != depth)
        return failed(kernel, "x is %s and w %s: the last axis of x must be as long as w has rows", shape_of(x), shape_of(w));
    if (b->data && (b->count != columns || (b->axes ? b->sizes[b->axes - 1] : 1) != columns))
        return failed(kernel, "b is %s, and must be [%lld]", shape_of(b), (long long)columns);
    int64_t sizes[MOST_AXES], rows = 1;
    memcpy(sizes, x->sizes, sizeof sizes);
    for (int i = 0; i + 1 < x->axes; i++) rows *= sizes[i];
    sizes[x->axes - 1] = columns;
    TRY(check_like_y(kernel, in + GATE, sizes, x->axes));
    TRY(check_like_y(kernel, in + RESIDUAL, sizes, x->axes));

    Cut cut = {.product = self->product, .panels = parts_of(columns, self->product->panel)};
    cut.linear = (Linear){
        .storage = kernel->storage, .x = x->data, .packed = self->packed, .bias = b->data, .gate = in[GATE].data, .residual = in[RESIDUAL].data,
        .rows = rows, .depth = depth, .columns = columns, .activation = self->activation, .alpha = self->alpha, .huge = self->huge,
    };
    TRY(write_output(kernel, context, 0, sizes, x->axes, &cut.linear.y));
    if (rows == 0 || columns == 0) return NULL;
    if (!self->packed) TRY(allocate(self, depth, columns, &cut.packed));
    OrtStatus *status = self->packed ? NULL : pack_all(kernel, context, w, &cut);
    if (!status) status = run(kernel, context, &cut);
    release(cut.packed);
    return status;
}

const Kind LINEAR = {
    .name = "Linear",
    .inputs = {"x", "w", "b", "gate", "residual"},
    .required = 2,
    .most = 5,
    .outputs = 1,
    .bytes = sizeof(LinearKernel),
    .create = create,
    .compute = compute,
    .destroy = destroy,
};
