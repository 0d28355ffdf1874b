#include "../x86.h"
#if defined(VOLTA_X86)
#pragma GCC target("avx2,fma,prefer-vector-width=256")
/* Dropout and random tensors with AVX2. */
#define VOLTA_ISA avx2
#include "../simd/random.h"
#endif
