/* Linear(x, w, b?, gate?, residual?): y = act(x w + b) * gate + residual.

   x: [..., depth]; w: [depth, columns]; b: [columns]; y, gate, residual: [..., columns].
   Constant weights are packed when the kernel is made, and so held once more; others at each run. */

#include "op.h"

#include <math.h>
#include <string.h>

enum { X, W, B, GATE, RESIDUAL };

/* A part's panels, to the depth of one tile, and its results stay in L2; each row is copied once for all panels of a part, so that parts
   are as wide as that allows. Four parts, where there is work for them, let threads share what is left at the end. */
enum { BLOCK_ROWS = 256, BLOCK_COLUMNS = 1024, FEWEST_PARTS = 4 };

typedef struct {
    Kernel kernel;
    Activation activation;
    float alpha;
    int64_t depth, columns; /* of the packed weights */
    float *packed;          /* NULL where the weights are not constant */
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

static int64_t panels_of(const Isa *isa, int64_t columns) { return (columns + isa->panel - 1) / isa->panel; }

static OrtStatus *allocate(const Kernel *kernel, int64_t depth, int64_t columns, float **out) {
    const int64_t bytes = panels_of(kernel->isa, columns) * kernel->isa->panel * depth * (int64_t)sizeof(float);
    *out = aligned(bytes);
    return *out ? NULL : failed(kernel, "no memory for the packed weights, %lld bytes", (long long)bytes);
}

static OrtStatus *check_weights(const Kernel *kernel, const Tensor *w) {
    return w->axes == 2 ? NULL : failed(kernel, "w must have 2 axes, and is %s", shape_of(w));
}

static OrtStatus *create(Kernel *kernel, const OrtKernelInfo *info) {
    LinearKernel *self = (LinearKernel *)kernel;
    Tensor w;
    TRY(read_activation(self, info));
    TRY(read_constant(kernel, info, W, &w));
    if (!w.data) return NULL;
    TRY(check_weights(kernel, &w));
    self->depth = w.sizes[0], self->columns = w.sizes[1];
    TRY(allocate(kernel, self->depth, self->columns, &self->packed));
    for (int64_t p = 0; p < panels_of(kernel->isa, self->columns); p++)
        kernel->isa->pack(w.data, self->depth, self->columns, p, self->packed + p * self->depth * kernel->isa->panel);
    return NULL;
}

static void destroy(Kernel *kernel) { release(((LinearKernel *)kernel)->packed); }

/* How one product is cut: `wide` parts of its panels beside each other, for each part of its rows. */
typedef struct {
    const Isa *isa;
    Linear linear;
    const float *w;
    float *packed; /* to be filled, where the weights are not constant */
    int64_t wide, panels, rows_each, panels_each;
} Cut;

static void pack_one(void *data, size_t index) {
    const Cut *cut = data;
    const Linear *l = &cut->linear;
    cut->isa->pack(cut->w, l->depth, l->columns, (int64_t)index, cut->packed + (int64_t)index * l->depth * cut->isa->panel);
}

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

static void run_one(void *data, size_t index) {
    const Cut *cut = data;
    const int64_t row = (int64_t)index / cut->wide * cut->rows_each, panel = (int64_t)index % cut->wide * cut->panels_each;
    cut->isa->linear(&cut->linear, row, least(row + cut->rows_each, cut->linear.rows), panel, least(panel + cut->panels_each, cut->panels));
}

static OrtStatus *run(const Kernel *kernel, OrtKernelContext *context, Cut *cut) {
    const Linear *l = &cut->linear;
    const double cost = 2.0 * (double)l->rows * (double)l->columns * (double)(l->depth + 1);
    if (cut->packed) {
        TRY(in_parallel(kernel, context, pack_one, cut->panels, (double)l->depth * (double)l->columns, cut));
        cut->linear.packed = cut->packed;
    }
    const int64_t blocks = (l->rows + BLOCK_ROWS - 1) / BLOCK_ROWS;
    cut->rows_each = (l->rows + blocks - 1) / blocks;
    const int64_t wanted = (FEWEST_PARTS + blocks - 1) / blocks, needed = (l->columns + BLOCK_COLUMNS - 1) / BLOCK_COLUMNS;
    const int64_t parts = wanted > needed ? wanted : needed;
    cut->panels_each = (cut->panels + parts - 1) / parts;
    cut->wide = (cut->panels + cut->panels_each - 1) / cut->panels_each;
    return in_parallel(kernel, context, run_one, blocks * cut->wide, cost, cut);
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

    Cut cut = {.isa = kernel->isa, .w = w->data, .panels = panels_of(kernel->isa, columns)};
    cut.linear = (Linear){
        .x = x->data, .packed = self->packed, .bias = b->data, .gate = in[GATE].data, .residual = in[RESIDUAL].data,
        .rows = rows, .depth = depth, .columns = columns, .activation = self->activation, .alpha = self->alpha,
    };
    TRY(write_output(kernel, context, 0, sizes, x->axes, &cut.linear.y));
    if (rows == 0 || columns == 0) return NULL;
    if (!self->packed) TRY(allocate(kernel, depth, columns, &cut.packed));
    OrtStatus *status = run(kernel, context, &cut);
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
