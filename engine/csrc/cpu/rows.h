/* What the row kernels share: where row r of an operand begins, the stride of a vector, and the
 * check that every index lies inside its table. */
#ifndef VOLTA_ROWS_H
#define VOLTA_ROWS_H

#include "../volta.h"

/* Row r of operand i, a matrix with last stride 1. */
static inline float *volta_row(const volta_call *call, int i, int64_t r) {
  return (float *)call->data[i] + r * call->operand[i].stride[0];
}

/* The row of operand i that stands where row r does in the next group of rows, to be fetched while this
 * group is worked on. */
static inline const float *volta_next_row(const volta_call *call, int i, int64_t r, int64_t group,
                                          int64_t last) {
  return volta_row(call, i, r + group < last ? r + group : r);
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

/* Element (r, k) of operand i, a matrix of f32 with any strides. */
static inline float *volta_entry(const volta_call *call, int i, int64_t r, int64_t k) {
  return volta_row(call, i, r) + k * volta_last_stride(call, i);
}

/* Element r of operand i, a vector of i32 with any stride. */
static inline int32_t volta_index(const volta_call *call, int i, int64_t r) {
  return ((const int32_t *)call->data[i])[r * volta_last_stride(call, i)];
}

/* No index is this one: for kernels that skip nothing. */
#define VOLTA_NO_IGNORE INT64_MIN

/* VOLTA_INDEX_RANGE unless each element of operand i, a vector of i32, is in [0, limit) or equals
 * `ignore`. Every thread checks all of them before it writes: so nothing is written, and all
 * threads report the same first bad index. */
static inline int volta_check_indices(const volta_call *call, int i, int64_t limit,
                                      int64_t ignore) {
  for (int64_t r = 0; r < call->operand[i].shape[0]; r++) {
    const int64_t value = volta_index(call, i, r);
    if ((value < 0 || value >= limit) && value != ignore)
      return volta_fail(call, VOLTA_INDEX_RANGE, value, limit);
  }
  return VOLTA_OK;
}

#endif
