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
#include "bfloat16.h"
#include "matmul_tile.h"

/* ints of a matmul step. 0 in any but the first: the table's choice. They change how, never what. */
enum {
  VOLTA_MATMUL_OUTPUTS, /* how many: A is the operand after them */
  VOLTA_MATMUL_TILE,    /* row of matmul_tiles.def, from 1 */
  VOLTA_MATMUL_KC,
  VOLTA_MATMUL_MC,
  VOLTA_MATMUL_NC,
  VOLTA_MATMUL_AHEAD,  /* rows of B fetched ahead, plus 1 */
  VOLTA_MATMUL_COPIES, /* of volta_matmul_copies */
  VOLTA_MATMUL_THREADS /* at most so many work on it */
};

/* Copies of B and A: 0 as the plan decides. */
enum {
  VOLTA_COPY_B_NEVER = 1, /* where it can be read in place */
  VOLTA_COPY_B_ALWAYS = 2,
  VOLTA_COPY_B_DONE = 3, /* B is what the pack kernel made of it */
  VOLTA_COPY_A_NEVER = 4,
  VOLTA_COPY_A_ALWAYS = 8,
  VOLTA_COPIES = 16
};

/* N10: so many products of two int8, 2^14 at most each, add up to less than 2^31. */
#define VOLTA_LARGEST_GROUP ((1 << 17) - 1)

typedef struct {
  int64_t m, n, k;
  int64_t outer, inner;
  int32_t a, b, scale;   /* operand numbers; scale -1: none */
  int32_t kind;          /* VOLTA_CODE_.. */
  int32_t batch_axes;    /* axes [0, batch_axes) of the output are batches */
  int32_t row_axis;      /* the axis whose stride is the row stride */
  int64_t a_rs, a_cs, b_rs, b_cs, c_rs; /* element (i, j) at i * rs + j * cs */
  int64_t group;         /* N10: k that share a scale; else k */
  int64_t scale_rs;
} volta_matmul_problem;

static inline int volta_is_matmul(int32_t kernel) {
  return kernel == VOLTA_KERNEL_MATMUL || kernel == VOLTA_KERNEL_MATMUL_SCALED;
}

static inline int64_t volta_itemsize(int32_t dtype) {
  return dtype == VOLTA_I8 ? 1 : dtype == VOLTA_BF16 ? 2 : 4;
}

/* Stride of x along an axis of the output; axes that x lacks or holds once do not move it. */
static inline int64_t volta_matmul_stride(const volta_operand *x, const volta_operand *out,
                                          int32_t axis) {
  int32_t own = axis - (out->rank - x->rank);
  return own < 0 || x->shape[own] == 1 ? 0 : x->stride[own];
}

/* Is operand i the result or something the epilogue reads or writes? */
static inline int volta_matmul_is_extra(const volta_matmul_problem *p, int32_t i) {
  return i != p->a && i != p->b && i != p->scale;
}

/* Do rows of `m` along row_axis continue along `axis`, for every operand but B? */
static inline int volta_matmul_folds(const volta_step *step, const volta_operand *operand,
                                     const volta_matmul_problem *p, int32_t axis) {
  for (int32_t i = 0; i < step->n_operands; i++) {
    if (i == p->b || i == p->scale) continue;
    int64_t row = volta_matmul_stride(&operand[i], operand, p->row_axis);
    if (volta_matmul_stride(&operand[i], operand, axis) != p->m * row) return 0;
  }
  return 1;
}

static inline int volta_matmul_b_is_packed(const volta_step *step) {
  return (step->ints[VOLTA_MATMUL_COPIES] & 3) == VOLTA_COPY_B_DONE;
}

static inline volta_matmul_problem volta_matmul_read(const volta_step *step,
                                                     const volta_operand *operand) {
  const volta_operand *out = &operand[0];
  volta_matmul_problem p = {.a = (int32_t)step->ints[VOLTA_MATMUL_OUTPUTS]};
  p.b = p.a + 1;
  p.scale = step->kernel == VOLTA_KERNEL_MATMUL_SCALED ? p.a + 2 : -1;
  const volta_operand *a = &operand[p.a], *b = &operand[p.b];
  p.kind = a->dtype == VOLTA_BF16 ? VOLTA_CODE_BF16
           : a->dtype == VOLTA_I8 ? VOLTA_CODE_I8
                                  : VOLTA_CODE_F32;
  p.n = out->shape[out->rank - 1];
  p.k = a->shape[a->rank - 1];
  p.row_axis = out->rank - 2;
  p.m = out->shape[p.row_axis];
  p.group = p.k;
  if (p.scale >= 0) {
    const volta_operand *scale = &operand[p.scale];
    p.group = scale->shape[0] > 0 ? p.k / scale->shape[0] : p.k;
    p.scale_rs = scale->shape[0] > 1 ? scale->stride[0] : 0;
  }
  int32_t axis = p.row_axis - 1;
  for (; axis >= 0 && volta_matmul_stride(b, out, axis) == 0; axis--) {
    if (out->shape[axis] == 1) continue;
    if (p.m == 1)
      p.row_axis = axis;
    else if (!volta_matmul_folds(step, operand, &p, axis))
      break;
    p.m *= out->shape[axis];
  }
  p.batch_axes = axis + 1;
  p.outer = p.inner = 1;
  for (; axis >= 0 && volta_matmul_stride(b, out, axis) == 0; axis--) p.inner *= out->shape[axis];
  for (; axis >= 0; axis--) p.outer *= out->shape[axis];
  p.a_rs = volta_matmul_stride(a, out, p.row_axis);
  p.a_cs = a->stride[a->rank - 1];
  if (!volta_matmul_b_is_packed(step)) {
    p.b_rs = b->stride[b->rank - 2];
    p.b_cs = b->stride[b->rank - 1];
  }
  p.c_rs = volta_matmul_stride(out, out, p.row_axis);
  return p;
}

/* Address of operand i in batch number `batch` (all batch axes, last fastest). */
static inline char *volta_matmul_at(const volta_call *call, const volta_matmul_problem *p,
                                    int32_t i, int64_t batch) {
  const volta_operand *out = &call->operand[0];
  int64_t offset = 0;
  for (int32_t axis = p->batch_axes - 1; axis >= 0; axis--) {
    offset += batch % out->shape[axis] * volta_matmul_stride(&call->operand[i], out, axis);
    batch /= out->shape[axis];
  }
  return (char *)call->data[i] + offset * volta_itemsize(call->operand[i].dtype);
}

/* --- epilogue -------------------------------------------------------------------------------- */

/* Stride of x along a row of the output; where a row is one element, that element is a row of x. */
static inline int64_t volta_matmul_step(const volta_operand *x, const volta_operand *out) {
  return out->shape[out->rank - 1] == 1 ? 1 : volta_matmul_stride(x, out, out->rank - 1);
}

/* Is the operand its own register, a row of f32? Others are spread, gathered or widened into a tile. */
static inline int volta_matmul_in_place(const volta_operand *x, const volta_operand *out) {
  return x->dtype == VOLTA_F32 && volta_matmul_step(x, out) == 1;
}

/* Tiles of VOLTA_TILE floats that one thread needs: temporaries, then operands that are no rows of f32. */
static inline int64_t volta_matmul_tiles(const volta_step *step, const volta_operand *operand) {
  const volta_matmul_problem p = volta_matmul_read(step, operand);
  int64_t tiles = step->n_temporaries;
  for (int32_t i = 0; i < step->n_operands; i++)
    if (volta_matmul_is_extra(&p, i) && !volta_matmul_in_place(&operand[i], operand)) tiles++;
  return tiles;
}

/* Runs the step's instructions on rows [i0, i1) and columns [j0, j1) of batch `batch`, as many rows at
 * once as a tile holds. `tiles`: volta_matmul_tiles(..) * VOLTA_TILE floats of this thread. */
static inline void volta_matmul_epilogue(const volta_call *call, const volta_matmul_problem *p,
                                         volta_chain_rows chain, float *tiles, int64_t batch,
                                         int64_t i0, int64_t i1, int64_t j0, int64_t j1) {
  const volta_step *step = call->step;
  if (step->n_instructions == 0 || i0 >= i1 || j0 >= j1) return;
  const volta_operand *out = &call->operand[0];
  volta_chain_register first[VOLTA_MAX_REGISTERS], at[VOLTA_MAX_REGISTERS];
  const int32_t registers = step->n_operands + step->n_temporaries;
  for (int32_t r = 0; r < registers; r++) {
    first[r] = (volta_chain_register){NULL, 0, 0, VOLTA_F32, NULL};
    if (r < step->n_operands) {
      if (!volta_matmul_is_extra(p, r)) continue;
      const volta_operand *x = &call->operand[r];
      first[r].at = volta_matmul_at(call, p, r, batch);
      first[r].row = volta_matmul_stride(x, out, p->row_axis) * volta_itemsize(x->dtype);
      first[r].move = volta_matmul_step(x, out);
      first[r].dtype = x->dtype;
      if (volta_matmul_in_place(x, out)) continue;
    }
    first[r].tile = tiles;
    tiles += VOLTA_TILE;
  }
  const int64_t most = j1 - j0 < VOLTA_TILE ? j1 - j0 : VOLTA_TILE;
  const int64_t high = VOLTA_TILE / most;
  for (int64_t j = j0; j < j1; j += most)
    for (int64_t i = i0; i < i1; i += high) {
      for (int32_t r = 0; r < registers; r++) {
        at[r] = first[r];
        if (at[r].at != NULL)
          at[r].at += i * at[r].row + j * at[r].move * volta_itemsize(at[r].dtype);
      }
      chain(call, at, i1 - i < high ? i1 - i : high, j1 - j < most ? j1 - j : most);
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

/* The dtypes that have a clause: N1 (f32 by f32 or bf16), N9 (bf16 by bf16), N10 (f32 or int8 by int8,
 * with scales). */
static inline int volta_matmul_dtypes_fit(const volta_step *step, const volta_operand *a,
                                          const volta_operand *b) {
  if (step->kernel == VOLTA_KERNEL_MATMUL_SCALED)
    return (a->dtype == VOLTA_F32 || a->dtype == VOLTA_I8) && b->dtype == VOLTA_I8;
  if (a->dtype == VOLTA_BF16) return b->dtype == VOLTA_BF16 || volta_matmul_b_is_packed(step);
  return a->dtype == VOLTA_F32 &&
         (b->dtype == VOLTA_F32 || b->dtype == VOLTA_BF16 || volta_matmul_b_is_packed(step));
}

/* scale f32 [groups, n], groups of one length, its rows contiguous. */
static inline int volta_matmul_scale_fits(const volta_operand *scale, const volta_operand *a,
                                          const volta_operand *out) {
  const int64_t k = a->shape[a->rank - 1], n = out->shape[out->rank - 1];
  if (scale->dtype != VOLTA_F32 || scale->rank != 2 || scale->shape[0] < 1) return 0;
  if (scale->shape[1] != n || (n > 1 && scale->stride[1] != 1)) return 0;
  return k % scale->shape[0] == 0 && k / scale->shape[0] <= VOLTA_LARGEST_GROUP;
}

static inline int volta_matmul_fits(const volta_step *step, const volta_operand *operand) {
  const int64_t outputs = step->ints[VOLTA_MATMUL_OUTPUTS];
  const int scaled = step->kernel == VOLTA_KERNEL_MATMUL_SCALED;
  if (outputs < 1 || outputs != step->n_outputs || outputs + 2 + scaled > step->n_operands)
    return 0;
  const volta_operand *out = &operand[0], *a = &operand[outputs], *b = a + 1, *scale = a + 2;
  if (out->dtype != VOLTA_F32 || out->rank < 2 || a->rank < 2) return 0;
  for (int32_t i = 0; i < step->n_operands; i++) {
    const volta_operand *x = &operand[i];
    const int factor = x == a || x == b;
    if ((scaled && x == scale) || (x == b && volta_matmul_b_is_packed(step))) continue;
    if (!factor && x->dtype != VOLTA_F32 && x->dtype != VOLTA_BF16) return 0;
    if (x->rank > out->rank) return 0;
    if (!volta_matmul_broadcasts(x, out, factor ? out->rank - 2 : out->rank)) return 0;
  }
  for (int64_t i = 0; i < outputs; i++) {
    const int32_t last = operand[i].rank - 1;
    if (operand[i].rank != out->rank) return 0;
    for (int32_t axis = 0; axis <= last; axis++)
      if (operand[i].shape[axis] != out->shape[axis]) return 0;
    if (operand[i].stride[last] != 1 && operand[i].shape[last] > 1 && volta_numel(&operand[i]) > 0)
      return 0;
  }
  if (!volta_matmul_dtypes_fit(step, a, b)) return 0;
  if (scaled && !volta_matmul_scale_fits(scale, a, out)) return 0;
  if (a->shape[a->rank - 2] != out->shape[out->rank - 2]) return 0;
  if (volta_matmul_b_is_packed(step)) return b->rank == 1 && b->dtype == VOLTA_I8;
  return b->rank >= 2 && a->shape[a->rank - 1] == b->shape[b->rank - 2] &&
         b->shape[b->rank - 1] == out->shape[out->rank - 1];
}

/* The epilogue cannot read A, B or scales: no element of theirs belongs to one of the output. */
static inline int volta_matmul_valid(const volta_call *call) {
  const volta_step *step = call->step;
  if (!volta_matmul_fits(step, call->operand)) return 0;
  const volta_matmul_problem p = volta_matmul_read(step, call->operand);
  for (int32_t i = 0; i < step->n_instructions; i++)
    for (int x = 0; x < 6; x++)
      if (!volta_matmul_is_extra(&p, call->code[i].from[x])) return 0;
  return 1;
}

#endif
