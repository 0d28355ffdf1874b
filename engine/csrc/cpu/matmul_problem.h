/* The shape of one matmul step, out of its operands, and the epilogue on finished rows of it.
 *
 * Every operand but B has the axes [batch.., m, (n or k)]. Batch axes that B does not move along
 * (stride 0) and that continue the rows of all other operands are folded into m, so that
 * [B, T, C] x [C, N] is one matrix of B * T rows. Of what is left, trailing axes that B does not
 * move along are `inner` batches (they share one B), the rest are `outer` batches.
 */
#ifndef VOLTA_MATMUL_PROBLEM_H
#define VOLTA_MATMUL_PROBLEM_H

#include <stddef.h>

#include "../volta.h"

typedef struct {
  int64_t m, n, k;
  int64_t outer, inner;
  int32_t a, b;          /* operand numbers */
  int32_t batch_axes;    /* axes [0, batch_axes) of the output are batches */
  int32_t row_axis;      /* the axis whose stride is the row stride */
  int64_t a_rs, a_cs, b_rs, b_cs, c_rs; /* element (i, j) at i * rs + j * cs */
} volta_matmul_problem;

/* Stride of x along an axis of the output; axes that x lacks or holds once do not move it. */
static inline int64_t volta_matmul_stride(const volta_operand *x, const volta_operand *out,
                                          int32_t axis) {
  int32_t own = axis - (out->rank - x->rank);
  return own < 0 || x->shape[own] == 1 ? 0 : x->stride[own];
}

/* Do rows of `m` along row_axis continue along `axis`, for every operand but B? */
static inline int volta_matmul_folds(const volta_step *step, const volta_operand *operand,
                                     int32_t b, int64_t m, int32_t row_axis, int32_t axis) {
  for (int32_t i = 0; i < step->n_operands; i++) {
    if (i == b) continue;
    int64_t row = volta_matmul_stride(&operand[i], operand, row_axis);
    if (volta_matmul_stride(&operand[i], operand, axis) != m * row) return 0;
  }
  return 1;
}

static inline volta_matmul_problem volta_matmul_read(const volta_step *step,
                                                     const volta_operand *operand) {
  const volta_operand *out = &operand[0];
  volta_matmul_problem p = {.a = (int32_t)step->ints[0], .b = (int32_t)step->ints[0] + 1};
  const volta_operand *a = &operand[p.a], *b = &operand[p.b];
  p.n = out->shape[out->rank - 1];
  p.k = a->shape[a->rank - 1];
  p.row_axis = out->rank - 2;
  p.m = out->shape[p.row_axis];
  int32_t axis = p.row_axis - 1;
  for (; axis >= 0 && volta_matmul_stride(b, out, axis) == 0; axis--) {
    if (out->shape[axis] == 1) continue;
    if (p.m == 1)
      p.row_axis = axis;
    else if (!volta_matmul_folds(step, operand, p.b, p.m, p.row_axis, axis))
      break;
    p.m *= out->shape[axis];
  }
  p.batch_axes = axis + 1;
  p.outer = p.inner = 1;
  for (; axis >= 0 && volta_matmul_stride(b, out, axis) == 0; axis--) p.inner *= out->shape[axis];
  for (; axis >= 0; axis--) p.outer *= out->shape[axis];
  p.a_rs = volta_matmul_stride(a, out, p.row_axis);
  p.a_cs = a->stride[a->rank - 1];
  p.b_rs = b->stride[b->rank - 2];
  p.b_cs = b->stride[b->rank - 1];
  p.c_rs = volta_matmul_stride(out, out, p.row_axis);
  return p;
}

/* Address of operand i in batch number `batch` (all batch axes, last fastest). */
static inline float *volta_matmul_at(const volta_call *call, const volta_matmul_problem *p,
                                     int32_t i, int64_t batch) {
  const volta_operand *out = &call->operand[0];
  int64_t offset = 0;
  for (int32_t axis = p->batch_axes - 1; axis >= 0; axis--) {
    offset += batch % out->shape[axis] * volta_matmul_stride(&call->operand[i], out, axis);
    batch /= out->shape[axis];
  }
  return (float *)call->data[i] + offset;
}

/* --- epilogue -------------------------------------------------------------------------------- */

static inline int volta_matmul_is_extra(const volta_matmul_problem *p, int32_t i) {
  return i != p->a && i != p->b;
}

/* Stride of x along a row of the output. */
static inline int64_t volta_matmul_step(const volta_operand *x, const volta_operand *out) {
  return volta_matmul_stride(x, out, out->rank - 1);
}

/* Tiles of VOLTA_TILE floats that one thread needs: temporaries, then operands not of unit
 * stride. */
static inline int64_t volta_matmul_tiles(const volta_step *step, const volta_operand *operand) {
  volta_matmul_problem p = {.a = (int32_t)step->ints[0], .b = (int32_t)step->ints[0] + 1};
  int64_t tiles = step->n_temporaries;
  for (int32_t i = 0; i < step->n_operands; i++)
    if (volta_matmul_is_extra(&p, i) && volta_matmul_step(&operand[i], operand) != 1) tiles++;
  return tiles;
}

/* Runs the step's instructions on rows [i0, i1) and columns [j0, j1) of batch `batch`, row segments
 * of at most VOLTA_TILE. An operand of unit stride is its own register; others are spread or
 * gathered into a tile. `tiles`: volta_matmul_tiles(..) * VOLTA_TILE floats of this thread. */
static inline void volta_matmul_epilogue(const volta_call *call, const volta_matmul_problem *p,
                                         volta_chain_tile chain, float *tiles, int64_t batch,
                                         int64_t i0, int64_t i1, int64_t j0, int64_t j1) {
  const volta_step *step = call->step;
  if (step->n_instructions == 0 || i0 >= i1 || j0 >= j1) return;
  const volta_operand *out = &call->operand[0];
  float *base[VOLTA_MAX_REGISTERS], *registers[VOLTA_MAX_REGISTERS];
  int64_t row[VOLTA_MAX_REGISTERS], move[VOLTA_MAX_REGISTERS];
  const int32_t operands = step->n_operands, count = operands + step->n_temporaries;
  for (int32_t r = 0; r < count; r++) {
    base[r] = registers[r] = NULL;
    if (r >= operands) {
      registers[r] = tiles;
      tiles += VOLTA_TILE;
    } else if (volta_matmul_is_extra(p, r)) {
      base[r] = volta_matmul_at(call, p, r, batch);
      row[r] = volta_matmul_stride(&call->operand[r], out, p->row_axis);
      move[r] = volta_matmul_step(&call->operand[r], out);
      /* one column: the element itself is a tile of length 1 */
      if (p->n == 1) move[r] = 1;
    }
  }
  for (int32_t r = 0; r < operands; r++)
    if (base[r] && move[r] != 1) {
      registers[r] = tiles;
      tiles += VOLTA_TILE;
    }
  for (int64_t j = j0; j < j1; j += VOLTA_TILE) {
    const int64_t width = j1 - j < VOLTA_TILE ? j1 - j : VOLTA_TILE;
    for (int64_t i = i0; i < i1; i++) {
      for (int32_t r = 0; r < operands; r++) {
        if (!base[r]) continue;
        float *from = base[r] + i * row[r] + j * move[r];
        if (move[r] == 1)
          registers[r] = from;
        else
          for (int64_t x = 0; x < width; x++) registers[r][x] = from[x * move[r]];
      }
      chain(call->code, step->n_instructions, registers, width);
    }
  }
}

/* --- what every matmul kernel demands of its step ---------------------------------------------- */

/* Has x, along each of the first `axes` axes of the output, its length, or 1, or no such axis? */
static inline int volta_matmul_broadcasts(const volta_operand *x, const volta_operand *out,
                                          int32_t axes) {
  for (int32_t axis = 0; axis < axes; axis++) {
    const int32_t own = axis - (out->rank - x->rank);
    if (own >= 0 && x->shape[own] != 1 && x->shape[own] != out->shape[axis]) return 0;
  }
  return 1;
}

static inline int volta_matmul_fits(const volta_step *step, const volta_operand *operand) {
  const int64_t outputs = step->ints[0];
  if (outputs < 1 || outputs != step->n_outputs || outputs + 2 > step->n_operands) return 0;
  const volta_operand *out = &operand[0], *a = &operand[outputs], *b = &operand[outputs + 1];
  for (int32_t i = 0; i < step->n_operands; i++) {
    const int factor = &operand[i] == a || &operand[i] == b;
    if (operand[i].dtype != VOLTA_F32 || operand[i].rank > out->rank) return 0;
    if (!volta_matmul_broadcasts(&operand[i], out, factor ? out->rank - 2 : out->rank)) return 0;
  }
  for (int64_t i = 0; i < outputs; i++) {
    const int32_t last = operand[i].rank - 1;
    if (last < 1 || operand[i].rank != out->rank) return 0;
    for (int32_t axis = 0; axis <= last; axis++)
      if (operand[i].shape[axis] != out->shape[axis]) return 0;
    if (operand[i].stride[last] != 1 && operand[i].shape[last] > 1 && volta_numel(&operand[i]) > 0)
      return 0;
  }
  return a->rank >= 2 && b->rank >= 2 && a->shape[a->rank - 1] == b->shape[b->rank - 2] &&
         a->shape[a->rank - 2] == out->shape[out->rank - 2] &&
         b->shape[b->rank - 1] == out->shape[out->rank - 1];
}

/* The epilogue cannot read A or B: no element of theirs belongs to one of the output. */
static inline int volta_matmul_valid(const volta_call *call) {
  const volta_step *step = call->step;
  if (!volta_matmul_fits(step, call->operand)) return 0;
  const int64_t a = step->ints[0], b = a + 1;
  for (int32_t i = 0; i < step->n_instructions; i++)
    for (int x = 0; x < 6; x++)
      if (call->code[i].from[x] == a || call->code[i].from[x] == b) return 0;
  return 1;
}

#endif
