/* A planned program: validated once, then run by one call. */
#ifndef VOLTA_PROGRAM_H
#define VOLTA_PROGRAM_H

#include "volta.h"

typedef struct volta_program volta_program;

/* What a program may break. volta_program_new reports the rule's number as detail[0] and the
 * offending number (an operand, an instruction, a size) as detail[1]. */
#define VOLTA_PROGRAM_RULES(RULE) \
  RULE(COUNT, "a count is negative or too large") \
  RULE(ISA, "this processor does not support the instruction set") \
  RULE(THREADS, "the number of threads is outside 1 .. 256") \
  RULE(ARENA, "the arena's size is negative") \
  RULE(KERNEL, "there is no kernel of this number") \
  RULE(OPERAND_RANGE, "the step's operands are outside the operand table") \
  RULE(OPERAND_COUNT, "the kernel takes another number of operands or outputs") \
  RULE(INSTRUCTION_RANGE, "the step's instructions are outside the instruction table") \
  RULE(REGISTERS, "the step has too many registers") \
  RULE(OP, "there is no elementwise operation of this number") \
  RULE(REGISTER, "an instruction names a register that does not exist") \
  RULE(WRITE, "an instruction writes to an input") \
  RULE(READ, "an instruction reads a register before it is written") \
  RULE(UNWRITTEN, "an output is never written") \
  RULE(OVERWRITTEN, "an instruction reads an input whose memory was overwritten before") \
  RULE(OVERLAP, "an output shares memory with another operand and is not the very same view") \
  RULE(BUFFER, "an operand names a buffer that does not exist") \
  RULE(DTYPE, "an operand has a dtype that does not exist") \
  RULE(RANK, "an operand's rank is outside 0 .. 6") \
  RULE(FORM, "an operand does not have the dtype, shape or strides that the kernel takes") \
  RULE(SHAPE, "an operand's shape is negative or too large") \
  RULE(ALIGNMENT, "an offset is not aligned to its element or workspace") \
  RULE(BEFORE, "an operand reaches before the start of its buffer") \
  RULE(BEYOND, "an operand or workspace reaches beyond the end of the arena")

enum {
  VOLTA_RULE_NONE,
#define VOLTA_RULE(NAME, text) VOLTA_RULE_##NAME,
  VOLTA_PROGRAM_RULES(VOLTA_RULE)
#undef VOLTA_RULE
};

const char *volta_program_rule(int rule);

/* Copies and validates the tables and allocates the arena. NULL on failure: `error` then holds
 * VOLTA_BAD_PROGRAM (step -1: the program as a whole) or VOLTA_NO_MEMORY. */
volta_program *volta_program_new(const volta_step *steps, int32_t n_steps,
                                 const volta_operand *operands, int32_t n_operands,
                                 const volta_instruction *instructions, int32_t n_instructions,
                                 int32_t n_buffers, int64_t arena_bytes, int isa, int threads,
                                 volta_error *error);

/* Runs steps first .. last - 1. buffers[0] is ignored: the program owns its arena. Each other buffer
 * holds at least volta_program_buffer_bytes. On failure the steps after the next barrier have not run,
 * and `error` holds the failure of the lowest step, and of the lowest thread within it.
 *
 * stamps: NULL, or [threads][n_steps][2], when each thread began and ended each step that it ran, in
 * seconds since the run began. */
int volta_program_run(volta_program *program, void *const *buffers, int32_t first, int32_t last,
                      double *stamps, volta_error *error);

void volta_program_free(volta_program *program);

/* Bytes that the steps' operands reach in `buffer`; -1 when there is no such buffer. */
int64_t volta_program_buffer_bytes(const volta_program *program, int32_t buffer);
/* 1 when a step writes to `buffer`. */
int volta_program_buffer_written(const volta_program *program, int32_t buffer);
void *volta_program_arena(volta_program *program);
/* The end of the highest byte of the arena that the steps of the last run used, and those of the runs
 * since the last one that began with step 0. */
int64_t volta_program_high_water(const volta_program *program);

/* Bytes of workspace the step needs for `threads` threads on `isa`; -1 for a kernel, isa or number
 * of threads that does not exist, or operands that the kernel does not take. */
int64_t volta_workspace_bytes(const volta_step *step, const volta_operand *operands, int isa,
                              int threads);

#endif
