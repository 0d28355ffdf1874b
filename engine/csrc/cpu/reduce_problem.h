/* What every version of the reduction shares: the outputs are numbered by the flat index of the
 * input without the reduced axis. */
#ifndef VOLTA_REDUCE_PROBLEM_H
#define VOLTA_REDUCE_PROBLEM_H

#include <stdbool.h>

#include "../volta.h"

enum { VOLTA_REDUCE_SUM, VOLTA_REDUCE_SUM_SQUARES, VOLTA_REDUCE_MAX, VOLTA_REDUCE_ARGMAX };

typedef struct {
  int kind;
  int64_t count;       /* elements reduced into one */
  int64_t stride;      /* from one to the next */
  int64_t outputs;
  bool scaled;         /* multiply by `factor`: a mean */
  float factor;
  int rank;            /* the axes that stay */
  int64_t size[VOLTA_MAX_RANK], out_stride[VOLTA_MAX_RANK], in_stride[VOLTA_MAX_RANK];
} volta_reduce_problem;

/* False when the operands are not what kernels.def says. An argmax of nothing does not exist. */
static inline bool volta_reduce_problem_of(const volta_call *call, volta_reduce_problem *p) {
  const volta_operand *out = &call->operand[0], *in = &call->operand[1];
  const int64_t axis = call->step->ints[1];
  p->kind = (int)call->step->ints[0];
  if (p->kind < VOLTA_REDUCE_SUM || p->kind > VOLTA_REDUCE_ARGMAX) return false;
  if (in->dtype != VOLTA_F32 || out->rank != in->rank) return false;
  if (out->dtype != (p->kind == VOLTA_REDUCE_ARGMAX ? VOLTA_I32 : VOLTA_F32)) return false;
  if (axis < 0 || axis >= in->rank || out->shape[axis] != 1) return false;
  p->count = in->shape[axis];
  p->stride = in->stride[axis];
  p->scaled = call->step->ints[2] == 1;
  p->factor = call->step->floats[0];
  p->outputs = 1;
  p->rank = 0;
  for (int32_t a = 0; a < in->rank; a++) {
    if (a == axis) continue;
    if (out->shape[a] != in->shape[a]) return false;
    p->outputs *= in->shape[a];
    p->size[p->rank] = in->shape[a];
    p->out_stride[p->rank] = out->stride[a];
    p->in_stride[p->rank++] = in->stride[a];
  }
  return p->kind != VOLTA_REDUCE_ARGMAX || p->count > 0 || p->outputs == 0;
}

/* Where output i lies, and the first of the elements that are reduced into it. */
static inline void volta_reduce_at(const volta_reduce_problem *p, int64_t i, int64_t *out,
                                   int64_t *in) {
  *out = *in = 0;
  for (int axis = p->rank - 1; axis >= 0; axis--) {
    *out += i % p->size[axis] * p->out_stride[axis];
    *in += i % p->size[axis] * p->in_stride[axis];
    i /= p->size[axis];
  }
}

#endif
