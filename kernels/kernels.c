/* All kernels, for the instruction set whose flags this is compiled with; -D ISA=avx2 names it. */

#include "isa.h"
#include "linear.h"

#define JOIN(a, b) a##b
#define NAMED(name) JOIN(isa_, name)
#define WORD(name) #name
#define QUOTED(name) WORD(name)

const Isa NAMED(ISA) = {
    .name = QUOTED(ISA),
    .panel = PANEL,
    .pack = pack,
    .linear = linear,
};
