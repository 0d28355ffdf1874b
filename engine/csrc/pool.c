/* The thread pool: workers sleep at a gate of their own, a run opens the gates it needs, and a
 * barrier is one more gate that the last thread to arrive opens. */
#if defined(__linux__)
#define _GNU_SOURCE
#endif
#include "pool.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

#include "cpu_info.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#define VOLTA_PAUSE() _mm_pause()
#else
#include <fenv.h>
#define VOLTA_PAUSE() atomic_signal_fence(memory_order_seq_cst)
#endif

#define VOLTA_SPINS 2000 /* pauses before sleeping: 0.1 ms on Skylake, less elsewhere */
#define VOLTA_STACK (4 << 20)

/* --- gate: a number that threads wait to see change ------------------------------------------- */

typedef struct {
  _Alignas(VOLTA_ALIGNMENT) atomic_uint value;
  atomic_int sleepers;
  pthread_mutex_t lock;
  pthread_cond_t changed;
} gate;

static void gate_init(gate *g) {
  atomic_init(&g->value, 0);
  atomic_init(&g->sleepers, 0);
  pthread_mutex_init(&g->lock, NULL);
  pthread_cond_init(&g->changed, NULL);
}

/* No wakeup is lost: the sleeper announces itself before it looks at the value, the opener
 * changes the value before it looks for sleepers, and both orders are sequentially consistent. */
static void gate_wait(gate *g, unsigned old, int spins) {
  for (int spin = 0; spin < spins; spin++) {
    if (atomic_load_explicit(&g->value, memory_order_acquire) != old) return;
    VOLTA_PAUSE();
  }
  pthread_mutex_lock(&g->lock);
  atomic_fetch_add(&g->sleepers, 1);
  while (atomic_load(&g->value) == old) pthread_cond_wait(&g->changed, &g->lock);
  atomic_fetch_sub(&g->sleepers, 1);
  pthread_mutex_unlock(&g->lock);
}

static void gate_open(gate *g, unsigned value) {
  atomic_store(&g->value, value);
  if (atomic_load(&g->sleepers) == 0) return;
  pthread_mutex_lock(&g->lock);
  pthread_cond_broadcast(&g->changed);
  pthread_mutex_unlock(&g->lock);
}

/* --- the pool --------------------------------------------------------------------------------- */

typedef struct {
  gate start; /* counts the runs this worker was called to */
  int thread;
} worker;

struct volta_pool {
  gate phase; /* counts the barriers passed */
  _Alignas(VOLTA_ALIGNMENT) atomic_int arrived;
  _Alignas(VOLTA_ALIGNMENT) pthread_mutex_t lock; /* held for the whole of a run */
  volta_task task;
  void *argument;
  int threads, spins, workers;
  worker worker[VOLTA_MAX_THREADS];
};

static volta_pool pool;
static pthread_once_t pool_once = PTHREAD_ONCE_INIT;

/* A forked child has none of the parent's threads, and a lock may have been held at the fork. */
static void pool_reset(void) {
  gate_init(&pool.phase);
  atomic_init(&pool.arrived, 0);
  pthread_mutex_init(&pool.lock, NULL);
  pool.workers = 0;
}

static void pool_init(void) {
  pool_reset();
  pthread_atfork(NULL, NULL, pool_reset);
}

/* Everything is read before arriving: afterwards the others may pass, end this run and start the
 * next one with other numbers. */
void volta_pool_barrier(volta_pool *p) {
  if (p == NULL) return;
  const int others = p->threads - 1, spins = p->spins;
  const unsigned phase = atomic_load_explicit(&p->phase.value, memory_order_relaxed);
  if (atomic_fetch_add(&p->arrived, 1) == others) {
    atomic_store_explicit(&p->arrived, 0, memory_order_relaxed);
    gate_open(&p->phase, phase + 1);
  } else {
    gate_wait(&p->phase, phase, spins);
  }
}

/* N0: round to nearest, subnormals kept, whatever the caller had set; the caller's is restored. */
static void execute(int thread) {
#if defined(__x86_64__)
  unsigned callers = _mm_getcsr();
  _mm_setcsr(0x1F80);
#else
  fenv_t callers;
  fegetenv(&callers);
  fesetenv(FE_DFL_ENV);
#endif
  pool.task(pool.argument, thread, pool.threads, pool.threads > 1 ? &pool : NULL);
#if defined(__x86_64__)
  _mm_setcsr(callers);
#else
  fesetenv(&callers);
#endif
}

static void *work(void *argument) {
  worker *self = argument;
  int spins = 0;
  for (unsigned runs = 0;; runs++) {
    gate_wait(&self->start, runs, spins);
    execute(self->thread);
    spins = pool.spins;
    volta_pool_barrier(&pool);
  }
  return NULL;
}

/* Signals belong to the caller's threads: workers block them all. */
static int grow(int workers) {
  int status = VOLTA_OK;
  sigset_t every, callers;
  pthread_attr_t attributes;
  if (pthread_attr_init(&attributes) != 0) return VOLTA_NO_THREAD;
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_attr_setstacksize(&attributes, VOLTA_STACK);
  sigfillset(&every);
  pthread_sigmask(SIG_SETMASK, &every, &callers);
  while (pool.workers < workers && status == VOLTA_OK) {
    worker *next = &pool.worker[pool.workers];
    pthread_t identity;
    gate_init(&next->start);
    next->thread = pool.workers + 1;
    if (pthread_create(&identity, &attributes, work, next) == 0) {
      pool.workers++;
    } else {
      status = VOLTA_NO_THREAD;
    }
  }
  pthread_sigmask(SIG_SETMASK, &callers, NULL);
  pthread_attr_destroy(&attributes);
  return status;
}

int volta_pool_run(volta_task task, void *argument, int threads) {
  if (threads < 1 || threads > VOLTA_MAX_THREADS) return VOLTA_NO_THREAD;
  pthread_once(&pool_once, pool_init);
  pthread_mutex_lock(&pool.lock);
  int status = threads - 1 > pool.workers ? grow(threads - 1) : VOLTA_OK;
  if (status == VOLTA_OK) {
    pool.task = task;
    pool.argument = argument;
    pool.threads = threads;
    pool.spins = threads > 1 && threads <= volta_cpus_available() ? VOLTA_SPINS : 0;
    for (int i = 0; i < threads - 1; i++) {
      gate *start = &pool.worker[i].start;
      gate_open(start, atomic_load_explicit(&start->value, memory_order_relaxed) + 1);
    }
    execute(0);
    if (threads > 1) volta_pool_barrier(&pool);
  }
  pthread_mutex_unlock(&pool.lock);
  return status;
}

int volta_pool_workers(void) {
  pthread_once(&pool_once, pool_init);
  pthread_mutex_lock(&pool.lock);
  int workers = pool.workers;
  pthread_mutex_unlock(&pool.lock);
  return workers;
}
