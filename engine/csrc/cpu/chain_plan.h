/* How a chain walks its operands: the same for every instruction set. */
#ifndef VOLTA_CHAIN_PLAN_H
#define VOLTA_CHAIN_PLAN_H

#include "strided.h"

typedef enum {
  VOLTA_CONTIGUOUS, /* f32, used where it is */
  VOLTA_SCALAR,     /* one element: spread over a tile once */
  VOLTA_PERIODIC,   /* a row that repeats, and tiles hold whole rows: copied into a tile once */
  VOLTA_GATHERED, /* copied tile by tile, unless a whole tile lies in one contiguous run of f32 */
  VOLTA_NARROWED /* an output in bf16: a tile that is rounded and stored when it is done */
} volta_source_kind;

typedef struct {
  volta_source_kind kind;
  int slot; /* tile of the workspace, after the temporaries; -1: none */
  int32_t dtype;
  volta_walk walk;
} volta_source;

typedef struct {
  int64_t count; /* elements of output 0 */
  int64_t tile; /* elements of one tile, at most VOLTA_TILE */
  int tiles; /* tiles of workspace per thread: temporaries, then copied operands */
  volta_source source[VOLTA_MAX_REGISTERS]; /* by operand; outputs are contiguous */
} volta_chain_plan;

/* VOLTA_OK, or VOLTA_BAD_PROGRAM when an operand is neither f32 nor bf16, has another shape than
 * output 0, or is an output that is not contiguous. */
int volta_chain_plan_of(const volta_step *step, const volta_operand *operand,
                        volta_chain_plan *plan);

#endif
