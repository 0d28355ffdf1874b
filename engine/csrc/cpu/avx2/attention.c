#include "../x86.h"
#if defined(VOLTA_X86)
#pragma GCC target("avx2,fma,prefer-vector-width=256")
/* Attention, its gradient and rotary embedding with AVX2. */
#define VOLTA_ISA avx2
#include "../simd/attention.h"
#include "../simd/attention_grad.h"
#include "../simd/rotary.h"
#endif
