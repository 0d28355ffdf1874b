/* One pool of threads per process, grown on demand and kept until the process ends. */
#ifndef VOLTA_POOL_H
#define VOLTA_POOL_H

#include "volta.h"

#define VOLTA_MAX_THREADS 256

/* What every thread of a run executes. `pool` is NULL when threads == 1. */
typedef void (*volta_task)(void *argument, int thread, int threads, volta_pool *pool);

/* Runs `task` on `threads` threads; the calling thread is thread 0. Returns when all are done.
 * Runs are serialised: a second caller waits. VOLTA_NO_THREAD: a thread could not be created,
 * nothing was run. Every thread computes with the default floating-point environment (N0). */
int volta_pool_run(volta_task task, void *argument, int threads);

/* Worker threads that exist now (the calling thread is not one of them). */
int volta_pool_workers(void);

#endif
