/* Clause N9: a bf16 is the upper half of an f32. */
#ifndef VOLTA_BFLOAT16_H
#define VOLTA_BFLOAT16_H

#include "../vmath.h"

/* Exact. */
static inline float volta_f32_from_bf16(uint16_t x) { return VOLTA_FLOAT((uint32_t)x << 16); }

/* To nearest, ties to even; a NaN becomes the quiet NaN with its sign. */
static inline uint16_t volta_bf16_from_f32(float x) {
  const uint32_t b = VOLTA_BITS(x);
  const uint32_t rounded = (b + 0x7fffu + (b >> 16 & 1u)) >> 16;
  const uint32_t quiet = (b >> 16 & 0x8000u) | 0x7fc0u;
  return (uint16_t)((b & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
}

#endif
