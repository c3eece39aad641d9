/* The available instruction sets. To add one: a name here, a case here, and its flags in onnx_subgraph/kernels/compilers.py. */

#define _DEFAULT_SOURCE /* syscall */

#include "isa.h"

#include <stddef.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

extern const Isa isa_baseline, isa_avx2, isa_avx512, isa_avx512_bf16, isa_amx;
const Isa *const isas[] = {&isa_baseline, &isa_avx2, &isa_avx512, &isa_avx512_bf16, &isa_amx, NULL};

/* Whether the system permits this process to use AMX; a process must request it. */
static bool amx_is_granted(void) {
#if defined(__linux__)
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };
    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
#else
    return false;
#endif
}

/* Uses the CPUID instruction, because __builtin_cpu_supports does not work in libraries that some compilers link. The bits are from Intel's
   manual, volume 2A, CPUID, leaves 1 and 7; XCR0 tells which registers the system saves. */
bool isa_is_here(int index) {
    enum { FMA = 1u << 12, F16C = 1u << 29, OSXSAVE = 1u << 27, AVX2 = 1u << 5, F = 1u << 16, DQ = 1u << 17, BW = 1u << 30, BF16_BIT = 1u << 5 };
    enum { BASELINE_INDEX, AVX2_INDEX, AVX512_INDEX, AVX512_BF16_INDEX };
    const uint32_t vl = 1u << 31, avx512 = F | DQ | BW | vl;
    uint32_t a, b, c, d, low, high;
    if (index == BASELINE_INDEX) return true;
    if (!__get_cpuid(1, &a, &b, &c, &d) || (c & (FMA | F16C | OSXSAVE)) != (FMA | F16C | OSXSAVE)) return false;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
    const bool avx2 = (low & 0x06) == 0x06 && (b & AVX2);
    const bool wide = avx2 && (low & 0xe6) == 0xe6 && (b & avx512) == avx512;
    if (index == AVX2_INDEX) return avx2;
    if (index == AVX512_INDEX) return wide;
    enum { AMX_BF16 = 1u << 22, AMX_TILE = 1u << 24, TILES = 3u << 17 };
    const bool amx = (d & AMX_BF16) && (d & AMX_TILE) && (low & TILES) == TILES;
    const bool pairs = wide && a >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & BF16_BIT);
    if (index == AVX512_BF16_INDEX) return pairs;
#if defined(AMX_EMULATED)
    return pairs;
#else
    return pairs && amx && amx_is_granted();
#endif
}

/* AMD's processors multiply pairs of bfloat16 as fast as floats, which doubles the throughput. Intel's were measured at half that speed. */
bool isa_pays(int index) {
    uint32_t a, b, c, d;
    if (strcmp(isas[index]->name, "avx512_bf16") != 0) return true;
    return __get_cpuid(0, &a, &b, &c, &d) && b == signature_AMD_ebx;
}
#else
extern const Isa isa_baseline;
const Isa *const isas[] = {&isa_baseline, NULL};

bool isa_is_here(int index) { return index == 0; }
bool isa_pays(int index) { return index == 0; }
#endif
