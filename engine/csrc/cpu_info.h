/* What the machine offers to this process. */
#ifndef VOLTA_CPU_INFO_H
#define VOLTA_CPU_INFO_H

#include <stdint.h>

/* 1 when the processor and the operating system support every instruction of `isa` (volta_isa). */
int volta_cpu_isa_supported(int isa);
/* 1 when the processor has what a matmul code needs beside its instruction set (VOLTA_NEEDS_..). */
int volta_cpu_has(int needs);
/* CPUs this process may use: the affinity mask, and the cgroup's quota rounded up. At least 1.
 * The mask is read at every call, the quota once. */
int volta_cpus_available(void);
/* Bytes of the data cache of level 1, 2 or 3; 0 when unknown. */
int64_t volta_cpu_cache_bytes(int level);

#endif
