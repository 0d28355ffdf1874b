#include "../bfloat16.h"
#include "../targets.h"

/* out[...] = value, by the flat index of the view */
int volta_fill_ref(const volta_call *call) {
  const volta_operand *out = &call->operand[0];
  const float value = call->step->floats[0];
  int64_t first, last;
  volta_share(volta_numel(out), call->thread, call->threads, &first, &last);
  for (int64_t i = first; i < last; i++) {
    int64_t rest = i, at = 0;
    for (int32_t axis = out->rank - 1; axis >= 0; axis--) {
      at += rest % out->shape[axis] * out->stride[axis];
      rest /= out->shape[axis];
    }
    switch (out->dtype) {
    case VOLTA_F32: ((float *)call->data[0])[at] = value; break;
    case VOLTA_I32: ((int32_t *)call->data[0])[at] = (int32_t)value; break;
    case VOLTA_BF16: ((uint16_t *)call->data[0])[at] = volta_bf16_from_f32(value); break;
    case VOLTA_I8: ((int8_t *)call->data[0])[at] = (int8_t)value; break;
    default: return volta_fail(call, VOLTA_BAD_PROGRAM, 0, 0);
    }
  }
  return VOLTA_OK;
}
