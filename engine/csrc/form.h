/* Whether a step's operands are what its kernel takes: a kernel trusts dtypes, lengths and strides. */
#ifndef VOLTA_FORM_H
#define VOLTA_FORM_H

#include "volta.h"

/* The first operand that breaks the kernel's form (manifest.c); -1: none does. The step has as many
 * operands as its kernel takes. */
int volta_form_misfit(const volta_step *step, const volta_operand *operands);

#endif
