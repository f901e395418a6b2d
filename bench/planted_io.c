// Plants slow storage into a program: cc -O2 -shared -fPIC -o planted_io.so planted_io.c -ldl, then
// LD_PRELOAD=planted_io.so. Only files below PLANT_PATH are slow. Times in us:
//   PLANT_OPEN, PLANT_READ   before each open, after each read
//   PLANT_OPEN_EACH          only before one open in so many
//   PLANT_WRITE              after each write, of a regular file
//   PLANT_WRITE_MBPS         of all writes of the process
//   PLANT_FSYNC              before each fsync, of any file
//   PLANT_MBPS               a link that all readers of the process share
//   PLANT_TAIL, PLANT_EACH   after one read in PLANT_EACH, chosen by chance (default 100)
//   PLANT_PERIOD             with PLANT_TAIL: after each read whose number it divides instead
//   PLANT_THREAD             only threads of this name are slow: "loader 0"
//   PLANT_MATCH              only files whose path has this text
//   PLANT_LEAK               KiB that each read takes and never gives back
//   PLANT_FIRST              only the first so many opens and reads
//   PLANT_DECODE             before each PNG file is decoded, of any path
//   PLANT_LOCK               with PLANT_OPEN or PLANT_DECODE: all threads wait for one lock then
//   PLANT_EVICT              each so often all files leave the kernel's cache
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { most_files = 1 << 16, most_mappings = 256 };

static const char *path, *thread, *match;
static double open_us, open_each, decode_us, one_lock, read_us, fsync_us, write_us, mbps, evict_us,
    write_mbps, tail_us, each = 100, period, first, leak_kib;
static unsigned char is_slow[most_files];
static long opens, reads;
static double link_free_at, disk_free_at;  // s, CLOCK_MONOTONIC
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
  void* memory;
  size_t bytes;  // 0: none
  int file;
} mappings[most_mappings];

static void* evict(void* none);

static double option(const char* name, double otherwise) {
  const char* value = getenv(name);
  return value ? atof(value) : otherwise;
}

__attribute__((constructor)) static void begin(void) {
  path = getenv("PLANT_PATH");
  thread = getenv("PLANT_THREAD");
  match = getenv("PLANT_MATCH");
  open_us = option("PLANT_OPEN", 0);
  open_each = option("PLANT_OPEN_EACH", 1);
  read_us = option("PLANT_READ", 0);
  write_us = option("PLANT_WRITE", 0);
  write_mbps = option("PLANT_WRITE_MBPS", 0);
  fsync_us = option("PLANT_FSYNC", 0);
  mbps = option("PLANT_MBPS", 0);
  tail_us = option("PLANT_TAIL", 0);
  each = option("PLANT_EACH", each);
  period = option("PLANT_PERIOD", 0);
  first = option("PLANT_FIRST", 0);
  leak_kib = option("PLANT_LEAK", 0);
  decode_us = option("PLANT_DECODE", 0);
  one_lock = option("PLANT_LOCK", 0);
  evict_us = option("PLANT_EVICT", 0);
  pthread_t evictor;
  if (evict_us > 0) pthread_create(&evictor, NULL, evict, NULL);
}

static void sleep_us(double us) {
  if (us <= 0) return;
  struct timespec time = {(time_t)(us / 1e6), 0};
  time.tv_nsec = (long)((us - 1e6 * (double)time.tv_sec) * 1e3);
  nanosleep(&time, NULL);
}

// Mapped pages stay in the cache until no page table has them.
static void* evict(void* none) {
  pthread_setname_np(pthread_self(), "evictor");
  for (;;) {
    sleep_us(evict_us);
    pthread_mutex_lock(&lock);
    for (int i = 0; i < most_mappings; ++i) {
      if (!mappings[i].bytes) continue;
      madvise(mappings[i].memory, mappings[i].bytes, MADV_DONTNEED);
      posix_fadvise(mappings[i].file, 0, 0, POSIX_FADV_DONTNEED);
    }
    for (int file = 0; file < most_files; ++file)
      if (is_slow[file]) posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
    pthread_mutex_unlock(&lock);
  }
  return none;
}

static int is_slow_thread(void) {
  if (!thread) return 1;
  char name[32] = "";
  pthread_getname_np(pthread_self(), name, sizeof name);
  return strcmp(name, thread) == 0;
}

// By the descriptor's path, whatever folder the name was relative to.
static int is_below_path(int file) {
  char link[64], name[4096];
  snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  const ssize_t length = path ? readlink(link, name, sizeof name - 1) : 0;
  if (length <= 0) return 0;
  name[length] = 0;
  return strncmp(name, path, strlen(path)) == 0 && (!match || strstr(name, match));
}

static int is_over(long number) {
  return first > 0 && (double)number > first;
}

static void opened(int file, int flags) {
  if (file < 0 || file >= most_files) return;
  is_slow[file] = 0;
  if ((flags & O_ACCMODE) != O_RDONLY || (flags & O_DIRECTORY)) return;
  is_slow[file] = (unsigned char)is_below_path(file);
  if (!is_slow[file] || !is_slow_thread()) return;
  const long number = __atomic_add_fetch(&opens, 1, __ATOMIC_RELAXED);
  if (number % (long)open_each != 0 || is_over(number)) return;
  static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;
  if (one_lock > 0) pthread_mutex_lock(&opening);
  sleep_us(open_us);
  if (one_lock > 0) pthread_mutex_unlock(&opening);
}

// How long the bytes take after those before them; `free_at`: when these are over.
static double over_link(ssize_t bytes, double mbps, double* free_at) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  const double now = (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
  pthread_mutex_lock(&lock);
  *free_at = (*free_at > now ? *free_at : now) + (double)bytes / (1e6 * mbps);
  const double wait = *free_at - now;
  pthread_mutex_unlock(&lock);
  return 1e6 * wait;
}

static void was_read(int file, ssize_t bytes) {
  if (file < 0 || file >= most_files || !is_slow[file] || bytes <= 0 || !is_slow_thread()) return;
  const long number = __atomic_add_fetch(&reads, 1, __ATOMIC_RELAXED);
  if (is_over(number)) return;
  const size_t leak = (size_t)(1024 * leak_kib);
  if (leak > 0) {
    char* const lost = malloc(leak);
    if (lost) memset(lost, 1, leak);
    __asm__ volatile("" : : "r"(lost) : "memory");
  }
  sleep_us(read_us);
  if (tail_us > 0 && (period > 0 ? number % (long)period == 0 : drand48() * each < 1))
    sleep_us(tail_us);
  if (mbps > 0) sleep_us(over_link(bytes, mbps, &link_free_at));
}

static void was_written(int file, ssize_t bytes) {
  if ((write_us <= 0 && write_mbps <= 0) || bytes <= 0 || !is_below_path(file)) return;
  sleep_us(write_us);
  if (write_mbps > 0) sleep_us(over_link(bytes, write_mbps, &disk_free_at));
}

static void mapped(void* memory, size_t bytes, int file) {
  pthread_mutex_lock(&lock);
  for (int i = 0; i < most_mappings; ++i) {
    if (mappings[i].bytes) continue;
    mappings[i].memory = memory;
    mappings[i].bytes = bytes;
    mappings[i].file = dup(file);
    break;
  }
  pthread_mutex_unlock(&lock);
}

#define NEXT(type, name) \
  static type next;      \
  if (!next) next = (type)dlsym(RTLD_NEXT, name)

static mode_t mode_of(int flags, va_list arguments) {
  return flags & (O_CREAT | O_TMPFILE) ? va_arg(arguments, mode_t) : 0;
}

#define OPEN(name)                                                \
  int name(const char* file, int flags, ...) {                    \
    typedef int (*Open)(const char*, int, ...);                   \
    NEXT(Open, #name);                                            \
    va_list arguments;                                            \
    va_start(arguments, flags);                                   \
    const int got = next(file, flags, mode_of(flags, arguments)); \
    va_end(arguments);                                            \
    opened(got, flags);                                           \
    return got;                                                   \
  }
OPEN(open)
OPEN(open64)

#define OPENAT(name)                                                      \
  int name(int folder, const char* file, int flags, ...) {                \
    typedef int (*Open)(int, const char*, int, ...);                      \
    NEXT(Open, #name);                                                    \
    va_list arguments;                                                    \
    va_start(arguments, flags);                                           \
    const int got = next(folder, file, flags, mode_of(flags, arguments)); \
    va_end(arguments);                                                    \
    opened(got, flags);                                                   \
    return got;                                                           \
  }
OPENAT(openat)
OPENAT(openat64)

ssize_t read(int file, void* bytes, size_t count) {
  typedef ssize_t (*Read)(int, void*, size_t);
  NEXT(Read, "read");
  const ssize_t got = next(file, bytes, count);
  was_read(file, got);
  return got;
}

ssize_t write(int file, const void* bytes, size_t count) {
  typedef ssize_t (*Write)(int, const void*, size_t);
  NEXT(Write, "write");
  const ssize_t got = next(file, bytes, count);
  was_written(file, got);
  return got;
}

ssize_t writev(int file, const struct iovec* parts, int count) {
  typedef ssize_t (*Write)(int, const struct iovec*, int);
  NEXT(Write, "writev");
  const ssize_t got = next(file, parts, count);
  was_written(file, got);
  return got;
}

#define PREAD(name)                                                 \
  ssize_t name(int file, void* bytes, size_t count, off_t offset) { \
    typedef ssize_t (*Read)(int, void*, size_t, off_t);             \
    NEXT(Read, #name);                                              \
    const ssize_t got = next(file, bytes, count, offset);           \
    was_read(file, got);                                            \
    return got;                                                     \
  }
PREAD(pread)
PREAD(pread64)

#define MMAP(name)                                                                            \
  void* name(void* at, size_t bytes, int access, int flags, int file, off_t offset) {         \
    typedef void* (*Map)(void*, size_t, int, int, int, off_t);                                \
    NEXT(Map, #name);                                                                         \
    void* const memory = next(at, bytes, access, flags, file, offset);                        \
    if (evict_us > 0 && memory != MAP_FAILED && flags == MAP_SHARED && access == PROT_READ && \
        file >= 0 && is_below_path(file))                                                     \
      mapped(memory, bytes, file);                                                            \
    return memory;                                                                            \
  }
MMAP(mmap)
MMAP(mmap64)

int munmap(void* memory, size_t bytes) {
  typedef int (*Unmap)(void*, size_t);
  NEXT(Unmap, "munmap");
  pthread_mutex_lock(&lock);
  for (int i = 0; i < most_mappings; ++i)
    if (mappings[i].bytes && mappings[i].memory == memory) {
      mappings[i].bytes = 0;
      close(mappings[i].file);
    }
  pthread_mutex_unlock(&lock);
  return next(memory, bytes);
}

int fsync(int file) {
  typedef int (*Fsync)(int);
  NEXT(Fsync, "fsync");
  sleep_us(fsync_us);
  return next(file);
}

// libdeflate's, with which PNG files are decoded.
int libdeflate_zlib_decompress_ex(void* decompressor, const void* in, size_t bytes, void* out,
                                  size_t room, size_t* used, size_t* made) {
  typedef int (*Decompress)(void*, const void*, size_t, void*, size_t, size_t*, size_t*);
  static pthread_mutex_t decoding = PTHREAD_MUTEX_INITIALIZER;
  NEXT(Decompress, "libdeflate_zlib_decompress_ex");
  if (decode_us > 0 && one_lock > 0) pthread_mutex_lock(&decoding);
  sleep_us(decode_us);
  if (decode_us > 0 && one_lock > 0) pthread_mutex_unlock(&decoding);
  return next(decompressor, in, bytes, out, room, used, made);
}
