#include "../x86.h"
#if defined(VOLTA_X86)
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,prefer-vector-width=512")
/* Dropout and random tensors with AVX-512. */
#define VOLTA_ISA avx512
#include "../simd/random.h"
#endif
