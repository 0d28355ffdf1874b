/* ref/reduce.c for the two layouts that matter: along rows (the reduced axis has stride 1) and down
 * columns (another axis has). Everything else is the reference's. */
#include <math.h>
#include <string.h>

#include "../reduce_problem.h"
#include "../targets.h"
#include "vector.h"

#define REDUCE_COLUMNS 512 /* 32 lanes of them are 64 KiB: they stay in L2 */
#define REDUCE_STREAMS 4 /* rows of a lane that are added while its sum is in a register */
#define REDUCE_GROUP 16 /* columns that no two threads share: a line of cache */

/* --- along a row ------------------------------------------------------------------------------ */

/* Bit j: element j of a equals element j of b; or, is NaN. */
#if defined(__AVX512F__)
static inline uint32_t block_equal(volta_block a, volta_block b) {
  return (uint32_t)_mm512_cmp_ps_mask(a.part[0], b.part[0], _CMP_EQ_OQ) |
         (uint32_t)_mm512_cmp_ps_mask(a.part[1], b.part[1], _CMP_EQ_OQ) << 16;
}

static inline uint32_t block_nan(volta_block a) {
  return (uint32_t)_mm512_cmp_ps_mask(a.part[0], a.part[0], _CMP_UNORD_Q) |
         (uint32_t)_mm512_cmp_ps_mask(a.part[1], a.part[1], _CMP_UNORD_Q) << 16;
}
#else
static inline uint32_t block_equal(volta_block a, volta_block b) {
  uint32_t bits = 0;
  VOLTA_EACH_PART bits |=
      (uint32_t)_mm256_movemask_ps(_mm256_cmp_ps(a.part[p], b.part[p], _CMP_EQ_OQ)) << 8 * p;
  return bits;
}

static inline uint32_t block_nan(volta_block a) {
  uint32_t bits = 0;
  VOLTA_EACH_PART bits |=
      (uint32_t)_mm256_movemask_ps(_mm256_cmp_ps(a.part[p], a.part[p], _CMP_UNORD_Q)) << 8 * p;
  return bits;
}
#endif

static float row_sum(const float *x, int64_t count, int squares) {
  volta_block lanes = block_set(0.0f);
  for (int64_t i = 0; i < count; i += VOLTA_LANES) {
    const volta_block block = block_load(x + i, count - i, 0.0f);
    lanes = block_add(lanes, squares ? block_mul(block, block) : block);
  }
  return block_sum(lanes);
}

/* The first NaN, else the first of the largest: where it is follows from what it is. count > 0. */
static int64_t row_argmax(const float *x, int64_t count) {
  volta_block largest = block_set(-INFINITY);
  for (int64_t i = 0; i < count; i += VOLTA_LANES) {
    const volta_block block = block_load(x + i, count - i, -INFINITY);
    const uint32_t nan = block_nan(block);
    if (nan) return i + __builtin_ctz(nan);
    largest = block_max(block, largest);
  }
  largest = block_set(block_largest(largest));
  for (int64_t i = 0; i < count; i += VOLTA_LANES) {
    const uint32_t equal = block_equal(block_load(x + i, count - i, -INFINITY), largest);
    if (equal) return i + __builtin_ctz(equal);
  }
  return 0;
}

static void reduce_rows(const volta_call *call, const volta_reduce_problem *p) {
  int64_t first, last, out, in;
  volta_share(p->outputs, call->thread, call->threads, &first, &last);
  for (int64_t i = first; i < last; i++) {
    volta_reduce_at(p, i, &out, &in);
    const float *x = (const float *)call->data[1] + in;
    float y = -INFINITY;
    if (p->kind == VOLTA_REDUCE_SUM) y = row_sum(x, p->count, 0);
    if (p->kind == VOLTA_REDUCE_SUM_SQUARES) y = row_sum(x, p->count, 1);
    if (p->kind == VOLTA_REDUCE_MAX && p->count > 0) y = x[row_argmax(x, p->count)];
    if (p->kind == VOLTA_REDUCE_ARGMAX) {
      ((int32_t *)call->data[0])[out] = (int32_t)row_argmax(x, p->count);
    } else {
      ((float *)call->data[0])[out] = p->scaled ? y * p->factor : y;
    }
  }
}

/* --- down n <= REDUCE_COLUMNS columns --------------------------------------------------------- */

VOLTA_INLINE float term(float x, int squares) { return squares ? x * x : x; }

/* sum += `many` rows, `stride` apart, in ascending order. */
VOLTA_INLINE void add_rows(float *restrict sum, const float *restrict x, int64_t stride, int64_t n,
                           int many, int squares) {
  for (int64_t c = 0; c < n; c++) {
    float s = sum[c];
    for (int j = 0; j < many; j++) s += term(x[j * stride + c], squares);
    sum[c] = s;
  }
}

VOLTA_INLINE void columns_sum(float *y, const float *x, int64_t count, int64_t stride, int64_t n,
                              int squares) {
  _Alignas(VOLTA_ALIGNMENT) float lane[VOLTA_LANES][REDUCE_COLUMNS];
  const int64_t span = REDUCE_STREAMS * VOLTA_LANES, apart = VOLTA_LANES * stride;
  for (int j = 0; j < VOLTA_LANES; j++) memset(lane[j], 0, (size_t)n * sizeof lane[j][0]);
  int64_t i = 0;
  for (; i + span <= count; i += span)
    for (int64_t j = 0; j < VOLTA_LANES; j++)
      add_rows(lane[j], x + (i + j) * stride, apart, n, REDUCE_STREAMS, squares);
  for (; i < count; i++) add_rows(lane[i % VOLTA_LANES], x + i * stride, apart, n, 1, squares);
  for (int width = VOLTA_LANES / 2; width > 0; width /= 2)
    for (int j = 0; j < width; j++)
      for (int64_t c = 0; c < n; c++) lane[j][c] += lane[j + width][c];
  memcpy(y, lane[0], (size_t)n * sizeof *y);
}

static void columns_max(float *y, int32_t *index, const float *x, int64_t count, int64_t stride,
                        int64_t n) {
  for (int64_t c = 0; c < n; c++) {
    y[c] = count > 0 ? x[c] : -INFINITY;
    index[c] = 0;
  }
  for (int64_t i = 1; i < count; i++) {
    const float *row = x + i * stride;
    for (int64_t c = 0; c < n; c++) {
      const float value = row[c], best = y[c];
      const int better = value > best || (value != value && best == best);
      y[c] = better ? value : best;
      index[c] = better ? (int32_t)i : index[c];
    }
  }
}

static void reduce_columns(const volta_call *call, const volta_reduce_problem *p) {
  const int column = p->rank - 1;
  const int64_t C = p->size[column], groups = (C + REDUCE_GROUP - 1) / REDUCE_GROUP;
  float y[REDUCE_COLUMNS];
  int32_t index[REDUCE_COLUMNS];
  int64_t first, last, out, in;
  volta_share(p->outputs / C * groups, call->thread, call->threads, &first, &last);
  while (first < last) {
    const int64_t left = first % groups * REDUCE_GROUP;
    int64_t many = groups - first % groups;
    if (many > last - first) many = last - first;
    if (many > REDUCE_COLUMNS / REDUCE_GROUP) many = REDUCE_COLUMNS / REDUCE_GROUP;
    const int64_t n = C - left < many * REDUCE_GROUP ? C - left : many * REDUCE_GROUP;
    volta_reduce_at(p, first / groups * C + left, &out, &in);
    const float *x = (const float *)call->data[1] + in;
    if (p->kind == VOLTA_REDUCE_SUM || p->kind == VOLTA_REDUCE_SUM_SQUARES) {
      if (p->kind == VOLTA_REDUCE_SUM)
        columns_sum(y, x, p->count, p->stride, n, 0);
      else
        columns_sum(y, x, p->count, p->stride, n, 1);
    } else {
      columns_max(y, index, x, p->count, p->stride, n);
    }
    for (int64_t c = 0; c < n; c++) {
      const int64_t to = out + c * p->out_stride[column];
      if (p->kind == VOLTA_REDUCE_ARGMAX) {
        ((int32_t *)call->data[0])[to] = index[c];
      } else {
        ((float *)call->data[0])[to] = p->scaled ? y[c] * p->factor : y[c];
      }
    }
    first += many;
  }
}

/* Outputs may be numbered in any order: the axis of stride 1 becomes the last. */
static int put_columns_last(volta_reduce_problem *p) {
  for (int axis = 0; axis < p->rank; axis++) {
    if (p->in_stride[axis] != 1 || p->size[axis] == 1) continue;
    const int64_t size = p->size[axis], out = p->out_stride[axis];
    for (int a = axis; a + 1 < p->rank; a++) {
      p->size[a] = p->size[a + 1];
      p->out_stride[a] = p->out_stride[a + 1];
      p->in_stride[a] = p->in_stride[a + 1];
    }
    p->size[p->rank - 1] = size;
    p->out_stride[p->rank - 1] = out;
    p->in_stride[p->rank - 1] = 1;
    return 1;
  }
  return 0;
}

int VOLTA_ISA_NAME(reduce)(const volta_call *call) {
  volta_reduce_problem p;
  if (!volta_reduce_problem_of(call, &p)) return volta_fail(call, VOLTA_BAD_PROGRAM, 0, 0);
  if (p.outputs == 0) return VOLTA_OK;
  if (p.stride == 1 || p.count <= 1) {
    reduce_rows(call, &p);
  } else if (put_columns_last(&p)) {
    reduce_columns(call, &p);
  } else {
    return volta_reduce_ref(call);
  }
  return VOLTA_OK;
}
