/* Runs a model with the library of kernels, by onnxruntime's C API.

       onnx-subgraph kernels --copy .
       cc kernels.c -I"$ONNXRUNTIME/include" -L"$ONNXRUNTIME/lib" -lonnxruntime -o kernels
       ./kernels model.onnx ./onnx_subgraph_kernels.so x y 2 3

   The model's input (here x) is given ones, in the shape that stands at the end; the first number of the output (here y) is printed. An empty
   name in the place of the library runs the model without it, by the definitions that it carries. */

#include <onnxruntime_c_api.h>
#include <stdio.h>
#include <stdlib.h>

enum { MOST_AXES = 8 };

static const OrtApi *api;

static void check(OrtStatus *status) {
    if (!status) return;
    fprintf(stderr, "%s\n", api->GetErrorMessage(status));
    api->ReleaseStatus(status);
    exit(1);
}

int main(int count, char **words) {
    if (count < 5 || count - 5 > MOST_AXES) {
        fprintf(stderr, "usage: kernels MODEL LIBRARY INPUT OUTPUT SIZE...\n");
        return 2;
    }
    const char *input = words[3], *output = words[4];
    int64_t shape[MOST_AXES];
    size_t axes = (size_t)(count - 5), elements = 1;
    for (size_t i = 0; i < axes; i++) {
        shape[i] = atoll(words[5 + i]);
        elements *= (size_t)shape[i];
    }

    OrtEnv *environment;
    OrtSessionOptions *options;
    OrtSession *session;
    api = OrtGetApiBase()->GetApi(18);
    check(api->CreateEnv(ORT_LOGGING_LEVEL_WARNING, "kernels", &environment));
    check(api->CreateSessionOptions(&options));
    if (words[2][0]) check(api->RegisterCustomOpsLibrary_V2(options, words[2])); /* this line is all that is needed */
    check(api->CreateSession(environment, words[1], options, &session));

    float *ones = malloc(elements * sizeof(float));
    if (!ones) return 1;
    for (size_t i = 0; i < elements; i++) ones[i] = 1.0f;
    OrtMemoryInfo *memory;
    OrtValue *given, *found = NULL;
    float *numbers;
    check(api->CreateCpuMemoryInfo(OrtArenaAllocator, OrtMemTypeDefault, &memory));
    check(api->CreateTensorWithDataAsOrtValue(memory, ones, elements * sizeof(float), shape, axes, ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, &given));
    check(api->Run(session, NULL, &input, (const OrtValue *const *)&given, 1, &output, 1, &found));
    check(api->GetTensorMutableData(found, (void **)&numbers));
    printf("%g\n", numbers[0]);

    api->ReleaseValue(found);
    api->ReleaseValue(given);
    api->ReleaseMemoryInfo(memory);
    api->ReleaseSession(session);
    api->ReleaseSessionOptions(options);
    api->ReleaseEnv(environment);
    free(ones);
    return 0;
}
