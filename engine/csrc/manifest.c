/* The manifests as tables that can be asked. */
#include "manifest.h"

#include <stddef.h>

#include "program.h"

#define VOLTA_RULE(NAME, text) [VOLTA_RULE_##NAME] = text,
static const char *const rules[] = {VOLTA_PROGRAM_RULES(VOLTA_RULE)};
#undef VOLTA_RULE

static const char *const kernel_names[VOLTA_KERNEL_COUNT] = {
#define VOLTA_KERNEL(NAME, name) #name,
#include "kernels.def"
#undef VOLTA_KERNEL
};

enum {
#define VOLTA_CHAIN_OP(name, inputs, expression) VOLTA_OP_##name,
#include "chain_ops.def"
#undef VOLTA_CHAIN_OP
  VOLTA_OP_COUNT
};

static const struct {
  const char *name;
  int inputs;
} ops[VOLTA_OP_COUNT] = {
#define VOLTA_CHAIN_OP(name, inputs, expression) {#name, inputs},
#include "chain_ops.def"
#undef VOLTA_CHAIN_OP
};

/* Outputs and operands each kernel takes; -1: the step decides. */
static const struct {
  int outputs, operands;
} arity[VOLTA_KERNEL_COUNT] = {
    [VOLTA_KERNEL_COPY] = {1, 2},
    [VOLTA_KERNEL_FILL] = {1, 1},
    [VOLTA_KERNEL_CHAIN] = {-1, -1},
    [VOLTA_KERNEL_MATMUL] = {-1, -1},
    [VOLTA_KERNEL_REDUCE] = {1, 2},
    [VOLTA_KERNEL_SOFTMAX] = {1, 2},
    [VOLTA_KERNEL_SOFTMAX_GRAD] = {1, 3},
    [VOLTA_KERNEL_LOG_SOFTMAX] = {1, 2},
    [VOLTA_KERNEL_LOG_SOFTMAX_GRAD] = {1, 3},
    [VOLTA_KERNEL_CROSS_ENTROPY] = {1, 3},
    [VOLTA_KERNEL_CROSS_ENTROPY_GRAD] = {1, 4},
    [VOLTA_KERNEL_COUNT_VALID] = {1, 2},
    [VOLTA_KERNEL_LAYER_NORM] = {2, 5},
    [VOLTA_KERNEL_LAYER_NORM_GRAD] = {3, 7},
    [VOLTA_KERNEL_RMS_NORM] = {2, 4},
    [VOLTA_KERNEL_RMS_NORM_GRAD] = {2, 6},
    [VOLTA_KERNEL_EMBEDDING] = {1, 3},
    [VOLTA_KERNEL_EMBEDDING_GRAD] = {1, 3},
    [VOLTA_KERNEL_GATHER] = {1, 3},
    [VOLTA_KERNEL_GATHER_GRAD] = {1, 3},
    [VOLTA_KERNEL_ROTARY] = {1, 5},
    [VOLTA_KERNEL_ATTENTION] = {2, 6},
    [VOLTA_KERNEL_ATTENTION_GRAD] = {3, 10},
    [VOLTA_KERNEL_CACHE_UPDATE] = {1, 3},
    [VOLTA_KERNEL_DROPOUT] = {1, 3},
    [VOLTA_KERNEL_RANDOM] = {1, 2},
    [VOLTA_KERNEL_SAMPLE] = {1, 6},
    [VOLTA_KERNEL_MARK_SEEN] = {1, 3},
    [VOLTA_KERNEL_CHECK_FINITE] = {0, 1},
};

const char *volta_program_rule(int rule) {
  return rule > 0 && rule < (int)(sizeof rules / sizeof *rules) ? rules[rule] : "";
}

void volta_kernel_arity(int kernel, int *outputs, int *operands) {
  *outputs = arity[kernel].outputs;
  *operands = arity[kernel].operands;
}

const char *volta_kernel_name(int kernel) {
  return kernel >= 0 && kernel < VOLTA_KERNEL_COUNT ? kernel_names[kernel] : NULL;
}

const char *volta_op_name(int op) { return op >= 0 && op < VOLTA_OP_COUNT ? ops[op].name : NULL; }

int volta_op_inputs(int op) { return op >= 0 && op < VOLTA_OP_COUNT ? ops[op].inputs : 0; }
