#include <stdint.h>

#include "../strided.h"
#include "../targets.h"
#include "vector.h"

/* An exponent of all ones, and nothing else, is a NaN or an infinity. */
static int64_t first_not_finite(const uint32_t *x, int64_t first, int64_t last) {
  for (int64_t start = first; start < last; start += VOLTA_TILE) {
    const int64_t end = start + VOLTA_TILE < last ? start + VOLTA_TILE : last;
    uint32_t found = 0;
    for (int64_t i = start; i < end; i++) found |= (x[i] & 0x7f800000u) == 0x7f800000u;
    for (int64_t i = start; found && i < end; i++)
      if ((x[i] & 0x7f800000u) == 0x7f800000u) return i;
  }
  return -1;
}

int VOLTA_ISA_NAME(check_finite)(const volta_call *call) {
  const volta_walk walk = volta_walk_of(&call->operand[0], 0);
  if (walk.rank > 1 || (walk.rank == 1 && walk.stride[0][0] != 1))
    return volta_check_finite_ref(call);
  int64_t first, last;
  volta_share(volta_numel(&call->operand[0]), call->thread, call->threads, &first, &last);
  const int64_t found = first_not_finite(call->data[0], first, last);
  return found < 0 ? VOLTA_OK : volta_fail(call, VOLTA_NOT_FINITE, found, 0);
}
