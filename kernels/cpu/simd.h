// One source, several instruction sets: a function marked so is compiled for each and chosen when
// the module is loaded. Not under sanitizers, whose run time is not there yet at that moment.
#pragma once

#ifdef WARPSTEP_SANITIZED
#define WARPSTEP_CLONES
#else
#define WARPSTEP_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#endif
