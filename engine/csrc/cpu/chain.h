/* Elementwise chains, tile by tile, for one instruction set. The including file defines VOLTA_ISA
 * and its target, so that the plain loops below become its vector code. */
#include <string.h>

#include "../vmath.h"
#include "chain_plan.h"

#define VOLTA_CHAIN_JOIN_(name, isa) volta_##name##_##isa
#define VOLTA_CHAIN_JOIN(name, isa) VOLTA_CHAIN_JOIN_(name, isa)
#define VOLTA_CHAIN_NAME(name) VOLTA_CHAIN_JOIN(name, VOLTA_ISA)

/* --- one function per row of chain_ops.def ---------------------------------------------------- */

/* y may be the very tile of an input (in place), never a shifted one: so no element depends on
 * another, which is what ivdep says. Inputs that an operation does not have are not read. */
typedef void (*tile_function)(const volta_instruction *code, float *const *registers, int64_t n);

#define VOLTA_CHAIN_OP(name, inputs, expression) \
  static void tile_##name(const volta_instruction *code, float *const *registers, int64_t n) { \
    const float x0 = code->imm[0], x1 = code->imm[1], x2 = code->imm[2], x3 = code->imm[3]; \
    const float *pa = registers[code->from[0]]; \
    const float *pb = inputs > 1 ? registers[code->from[1]] : pa; \
    const float *pc = inputs > 2 ? registers[code->from[2]] : pa; \
    const float *pd = inputs > 3 ? registers[code->from[3]] : pa; \
    const float *pe = inputs > 4 ? registers[code->from[4]] : pa; \
    const float *pf = inputs > 5 ? registers[code->from[5]] : pa; \
    float *y = registers[code->to]; \
    _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++) { \
      const float a = pa[i], b = pb[i], c = pc[i], d = pd[i], e = pe[i], f = pf[i]; \
      (void)a, (void)b, (void)c, (void)d, (void)e, (void)f; \
      y[i] = expression; \
    } \
    (void)x0, (void)x1, (void)x2, (void)x3; \
  }
#include "../chain_ops.def"
#undef VOLTA_CHAIN_OP

static const tile_function tile_functions[] = {
#define VOLTA_CHAIN_OP(name, inputs, expression) tile_##name,
#include "../chain_ops.def"
#undef VOLTA_CHAIN_OP
};

void VOLTA_CHAIN_NAME(chain_tile)(const volta_instruction *code, int count, float *const *registers,
                                  int64_t n) {
  for (int i = 0; i < count; i++) tile_functions[code[i].op](&code[i], registers, n);
}

/* --- inputs that are not contiguous ----------------------------------------------------------- */

static void copy_run(float *restrict y, const float *restrict x, int64_t n, int64_t stride) {
  if (stride == 1) {
    memcpy(y, x, (size_t)n * sizeof *y);
  } else if (stride == 0) {
    const float value = *x;
    for (int64_t i = 0; i < n; i++) y[i] = value;
  } else {
    for (int64_t i = 0; i < n; i++) y[i] = x[i * stride];
  }
}

/* Elements first .. first+n of the view, in row-major order: where they are when they lie in one
 * contiguous run, else copied into `tile`. */
static float *gather(const volta_walk *w, float *x, int64_t first, int64_t n, float *tile) {
  const int inner = w->rank - 1;
  int64_t at[VOLTA_MAX_RANK], offset[2] = {volta_walk_to(w, 0, first, at), 0};
  const int64_t stride = w->stride[0][inner], size = w->size[inner];
  if (stride == 1 && size - at[inner] >= n) return x + offset[0];
  for (int64_t done = 0; done < n;) {
    const int64_t run = size - at[inner] < n - done ? size - at[inner] : n - done;
    copy_run(tile + done, x + offset[0], run, stride);
    done += run;
    offset[0] -= at[inner] * stride;
    at[inner] = 0;
    volta_walk_next(w, inner, at, offset);
  }
  return tile;
}

/* --- the kernel ------------------------------------------------------------------------------- */

int VOLTA_CHAIN_NAME(chain)(const volta_call *call) {
  const volta_step *step = call->step;
  volta_chain_plan plan;
  if (volta_chain_plan_of(step, call->operand, &plan) != VOLTA_OK) {
    return volta_fail(call, VOLTA_BAD_PROGRAM, 0, 0);
  }
  int64_t first, last;
  volta_share((plan.count + plan.tile - 1) / plan.tile, call->thread, call->threads, &first, &last);
  if (first == last) return VOLTA_OK;

  float *registers[VOLTA_MAX_REGISTERS];
  float *tiles = (float *)call->workspace + (int64_t)call->thread * plan.tiles * VOLTA_TILE;
  for (int32_t t = 0; t < step->n_temporaries; t++) {
    registers[step->n_operands + t] = tiles + (int64_t)t * VOLTA_TILE;
  }
  const int64_t longest = plan.tile < plan.count ? plan.tile : plan.count;
  for (int32_t o = step->n_outputs; o < step->n_operands; o++) {
    const volta_source *source = &plan.source[o];
    if (source->kind != VOLTA_SCALAR && source->kind != VOLTA_PERIODIC) continue;
    registers[o] = tiles + (int64_t)source->slot * VOLTA_TILE;
    const int64_t period = source->kind == VOLTA_SCALAR ? longest : source->walk.size[1];
    for (int64_t i = 0; i < longest; i += period) {
      copy_run(registers[o] + i, call->data[o], period, source->kind == VOLTA_SCALAR ? 0 : 1);
    }
  }

  for (int64_t t = first; t < last; t++) {
    const int64_t start = t * plan.tile;
    const int64_t n = plan.count - start < plan.tile ? plan.count - start : plan.tile;
    for (int32_t o = 0; o < step->n_operands; o++) {
      const volta_source *source = &plan.source[o];
      float *x = call->data[o];
      if (source->kind == VOLTA_CONTIGUOUS) registers[o] = x + start;
      if (source->kind == VOLTA_GATHERED) {
        registers[o] =
            gather(&source->walk, x, start, n, tiles + (int64_t)source->slot * VOLTA_TILE);
      }
    }
    VOLTA_CHAIN_NAME(chain_tile)(call->code, step->n_instructions, registers, n);
  }
  return VOLTA_OK;
}
