#if defined(__linux__)
#define _GNU_SOURCE
#endif
#include "cpu_info.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#if defined(__linux__)
#include <sched.h>
#include <sys/syscall.h>
#endif

#include "cpu/matmul_tile.h"
#include "cpu/x86.h"
#if defined(VOLTA_X86)
#include <cpuid.h>
#endif

/* --- features: asked once -------------------------------------------------------------------- */

static pthread_once_t features_once = PTHREAD_ONCE_INIT;
static int has_avx2, has_avx512, has[VOLTA_NEEDS_COUNT];

#if defined(VOLTA_X86)
/* These predicates include the operating system's saving of the registers (XCR0). */
static int supports_amx(void) {
#if defined(__linux__) && defined(SYS_arch_prctl)
  const int request_permission = 0x1023, tile_data = 18; /* ARCH_REQ_XCOMP_PERM, XTILEDATA */
  return __builtin_cpu_supports("amx-tile") && __builtin_cpu_supports("amx-bf16") &&
         __builtin_cpu_supports("amx-int8") &&
         syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
#else
  return 0;
#endif
}

/* AMD's family 19h: Zen 4 is the one with AVX-512. */
static int splits_vectors(void) {
  unsigned a, b, c, d;
  if (!__get_cpuid(0, &a, &b, &c, &d) || b != signature_AMD_ebx || c != signature_AMD_ecx) return 0;
  if (!__get_cpuid(1, &a, &b, &c, &d)) return 0;
  const unsigned base = a >> 8 & 15, extended = a >> 20 & 255;
  return base + (base == 15 ? extended : 0) == 0x19;
}

static void read_features(void) {
  has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  has_avx512 = has_avx2 && __builtin_cpu_supports("avx512f") &&
               __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
               __builtin_cpu_supports("avx512vl");
  has[VOLTA_NEEDS_NOTHING] = 1;
  has[VOLTA_NEEDS_VNNI] = has_avx512 && __builtin_cpu_supports("avx512vnni");
  has[VOLTA_NEEDS_BF16_DOT] = has_avx512 && __builtin_cpu_supports("avx512bf16") &&
                              __builtin_cpu_supports("avx512vnni") && volta_bf16_dot_is_n9();
  has[VOLTA_NEEDS_AMX] = has_avx512 && supports_amx();
  has[VOLTA_NEEDS_HALVES] = has_avx512 && splits_vectors();
  has[VOLTA_NEEDS_WHOLE] = !has[VOLTA_NEEDS_HALVES];
}
#else
static void read_features(void) { has[VOLTA_NEEDS_NOTHING] = 1; }
#endif

int volta_cpu_has(int needs) {
  pthread_once(&features_once, read_features);
  return needs >= 0 && needs < VOLTA_NEEDS_COUNT && has[needs];
}

int volta_cpu_isa_supported(int isa) {
  pthread_once(&features_once, read_features);
  if (isa == VOLTA_ISA_AVX2) return has_avx2;
  if (isa == VOLTA_ISA_AVX512) return has_avx512;
  if (isa == VOLTA_ISA_AMX) return has[VOLTA_NEEDS_AMX];
  return isa == VOLTA_ISA_REF;
}

/* What the kernel says of the first processor's data cache of a level. glibc's own figure for the third
 * level of an AMD processor can be ten times too large. */
static long kernel_cache_bytes(int level) {
  for (int index = 0; index < 8; index++) {
    char path[96], type[16] = "";
    int found = 0;
    long kibibytes = 0;
    for (int part = 0; part < 3; part++) {
      static const char *const names[] = {"level", "type", "size"};
      snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/%s", index,
               names[part]);
      FILE *file = fopen(path, "re");
      if (file == NULL) return 0;
      const int read = part == 0   ? fscanf(file, "%d", &found)
                       : part == 1 ? fscanf(file, "%15s", type)
                                   : fscanf(file, "%ldK", &kibibytes);
      fclose(file);
      if (read != 1) return 0;
    }
    if (found == level && strcmp(type, "Instruction") != 0 && kibibytes > 0)
      return kibibytes * 1024;
  }
  return 0;
}

int64_t volta_cpu_cache_bytes(int level) {
  long bytes = kernel_cache_bytes(level);
  if (bytes > 0) return bytes;
#if defined(_SC_LEVEL1_DCACHE_SIZE)
  if (level == 1) bytes = sysconf(_SC_LEVEL1_DCACHE_SIZE);
  if (level == 2) bytes = sysconf(_SC_LEVEL2_CACHE_SIZE);
  if (level == 3) bytes = sysconf(_SC_LEVEL3_CACHE_SIZE);
#else
  (void)level;
#endif
  return bytes > 0 ? bytes : 0;
}

/* --- cgroup CPU quota: v2 "cpu.max" is "quota period" or "max period"; v1 has two files ------- */

static pthread_once_t quota_once = PTHREAD_ONCE_INIT;
static int quota_cpus; /* 0: no limit */

static void limit_quota(long long quota, long long period) {
  if (quota <= 0 || period <= 0) return;
  long long cpus = (quota + period - 1) / period;
  if (cpus < 1 << 20 && (quota_cpus == 0 || cpus < quota_cpus)) quota_cpus = (int)cpus;
}

static long long read_number(const char *path) {
  long long number = 0;
  FILE *file = fopen(path, "re");
  if (file == NULL) return 0;
  if (fscanf(file, "%lld", &number) != 1) number = 0;
  fclose(file);
  return number;
}

static void read_cpu_max(const char *directory) {
  char path[4352];
  long long quota, period;
  snprintf(path, sizeof path, "/sys/fs/cgroup%s/cpu.max", directory);
  FILE *file = fopen(path, "re");
  if (file == NULL) return;
  if (fscanf(file, "%lld %lld", &quota, &period) == 2) limit_quota(quota, period);
  fclose(file);
}

static void read_quota(void) {
  char line[4096];
  read_cpu_max("");
  FILE *own = fopen("/proc/self/cgroup", "re");
  if (own != NULL) {
    while (fgets(line, sizeof line, own) != NULL) {
      line[strcspn(line, "\n")] = 0;
      if (strncmp(line, "0::/", 4) == 0 && line[4] != 0) read_cpu_max(line + 3);
    }
    fclose(own);
  }
  limit_quota(read_number("/sys/fs/cgroup/cpu/cpu.cfs_quota_us"),
              read_number("/sys/fs/cgroup/cpu/cpu.cfs_period_us"));
}

int volta_cpus_available(void) {
  int cpus = 0;
  pthread_once(&quota_once, read_quota);
#if defined(__linux__)
  cpu_set_t mask;
  if (sched_getaffinity(0, sizeof mask, &mask) == 0) cpus = CPU_COUNT(&mask);
#endif
  if (cpus < 1) cpus = (int)sysconf(_SC_NPROCESSORS_ONLN);
  if (quota_cpus > 0 && quota_cpus < cpus) cpus = quota_cpus;
  return cpus > 0 ? cpus : 1;
}
