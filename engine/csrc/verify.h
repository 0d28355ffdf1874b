/* The rules of a valid program. Nothing that comes through the ABI is trusted. */
#ifndef VOLTA_VERIFY_H
#define VOLTA_VERIFY_H

#include "volta.h"

typedef struct {
  const volta_step *steps;
  const volta_operand *operands;
  const volta_instruction *instructions;
  int32_t n_steps, n_operands, n_instructions, n_buffers;
  int64_t arena_bytes;
  int isa, threads;
} volta_tables;

/* What the steps do to one buffer. */
typedef struct {
  int64_t end; /* bytes from its start that they reach */
  int written;
} volta_extent;

/* Both return VOLTA_OK or VOLTA_BAD_PROGRAM with `error` filled as program.h says. */
int volta_verify_sizes(const volta_tables *tables, volta_error *error);
/* Fills extents [n_buffers] and step_end [n_steps], both zero before: the end of the bytes of the
 * arena that each step uses. */
int volta_verify_steps(const volta_tables *tables, volta_extent *extents, int64_t *step_end,
                       volta_error *error);

#endif
