#include "../x86.h"
#if defined(VOLTA_X86)
#pragma GCC target("avx2,fma,prefer-vector-width=256")
/* The row kernels with AVX2: 4 registers of the 32 lanes each. */
#define VOLTA_ISA avx2
#include "../simd/softmax.h"
#include "../simd/loss.h"
#include "../simd/norm.h"
#include "../simd/embedding.h"
#endif
