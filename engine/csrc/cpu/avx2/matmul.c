#include "../x86.h"
#if defined(VOLTA_X86)
#pragma GCC target("avx2,fma,prefer-vector-width=256")
/* The matmul codes of AVX2: 16 registers of 256 bits, so 12 sums for N1 and 6 pairs of chains for N9. */
#include "../simd/matmul_f32.h"
#include "../simd/matmul_few.h"
#include "../simd/matmul_bf16.h"
#include "../simd/matmul_i8.h"
#define CODE(name) volta_##name##_avx2
#define CODE_ISA VOLTA_ISA_AVX2
#include "../simd/matmul_codes.h"
#endif
