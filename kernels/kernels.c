/* All kernels, for the instruction set of the compiler's flags; -D ISA=avx2 gives its name. */

#include "isa.h"
#include "attention.h"
#include "linear.h"
#include "rows.h"

#define JOIN(a, b) a##b
#define NAMED(name) JOIN(isa_, name)
#define WORD(name) #name
#define QUOTED(name) WORD(name)

static double peak(int64_t rounds, float *result) {
    enum { SUMS = WIDTH == 16 ? 24 : 12 }; /* more than two additions per cycle times their latency */
    V sums[SUMS];
    const V factor = all(*result), step = all(0.5f);
#pragma GCC unroll 24
    for (int i = 0; i < SUMS; i++) sums[i] = all((float)i);
    for (int64_t r = 0; r < rounds; r++)
#pragma GCC unroll 24
        for (int i = 0; i < SUMS; i++) sums[i] = sums[i] * factor + step;
    V total = sums[0];
    for (int i = 1; i < SUMS; i++) total += sums[i];
    *result = sum_of(total);
    return 2.0 * SUMS * WIDTH * (double)rounds;
}

const Isa NAMED(ISA) = {
    .name = QUOTED(ISA),
    .products = {
        [AS_FLOAT32] = {[FLOAT32] = &product_float32, [BF16X3] = &product_bf16x3, [BF16] = &product_bf16},
        [AS_FLOAT16] = {[FLOAT32] = &product_float16, [BF16X3] = &product_float16, [BF16] = &product_bf16},
        [AS_BFLOAT16] = {[FLOAT32] = &product_bf16, [BF16X3] = &product_bf16, [BF16] = &product_bf16}, /* rounds nothing here */
    },
    .widen = widen,
    .narrow = narrow,
    .peak = peak,
    .activate = activate,
    .norm = norm,
    .softmax = softmax,
    .rotary = rotary,
    .attention = attention,
    .attention_scratch = attention_scratch,
};
