#include "../x86.h"
#if defined(VOLTA_X86)
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,prefer-vector-width=512")
#define PROBE_SET volta_probe_avx512
#include "../simd/probe.h"
#endif
