/* One function per kind of rule; each returns VOLTA_OK or reports the rule that was broken. */
#include "verify.h"

#include <stddef.h>

#include "cpu/matmul_problem.h"
#include "cpu_info.h"
#include "form.h"
#include "manifest.h"
#include "pool.h"
#include "program.h"

#define VOLTA_LARGEST_COUNT (1 << 24)

static int broken(volta_error *error, int32_t step, int rule, int64_t detail) {
  *error = (volta_error){VOLTA_BAD_PROGRAM, step, {rule, detail}};
  return VOLTA_BAD_PROGRAM;
}

static int outside(int64_t first, int64_t count, int64_t total) {
  return first < 0 || count < 0 || first > total || count > total - first;
}

int volta_verify_sizes(const volta_tables *t, volta_error *error) {
  const int64_t counts[] = {t->n_steps, t->n_operands, t->n_instructions, t->n_buffers - 1};
  for (int i = 0; i < 4; i++) {
    if (counts[i] < 0 || counts[i] > VOLTA_LARGEST_COUNT) {
      return broken(error, -1, VOLTA_RULE_COUNT, counts[i]);
    }
  }
  if (t->isa < 0 || t->isa >= VOLTA_ISA_COUNT || !volta_cpu_isa_supported(t->isa)) {
    return broken(error, -1, VOLTA_RULE_ISA, t->isa);
  }
  if (t->threads < 1 || t->threads > VOLTA_MAX_THREADS) {
    return broken(error, -1, VOLTA_RULE_THREADS, t->threads);
  }
  if (t->arena_bytes < 0) return broken(error, -1, VOLTA_RULE_ARENA, t->arena_bytes);
  return VOLTA_OK;
}

/* --- operands --------------------------------------------------------------------------------- */

/* The bytes [low, high) from the buffer's start that the view reaches; 0 on overflow. */
static int view_bytes(const volta_operand *o, int64_t *low, int64_t *high) {
  int64_t first = 0, last = 0, count = 1, size = volta_itemsize(o->dtype);
  for (int32_t axis = 0; axis < o->rank; axis++) {
    if (__builtin_mul_overflow(count, o->shape[axis], &count)) return 0;
  }
  *low = *high = o->offset;
  if (count == 0) return 1;
  for (int32_t axis = 0; axis < o->rank; axis++) {
    int64_t reach;
    if (__builtin_mul_overflow(o->stride[axis], o->shape[axis] - 1, &reach)) return 0;
    if (reach < 0 && __builtin_add_overflow(first, reach, &first)) return 0;
    if (reach > 0 && __builtin_add_overflow(last, reach, &last)) return 0;
  }
  return !__builtin_mul_overflow(first, size, &first) &&
         !__builtin_add_overflow(first, o->offset, low) &&
         !__builtin_add_overflow(last, 1, &last) && !__builtin_mul_overflow(last, size, &last) &&
         !__builtin_add_overflow(last, o->offset, high);
}

/* The rule that a view breaks, wherever it lies, and the bytes that it reaches. */
static int view_rule(const volta_operand *o, int64_t *low, int64_t *high) {
  if (o->dtype < VOLTA_F32 || o->dtype > VOLTA_I8) return VOLTA_RULE_DTYPE;
  if (o->rank < 0 || o->rank > VOLTA_MAX_RANK) return VOLTA_RULE_RANK;
  for (int32_t axis = 0; axis < o->rank; axis++) {
    if (o->shape[axis] < 0) return VOLTA_RULE_SHAPE;
  }
  return view_bytes(o, low, high) ? VOLTA_RULE_NONE : VOLTA_RULE_SHAPE;
}

static int verify_operand(const volta_tables *t, int32_t s, int32_t index, volta_extent *extents,
                          int64_t *step_end, volta_error *error) {
  const volta_step *step = &t->steps[s];
  const volta_operand *o = &t->operands[step->first_operand + index];
  int64_t low, high;
  if (o->buffer < 0 || o->buffer >= t->n_buffers) {
    return broken(error, s, VOLTA_RULE_BUFFER, index);
  }
  const int rule = view_rule(o, &low, &high);
  if (rule != VOLTA_RULE_NONE) return broken(error, s, rule, index);
  if (o->offset % volta_itemsize(o->dtype) != 0)
    return broken(error, s, VOLTA_RULE_ALIGNMENT, index);
  if (low < 0) return broken(error, s, VOLTA_RULE_BEFORE, index);
  volta_extent *extent = &extents[o->buffer];
  if (high > extent->end) extent->end = high;
  if (index < step->n_outputs) extent->written = 1;
  if (o->buffer == 0) {
    if (high > t->arena_bytes) return broken(error, s, VOLTA_RULE_BEYOND, index);
    if (high > *step_end) *step_end = high;
  }
  return VOLTA_OK;
}

/* --- instructions ----------------------------------------------------------------------------- */

static int same_memory(const volta_operand *a, const volta_operand *b) {
  int64_t a_low, a_high, b_low, b_high;
  return a->buffer == b->buffer && view_bytes(a, &a_low, &a_high) &&
         view_bytes(b, &b_low, &b_high) && a_low < b_high && b_low < a_high;
}

static int same_view(const volta_operand *a, const volta_operand *b) {
  if (a->offset != b->offset || a->rank != b->rank || a->dtype != b->dtype) return 0;
  for (int32_t axis = 0; axis < a->rank; axis++) {
    if (a->shape[axis] > 1 && a->stride[axis] != b->stride[axis]) return 0;
  }
  return 1;
}

/* A chain may work in place, element by element; any other overlap would race. */
static int verify_overlap(const volta_tables *t, int32_t s, volta_error *error) {
  const volta_step *step = &t->steps[s];
  const volta_operand *operands = t->operands + step->first_operand;
  if (step->kernel != VOLTA_KERNEL_CHAIN) return VOLTA_OK;
  for (int32_t output = 0; output < step->n_outputs; output++) {
    for (int32_t other = output + 1; other < step->n_operands; other++) {
      if (!same_memory(&operands[output], &operands[other])) continue;
      if (other < step->n_outputs || !same_view(&operands[output], &operands[other])) {
        return broken(error, s, VOLTA_RULE_OVERLAP, other);
      }
    }
  }
  return VOLTA_OK;
}

/* A register may be read when it is an input whose memory is intact, or was written before; a
 * matmul's register 0 holds the product from the start. */
static int verify_read(const volta_step *step, const volta_operand *operands, int reg,
                       uint64_t written) {
  if (reg < 0 || reg >= step->n_operands + step->n_temporaries) return VOLTA_RULE_REGISTER;
  int is_input = reg >= step->n_outputs && reg < step->n_operands;
  if (!is_input) return written >> reg & 1 ? VOLTA_RULE_NONE : VOLTA_RULE_READ;
  for (int32_t output = 0; output < step->n_outputs; output++) {
    if (step->kernel == VOLTA_KERNEL_CHAIN && written >> output & 1 &&
        same_memory(&operands[output], &operands[reg])) {
      return VOLTA_RULE_OVERWRITTEN;
    }
  }
  return VOLTA_RULE_NONE;
}

static int verify_code(const volta_tables *t, int32_t s, volta_error *error) {
  const volta_step *step = &t->steps[s];
  const volta_operand *operands = t->operands + step->first_operand;
  uint64_t written = volta_is_matmul(step->kernel) ? 1 : 0;
  for (int32_t i = 0; i < step->n_instructions; i++) {
    const volta_instruction *code = &t->instructions[step->first_instruction + i];
    if (volta_op_name(code->op) == NULL) return broken(error, s, VOLTA_RULE_OP, i);
    for (int input = 0; input < volta_op_inputs(code->op); input++) {
      int rule = verify_read(step, operands, code->from[input], written);
      if (rule != VOLTA_RULE_NONE) return broken(error, s, rule, i);
    }
    if (code->to < 0 || code->to >= step->n_operands + step->n_temporaries) {
      return broken(error, s, VOLTA_RULE_REGISTER, i);
    }
    if (code->to >= step->n_outputs && code->to < step->n_operands) {
      return broken(error, s, VOLTA_RULE_WRITE, i);
    }
    written |= (uint64_t)1 << code->to;
  }
  for (int32_t output = 0; output < step->n_outputs; output++) {
    int by_code = step->kernel == VOLTA_KERNEL_CHAIN || volta_is_matmul(step->kernel);
    if (by_code && !(written >> output & 1)) {
      return broken(error, s, VOLTA_RULE_UNWRITTEN, output);
    }
  }
  return VOLTA_OK;
}

/* --- steps ------------------------------------------------------------------------------------ */

/* A matmul has a and b, a scaled one scales as well; every step that runs code has an output. */
static int arity_holds(const volta_step *step) {
  int outputs, operands;
  volta_kernel_arity(step->kernel, &outputs, &operands);
  if (outputs >= 0) return step->n_outputs == outputs && step->n_operands == operands;
  const int inputs = step->kernel == VOLTA_KERNEL_MATMUL          ? 2
                     : step->kernel == VOLTA_KERNEL_MATMUL_SCALED ? 3
                                                                  : 0;
  return step->n_outputs >= 1 && step->n_operands - step->n_outputs >= inputs;
}

static int registers_hold(const volta_step *step) {
  return step->n_operands >= 0 && step->n_operands <= VOLTA_MAX_REGISTERS &&
         step->n_temporaries >= 0 && step->n_temporaries <= VOLTA_MAX_REGISTERS - step->n_operands;
}

int64_t volta_workspace_bytes(const volta_step *step, const volta_operand *operands, int isa,
                              int threads) {
  int64_t low, high;
  if (isa < 0 || isa >= VOLTA_ISA_COUNT || threads < 1 || threads > VOLTA_MAX_THREADS) return -1;
  if (step->kernel < 0 || step->kernel >= VOLTA_KERNEL_COUNT) return -1;
  if (!registers_hold(step) || !arity_holds(step)) return -1;
  for (int32_t o = 0; o < step->n_operands; o++) {
    if (view_rule(&operands[o], &low, &high) != VOLTA_RULE_NONE) return -1;
  }
  if (volta_form_misfit(step, operands) >= 0) return -1;
  volta_workspace workspace = volta_targets[isa][step->kernel].workspace;
  return workspace == NULL ? 0 : workspace(step, operands, isa, threads);
}

static int verify_shape_of_step(const volta_tables *t, int32_t s, volta_error *error) {
  const volta_step *step = &t->steps[s];
  if (step->kernel < 0 || step->kernel >= VOLTA_KERNEL_COUNT) {
    return broken(error, s, VOLTA_RULE_KERNEL, step->kernel);
  }
  if (outside(step->first_operand, step->n_operands, t->n_operands)) {
    return broken(error, s, VOLTA_RULE_OPERAND_RANGE, step->first_operand);
  }
  if (!arity_holds(step)) {
    return broken(error, s, VOLTA_RULE_OPERAND_COUNT, step->n_operands);
  }
  if (outside(step->first_instruction, step->n_instructions, t->n_instructions)) {
    return broken(error, s, VOLTA_RULE_INSTRUCTION_RANGE, step->first_instruction);
  }
  if (!registers_hold(step)) return broken(error, s, VOLTA_RULE_REGISTERS, step->n_temporaries);
  return VOLTA_OK;
}

static int verify_form(const volta_tables *t, int32_t s, volta_error *error) {
  const volta_step *step = &t->steps[s];
  const int misfit = volta_form_misfit(step, t->operands + step->first_operand);
  return misfit < 0 ? VOLTA_OK : broken(error, s, VOLTA_RULE_FORM, misfit);
}

static int verify_workspace(const volta_tables *t, int32_t s, int64_t *step_end,
                            volta_error *error) {
  const volta_step *step = &t->steps[s];
  int64_t bytes =
      volta_workspace_bytes(step, t->operands + step->first_operand, t->isa, t->threads);
  if (bytes == 0 && step->workspace == 0) return VOLTA_OK;
  if (step->workspace < 0 || step->workspace % VOLTA_ALIGNMENT != 0) {
    return broken(error, s, VOLTA_RULE_ALIGNMENT, step->workspace);
  }
  if (outside(step->workspace, bytes, t->arena_bytes)) {
    return broken(error, s, VOLTA_RULE_BEYOND, step->workspace);
  }
  if (bytes > 0 && step->workspace + bytes > *step_end) *step_end = step->workspace + bytes;
  return VOLTA_OK;
}

int volta_verify_steps(const volta_tables *t, volta_extent *extents, int64_t *step_end,
                       volta_error *error) {
  for (int32_t s = 0; s < t->n_steps; s++) {
    int status = verify_shape_of_step(t, s, error);
    for (int32_t o = 0; status == VOLTA_OK && o < t->steps[s].n_operands; o++) {
      status = verify_operand(t, s, o, extents, &step_end[s], error);
    }
    if (status == VOLTA_OK) status = verify_form(t, s, error);
    if (status == VOLTA_OK) status = verify_overlap(t, s, error);
    if (status == VOLTA_OK) status = verify_code(t, s, error);
    if (status == VOLTA_OK) status = verify_workspace(t, s, &step_end[s], error);
    if (status != VOLTA_OK) return status;
  }
  return VOLTA_OK;
}
