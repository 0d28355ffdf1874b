#include "../x86.h"
#if defined(VOLTA_X86)
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,prefer-vector-width=512")
/* The matmul codes of AVX-512 alone: 32 registers of 512 bits, so 28 sums for N1 and 12 pairs of chains
 * for N9. */
#include "../simd/matmul_f32.h"
#include "../simd/matmul_few.h"
#include "../simd/matmul_bf16.h"
#include "../simd/matmul_i8.h"
#define CODE(name) volta_##name##_avx512
#define CODE_ISA VOLTA_ISA_AVX512
#include "../simd/matmul_codes.h"
#endif
