/* Names and arities from kernels.def and chain_ops.def. */
#ifndef VOLTA_MANIFEST_H
#define VOLTA_MANIFEST_H

const char *volta_kernel_name(int kernel); /* NULL beyond the last */
const char *volta_op_name(int op);         /* NULL beyond the last */
int volta_op_inputs(int op);               /* 0 beyond the last */
/* Outputs and operands of a kernel that exists; -1: the step decides. */
void volta_kernel_arity(int kernel, int *outputs, int *operands);

#endif
