/* Clause N9: a bf16 is the upper half of an f32. */
#ifndef VOLTA_BFLOAT16_H
#define VOLTA_BFLOAT16_H

#include "../vmath.h"

/* Exact. */
static inline float volta_f32_from_bf16(uint16_t x) { return VOLTA_FLOAT((uint32_t)x << 16); }

/* Rounded as volta_round_bf16 says. */
static inline uint16_t volta_bf16_from_f32(float x) {
  return (uint16_t)(VOLTA_BITS(volta_round_bf16(x)) >> 16);
}

#endif
