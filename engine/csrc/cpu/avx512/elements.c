#include "../x86.h"
#if defined(VOLTA_X86)
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,prefer-vector-width=512")
#define VOLTA_ISA avx512
#include "../simd/check_finite.h"
#include "../simd/copy.h"
#include "../simd/reduce.h"
#include "../quantize.h"
#endif
