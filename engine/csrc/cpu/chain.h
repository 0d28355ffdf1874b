/* Elementwise chains, tile by tile, for one instruction set. The including file defines VOLTA_ISA
 * and its target, so that the plain loops below become its vector code. */
#include <string.h>

#include "../vmath.h"
#include "bfloat16.h"
#include "chain_plan.h"

#define VOLTA_CHAIN_JOIN_(name, isa) volta_##name##_##isa
#define VOLTA_CHAIN_JOIN(name, isa) VOLTA_CHAIN_JOIN_(name, isa)
#define VOLTA_CHAIN_NAME(name) VOLTA_CHAIN_JOIN(name, VOLTA_ISA)

/* --- one function per row of chain_ops.def ---------------------------------------------------- */

/* y may be the very tile of an input (in place), never a shifted one: so no element depends on
 * another, which is what ivdep says. Inputs that an operation does not have are not read. */
typedef struct {
  float *at;
  int64_t row; /* elements from row to row */
} tile_register;

typedef void (*tile_function)(const volta_instruction *code, const tile_register *registers,
                              int64_t rows, int64_t n);

#define VOLTA_CHAIN_OP(name, inputs, expression) \
  static void tile_##name(const volta_instruction *code, const tile_register *registers, \
                          int64_t rows, int64_t n) { \
    const float x0 = code->imm[0], x1 = code->imm[1], x2 = code->imm[2], x3 = code->imm[3]; \
    tile_register from[6], to = registers[code->to]; \
    for (int k = 0; k < 6; k++) from[k] = registers[code->from[k < inputs ? k : 0]]; \
    for (int64_t r = 0; r < rows; r++) { \
      const float *pa = from[0].at, *pb = from[1].at, *pc = from[2].at, *pd = from[3].at; \
      const float *pe = from[4].at, *pf = from[5].at; \
      float *y = to.at; \
      _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++) { \
        const float a = pa[i], b = pb[i], c = pc[i], d = pd[i], e = pe[i], f = pf[i]; \
        (void)a, (void)b, (void)c, (void)d, (void)e, (void)f; \
        y[i] = expression; \
      } \
      for (int k = 0; k < inputs; k++) from[k].at += from[k].row; \
      to.at += to.row; \
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

static void run_tile(const volta_call *call, const tile_register *registers, int64_t rows,
                     int64_t n) {
  for (int32_t i = 0; i < call->step->n_instructions; i++)
    tile_functions[call->code[i].op](&call->code[i], registers, rows, n);
}

/* --- operands that are not contiguous f32 ------------------------------------------------------ */

/* y = the next n elements of x, widened where they are bf16. */
static void copy_run(float *restrict y, const void *restrict x, int32_t dtype, int64_t n,
                     int64_t stride) {
  if (dtype == VOLTA_BF16) {
    const uint16_t *half = x;
    if (stride == 1)
      for (int64_t i = 0; i < n; i++) y[i] = volta_f32_from_bf16(half[i]);
    else
      for (int64_t i = 0; i < n; i++) y[i] = volta_f32_from_bf16(half[i * stride]);
    return;
  }
  const float *whole = x;
  if (stride == 1) {
    memcpy(y, whole, (size_t)n * sizeof *y);
  } else if (stride == 0) {
    const float value = *whole;
    for (int64_t i = 0; i < n; i++) y[i] = value;
  } else {
    for (int64_t i = 0; i < n; i++) y[i] = whole[i * stride];
  }
}

static int64_t element_bytes(int32_t dtype) { return dtype == VOLTA_BF16 ? 2 : 4; }

/* Elements first .. first+n of the view, in row-major order: where they are when they lie in one
 * contiguous run of f32, else copied into `tile`. */
static float *gather(const volta_source *source, char *x, int64_t first, int64_t n, float *tile) {
  const volta_walk *w = &source->walk;
  const int inner = w->rank - 1;
  int64_t at[VOLTA_MAX_RANK], offset[2] = {volta_walk_to(w, 0, first, at), 0};
  const int64_t stride = w->stride[0][inner], size = w->size[inner];
  const int64_t bytes = element_bytes(source->dtype);
  if (source->dtype == VOLTA_F32 && stride == 1 && size - at[inner] >= n)
    return (float *)x + offset[0];
  for (int64_t done = 0; done < n;) {
    const int64_t run = size - at[inner] < n - done ? size - at[inner] : n - done;
    copy_run(tile + done, x + offset[0] * bytes, source->dtype, run, stride);
    done += run;
    offset[0] -= at[inner] * stride;
    at[inner] = 0;
    volta_walk_next(w, inner, at, offset);
  }
  return tile;
}

static void narrow(const float *restrict tile, int64_t n, uint16_t *restrict out) {
  for (int64_t i = 0; i < n; i++) out[i] = volta_bf16_from_f32(tile[i]);
}

/* --- rows -------------------------------------------------------------------------------------- */

void VOLTA_CHAIN_NAME(chain_rows)(const volta_call *call, const volta_chain_register *registers,
                                  int64_t rows, int64_t n) {
  const volta_step *step = call->step;
  tile_register at[VOLTA_MAX_REGISTERS];
  for (int32_t r = 0; r < step->n_operands + step->n_temporaries; r++) {
    const volta_chain_register *x = &registers[r];
    if (x->tile == NULL) {
      at[r] = (tile_register){(float *)x->at, x->row / (int64_t)sizeof(float)};
      continue;
    }
    at[r] = (tile_register){x->tile, n};
    if (r < step->n_outputs || r >= step->n_operands) continue;
    for (int64_t i = 0; i < rows; i++)
      copy_run(x->tile + i * n, x->at + i * x->row, x->dtype, n, x->move);
  }
  run_tile(call, at, rows, n);
  for (int32_t r = 0; r < step->n_outputs; r++)
    for (int64_t i = 0; registers[r].tile != NULL && i < rows; i++)
      narrow(registers[r].tile + i * n, n, (uint16_t *)(registers[r].at + i * registers[r].row));
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

  tile_register registers[VOLTA_MAX_REGISTERS] = {{NULL, 0}};
  float *tiles = (float *)call->workspace + (int64_t)call->thread * plan.tiles * VOLTA_TILE;
  for (int32_t t = 0; t < step->n_temporaries; t++) {
    registers[step->n_operands + t].at = tiles + (int64_t)t * VOLTA_TILE;
  }
  const int64_t longest = plan.tile < plan.count ? plan.tile : plan.count;
  for (int32_t o = 0; o < step->n_outputs; o++)
    if (plan.source[o].kind == VOLTA_NARROWED)
      registers[o].at = tiles + (int64_t)plan.source[o].slot * VOLTA_TILE;
  for (int32_t o = step->n_outputs; o < step->n_operands; o++) {
    const volta_source *source = &plan.source[o];
    if (source->kind != VOLTA_SCALAR && source->kind != VOLTA_PERIODIC) continue;
    registers[o].at = tiles + (int64_t)source->slot * VOLTA_TILE;
    const int64_t period = source->kind == VOLTA_SCALAR ? longest : source->walk.size[1];
    for (int64_t i = 0; i < longest; i += period) {
      copy_run(registers[o].at + i, call->data[o], source->dtype, period,
               source->kind == VOLTA_SCALAR ? 0 : 1);
    }
  }

  for (int64_t t = first; t < last; t++) {
    const int64_t start = t * plan.tile;
    const int64_t n = plan.count - start < plan.tile ? plan.count - start : plan.tile;
    for (int32_t o = 0; o < step->n_operands; o++) {
      const volta_source *source = &plan.source[o];
      if (source->kind == VOLTA_CONTIGUOUS) registers[o].at = (float *)call->data[o] + start;
      if (source->kind == VOLTA_GATHERED) {
        registers[o].at =
            gather(source, call->data[o], start, n, tiles + (int64_t)source->slot * VOLTA_TILE);
      }
    }
    run_tile(call, registers, 1, n);
    for (int32_t o = 0; o < step->n_outputs; o++)
      if (plan.source[o].kind == VOLTA_NARROWED)
        narrow(registers[o].at, n, (uint16_t *)call->data[o] + start);
  }
  return VOLTA_OK;
}
