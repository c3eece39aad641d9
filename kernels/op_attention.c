/* Attention(query, key, value, mask?, sink?), as docs/operators.md defines it: softmax(scale * query keyᵀ + mask) value of each head.

   query: [batch, heads, length, size]; key: [batch, groups, keys, size]; value: [batch, groups, keys, value_size]. Each may instead have the
   heads in its last axis, [batch, length, heads * size]. The result has the layout of the query. */

#include "op.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

enum { QUERY, KEY, VALUE, MASK, SINK };

typedef struct {
    Kernel kernel;
    float scale, cap;
    int64_t heads, repeats, guarded; /* heads: 0 if the query's shape gives it */
    Numerics numerics;
} AttentionKernel;

static OrtStatus *create(Kernel *kernel, const OrtKernelInfo *info) {
    AttentionKernel *self = (AttentionKernel *)kernel;
    self->scale = NAN, self->repeats = 1;
    TRY(read_float(kernel, info, "scale", &self->scale));
    TRY(read_float(kernel, info, "softcap", &self->cap));
    TRY(read_int(kernel, info, "heads", &self->heads));
    TRY(read_int(kernel, info, "repeats", &self->repeats));
    TRY(read_int(kernel, info, "guarded", &self->guarded));
    TRY(read_numerics(kernel, info, &self->numerics));
    if (isnan(self->scale)) return failed(kernel, "the attribute scale must be given");
    if (!(self->cap >= 0)) return failed(kernel, "softcap must not be below 0");
    if (self->heads < 0) return failed(kernel, "heads is %lld", (long long)self->heads);
    if (self->repeats < 1) return failed(kernel, "repeats is %lld, and must be 1 or more", (long long)self->repeats);
    if (self->heads % self->repeats)
        return failed(kernel, "heads is %lld, and no multiple of repeats, %lld", (long long)self->heads, (long long)self->repeats);
    return NULL;
}

/* A tensor by heads, in either layout. step: from one batch element, head and position to the next. */
typedef struct {
    int64_t batch, heads, length, size, step[3];
} ByHeads;

static OrtStatus *read_heads(const Kernel *kernel, const Tensor *tensor, int64_t heads, ByHeads *out) {
    const int64_t *sizes = tensor->sizes;
    if (tensor->axes == 4) {
        *out = (ByHeads){sizes[0], sizes[1], sizes[2], sizes[3], {sizes[1] * sizes[2] * sizes[3], sizes[2] * sizes[3], sizes[3]}};
        if (heads && heads != sizes[1])
            return failed(kernel, "%s is %s, and must have %lld heads", tensor->name, shape_of(tensor), (long long)heads);
        return NULL;
    }
    if (tensor->axes != 3) return failed(kernel, "%s is %s, and must have 3 or 4 axes", tensor->name, shape_of(tensor));
    if (heads == 0) return failed(kernel, "%s has 3 axes, and so the attribute heads must be given", tensor->name);
    if (sizes[2] % heads)
        return failed(kernel, "%s is %s, and its last axis no multiple of %lld heads", tensor->name, shape_of(tensor), (long long)heads);
    *out = (ByHeads){sizes[0], heads, sizes[1], sizes[2] / heads, {sizes[1] * sizes[2], sizes[2] / heads, sizes[2]}};
    return NULL;
}

/* The mask broadcasts to [batch, heads, length, keys]. */
static OrtStatus *read_mask(const Kernel *kernel, const Tensor *mask, const int64_t *sizes, int64_t *step) {
    if (!mask->data) return NULL;
    int64_t next = 1;
    bool fits = mask->axes <= 4;
    for (int i = 1; i <= mask->axes && fits; i++) {
        const int64_t size = mask->sizes[mask->axes - i];
        fits = size == 1 || size == sizes[4 - i];
        step[4 - i] = size == 1 ? 0 : next;
        next *= size;
    }
    return fits ? NULL : failed(kernel, "mask is %s, and must broadcast to %s", shape_of(mask), shape_text(sizes, 4));
}

/* The sink is [1, heads, 1, 1]. */
static OrtStatus *check_sink(const Kernel *kernel, const Tensor *sink, int64_t heads) {
    const int64_t *sizes = sink->sizes;
    if (!sink->data || (sink->axes == 4 && sizes[0] == 1 && sizes[1] == heads && sizes[2] == 1 && sizes[3] == 1)) return NULL;
    return failed(kernel, "sink is %s, and must be [1, %lld, 1, 1]", shape_of(sink), (long long)heads);
}

static OrtStatus *read_all(const AttentionKernel *self, const Tensor *in, Attention *a) {
    const Kernel *kernel = &self->kernel;
    ByHeads query, key, value;
    TRY(read_heads(kernel, in + QUERY, self->heads, &query));
    if (query.heads % self->repeats)
        return failed(kernel, "query is %s: its heads are no multiple of repeats, %lld", shape_of(in + QUERY), (long long)self->repeats);
    const int64_t groups = query.heads / self->repeats;
    TRY(read_heads(kernel, in + KEY, groups, &key));
    TRY(read_heads(kernel, in + VALUE, groups, &value));
    const bool fit = key.batch == query.batch && key.heads == groups && key.size == query.size && value.batch == query.batch &&
                     value.heads == groups && value.length == key.length;
    if (!fit)
        return failed(kernel, "query is %s, key %s and value %s: they do not fit", shape_of(in + QUERY), shape_of(in + KEY),
                      shape_of(in + VALUE));
    *a = (Attention){
        .storage = kernel->storage, .query = in[QUERY].data, .key = in[KEY].data, .value = in[VALUE].data, .mask = in[MASK].data,
        .sink = in[SINK].data,
        .batch = query.batch, .heads = query.heads, .repeats = self->repeats, .length = query.length, .keys = key.length,
        .size = query.size, .value_size = value.size, .scale = self->scale, .cap = self->cap, .guarded = self->guarded,
        .rounds = self->numerics == BF16,
    };
    TRY(check_sink(kernel, in + SINK, a->heads));
    memcpy(a->query_step, query.step, sizeof query.step);
    memcpy(a->key_step, key.step, sizeof key.step);
    memcpy(a->value_step, value.step, sizeof value.step);
    const int64_t scores[4] = {a->batch, a->heads, a->length, a->keys};
    return read_mask(kernel, in + MASK, scores, a->mask_step);
}

/* The work is divided into units (a block of rows of a head), and the units into parts. A running part owns one place in the scratch memory:
   the first free one. So only as many places are used as threads run, and they stay in the caches. */
enum { MOST_PARTS = 64 };

typedef struct {
    const Isa *isa;
    Attention attention;
    int64_t blocks, rows, units, each; /* blocks: per head; rows: per block; each: units per part */
    float *scratch;
    int64_t place; /* floats per place */
    atomic_bool taken[MOST_PARTS];
} Cut;

static int take(Cut *cut) {
    for (int i = 0;; i = (i + 1) % MOST_PARTS)
        if (!atomic_exchange(&cut->taken[i], true)) return i;
}

static void run_one(void *data, size_t index) {
    Cut *cut = data;
    const Attention *a = &cut->attention;
    const int mine = take(cut);
    const int64_t first = (int64_t)index * cut->each, end = first + cut->each < cut->units ? first + cut->each : cut->units;
    for (int64_t unit = first; unit < end; unit++) {
        const int64_t head = unit / cut->blocks, row = unit % cut->blocks * cut->rows;
        const int64_t row_end = row + cut->rows < a->length ? row + cut->rows : a->length;
        cut->isa->attention(a, head / a->heads, head % a->heads, row, row_end, cut->scratch + mine * cut->place);
    }
    atomic_store(&cut->taken[mine], false);
}

/* Memory kept between runs, because mapping it again each time takes longer than the work of a few heads. All kernels share one buffer; a run
   that finds it in use allocates its own. */
typedef struct {
    int64_t bytes;
    void *memory;
} Kept;

static Kept *_Atomic kept;

static Kept *borrow(int64_t bytes) {
    Kept *found = atomic_exchange(&kept, NULL);
    if (found && found->bytes >= bytes) return found;
    if (found) release(found->memory);
    else found = aligned(sizeof *found);
    if (!found) return NULL;
    *found = (Kept){bytes, aligned(bytes)};
    if (found->memory) return found;
    release(found);
    return NULL;
}

static void give_back(Kept *given) {
    Kept *other = atomic_exchange(&kept, given);
    if (!other) return;
    release(other->memory);
    release(other);
}

static OrtStatus *run(const Kernel *kernel, OrtKernelContext *context, Cut *cut) {
    const Attention *a = &cut->attention;
    cut->blocks = (a->length + ATTENTION_ROWS - 1) / ATTENTION_ROWS;
    cut->rows = (a->length + cut->blocks - 1) / cut->blocks;
    cut->units = a->batch * a->heads * cut->blocks;
    cut->each = (cut->units + MOST_PARTS - 1) / MOST_PARTS;
    cut->place = (cut->isa->attention_scratch(a) + 15) / 16 * 16;
    const int64_t parts = (cut->units + cut->each - 1) / cut->each;
    Kept *memory = borrow(parts * cut->place * (int64_t)sizeof(float));
    if (!memory) return failed(kernel, "no memory for the blocks of %lld parts", (long long)parts);
    cut->scratch = memory->memory;
    const double cost = 2.0 * (double)(a->batch * a->heads * a->length) * (double)a->keys * (double)(a->size + a->value_size + 10);
    OrtStatus *status = in_parallel(kernel, context, run_one, parts, cost, cut);
    give_back(memory);
    return status;
}

static OrtStatus *compute(const Kernel *kernel, OrtKernelContext *context) {
    Tensor in[MOST_INPUTS];
    Cut cut = {.isa = kernel->isa};
    Attention *a = &cut.attention;
    TRY(read_inputs(kernel, context, in));
    TRY(read_all((const AttentionKernel *)kernel, in, a));
    const bool apart = in[QUERY].axes == 4;
    const int64_t by_heads[4] = {a->batch, a->heads, a->length, a->value_size};
    const int64_t packed[3] = {a->batch, a->length, a->heads * a->value_size};
    TRY(write_output(kernel, context, 0, apart ? by_heads : packed, apart ? 4 : 3, &a->y));
    a->y_step[0] = a->heads * a->length * a->value_size;
    a->y_step[1] = apart ? a->length * a->value_size : a->value_size;
    a->y_step[2] = apart ? a->value_size : a->heads * a->value_size;
    if (a->batch * a->heads * a->length * a->value_size == 0) return NULL;
    return run(kernel, context, &cut);
}

const Kind ATTENTION = {
    .name = "Attention",
    .inputs = {"query", "key", "value", "mask", "sink"},
    .required = 3,
    .most = 5,
    .outputs = 1,
    .bytes = sizeof(AttentionKernel),
    .create = create,
    .compute = compute,
};
