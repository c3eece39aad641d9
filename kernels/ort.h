/* The part of onnxruntime's C API that this library uses, in C11.

   The API is a table of functions that only grows: a slot never changes its position or meaning. Both are those of `OrtApi` and `OrtCustomOp`
   in onnxruntime's include/onnxruntime/core/session/onnxruntime_c_api.h. No Python package contains the header, so the used part is declared
   here. The assertions at the end check each position. */

#ifndef ONNX_SUBGRAPH_ORT_H
#define ONNX_SUBGRAPH_ORT_H

#include <stddef.h>
#include <stdint.h>

enum { ORT_API_VERSION = 18 }; /* onnxruntime 1.18 and later */

enum { ORT_FAIL = 1, ORT_INVALID_ARGUMENT = 2, ORT_NOT_IMPLEMENTED = 9 };
enum { ELEMENT_FLOAT = 1, ELEMENT_FLOAT16 = 10, ELEMENT_BFLOAT16 = 16 };
enum { INPUT_REQUIRED = 0, INPUT_OPTIONAL = 1 };

typedef struct OrtStatus OrtStatus;
typedef struct OrtValue OrtValue;
typedef struct OrtTensorTypeAndShapeInfo OrtTensorTypeAndShapeInfo;
typedef struct OrtKernelInfo OrtKernelInfo;
typedef struct OrtKernelContext OrtKernelContext;
typedef struct OrtSessionOptions OrtSessionOptions;
typedef struct OrtCustomOpDomain OrtCustomOpDomain;
typedef struct OrtCustomOp OrtCustomOp;

typedef void (*OrtSlot)(void); /* an unused function */

typedef struct {
    OrtStatus *(*CreateStatus)(int code, const char *message);
    OrtSlot unused_1[25];
    OrtStatus *(*CreateCustomOpDomain)(const char *domain, OrtCustomOpDomain **out);
    OrtStatus *(*CustomOpDomain_Add)(OrtCustomOpDomain *domain, const OrtCustomOp *op);
    OrtStatus *(*AddCustomOpDomain)(OrtSessionOptions *options, OrtCustomOpDomain *domain);
    OrtSlot unused_29[22];
    OrtStatus *(*GetTensorMutableData)(OrtValue *value, void **out);
    OrtSlot unused_52[8];
    OrtStatus *(*GetTensorElementType)(const OrtTensorTypeAndShapeInfo *info, int *out);
    OrtStatus *(*GetDimensionsCount)(const OrtTensorTypeAndShapeInfo *info, size_t *out);
    OrtStatus *(*GetDimensions)(const OrtTensorTypeAndShapeInfo *info, int64_t *sizes, size_t count);
    OrtSlot unused_63[2];
    OrtStatus *(*GetTensorTypeAndShape)(const OrtValue *value, OrtTensorTypeAndShapeInfo **out);
    OrtSlot unused_66[19];
    OrtStatus *(*KernelInfoGetAttribute_float)(const OrtKernelInfo *info, const char *name, float *out);
    OrtStatus *(*KernelInfoGetAttribute_int64)(const OrtKernelInfo *info, const char *name, int64_t *out);
    OrtStatus *(*KernelInfoGetAttribute_string)(const OrtKernelInfo *info, const char *name, char *out, size_t *size);
    OrtStatus *(*KernelContext_GetInputCount)(const OrtKernelContext *context, size_t *out);
    OrtStatus *(*KernelContext_GetOutputCount)(const OrtKernelContext *context, size_t *out);
    OrtStatus *(*KernelContext_GetInput)(const OrtKernelContext *context, size_t index, const OrtValue **out);
    OrtStatus *(*KernelContext_GetOutput)(OrtKernelContext *context, size_t index, const int64_t *sizes, size_t axes, OrtValue **out);
    OrtSlot unused_92[1];
    void (*ReleaseStatus)(OrtStatus *status);
    OrtSlot unused_94[5];
    void (*ReleaseTensorTypeAndShapeInfo)(OrtTensorTypeAndShapeInfo *info);
    OrtSlot unused_100[63];
    OrtStatus *(*KernelInfoGetAttributeArray_int64)(const OrtKernelInfo *info, const char *name, int64_t *out, size_t *size);
    OrtSlot unused_164[66];
    OrtStatus *(*KernelInfo_GetInputCount)(const OrtKernelInfo *info, size_t *out);
    OrtSlot unused_231[18];
    OrtStatus *(*KernelInfoGetConstantInput_tensor)(const OrtKernelInfo *info, size_t index, int *is_constant, const OrtValue **out);
    OrtSlot unused_250[24];
    /* Calls work(data, 0) … work(data, total - 1) on onnxruntime's threads, in at most `batches` parts; 0: as many as there are. */
    OrtStatus *(*KernelContext_ParallelFor)(const OrtKernelContext *context, void (*work)(void *data, size_t index), size_t total,
                                            size_t batches, void *data);
} OrtApi;

typedef struct {
    const OrtApi *(*GetApi)(uint32_t version); /* NULL if this onnxruntime is older than the version */
    const char *(*GetVersionString)(void);
} OrtApiBase;

/* An operator's functions that onnxruntime calls. onnxruntime reads the fields that `version` has. */
struct OrtCustomOp {
    uint32_t version;
    void *(*CreateKernel)(const OrtCustomOp *op, const OrtApi *api, const OrtKernelInfo *info);
    const char *(*GetName)(const OrtCustomOp *op);
    const char *(*GetExecutionProviderType)(const OrtCustomOp *op);
    int (*GetInputType)(const OrtCustomOp *op, size_t index);
    size_t (*GetInputTypeCount)(const OrtCustomOp *op);
    int (*GetOutputType)(const OrtCustomOp *op, size_t index);
    size_t (*GetOutputTypeCount)(const OrtCustomOp *op);
    void (*KernelCompute)(void *kernel, OrtKernelContext *context);
    void (*KernelDestroy)(void *kernel);
    int (*GetInputCharacteristic)(const OrtCustomOp *op, size_t index);
    int (*GetOutputCharacteristic)(const OrtCustomOp *op, size_t index);
    int (*GetInputMemoryType)(const OrtCustomOp *op, size_t index);
    int (*GetVariadicInputMinArity)(const OrtCustomOp *op);
    int (*GetVariadicInputHomogeneity)(const OrtCustomOp *op);
    int (*GetVariadicOutputMinArity)(const OrtCustomOp *op);
    int (*GetVariadicOutputHomogeneity)(const OrtCustomOp *op);
    OrtStatus *(*CreateKernelV2)(const OrtCustomOp *op, const OrtApi *api, const OrtKernelInfo *info, void **kernel);
    OrtStatus *(*KernelComputeV2)(void *kernel, OrtKernelContext *context);
    OrtStatus *(*InferOutputShapeFn)(const OrtCustomOp *op, void *context);
    int (*GetStartVersion)(const OrtCustomOp *op);
    int (*GetEndVersion)(const OrtCustomOp *op);
    size_t (*GetMayInplace)(int **inputs, int **outputs);
    void (*ReleaseMayInplace)(int *inputs, int *outputs);
    size_t (*GetAliasMap)(int **inputs, int **outputs);
    void (*ReleaseAliasMap)(int *inputs, int *outputs);
};

#define SLOT_IS(name, place) _Static_assert(offsetof(OrtApi, name) == (place) * sizeof(OrtSlot), #name " has moved")
SLOT_IS(AddCustomOpDomain, 28);
SLOT_IS(GetTensorMutableData, 51);
SLOT_IS(GetTensorElementType, 60);
SLOT_IS(GetTensorTypeAndShape, 65);
SLOT_IS(KernelInfoGetAttribute_string, 87);
SLOT_IS(KernelContext_GetInputCount, 88);
SLOT_IS(KernelContext_GetOutput, 91);
SLOT_IS(ReleaseStatus, 93);
SLOT_IS(ReleaseTensorTypeAndShapeInfo, 99);
SLOT_IS(KernelInfoGetAttributeArray_int64, 163);
SLOT_IS(KernelInfo_GetInputCount, 230);
SLOT_IS(KernelInfoGetConstantInput_tensor, 249);
SLOT_IS(KernelContext_ParallelFor, 274);
#undef SLOT_IS

#endif
