/* What AVX512_BF16 gives in registers: multiplies and adds of float32, and of pairs of bfloat16, by turns; the best of each.

       cc -O3 -mavx512f -mavx512bf16 benchmarks/bfloat16.c -o bfloat16 && ./bfloat16 */

#define _POSIX_C_SOURCE 199309L

#include <immintrin.h>
#include <stdio.h>
#include <time.h>

#define EACH(what) what(0) what(1) what(2) what(3) what(4) what(5) what(6) what(7) what(8) what(9) what(10) what(11)
#define BEGIN(i) __m512 sum##i = _mm512_set1_ps(i);
#define FLOAT32(i) sum##i = _mm512_fmadd_ps(sum##i, x, x);
#define BFLOAT16(i) sum##i = _mm512_dpbf16_ps(sum##i, pairs, pairs);
#define END(i) total += _mm512_reduce_add_ps(sum##i);

enum { ROUNDS = 100000, SUMS = 12 };
static volatile float number = 0.5f, total;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double float32(void) {
    const __m512 x = _mm512_set1_ps(number);
    const double begun = now();
    EACH(BEGIN)
    for (int r = 0; r < ROUNDS; r++) { EACH(FLOAT32) }
    EACH(END)
    return 2.0 * 16 * SUMS * ROUNDS / (now() - begun);
}

static double bfloat16(void) {
    const __m512 x = _mm512_set1_ps(number);
    const __m512bh pairs = _mm512_cvtne2ps_pbh(x, x);
    const double begun = now();
    EACH(BEGIN)
    for (int r = 0; r < ROUNDS; r++) { EACH(BFLOAT16) }
    EACH(END)
    return 4.0 * 16 * SUMS * ROUNDS / (now() - begun);
}

int main(void) {
    double best[2] = {0.0, 0.0};
    for (int i = 0; i < 1000; i++) {
        const double each[2] = {float32(), bfloat16()};
        for (int j = 0; j < 2; j++)
            if (each[j] > best[j]) best[j] = each[j];
    }
    printf("float32 %.0f GFLOP/s, bfloat16 %.0f GFLOP/s\n", best[0] * 1e-9, best[1] * 1e-9);
    return 0;
}
