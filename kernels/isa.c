/* Which instruction sets there are. A further one is one more row in each of the two lists, and a line in the table of the build. */

#include "isa.h"

#include <stddef.h>

extern const Isa isa_baseline;
#if defined(__x86_64__)
extern const Isa isa_avx2, isa_avx512;
#endif

const Isa *const isas[] = {
    &isa_baseline,
#if defined(__x86_64__)
    &isa_avx2,
    &isa_avx512,
#endif
    NULL,
};

bool isa_is_here(int index) {
#if defined(__x86_64__)
    __builtin_cpu_init();
    switch (index) {
    case 1: return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    case 2:
        return isa_is_here(1) && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    default: return index == 0;
    }
#else
    return index == 0;
#endif
}
