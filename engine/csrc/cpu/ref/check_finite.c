#include <math.h>

#include "../strided.h"

/* Each thread stops at the first NaN or infinity of its share; the lowest thread's is reported. */
int volta_check_finite_ref(const volta_call *call) {
  const volta_walk walk = volta_walk_of(&call->operand[0], 0);
  const float *x = call->data[0];
  int64_t first, last, at[VOLTA_MAX_RANK];
  volta_share(volta_numel(&call->operand[0]), call->thread, call->threads, &first, &last);
  for (int64_t i = first; i < last; i++) {
    if (!isfinite(x[volta_walk_to(&walk, 0, i, at)])) {
      return volta_fail(call, VOLTA_NOT_FINITE, i, 0);
    }
  }
  return VOLTA_OK;
}
