/* Shows a process an older processor than there is: preloaded, it answers CPUID without the newer vector instructions, so that every
   library of the process, ours and onnxruntime's, chooses its code as it would there. Linux on x86-64 with CPUID faulting.

   OLDER_PROCESSOR=avx2 hides AVX-512 and AMX, baseline hides AVX and FMA besides. The setting is each thread's, handed on to its threads,
   and ends with exec, after which this is loaded again. The C library has asked before this is loaded. */

#define _GNU_SOURCE
#include <cpuid.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

enum { ARCH_CPUID = 0x1012, CANNOT = 111 };

/* Bits of Intel's manual, volume 2A, CPUID: the registers EAX, EBX, ECX and EDX of a leaf. avx: of what baseline lacks, too. */
typedef struct {
    uint32_t leaf, part, newest[4], avx[4];
} Hidden;

#define BIT(n) (1u << (n))
static const Hidden HIDDEN[] = {
    {1, 0, {0}, {0, 0, BIT(12) | BIT(28) | BIT(29), 0}}, /* FMA, AVX, F16C */
    {7, 0,
     {0, BIT(16) | BIT(17) | BIT(21) | BIT(26) | BIT(27) | BIT(28) | BIT(30) | BIT(31), BIT(1) | BIT(6) | BIT(11) | BIT(12) | BIT(14),
      BIT(2) | BIT(3) | BIT(8) | BIT(22) | BIT(23) | BIT(24) | BIT(25)}, /* AVX-512 and AMX, with all their parts */
     {0, BIT(5), BIT(9) | BIT(10), 0}},                                  /* AVX2, VAES, VPCLMULQDQ */
    {7, 1, {BIT(5) | BIT(21), 0, 0, BIT(19)}, {BIT(4) | BIT(23), 0, 0, 0}}, /* AVX512_BF16, AMX-FP16, AVX10; AVX-VNNI, AVX-IFMA */
};

static struct sigaction before;
static int is_baseline;

static long answered(int on) { return syscall(SYS_arch_prctl, ARCH_CPUID, on); }

/* CPUID is a fault while it is hidden: this gives its answer, without what is hidden, and goes on behind it. */
static void answer(int number, siginfo_t *info, void *data) {
    greg_t *registers = ((ucontext_t *)data)->uc_mcontext.gregs;
    static const uint8_t CPUID[2] = {0x0f, 0xa2};
    (void)number;
    if (info->si_code != SI_KERNEL || memcmp((const void *)registers[REG_RIP], CPUID, sizeof CPUID) != 0) {
        sigaction(SIGSEGV, &before, NULL); /* another fault, which comes again */
        return;
    }
    const uint32_t leaf = (uint32_t)registers[REG_RAX], part = (uint32_t)registers[REG_RCX];
    uint32_t found[4];
    answered(1);
    __cpuid_count(leaf, part, found[0], found[1], found[2], found[3]);
    answered(0);
    for (size_t i = 0; i < sizeof HIDDEN / sizeof *HIDDEN; i++)
        if (HIDDEN[i].leaf == leaf && (HIDDEN[i].part == part || leaf == 1))
            for (int r = 0; r < 4; r++) found[r] &= ~(HIDDEN[i].newest[r] | (is_baseline ? HIDDEN[i].avx[r] : 0));
    registers[REG_RAX] = found[0], registers[REG_RBX] = found[1], registers[REG_RCX] = found[2], registers[REG_RDX] = found[3];
    registers[REG_RIP] += sizeof CPUID;
}

__attribute__((constructor)) static void begin(void) {
    const char *word = getenv("OLDER_PROCESSOR");
    if (!word || !*word) return;
    is_baseline = strcmp(word, "baseline") == 0;
    const struct sigaction act = {.sa_sigaction = answer, .sa_flags = SA_SIGINFO};
    sigaction(SIGSEGV, &act, &before);
    if (answered(0) != 0) _exit(CANNOT);
}
