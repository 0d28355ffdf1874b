#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("no-tree-vectorize") /* the plain truth: one element after the other */
#endif
#define VOLTA_ISA ref
#include "../quantize.h"
