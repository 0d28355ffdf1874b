#if defined(__x86_64__)
#pragma GCC target("avx2,fma,prefer-vector-width=256")
#define VOLTA_ISA avx2
#include "../chain.h"
#endif
