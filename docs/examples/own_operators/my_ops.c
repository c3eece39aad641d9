/* A library with one operator of our own, com.mylib::ConvBN: a convolution and the batch normalization after it.

       onnx-subgraph kernels --compile my_ops.c -o my_ops.so

   ConvBN(x, filters, scale, shift, mean, variance), all float32: x is [batch, channels, height, width], filters are [filters, channels, rows,
   columns], the others [filters]. Attributes: strides (two, 1 by default), pads (four, 0 by default), epsilon (1e-5). It is written to be read,
   not to be fast. ort.h, which comes with the project, declares what is used of onnxruntime's C API; its own header does as well. */

#include "ort.h"

#include <math.h>
#include <stdlib.h>

#if defined(_WIN32)
#define EXPORT __declspec(dllexport)
#else
#define EXPORT __attribute__((visibility("default")))
#endif

#define TRY(call) \
    do { \
        OrtStatus *status_ = (call); \
        if (status_) return status_; \
    } while (0)

enum { X, FILTERS, SCALE, SHIFT, MEAN, VARIANCE, INPUTS };

typedef struct {
    const OrtApi *api;
    int64_t strides[2], pads[4];
    float epsilon;
} ConvBN;

typedef struct {
    const float *data;
    int64_t sizes[4];
    size_t axes;
} Tensor;

/* An attribute of whole numbers; what is in `out` stays where the node has none. */
static void read_ints(const OrtApi *api, const OrtKernelInfo *info, const char *name, int64_t *out, size_t count) {
    OrtStatus *status = api->KernelInfoGetAttributeArray_int64(info, name, out, &count);
    if (status) api->ReleaseStatus(status);
}

static OrtStatus *create(const OrtCustomOp *op, const OrtApi *api, const OrtKernelInfo *info, void **out) {
    (void)op;
    ConvBN *kernel = malloc(sizeof *kernel);
    if (!kernel) return api->CreateStatus(ORT_FAIL, "no memory for a kernel");
    *kernel = (ConvBN){api, {1, 1}, {0, 0, 0, 0}, 1e-5f};
    read_ints(api, info, "strides", kernel->strides, 2);
    read_ints(api, info, "pads", kernel->pads, 4);
    OrtStatus *status = api->KernelInfoGetAttribute_float(info, "epsilon", &kernel->epsilon);
    if (status) api->ReleaseStatus(status);
    *out = kernel;
    return NULL;
}

static OrtStatus *read_input(const ConvBN *kernel, OrtKernelContext *context, size_t index, Tensor *out) {
    const OrtApi *api = kernel->api;
    const OrtValue *value;
    OrtTensorTypeAndShapeInfo *info;
    TRY(api->KernelContext_GetInput(context, index, &value));
    TRY(api->GetTensorTypeAndShape(value, &info));
    OrtStatus *status = api->GetDimensionsCount(info, &out->axes);
    if (!status && out->axes > 4) status = api->CreateStatus(ORT_INVALID_ARGUMENT, "an input has more than four axes");
    if (!status) status = api->GetDimensions(info, out->sizes, out->axes);
    api->ReleaseTensorTypeAndShapeInfo(info);
    return status ? status : api->GetTensorMutableData((OrtValue *)value, (void **)&out->data);
}

/* One number of the convolution. */
static float product(const ConvBN *kernel, const Tensor *x, const Tensor *w, int64_t batch, int64_t filter, int64_t row, int64_t column) {
    const int64_t channels = x->sizes[1], height = x->sizes[2], width = x->sizes[3], rows = w->sizes[2], columns = w->sizes[3];
    const int64_t top = row * kernel->strides[0] - kernel->pads[0], left = column * kernel->strides[1] - kernel->pads[1];
    float sum = 0.0f;
    for (int64_t c = 0; c < channels; c++)
        for (int64_t i = 0; i < rows; i++)
            for (int64_t j = 0; j < columns; j++) {
                const int64_t y = top + i, z = left + j;
                if (y < 0 || y >= height || z < 0 || z >= width) continue;
                sum += x->data[((batch * channels + c) * height + y) * width + z] * w->data[((filter * channels + c) * rows + i) * columns + j];
            }
    return sum;
}

static OrtStatus *compute(void *state, OrtKernelContext *context) {
    const ConvBN *kernel = state;
    const OrtApi *api = kernel->api;
    Tensor in[INPUTS];
    for (size_t i = 0; i < INPUTS; i++) TRY(read_input(kernel, context, i, &in[i]));
    const Tensor *x = &in[X], *w = &in[FILTERS];
    if (x->axes != 4 || w->axes != 4 || x->sizes[1] != w->sizes[1])
        return api->CreateStatus(ORT_INVALID_ARGUMENT, "ConvBN takes images, and filters of as many channels, in one group");
    int64_t sizes[4] = {x->sizes[0], w->sizes[0]};
    for (int i = 0; i < 2; i++)
        sizes[2 + i] = (x->sizes[2 + i] + kernel->pads[i] + kernel->pads[2 + i] - w->sizes[2 + i]) / kernel->strides[i] + 1;

    OrtValue *result;
    float *y;
    TRY(api->KernelContext_GetOutput(context, 0, sizes, 4, &result));
    TRY(api->GetTensorMutableData(result, (void **)&y));
    for (int64_t n = 0; n < sizes[0]; n++)
        for (int64_t f = 0; f < sizes[1]; f++) {
            const float factor = in[SCALE].data[f] / sqrtf(in[VARIANCE].data[f] + kernel->epsilon);
            for (int64_t i = 0; i < sizes[2]; i++)
                for (int64_t j = 0; j < sizes[3]; j++)
                    *y++ = (product(kernel, x, w, n, f, i, j) - in[MEAN].data[f]) * factor + in[SHIFT].data[f];
        }
    return NULL;
}

/* What onnxruntime asks of an operator. */
static const char *name(const OrtCustomOp *op) { (void)op; return "ConvBN"; }
static const char *provider(const OrtCustomOp *op) { (void)op; return NULL; } /* the CPU's */
static int type(const OrtCustomOp *op, size_t index) { (void)op, (void)index; return ELEMENT_FLOAT; }
static size_t inputs(const OrtCustomOp *op) { (void)op; return INPUTS; }
static size_t outputs(const OrtCustomOp *op) { (void)op; return 1; }
static int required(const OrtCustomOp *op, size_t index) { (void)op, (void)index; return INPUT_REQUIRED; }
static int memory(const OrtCustomOp *op, size_t index) { (void)op, (void)index; return 0; }
static int none(const OrtCustomOp *op) { (void)op; return 0; }
static int first(const OrtCustomOp *op) { (void)op; return 1; }
static int newest(const OrtCustomOp *op) { (void)op; return INT32_MAX; }

static const OrtCustomOp CONV_BN = {
    .version = ORT_API_VERSION,
    .GetName = name,
    .GetExecutionProviderType = provider,
    .GetInputType = type,
    .GetInputTypeCount = inputs,
    .GetOutputType = type,
    .GetOutputTypeCount = outputs,
    .KernelDestroy = free,
    .GetInputCharacteristic = required,
    .GetOutputCharacteristic = required,
    .GetInputMemoryType = memory,
    .GetVariadicInputMinArity = none,
    .GetVariadicInputHomogeneity = none,
    .GetVariadicOutputMinArity = none,
    .GetVariadicOutputHomogeneity = none,
    .CreateKernelV2 = create,
    .KernelComputeV2 = compute,
    .GetStartVersion = first,
    .GetEndVersion = newest,
};

/* What `register_custom_ops_library` looks for. */
EXPORT OrtStatus *RegisterCustomOps(OrtSessionOptions *options, const OrtApiBase *base) {
    const OrtApi *api = base->GetApi(ORT_API_VERSION);
    OrtCustomOpDomain *domain;
    if (!api) return NULL; /* an onnxruntime that is too old says so itself */
    TRY(api->CreateCustomOpDomain("com.mylib", &domain));
    TRY(api->CustomOpDomain_Add(domain, &CONV_BN));
    return api->AddCustomOpDomain(options, domain);
}
