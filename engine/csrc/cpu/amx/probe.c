#include "../x86.h"
#if defined(VOLTA_X86)
#pragma GCC target("amx-tile,amx-bf16,amx-int8,avx512f,avx2")
/* The tile products, on four tiles of sums. */
#include <immintrin.h>
#include <string.h>

#include "../../probe.h"

static void probe_run(int kind, char *memory, int64_t bytes, int64_t repeats) {
  /* palette 1, eight tiles of 16 rows by 64 bytes; constant for the reason in matmul.c */
  static const uint8_t config[64] = {[0] = 1,   [16] = 64, [18] = 64, [20] = 64, [22] = 64,
                                     [24] = 64, [26] = 64, [28] = 64, [30] = 64, [48] = 16,
                                     [49] = 16, [50] = 16, [51] = 16, [52] = 16, [53] = 16,
                                     [54] = 16, [55] = 16};
  (void)memory, (void)bytes;
  _tile_loadconfig(config);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_zero(4);
  _tile_zero(5);
  for (int64_t r = 0; r < repeats; r++) {
    if (kind == VOLTA_PROBE_BF16) {
      _tile_dpbf16ps(0, 4, 5);
      _tile_dpbf16ps(1, 4, 5);
      _tile_dpbf16ps(2, 4, 5);
      _tile_dpbf16ps(3, 4, 5);
    } else {
      _tile_dpbssd(0, 4, 5);
      _tile_dpbssd(1, 4, 5);
      _tile_dpbssd(2, 4, 5);
      _tile_dpbssd(3, 4, 5);
    }
  }
  _tile_release();
}

const volta_probe_set volta_probe_amx = {
    .work = {[VOLTA_PROBE_BF16] = 4 * 2 * 16 * 16 * 32, [VOLTA_PROBE_I8] = 4 * 2 * 16 * 16 * 64},
    .run = probe_run,
};
#endif
