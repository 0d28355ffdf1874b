/* What the row kernels share: where row r of an operand begins, the stride of a vector, and the
 * check that every index lies inside its table. */
#ifndef VOLTA_ROWS_H
#define VOLTA_ROWS_H

#include "../volta.h"

/* Row r of operand i, a matrix with last stride 1. */
static inline float *volta_row(const volta_call *call, int i, int64_t r) {
  return (float *)call->data[i] + r * call->operand[i].stride[0];
}

/* The stride of operand i's last axis; 1 where it has at most one element and no stride matters. */
static inline int64_t volta_last_stride(const volta_call *call, int i) {
  const volta_operand *operand = &call->operand[i];
  if (operand->rank == 0 || operand->shape[operand->rank - 1] <= 1) return 1;
  return operand->stride[operand->rank - 1];
}

/* Element c of operand i, a vector of f32 with any stride. */
static inline float *volta_element(const volta_call *call, int i, int64_t c) {
  return (float *)call->data[i] + c * volta_last_stride(call, i);
}

/* No index is this one: for kernels that skip nothing. */
#define VOLTA_NO_IGNORE INT64_MIN

/* VOLTA_INDEX_RANGE unless each of the count indices is in [0, limit) or equals `ignore`. Every
 * thread checks all of them before it writes: so nothing is written, and all threads report the
 * same first bad index. */
static inline int volta_check_indices(const volta_call *call, const int32_t *index, int64_t count,
                                      int64_t stride, int64_t limit, int64_t ignore) {
  for (int64_t r = 0; r < count; r++) {
    const int64_t value = index[r * stride];
    if ((value < 0 || value >= limit) && value != ignore)
      return volta_fail(call, VOLTA_INDEX_RANGE, value, limit);
  }
  return VOLTA_OK;
}

#endif
