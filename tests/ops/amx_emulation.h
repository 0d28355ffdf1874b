/* The AMX instructions that Volta uses, as Intel's manual describes them, for machines without them.
 * Eight tiles of 16 rows by 64 bytes; only a configuration of whole tiles is accepted. */
#ifndef AMX_EMULATION_H
#define AMX_EMULATION_H

#include <immintrin.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

extern uint8_t amx_tiles[8][16][64];
extern int amx_configured, amx_misuse;

static inline void amx_load_config(const void *memory) {
  const uint8_t *bytes = memory;
  amx_configured = bytes[0] == 1;
  for (int tile = 0; tile < 8; tile++)
    if (bytes[48 + tile] != 16 || bytes[16 + 2 * tile] != 64) amx_misuse = 1;
}

static inline void amx_load(int tile, const void *base, int64_t stride) {
  amx_misuse |= !amx_configured;
  for (int row = 0; row < 16; row++)
    memcpy(amx_tiles[tile][row], (const char *)base + row * stride, 64);
}

static inline void amx_store(int tile, void *base, int64_t stride) {
  amx_misuse |= !amx_configured;
  for (int row = 0; row < 16; row++) memcpy((char *)base + row * stride, amx_tiles[tile][row], 64);
}

static inline float amx_flush(float x) { return fabsf(x) < 0x1p-126f ? copysignf(0.0f, x) : x; }

/* A result is subnormal, and flushed, when it is so after rounding to 24 bits with any exponent:
 * where the rounded sum is the smallest normal number, the same sum times 2^100 tells. */
static inline float amx_fma(float a, float b, float c) {
  const float rounded = fmaf(a, b, c);
  if (fabsf(rounded) != 0x1p-126f) return amx_flush(rounded);
  const float scaled =
      fmaf(a * 0x1p60f, b * 0x1p40f, c * 0x1p100f); /* the same sum, far from subnormal */
  return fabsf(scaled) < 0x1p-26f ? copysignf(0.0f, rounded) : rounded;
}

static inline float amx_bf16(const uint8_t *element) {
  uint32_t bits = ((uint32_t)element[0] | (uint32_t)element[1] << 8) << 16;
  float x;
  memcpy(&x, &bits, sizeof x);
  return amx_flush(x);
}

/* TDPBF16PS: per element two chains of 16 fused steps from +0, then c + (even + odd). */
static inline void amx_dpbf16ps(int c, int a, int b) {
  amx_misuse |= !amx_configured;
  for (int m = 0; m < 16; m++)
    for (int n = 0; n < 16; n++) {
      float chain[2] = {0.0f, 0.0f}, sum;
      for (int k = 0; k < 16; k++)
        for (int half = 0; half < 2; half++)
          chain[half] = amx_fma(amx_bf16(&amx_tiles[a][m][4 * k + 2 * half]),
                                amx_bf16(&amx_tiles[b][k][4 * n + 2 * half]), chain[half]);
      memcpy(&sum, &amx_tiles[c][m][4 * n], 4);
      sum = amx_flush(amx_flush(sum) + amx_flush(chain[0] + chain[1]));
      memcpy(&amx_tiles[c][m][4 * n], &sum, 4);
    }
}

/* TDPBSSD: signed bytes, four at a time, into 32 bits. */
static inline void amx_dpbssd(int c, int a, int b) {
  amx_misuse |= !amx_configured;
  for (int m = 0; m < 16; m++)
    for (int n = 0; n < 16; n++) {
      int32_t sum;
      memcpy(&sum, &amx_tiles[c][m][4 * n], 4);
      for (int k = 0; k < 16; k++)
        for (int i = 0; i < 4; i++)
          sum += (int8_t)amx_tiles[a][m][4 * k + i] * (int8_t)amx_tiles[b][k][4 * n + i];
      memcpy(&amx_tiles[c][m][4 * n], &sum, 4);
    }
}

#undef _tile_loadconfig
#undef _tile_release
#undef _tile_zero
#undef _tile_loadd
#undef _tile_stored
#undef _tile_dpbf16ps
#undef _tile_dpbssd
#define _tile_loadconfig(memory) amx_load_config(memory)
#define _tile_release() (amx_configured = 0)
#define _tile_zero(tile) memset(amx_tiles[tile], 0, sizeof amx_tiles[tile])
#define _tile_loadd(tile, base, stride) amx_load(tile, base, stride)
#define _tile_stored(tile, base, stride) amx_store(tile, base, stride)
#define _tile_dpbf16ps(c, a, b) amx_dpbf16ps(c, a, b)
#define _tile_dpbssd(c, a, b) amx_dpbssd(c, a, b)

#endif
