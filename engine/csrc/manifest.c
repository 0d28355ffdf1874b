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

/* The operands each kernel takes: a word each, outputs before the bar. A word is the dtype (i: i32, b: i8,
 * else f32) and a letter for each axis. Equal letters are equal lengths within the step, a digit is
 * that length, d is D / 2; H heads are a multiple of G. Strides are any, unless the word ends in
 *   -   the last axis has stride 1
 *   =   contiguous, any shape of so many elements
 * and ~ is any shape. ? and NULL (then the step decides how many) are checked by the kernel. */
static const char *const forms[VOLTA_KERNEL_COUNT] = {
    [VOLTA_KERNEL_COPY] = "? | ?",
    [VOLTA_KERNEL_FILL] = "? |",
    [VOLTA_KERNEL_CHAIN] = NULL,
    [VOLTA_KERNEL_MATMUL] = NULL,
    [VOLTA_KERNEL_MATMUL_SCALED] = NULL,
    [VOLTA_KERNEL_PACK_WEIGHTS] = "bX | ?",
    [VOLTA_KERNEL_QUANTIZE] = "bRK- RN | RK-",
    [VOLTA_KERNEL_REDUCE] = "? | ?",
    [VOLTA_KERNEL_SOFTMAX] = "RV- | RV-",
    [VOLTA_KERNEL_SOFTMAX_GRAD] = "RV- | RV- RV-",
    [VOLTA_KERNEL_LOG_SOFTMAX] = "RV- | RV-",
    [VOLTA_KERNEL_LOG_SOFTMAX_GRAD] = "RV- | RV- RV-",
    [VOLTA_KERNEL_CROSS_ENTROPY] = "R | RV- iR",
    [VOLTA_KERNEL_CROSS_ENTROPY_GRAD] = "RV- | RV- iR R",
    [VOLTA_KERNEL_COUNT_VALID] = "1= | iR",
    [VOLTA_KERNEL_LAYER_NORM] = "RC- R2 | RC- C C",
    [VOLTA_KERNEL_LAYER_NORM_GRAD] = "RC- C C | RC- R2 C RC-",
    [VOLTA_KERNEL_RMS_NORM] = "RC- R1 | RC- C",
    [VOLTA_KERNEL_RMS_NORM_GRAD] = "RC- C | RC- R1 C RC-",
    [VOLTA_KERNEL_EMBEDDING] = "RC- | VC- iR",
    [VOLTA_KERNEL_EMBEDDING_GRAD] = "VC- | RC- iR",
    [VOLTA_KERNEL_GATHER] = "N= | M= iN=",
    [VOLTA_KERNEL_GATHER_GRAD] = "M= | N= iN=",
    [VOLTA_KERNEL_ROTARY] = "BHTD- | BHTD- Pd- Pd- iB",
    [VOLTA_KERNEL_ATTENTION] = "BHTD- BHT2- | BHTD- BGSD- BGSD- iB",
    [VOLTA_KERNEL_ATTENTION_GRAD] = "BHTD- BGSD- BGSD- | BHTD- BGSD- BGSD- BHTD- BHT2- BHTD- iB",
    [VOLTA_KERNEL_CACHE_UPDATE] = "BGSD | BGTD iB",
    [VOLTA_KERNEL_DROPOUT] = "N= | N= i3",
    [VOLTA_KERNEL_RANDOM] = "N= | i3",
    [VOLTA_KERNEL_SAMPLE] = "iB | BV- iBV- iB4 B4 iB",
    [VOLTA_KERNEL_MARK_SEEN] = "iBV- | iBT iB",
    [VOLTA_KERNEL_CHECK_FINITE] = "| ~",
};

const char *volta_program_rule(int rule) {
  return rule > 0 && rule < (int)(sizeof rules / sizeof *rules) ? rules[rule] : "";
}

const char *volta_kernel_form(int kernel) { return forms[kernel]; }

void volta_kernel_arity(int kernel, int *outputs, int *operands) {
  const char *form = forms[kernel];
  *outputs = form == NULL ? -1 : 0;
  *operands = *outputs;
  for (char before = ' '; form != NULL && *form != '\0'; before = *form++) {
    if (*form == '|') *outputs = *operands;
    if (*form != '|' && *form != ' ' && before == ' ') ++*operands;
  }
}

const char *volta_kernel_name(int kernel) {
  return kernel >= 0 && kernel < VOLTA_KERNEL_COUNT ? kernel_names[kernel] : NULL;
}

const char *volta_op_name(int op) { return op >= 0 && op < VOLTA_OP_COUNT ? ops[op].name : NULL; }

int volta_op_inputs(int op) { return op >= 0 && op < VOLTA_OP_COUNT ? ops[op].inputs : 0; }
