/* NumPy's take_along_axis, and N7, the scatter-add that is its gradient.
 *
 * Contiguous arrays seen as [outer, axis, inner]: the table's axis has `size` elements, the
 * index's has `count`. As in NumPy an index in [-size, 0) counts from the end; any other outside
 * [0, size) is VOLTA_INDEX_RANGE and nothing is written. */
#include "../rows.h"

typedef struct {
  int64_t outer, size, count, inner;
} gather_shape;

/* The shape from the table (x, or the gradient's out) and the index. */
static int shape_of(const volta_call *call, int table, int index, gather_shape *shape) {
  const volta_operand *t = &call->operand[table], *k = &call->operand[index];
  const int64_t axis = call->step->ints[0];
  if (axis < 0 || axis >= t->rank || t->rank != k->rank) return VOLTA_BAD_PROGRAM;
  *shape = (gather_shape){1, t->shape[axis], k->shape[axis], 1};
  for (int64_t d = 0; d < t->rank; d++) {
    if (d != axis && t->shape[d] != k->shape[d]) return VOLTA_BAD_PROGRAM;
    if (d < axis) shape->outer *= t->shape[d];
    if (d > axis) shape->inner *= t->shape[d];
  }
  return VOLTA_OK;
}

static int check(const volta_call *call, int table, int index, gather_shape *shape) {
  const int status = shape_of(call, table, index, shape);
  if (status != VOLTA_OK) return volta_fail(call, status, 0, 0);
  const int32_t *k = (const int32_t *)call->data[index];
  const int64_t total = shape->outer * shape->count * shape->inner;
  for (int64_t i = 0; i < total; i++)
    if (k[i] < -shape->size || k[i] >= shape->size)
      return volta_fail(call, VOLTA_INDEX_RANGE, k[i], shape->size);
  return VOLTA_OK;
}

static inline int64_t from_end(int64_t index, int64_t size) {
  return index < 0 ? index + size : index;
}

/* out[o, k, i] = x[o, index[o, k, i], i]; threads divide the elements. */
int volta_gather_ref(const volta_call *call) {
  gather_shape s = {0};
  const int status = check(call, 1, 2, &s);
  if (status != VOLTA_OK) return status;
  float *out = (float *)call->data[0];
  const float *x = (const float *)call->data[1];
  const int32_t *index = (const int32_t *)call->data[2];
  int64_t first, last;
  volta_share(s.outer * s.count * s.inner, call->thread, call->threads, &first, &last);
  for (int64_t flat = first; flat < last; flat++) {
    const int64_t o = flat / (s.count * s.inner), i = flat % s.inner;
    out[flat] = x[(o * s.size + from_end(index[flat], s.size)) * s.inner + i];
  }
  return VOLTA_OK;
}

/* out = +0, then out[o, index[o, k, i], i] += g[o, k, i] in ascending flat order of the index.
 * Only equal (o, i) meet in one output, so threads divide the pairs and k ascends within each. */
int volta_gather_grad_ref(const volta_call *call) {
  gather_shape s = {0};
  const int status = check(call, 0, 2, &s);
  if (status != VOLTA_OK) return status;
  float *out = (float *)call->data[0];
  const float *g = (const float *)call->data[1];
  const int32_t *index = (const int32_t *)call->data[2];
  int64_t first, last;
  volta_share(s.outer * s.inner, call->thread, call->threads, &first, &last);
  for (int64_t pair = first; pair < last; pair++) {
    const int64_t o = pair / s.inner, i = pair % s.inner;
    for (int64_t v = 0; v < s.size; v++) out[(o * s.size + v) * s.inner + i] = 0.0f;
    for (int64_t k = 0; k < s.count; k++) {
      const int64_t flat = (o * s.count + k) * s.inner + i;
      out[(o * s.size + from_end(index[flat], s.size)) * s.inner + i] += g[flat];
    }
  }
  return VOLTA_OK;
}
