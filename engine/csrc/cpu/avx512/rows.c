#include "../x86.h"
#if defined(VOLTA_X86)
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,prefer-vector-width=512")
/* The row kernels with AVX-512: 2 registers of the 32 lanes each. */
#define VOLTA_ISA avx512
#include "../simd/softmax.h"
#include "../simd/loss.h"
#include "../simd/norm.h"
#include "../simd/embedding.h"
#endif
