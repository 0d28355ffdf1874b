/* Rotary position embedding by vectors; cpu/ref/rotary.c says what it computes. */
#ifndef VOLTA_SIMD_ROTARY_H
#define VOLTA_SIMD_ROTARY_H

#include "../attention.h"
#include "vector.h"

/* out1 = x1 cos - x2 sin; out2 = x2 cos + x1 sin; every element is read before it is written. */
static inline void rotate(float *out, const float *x, const float *cosine, const float *sine,
                          int64_t half, volta_vector sign) {
  for (int64_t i = 0; i < half; i += VOLTA_WIDTH) {
    const volta_mask part = mask_first(half - i);
    const volta_vector x1 = vector_load_masked(x + i, part, 0.0f);
    const volta_vector x2 = vector_load_masked(x + half + i, part, 0.0f);
    const volta_vector c = vector_load_masked(cosine + i, part, 0.0f);
    const volta_vector s = VECTOR(xor_ps)(vector_load_masked(sine + i, part, 0.0f), sign);
    vector_store_masked(out + i, part,
                        VECTOR(sub_ps)(VECTOR(mul_ps)(x1, c), VECTOR(mul_ps)(x2, s)));
    vector_store_masked(out + half + i, part,
                        VECTOR(add_ps)(VECTOR(mul_ps)(x2, c), VECTOR(mul_ps)(x1, s)));
  }
}

int VOLTA_ISA_NAME(rotary)(const volta_call *call) {
  enum { OUT, X, COS, SIN, POSITION };
  const int64_t *shape = call->operand[OUT].shape;
  const int64_t B = shape[0], H = shape[1], T = shape[2], half = shape[3] / 2;
  const int status = volta_check_positions(call, POSITION, T, call->operand[COS].shape[0]);
  if (status != VOLTA_OK) return status;
  const volta_vector sign = VECTOR(set1_ps)(call->step->ints[0] ? -0.0f : 0.0f);
  int64_t first, last;
  volta_share(B * T, call->thread, call->threads, &first, &last);
  for (int64_t row = first; row < last; row++) { /* the heads of one token share its angles */
    const int64_t b = row / T, t = row % T, at = volta_position(call, POSITION, b) + t;
    const float *cosine = (const float *)call->data[COS] + at * call->operand[COS].stride[0];
    const float *sine = (const float *)call->data[SIN] + at * call->operand[SIN].stride[0];
    for (int64_t h = 0; h < H; h++)
      rotate(volta_row4(call, OUT, b, h, t), volta_row4(call, X, b, h, t), cosine, sine, half,
             sign);
  }
  return VOLTA_OK;
}

#endif
