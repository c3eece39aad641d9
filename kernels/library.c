/* A library of custom operators for any onnxruntime: the function that `register_custom_ops_library` calls, and the choice of an instruction
   set.

   A registered operator of the domain onnx_subgraph takes precedence over a model-local function of the same name. Without this library the
   function runs. */

#include "op.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(_WIN32)
#define EXPORT __declspec(dllexport)
#else
#define EXPORT __attribute__((visibility("default")))
#endif

static const char DOMAIN_NAME[] = "onnx_subgraph";
static const char VARIABLE[] = "ONNX_SUBGRAPH_ISA";
static const char WHICH[] = "ONNX_SUBGRAPH_KERNELS"; /* "all": register all operators; else the faster ones */
static const char *const WORDS[] = {"baseline", "avx2", "avx512", "avx512_bf16", "amx"}; /* each limits to those up to it */
enum { MOST_ISAS = 5, MOST_KINDS = 16 };

extern const Kind LINEAR, LAYER_NORM, RMS_NORM, ADD_LAYER_NORM, ADD_RMS_NORM, SOFTMAX, GELU_OF, FAST_GELU_OF, SWISH_OF, ROTARY, ATTENTION;

const Kind *const kinds[] = {
    &LINEAR,  &ATTENTION, &LAYER_NORM,   &RMS_NORM, &ADD_LAYER_NORM, &ADD_RMS_NORM,
    &SOFTMAX, &GELU_OF,   &FAST_GELU_OF, &SWISH_OF, &ROTARY,         NULL,
};

/* Below AVX2 these are not registered: the definitions were measured to be as fast or faster in onnxruntime. */
static const Kind *const FROM_AVX2[] = {&LINEAR, &ATTENTION, &SOFTMAX, &FAST_GELU_OF, &SWISH_OF};

_Static_assert(sizeof kinds / sizeof *kinds <= MOST_KINDS + 1, "MOST_KINDS is too small");

/* An operator for one instruction set and one tensor type, as registered with onnxruntime. */
typedef struct {
    OrtCustomOp op; /* must be first: onnxruntime passes a pointer to it back */
    const Isa *isa;
    const Kind *kind;
    Storage storage;
} Operator;

static const Kind *kind_of(const OrtCustomOp *op) { return ((const Operator *)op)->kind; }
static const char *name(const OrtCustomOp *op) { return kind_of(op)->name; }
static const char *provider(const OrtCustomOp *op) { (void)op; return NULL; } /* the CPU's */
static int type(const OrtCustomOp *op, size_t index) {
    static const int types[STORAGES] = {ELEMENT_FLOAT, ELEMENT_FLOAT16, ELEMENT_BFLOAT16};
    (void)index;
    return types[((const Operator *)op)->storage];
}
static size_t input_count(const OrtCustomOp *op) { return (size_t)kind_of(op)->most; }
static size_t output_count(const OrtCustomOp *op) { return (size_t)kind_of(op)->outputs; }
static int input_need(const OrtCustomOp *op, size_t index) { return index < (size_t)kind_of(op)->required ? INPUT_REQUIRED : INPUT_OPTIONAL; }
static int output_need(const OrtCustomOp *op, size_t index) { (void)op; return index ? INPUT_OPTIONAL : INPUT_REQUIRED; }
static int memory(const OrtCustomOp *op, size_t index) { (void)op, (void)index; return 0; }
static int zero(const OrtCustomOp *op) { (void)op; return 0; }
static int one(const OrtCustomOp *op) { (void)op; return 1; }
static int newest(const OrtCustomOp *op) { (void)op; return INT32_MAX; }

static void destroy(void *kernel) {
    if (!kernel) return;
    const Kind *kind = ((Kernel *)kernel)->kind;
    if (kind->destroy) kind->destroy(kernel);
    free(kernel);
}

static OrtStatus *create(const OrtCustomOp *op, const OrtApi *api, const OrtKernelInfo *info, void **out) {
    const Kind *kind = kind_of(op);
    Kernel *kernel = calloc(1, kind->bytes);
    *out = NULL;
    if (!kernel) return api->CreateStatus(ORT_FAIL, "no memory for a kernel");
    *kernel = (Kernel){api, ((const Operator *)op)->isa, kind, ((const Operator *)op)->storage};
    OrtStatus *status = kind->create(kernel, info);
    if (status) {
        destroy(kernel);
        return status;
    }
    *out = kernel;
    return NULL;
}

static OrtStatus *compute(void *kernel, OrtKernelContext *context) { return ((Kernel *)kernel)->kind->compute(kernel, context); }

static Operator operator_of(const Isa *isa, const Kind *kind, Storage storage) {
    return (Operator){
        .op = {
            .version = ORT_API_VERSION,
            .GetName = name,
            .GetExecutionProviderType = provider,
            .GetInputType = type,
            .GetInputTypeCount = input_count,
            .GetOutputType = type,
            .GetOutputTypeCount = output_count,
            .KernelDestroy = destroy,
            .GetInputCharacteristic = input_need,
            .GetOutputCharacteristic = output_need,
            .GetInputMemoryType = memory,
            .GetVariadicInputMinArity = zero,
            .GetVariadicInputHomogeneity = zero,
            .GetVariadicOutputMinArity = zero,
            .GetVariadicOutputHomogeneity = zero,
            .CreateKernelV2 = create,
            .KernelComputeV2 = compute,
            .GetStartVersion = one,
            .GetEndVersion = newest,
        },
        .isa = isa,
        .kind = kind,
        .storage = storage,
    };
}

/* The highest instruction set to use, as an index of WORDS: from the environment, else the last; -1 for an unknown word. */
static int cap(bool *asked) {
    const int count = sizeof WORDS / sizeof *WORDS;
    const char *word = getenv(VARIABLE);
    *asked = word && *word;
    if (!*asked) return count - 1;
    for (int i = 0; i < count; i++)
        if (strcmp(word, WORDS[i]) == 0) return i;
    return -1;
}

static int rank(const Isa *isa) {
    int i = 0;
    while (strcmp(WORDS[i], isa->name) != 0) i++;
    return i;
}

/* The index in `isas` of the best allowed instruction set of this processor; -1 if the environment has an unknown word. One that is not
   faster here is used only if it is requested by name. */
static int chosen(void) {
    bool asked;
    const int most = cap(&asked);
    int best = most < 0 ? -1 : 0;
    for (int i = 1; isas[i]; i++)
        if (rank(isas[i]) <= most && isa_is_here(i) && (isa_pays(i) || (asked && rank(isas[i]) == most))) best = i;
    return best;
}

static bool wants_all(void) {
    const char *word = getenv(WHICH);
    return word && strcmp(word, "all") == 0;
}

/* Whether an operator is registered for an instruction set; if not, the model's function runs. */
static bool is_registered(const Kind *kind, const Isa *isa, bool all) {
    bool slow = false;
    for (size_t i = 0; i < sizeof FROM_AVX2 / sizeof *FROM_AVX2; i++) slow = slow || FROM_AVX2[i] == kind;
    return all || !slow || rank(isa) > 0;
}

/* The instruction set that a new session would use; NULL if the environment has an unknown word. */
EXPORT const char *onnx_subgraph_isa(void) {
    const int index = chosen();
    return index < 0 ? NULL : isas[index]->name;
}

/* The name of the index-th instruction set that this processor has and this library was compiled for; NULL at the end. */
EXPORT const char *onnx_subgraph_isa_here(int index) {
    for (int i = 0; isas[i]; i++)
        if (isa_is_here(i) && index-- == 0) return isas[i]->name;
    return NULL;
}

/* The operators that a new session would have; NULL at the end. */
EXPORT const char *onnx_subgraph_operator(int index) {
    const int best = chosen();
    for (int i = 0; best >= 0 && kinds[i]; i++)
        if (is_registered(kinds[i], isas[best], wants_all()) && index-- == 0) return kinds[i]->name;
    return NULL;
}

/* For benchmarks: see `peak` in isa.h. 0 if this processor lacks the instruction set. */
EXPORT double onnx_subgraph_peak(const char *isa, int64_t rounds, float *result) {
    for (int i = 0; isas[i]; i++)
        if (strcmp(isas[i]->name, isa) == 0 && isa_is_here(i)) return isas[i]->peak(rounds, result);
    return 0.0;
}

/* Sessions keep pointers to operators and domains, and nothing tells when sessions end. So both live as long as this library: one domain for
   each instruction set, with all operators or only the faster ones, and for each onnxruntime in the process. */
typedef struct {
    const OrtApi *api;
    OrtCustomOpDomain *domain;
    Operator operators[MOST_KINDS][STORAGES];
} Registered;

static atomic_flag busy = ATOMIC_FLAG_INIT;

static OrtStatus *make_domain(const OrtApi *api, const Isa *isa, bool all, Registered *out) {
    TRY(api->CreateCustomOpDomain(DOMAIN_NAME, &out->domain));
    for (int i = 0; kinds[i]; i++) {
        if (!is_registered(kinds[i], isa, all)) continue;
        for (int s = 0; s < STORAGES; s++) {
            out->operators[i][s] = operator_of(isa, kinds[i], (Storage)s);
            TRY(api->CustomOpDomain_Add(out->domain, &out->operators[i][s].op));
        }
    }
    out->api = api;
    return NULL;
}

static OrtStatus *domain_of(const OrtApi *api, int index, bool all, OrtCustomOpDomain **out) {
    static Registered *known[MOST_ISAS][2];
    Registered *here = known[index][all];
    if (!here || here->api != api) {
        here = calloc(1, sizeof *here);
        if (!here) return api->CreateStatus(ORT_FAIL, "onnx_subgraph: no memory for the operators");
        TRY(make_domain(api, isas[index], all, here));
        known[index][all] = here;
    }
    *out = here->domain;
    return NULL;
}

EXPORT OrtStatus *RegisterCustomOps(OrtSessionOptions *options, const OrtApiBase *base) {
    const OrtApi *api = base->GetApi(ORT_API_VERSION);
    if (!api)
        return base->GetApi(1)->CreateStatus(ORT_NOT_IMPLEMENTED, "onnx_subgraph: the kernels need onnxruntime 1.18 or later");
    const int index = chosen();
    if (index < 0) {
        char message[256];
        snprintf(message, sizeof message, "onnx_subgraph: the environment variable %s is \"%.64s\"; choose one of baseline, avx2, avx512, avx512_bf16, amx",
                 VARIABLE, getenv(VARIABLE));
        return api->CreateStatus(ORT_INVALID_ARGUMENT, message);
    }
    OrtCustomOpDomain *domain = NULL;
    while (atomic_flag_test_and_set(&busy)) {}
    OrtStatus *status = domain_of(api, index, wants_all(), &domain);
    atomic_flag_clear(&busy);
    TRY(status);
    return api->AddCustomOpDomain(options, domain);
}
