#include "chain_plan.h"

static int is_contiguous(const volta_walk *w) {
  return w->rank == 0 || (w->rank == 1 && w->stride[0][0] == 1);
}

static int is_scalar(const volta_walk *w) { return w->rank == 1 && w->stride[0][0] == 0; }

static int is_repeated_row(const volta_walk *w) {
  return w->rank == 2 && w->stride[0][0] == 0 && w->stride[0][1] == 1;
}

/* Tiles begin where rows of C begin. Short rows: as many as fit, a multiple of 16 elements if
 * possible so that vectors have no tail. Long rows: an equal part of one. */
static int64_t tile_for_rows(int64_t C) {
  if (C > VOLTA_TILE) {
    const int64_t parts = (C + VOLTA_TILE - 1) / VOLTA_TILE;
    return C % parts == 0 ? C / parts : VOLTA_TILE;
  }
  for (int64_t rows = VOLTA_TILE / C; rows > 0 && rows > VOLTA_TILE / C - 16; rows--) {
    if (rows * C % 16 == 0) return rows * C;
  }
  return VOLTA_TILE / C * C;
}

int volta_chain_plan_of(const volta_step *step, const volta_operand *operand,
                        volta_chain_plan *plan) {
  plan->count = volta_numel(&operand[0]);
  plan->tile = VOLTA_TILE;
  plan->tiles = step->n_temporaries;
  int has_rows = 0;
  for (int32_t o = 0; o < step->n_operands; o++) {
    volta_source *source = &plan->source[o];
    if ((operand[o].dtype != VOLTA_F32 && operand[o].dtype != VOLTA_BF16) ||
        operand[o].rank != operand[0].rank) {
      return VOLTA_BAD_PROGRAM;
    }
    for (int32_t axis = 0; axis < operand[o].rank; axis++) {
      if (operand[o].shape[axis] != operand[0].shape[axis]) return VOLTA_BAD_PROGRAM;
    }
    source->walk = volta_walk_of(&operand[o], 0);
    source->slot = -1;
    source->dtype = operand[o].dtype;
    source->kind = VOLTA_GATHERED;
    const int contiguous = is_contiguous(&source->walk) || plan->count == 0;
    if (contiguous && source->dtype == VOLTA_F32) source->kind = VOLTA_CONTIGUOUS;
    if (is_scalar(&source->walk) || (source->walk.rank == 0 && source->dtype == VOLTA_BF16))
      source->kind = VOLTA_SCALAR;
    if (o < step->n_outputs && !contiguous) return VOLTA_BAD_PROGRAM;
    if (o < step->n_outputs && source->dtype == VOLTA_BF16) {
      source->kind = VOLTA_NARROWED;
      source->slot = plan->tiles++;
    }
    if (is_repeated_row(&source->walk) && !has_rows) {
      has_rows = 1;
      plan->tile = tile_for_rows(source->walk.size[1]);
    }
  }
  for (int32_t o = step->n_outputs; o < step->n_operands; o++) {
    volta_source *source = &plan->source[o];
    if (source->kind == VOLTA_CONTIGUOUS) continue;
    source->slot = plan->tiles++;
    if (is_repeated_row(&source->walk) && plan->tile % source->walk.size[1] == 0) {
      source->kind = VOLTA_PERIODIC;
    }
  }
  return VOLTA_OK;
}
