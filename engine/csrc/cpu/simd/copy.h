/* Copies, conversions and fills, run by run or, where the fastest axis of one view is not that of
 * the other, block by block (a transpose). */
#include <string.h>

#include "../bfloat16.h"
#include "../strided.h"
#include "../targets.h"
#include "vector.h"

enum { COPY_4, COPY_2, COPY_1, COPY_TO_BF16, COPY_FROM_BF16, COPY_FROM_I8, COPY_NOT };

#define COPY_BLOCK 16 /* a line of cache holds 16 elements of 4 bytes */

/* n elements, one run of each view */
#define COPY_LOOP(out_type, in_type, convert) \
  do { \
    out_type *restrict y = to; \
    const in_type *restrict x = from; \
    if (to_stride == 1 && from_stride == 1) { \
      for (int64_t i = 0; i < n; i++) y[i] = convert(x[i]); \
    } else if (to_stride == 1 && from_stride == 0) { \
      const out_type value = convert(x[0]); \
      for (int64_t i = 0; i < n; i++) y[i] = value; \
    } else { \
      for (int64_t i = 0; i < n; i++) y[i * to_stride] = convert(x[i * from_stride]); \
    } \
  } while (0)

static inline void copy_run(int kind, void *to, int64_t to_stride, const void *from,
                            int64_t from_stride, int64_t n) {
  if (kind == COPY_4) COPY_LOOP(uint32_t, uint32_t, );
  if (kind == COPY_2) COPY_LOOP(uint16_t, uint16_t, );
  if (kind == COPY_1) COPY_LOOP(uint8_t, uint8_t, );
  if (kind == COPY_TO_BF16) COPY_LOOP(uint16_t, float, volta_bf16_from_f32);
  if (kind == COPY_FROM_BF16) COPY_LOOP(float, uint16_t, volta_f32_from_bf16);
  if (kind == COPY_FROM_I8) COPY_LOOP(float, int8_t, (float));
}

typedef struct {
  int kind;
  volta_walk walk;
  char *to;
  const char *from;
  int64_t to_size, from_size;
} copy_job;

static void copy_at(const copy_job *job, const int64_t offset[2], int64_t n) {
  const int inner = job->walk.rank - 1;
  copy_run(job->kind, job->to + offset[0] * job->to_size,
           inner < 0 ? 1 : job->walk.stride[0][inner], job->from + offset[1] * job->from_size,
           inner < 0 ? 1 : job->walk.stride[1][inner], n);
}

/* Elements first .. last of the flat index, run by run. */
static void copy_runs(const copy_job *job, int64_t first, int64_t last) {
  const volta_walk *w = &job->walk;
  const int inner = w->rank - 1;
  int64_t at[VOLTA_MAX_RANK];
  int64_t offset[2] = {volta_walk_to(w, 0, first, at), volta_walk_to(w, 1, first, at)};
  if (inner < 0 && first < last) copy_at(job, offset, 1);
  while (inner >= 0 && first < last) {
    const int64_t run =
        w->size[inner] - at[inner] < last - first ? w->size[inner] - at[inner] : last - first;
    copy_at(job, offset, run);
    first += run;
    offset[0] -= at[inner] * w->stride[0][inner];
    offset[1] -= at[inner] * w->stride[1][inner];
    at[inner] = 0;
    volta_walk_next(w, inner, at, offset);
  }
}

/* The two innermost axes are a transposed matrix: each unit is COPY_BLOCK of its rows, taken in
 * square blocks, so that every line of both sides is used whole while it is in the cache. */
static void copy_transposed(const copy_job *job, int thread, int threads) {
  const volta_walk *w = &job->walk;
  const int row = w->rank - 2, column = w->rank - 1;
  const int64_t blocks = (w->size[row] + COPY_BLOCK - 1) / COPY_BLOCK;
  int64_t matrices = 1, first, last, at[VOLTA_MAX_RANK];
  for (int axis = 0; axis < row; axis++) matrices *= w->size[axis];
  volta_share(matrices * blocks, thread, threads, &first, &last);
  for (int64_t unit = first; unit < last; unit++) {
    const int64_t matrix = unit / blocks * w->size[row] * w->size[column];
    const int64_t to = volta_walk_to(w, 0, matrix, at), from = volta_walk_to(w, 1, matrix, at);
    const int64_t top = unit % blocks * COPY_BLOCK;
    const int64_t bottom = top + COPY_BLOCK < w->size[row] ? top + COPY_BLOCK : w->size[row];
    for (int64_t left = 0; left < w->size[column]; left += COPY_BLOCK) {
      const int64_t n = w->size[column] - left < COPY_BLOCK ? w->size[column] - left : COPY_BLOCK;
      for (int64_t r = top; r < bottom; r++) {
        const int64_t offset[2] = {to + r * w->stride[0][row] + left * w->stride[0][column],
                                   from + r * w->stride[1][row] + left * w->stride[1][column]};
        copy_at(job, offset, n);
      }
    }
  }
}

static int64_t magnitude(int64_t stride) { return stride < 0 ? -stride : stride; }

/* Axes of length 1 go outside, where they do no harm. */
static int64_t step_of(const volta_operand *view, int axis) {
  return view->shape[axis] == 1 ? INT64_MAX : magnitude(view->stride[axis]);
}

/* Swaps two axes of both views. */
static void swap_axes(volta_operand *out, volta_operand *in, int a, int b) {
  volta_operand *views[2] = {out, in};
  for (int v = 0; v < 2; v++) {
    const int64_t size = views[v]->shape[a], stride = views[v]->stride[a];
    views[v]->shape[a] = views[v]->shape[b];
    views[v]->stride[a] = views[v]->stride[b];
    views[v]->shape[b] = size;
    views[v]->stride[b] = stride;
  }
}

/* Which element goes where does not depend on the order of the axes: the output's fastest axis
 * becomes the innermost; the input's fastest one, if it is another, the second. 1: a transpose. */
static int order_axes(volta_operand *out, volta_operand *in) {
  for (int a = 0; a < out->rank; a++)
    for (int b = a; b > 0; b--)
      if (step_of(out, b) > step_of(out, b - 1)) swap_axes(out, in, b - 1, b);
  const int inner = out->rank - 1;
  if (inner < 1 || magnitude(in->stride[inner]) <= 1) return 0;
  for (int axis = 0; axis < inner; axis++) {
    if (in->shape[axis] > 1 && in->stride[axis] == 1) {
      for (int a = axis; a < inner - 1; a++) swap_axes(out, in, a, a + 1);
      return in->shape[inner] > 1;
    }
  }
  return 0;
}

static int64_t copy_size(int32_t dtype) {
  return dtype == VOLTA_I8 ? 1 : dtype == VOLTA_BF16 ? 2 : 4;
}

/* What of it has to be done; COPY_NOT where the dtypes do not convert. */
static int copy_kind(int32_t to, int32_t from) {
  if (to == from) return to == VOLTA_I8 ? COPY_1 : to == VOLTA_BF16 ? COPY_2 : COPY_4;
  if (to == VOLTA_BF16 && from == VOLTA_F32) return COPY_TO_BF16;
  if (to == VOLTA_F32 && from == VOLTA_BF16) return COPY_FROM_BF16;
  if (to == VOLTA_F32 && from == VOLTA_I8) return COPY_FROM_I8;
  return COPY_NOT;
}

int VOLTA_ISA_NAME(copy)(const volta_call *call) {
  volta_operand out = call->operand[0], in = call->operand[1];
  const int kind = copy_kind(out.dtype, in.dtype);
  int matches = out.rank == in.rank && kind != COPY_NOT;
  for (int32_t axis = 0; matches && axis < out.rank; axis++)
    matches = out.shape[axis] == in.shape[axis];
  if (!matches) return volta_fail(call, VOLTA_BAD_PROGRAM, 0, 0);

  const int64_t count = volta_numel(&out);
  if (count == 0) return VOLTA_OK;
  const int transposed = order_axes(&out, &in);
  const copy_job job = {
      .kind = kind,
      .walk = volta_walk_of(&out, &in),
      .to = call->data[0],
      .from = call->data[1],
      .to_size = copy_size(out.dtype),
      .from_size = copy_size(in.dtype),
  };
  if (transposed && job.walk.rank >= 2) {
    copy_transposed(&job, call->thread, call->threads);
  } else {
    int64_t first, last;
    volta_share((count + COPY_BLOCK - 1) / COPY_BLOCK, call->thread, call->threads, &first, &last);
    copy_runs(&job, first * COPY_BLOCK, last * COPY_BLOCK < count ? last * COPY_BLOCK : count);
  }
  return VOLTA_OK;
}

int VOLTA_ISA_NAME(fill)(const volta_call *call) {
  const volta_operand *out = &call->operand[0];
  const volta_walk walk = volta_walk_of(out, 0);
  if (walk.rank > 1 || (walk.rank == 1 && walk.stride[0][0] != 1) || out->dtype == VOLTA_BF16 ||
      out->dtype == VOLTA_I8)
    return volta_fill_ref(call);
  const float value = call->step->floats[0];
  const uint32_t bits = out->dtype == VOLTA_I32 ? (uint32_t)(int32_t)value : VOLTA_BITS(value);
  int64_t first, last;
  volta_share(volta_numel(out), call->thread, call->threads, &first, &last);
  copy_run(COPY_4, (uint32_t *)call->data[0] + first, 1, &bits, 0, last - first);
  return VOLTA_OK;
}
