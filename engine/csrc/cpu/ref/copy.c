#include "../bfloat16.h"
#include "../strided.h"

/* out[...] = in[...], element by element in the flat index of the views */
int volta_copy_ref(const volta_call *call) {
  const volta_operand *out = &call->operand[0], *in = &call->operand[1];
  if (out->rank != in->rank) return volta_fail(call, VOLTA_BAD_PROGRAM, 0, 0);
  for (int32_t axis = 0; axis < out->rank; axis++) {
    if (out->shape[axis] != in->shape[axis]) return volta_fail(call, VOLTA_BAD_PROGRAM, 0, 0);
  }
  const int same = out->dtype == in->dtype, widens = out->dtype == VOLTA_F32;
  if (!same && !(widens && (in->dtype == VOLTA_BF16 || in->dtype == VOLTA_I8)) &&
      !(out->dtype == VOLTA_BF16 && in->dtype == VOLTA_F32)) {
    return volta_fail(call, VOLTA_BAD_PROGRAM, 0, 0);
  }
  const volta_walk walk = volta_walk_of(out, in);
  int64_t first, last, at[VOLTA_MAX_RANK];
  volta_share(volta_numel(out), call->thread, call->threads, &first, &last);
  for (int64_t i = first; i < last; i++) {
    const int64_t to = volta_walk_to(&walk, 0, i, at), from = volta_walk_to(&walk, 1, i, at);
    if (same && out->dtype == VOLTA_I8) {
      ((int8_t *)call->data[0])[to] = ((const int8_t *)call->data[1])[from];
    } else if (same && out->dtype == VOLTA_BF16) {
      ((uint16_t *)call->data[0])[to] = ((const uint16_t *)call->data[1])[from];
    } else if (same) {
      ((uint32_t *)call->data[0])[to] = ((const uint32_t *)call->data[1])[from];
    } else if (out->dtype == VOLTA_BF16) {
      ((uint16_t *)call->data[0])[to] = volta_bf16_from_f32(((const float *)call->data[1])[from]);
    } else if (in->dtype == VOLTA_I8) {
      ((float *)call->data[0])[to] = (float)((const int8_t *)call->data[1])[from];
    } else {
      ((float *)call->data[0])[to] = volta_f32_from_bf16(((const uint16_t *)call->data[1])[from]);
    }
  }
  return VOLTA_OK;
}
