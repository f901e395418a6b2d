// Plants a slower step into a program: cc -O2 -shared -fPIC -o planted_slower.so planted_slower.c
// -ldl, then LD_PRELOAD=planted_slower.so. At its first reading of a clock after 200 us the main
// thread computes in vain for PLANT_SLOWER per cent of the time since it last did; from PLANT_AFTER
// seconds on. With PLANT_CLOCK each reading takes so many microseconds.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

typedef int (*Clock)(clockid_t, struct timespec*);

static double share, after, last, reading;  // of 1, s, s, s
static _Thread_local int is_main;           // 0: not asked yet, -1: another thread

static double now(Clock clock) {
  struct timespec time;
  clock(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

__attribute__((constructor)) static void begin(void) {
  const char* value = getenv("PLANT_SLOWER");
  share = value ? atof(value) / 100 : 0;
  value = getenv("PLANT_AFTER");
  after = value ? atof(value) : 0;
  value = getenv("PLANT_CLOCK");
  reading = value ? 1e-6 * atof(value) : 0;
}

int clock_gettime(clockid_t which, struct timespec* time) {
  static Clock next;
  if (!next) next = (Clock)dlsym(RTLD_NEXT, "clock_gettime");
  if (reading > 0)
    for (const double from = now(next); now(next) < from + reading;) continue;
  if (!is_main) is_main = gettid() == getpid() ? 1 : -1;
  if (share > 0 && is_main > 0) {
    const double from = now(next);
    if (last == 0) last = from + after;
    if (from - last > 200e-6) {
      const double until = from + share * (from - last);
      while ((last = now(next)) < until) continue;
    }
  }
  return next(which, time);
}
