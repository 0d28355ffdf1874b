/* The workspace of the vector gradients of the norms (simd/norm.h): for each output that sums over
 * rows (dw, then db) the 32 lanes' partial sums, C floats each. */
#ifndef VOLTA_NORM_PARTIALS_H
#define VOLTA_NORM_PARTIALS_H

#include "../volta.h"

/* Bytes of one lane's C partial sums: whole cache lines, so that no two threads write one. */
static inline int64_t volta_partial_bytes(int64_t C) {
  return volta_align(C * (int64_t)sizeof(float));
}

/* The partial sums of lane j for output `which`: 0 dw, 1 db. */
static inline float *volta_partial(const volta_call *call, int which, int64_t j) {
  const int64_t C = call->operand[0].shape[1];
  return (float *)(call->workspace + (which * VOLTA_LANES + j) * volta_partial_bytes(C));
}

int64_t volta_layer_norm_grad_workspace(const volta_step *step, const volta_operand *operand,
                                        int isa, int threads);
int64_t volta_rms_norm_grad_workspace(const volta_step *step, const volta_operand *operand, int isa,
                                      int threads);

#endif
