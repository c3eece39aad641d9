/* What docs/examples/kernels.c uses of onnxruntime's header of this name, which no Python package has; see kernels/ort.h. */

#ifndef ONNXRUNTIME_C_API_H
#define ONNXRUNTIME_C_API_H

#include <stddef.h>
#include <stdint.h>

typedef struct OrtStatus OrtStatus;
typedef struct OrtEnv OrtEnv;
typedef struct OrtSession OrtSession;
typedef struct OrtSessionOptions OrtSessionOptions;
typedef struct OrtRunOptions OrtRunOptions;
typedef struct OrtMemoryInfo OrtMemoryInfo;
typedef struct OrtValue OrtValue;
typedef void (*OrtSlot)(void);

enum { ORT_LOGGING_LEVEL_WARNING = 2, OrtArenaAllocator = 1, OrtMemTypeDefault = 0, ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT = 1 };

typedef struct {
    OrtSlot unused_0[2];
    const char *(*GetErrorMessage)(const OrtStatus *);
    OrtStatus *(*CreateEnv)(int, const char *, OrtEnv **);
    OrtSlot unused_4[3];
    OrtStatus *(*CreateSession)(const OrtEnv *, const char *, const OrtSessionOptions *, OrtSession **);
    OrtSlot unused_8[1];
    OrtStatus *(*Run)(OrtSession *, const OrtRunOptions *, const char *const *, const OrtValue *const *, size_t, const char *const *, size_t,
                      OrtValue **);
    OrtStatus *(*CreateSessionOptions)(OrtSessionOptions **);
    OrtSlot unused_11[38];
    OrtStatus *(*CreateTensorWithDataAsOrtValue)(const OrtMemoryInfo *, void *, size_t, const int64_t *, size_t, int, OrtValue **);
    OrtSlot unused_50[1];
    OrtStatus *(*GetTensorMutableData)(OrtValue *, void **);
    OrtSlot unused_52[17];
    OrtStatus *(*CreateCpuMemoryInfo)(int, int, OrtMemoryInfo **);
    OrtSlot unused_70[22];
    void (*ReleaseEnv)(OrtEnv *);
    void (*ReleaseStatus)(OrtStatus *);
    void (*ReleaseMemoryInfo)(OrtMemoryInfo *);
    void (*ReleaseSession)(OrtSession *);
    void (*ReleaseValue)(OrtValue *);
    OrtSlot unused_97[3];
    void (*ReleaseSessionOptions)(OrtSessionOptions *);
    OrtSlot unused_101[127];
    OrtStatus *(*RegisterCustomOpsLibrary_V2)(OrtSessionOptions *, const char *);
} OrtApi;

typedef struct {
    const OrtApi *(*GetApi)(uint32_t);
    const char *(*GetVersionString)(void);
} OrtApiBase;

const OrtApiBase *OrtGetApiBase(void);

#endif
