#include "../x86.h"
#if defined(VOLTA_X86)
#pragma GCC target("avx2,fma,prefer-vector-width=256")
#define VOLTA_ISA avx2
#include "../simd/check_finite.h"
#include "../simd/copy.h"
#include "../simd/reduce.h"
#include "../quantize.h"
#endif
