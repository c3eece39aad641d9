#include "op.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double PARALLEL = 2e5; /* with fewer operations, other threads are not used */

OrtStatus *failed(const Kernel *kernel, const char *format, ...) {
    char message[512];
    const int start = snprintf(message, sizeof message, "onnx_subgraph.%s: ", kernel->kind->name);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message + start, sizeof message - (size_t)start, format, arguments);
    va_end(arguments);
    return kernel->api->CreateStatus(ORT_INVALID_ARGUMENT, message);
}

static OrtStatus *read_shape(const Kernel *kernel, const OrtTensorTypeAndShapeInfo *info, Tensor *out) {
    static const int types[STORAGES] = {ELEMENT_FLOAT, ELEMENT_FLOAT16, ELEMENT_BFLOAT16};
    static const char *const words[STORAGES] = {"float32", "float16", "bfloat16"};
    int type;
    size_t axes;
    TRY(kernel->api->GetTensorElementType(info, &type));
    if (type != types[kernel->storage]) return failed(kernel, "%s must be %s", out->name, words[kernel->storage]);
    TRY(kernel->api->GetDimensionsCount(info, &axes));
    if (axes > MOST_AXES) return failed(kernel, "%s has %zu axes; %d are the most", out->name, axes, MOST_AXES);
    out->axes = (int)axes;
    TRY(kernel->api->GetDimensions(info, out->sizes, axes));
    out->count = 1;
    for (size_t i = 0; i < axes; i++) out->count *= out->sizes[i];
    return NULL;
}

static OrtStatus *read_value(const Kernel *kernel, const OrtValue *value, Tensor *out) {
    OrtTensorTypeAndShapeInfo *info;
    TRY(kernel->api->GetTensorTypeAndShape(value, &info));
    OrtStatus *status = read_shape(kernel, info, out);
    kernel->api->ReleaseTensorTypeAndShapeInfo(info);
    TRY(status);
    void *data;
    TRY(kernel->api->GetTensorMutableData((OrtValue *)value, &data));
    static const float nothing[1]; /* NULL means absent. The data of an empty tensor may be NULL; it is never read. */
    out->data = data ? data : nothing;
    return NULL;
}

OrtStatus *read_input(const Kernel *kernel, const OrtKernelContext *context, int index, Tensor *out) {
    const OrtValue *value = NULL;
    size_t count;
    *out = (Tensor){.name = kernel->kind->inputs[index]};
    TRY(kernel->api->KernelContext_GetInputCount(context, &count));
    if ((size_t)index < count) TRY(kernel->api->KernelContext_GetInput(context, (size_t)index, &value));
    if (value) return read_value(kernel, value, out);
    return index < kernel->kind->required ? failed(kernel, "there is no %s", out->name) : NULL;
}

OrtStatus *read_inputs(const Kernel *kernel, const OrtKernelContext *context, Tensor *out) {
    for (int i = 0; i < kernel->kind->most; i++) TRY(read_input(kernel, context, i, out + i));
    return NULL;
}

OrtStatus *read_constant(const Kernel *kernel, const OrtKernelInfo *info, int index, Tensor *out) {
    const OrtValue *value = NULL;
    int is_constant = 0;
    size_t count;
    *out = (Tensor){.name = kernel->kind->inputs[index]};
    TRY(kernel->api->KernelInfo_GetInputCount(info, &count));
    if ((size_t)index >= count) return NULL;
    TRY(kernel->api->KernelInfoGetConstantInput_tensor(info, (size_t)index, &is_constant, &value));
    return is_constant && value ? read_value(kernel, value, out) : NULL;
}

OrtStatus *write_output(const Kernel *kernel, OrtKernelContext *context, int index, const int64_t *sizes, int axes, void **out) {
    OrtValue *value = NULL;
    size_t count;
    void *data = NULL;
    *out = NULL;
    TRY(kernel->api->KernelContext_GetOutputCount(context, &count));
    if ((size_t)index < count) TRY(kernel->api->KernelContext_GetOutput(context, (size_t)index, sizes, (size_t)axes, &value));
    if (value) TRY(kernel->api->GetTensorMutableData(value, &data));
    *out = data;
    return NULL;
}

/* onnxruntime returns the same error for a missing attribute and for one of another type, so ask for the other types. */
static OrtStatus *absent(const Kernel *kernel, const OrtKernelInfo *info, const char *name, OrtStatus *status, const char *wanted) {
    const OrtApi *api = kernel->api;
    float number;
    int64_t whole;
    size_t length = 0;
    api->ReleaseStatus(status);
    OrtStatus *others[] = {
        api->KernelInfoGetAttribute_float(info, name, &number),
        api->KernelInfoGetAttribute_int64(info, name, &whole),
        api->KernelInfoGetAttribute_string(info, name, NULL, &length),
        api->KernelInfoGetAttributeArray_int64(info, name, NULL, &length),
    };
    bool found = false;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        if (others[i]) api->ReleaseStatus(others[i]);
        else found = true;
    }
    return found ? failed(kernel, "the attribute %s must be %s", name, wanted) : NULL;
}

OrtStatus *read_float(const Kernel *kernel, const OrtKernelInfo *info, const char *name, float *out) {
    float given;
    OrtStatus *status = kernel->api->KernelInfoGetAttribute_float(info, name, &given);
    if (status) return absent(kernel, info, name, status, "a float");
    *out = given;
    return NULL;
}

OrtStatus *read_int(const Kernel *kernel, const OrtKernelInfo *info, const char *name, int64_t *out) {
    int64_t given;
    OrtStatus *status = kernel->api->KernelInfoGetAttribute_int64(info, name, &given);
    if (status) return absent(kernel, info, name, status, "an int");
    *out = given;
    return NULL;
}

OrtStatus *read_ints(const Kernel *kernel, const OrtKernelInfo *info, const char *name, int64_t *out, size_t most, size_t *count) {
    size_t given = 0;
    OrtStatus *status = kernel->api->KernelInfoGetAttributeArray_int64(info, name, NULL, &given);
    if (status) return absent(kernel, info, name, status, "a list of ints");
    if (given > most) return failed(kernel, "the attribute %s has %zu numbers; %zu are the most", name, given, most);
    *count = given;
    return given ? kernel->api->KernelInfoGetAttributeArray_int64(info, name, out, count) : NULL;
}

OrtStatus *read_word(const Kernel *kernel, const OrtKernelInfo *info, const char *name, char *out, size_t most) {
    size_t length = 0;
    OrtStatus *status = kernel->api->KernelInfoGetAttribute_string(info, name, NULL, &length);
    if (status) return absent(kernel, info, name, status, "a string");
    if (length > most) return failed(kernel, "the attribute %s is longer than any word that it may be", name);
    return kernel->api->KernelInfoGetAttribute_string(info, name, out, &length);
}

OrtStatus *read_numerics(const Kernel *kernel, const OrtKernelInfo *info, Numerics *out) {
    static const char *const words[NUMERICS] = {"float32", "bf16x3", "bf16"};
    char word[16] = "float32";
    TRY(read_word(kernel, info, "numerics", word, sizeof word));
    for (int i = 0; i < NUMERICS; i++)
        if (strcmp(word, words[i]) == 0) {
            *out = (Numerics)i;
            return NULL;
        }
    return failed(kernel, "numerics is \"%s\"; choose one of float32, bf16x3, bf16", word);
}

void *aligned(int64_t bytes) {
    const size_t lines = ((size_t)bytes + 63) / 64 * 64 + 64; /* one more, so that 0 bytes are not an error */
#if defined(_WIN32)
    return _aligned_malloc(lines, 64);
#else
    return aligned_alloc(64, lines);
#endif
}

void release(void *memory) {
#if defined(_WIN32)
    _aligned_free(memory);
#else
    free(memory);
#endif
}

int64_t bytes_of(Storage storage, int64_t count) { return count * (int64_t)(storage == AS_FLOAT32 ? sizeof(float) : sizeof(uint16_t)); }

const void *element(Storage storage, const void *data, int64_t at) { return (const char *)data + bytes_of(storage, at); }

OrtStatus *floats_of(const Kernel *kernel, const Tensor *tensor, Floats *out) {
    *out = (Floats){tensor->data, NULL};
    if (!tensor->data || kernel->storage == AS_FLOAT32) return NULL;
    float *made = out->memory = aligned(bytes_of(AS_FLOAT32, tensor->count));
    if (!made) return failed(kernel, "no memory for %s as float32", tensor->name);
    kernel->isa->widen(kernel->storage, tensor->data, made, tensor->count);
    out->data = made;
    return NULL;
}

bool same_shape(const Tensor *tensor, const int64_t *sizes, int axes) {
    return tensor->axes == axes && memcmp(tensor->sizes, sizes, (size_t)axes * sizeof *sizes) == 0;
}

const char *shape_text(const int64_t *sizes, int axes) {
    static _Thread_local char texts[4][24 * MOST_AXES + 3];
    static _Thread_local unsigned next;
    char *text = texts[next++ % 4];
    size_t length = 0;
    text[length++] = '[';
    for (int i = 0; i < axes; i++)
        length += (size_t)snprintf(text + length, sizeof texts[0] - length, i ? ", %lld" : "%lld", (long long)sizes[i]);
    snprintf(text + length, sizeof texts[0] - length, "]");
    return text;
}

const char *shape_of(const Tensor *tensor) { return shape_text(tensor->sizes, tensor->axes); }

OrtStatus *in_parallel(const Kernel *kernel, OrtKernelContext *context, void (*work)(void *data, size_t index), int64_t total, double cost,
                       void *data) {
    if (total > 1 && cost > PARALLEL) return kernel->api->KernelContext_ParallelFor(context, work, (size_t)total, 0, data);
    for (int64_t i = 0; i < total; i++) work(data, (size_t)i);
    return NULL;
}
