/* VOLTA_X86: the vector kernels are compiled. Their files switch instruction sets by GCC's target
 * pragma, which clang does not know: there, as on every other processor, the reference runs. */
#ifndef VOLTA_X86_H
#define VOLTA_X86_H

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define VOLTA_X86
#endif

#endif
