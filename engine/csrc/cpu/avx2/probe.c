#include "../x86.h"
#if defined(VOLTA_X86)
#pragma GCC target("avx2,fma,prefer-vector-width=256")
#define PROBE_SET volta_probe_avx2
#include "../simd/probe.h"
#endif
