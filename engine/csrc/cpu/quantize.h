/* N10's rounding of f32 to int8, group by group along the last axis, for one instruction set. The
 * including file defines VOLTA_ISA and its target, so that the plain loops become its vector code.
 *
 *   m = the largest |x|, NaN if any is; scale = m * (1 / 127); inverse = 127 / m, +0 if not finite
 *   q = x * inverse rounded to the nearest integer, ties to even, from -127 to 127; 0 for NaN
 */
#include "../vmath.h"
#include "rows.h"
#include "targets.h"

#define VOLTA_QUANTIZE_JOIN_(isa) volta_quantize_##isa
#define VOLTA_QUANTIZE_JOIN(isa) VOLTA_QUANTIZE_JOIN_(isa)

/* As bit patterns magnitudes keep their order, and a NaN is above all of them. */
static float largest_magnitude(const float *x, int64_t count) {
  uint32_t m = 0;
  for (int64_t i = 0; i < count; i++) {
    const uint32_t magnitude = VOLTA_BITS(x[i]) & 0x7fffffffu;
    m = magnitude > m ? magnitude : m;
  }
  return VOLTA_FLOAT(m);
}

static void round_group(const float *restrict x, int64_t count, float inverse, int8_t *restrict q) {
  for (int64_t i = 0; i < count; i++) {
    float y = x[i] * inverse;
    y = y > 127.0f ? 127.0f : y;
    y = y < -127.0f ? -127.0f : y;
    y = y == y ? y : 0.0f;
    /* adding 1.5 * 2^23 leaves no place for a fraction: the sum is rounded to an integer, which its
     * low bits hold */
    q[i] = (int8_t)(uint8_t)VOLTA_BITS(y + 12582912.0f);
  }
}

int VOLTA_QUANTIZE_JOIN(VOLTA_ISA)(const volta_call *call) {
  const int64_t R = call->operand[0].shape[0], K = call->operand[0].shape[1];
  const int64_t groups = call->operand[1].shape[1];
  if (groups < 1 || K % groups != 0) return volta_fail(call, VOLTA_BAD_PROGRAM, 0, 0);
  const int64_t group = K / groups;
  int64_t first, last;
  volta_share(R, call->thread, call->threads, &first, &last);
  for (int64_t r = first; r < last; r++) {
    const float *x = volta_row(call, 2, r);
    int8_t *q = (int8_t *)call->data[0] + r * call->operand[0].stride[0];
    for (int64_t g = 0; g < groups; g++) {
      const float m = largest_magnitude(x + g * group, group), inverse = 127.0f / m;
      *volta_entry(call, 1, r, g) = m * (1.0f / 127.0f);
      round_group(x + g * group, group, inverse <= 3.40282347e38f ? inverse : 0.0f, q + g * group);
    }
  }
  return VOLTA_OK;
}
