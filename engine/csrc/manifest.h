/* What kernels.def and chain_ops.def say, as tables that can be asked. */
#ifndef VOLTA_MANIFEST_H
#define VOLTA_MANIFEST_H

const char *volta_kernel_name(int kernel); /* NULL beyond the last */
const char *volta_op_name(int op);         /* NULL beyond the last */
int volta_op_inputs(int op);               /* 0 beyond the last */
/* What a kernel that exists takes: see manifest.c. NULL: the step decides. */
const char *volta_kernel_form(int kernel);
/* Outputs and operands of a kernel that exists; -1: the step decides. */
void volta_kernel_arity(int kernel, int *outputs, int *operands);

#endif
