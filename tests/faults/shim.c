/* Preloaded: a disk, clock and system that fail as a control file says, which others may change at any time (see shim.py). */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

/* The order of shim.FIELDS. */
struct control {
    int64_t error;       /* given by file calls below FAULT_PATH; 0: none */
    int64_t every;       /* only to one in so many of them, without a pattern */
    int64_t block_ms;    /* such a call first takes so long; -1: for ever */
    int64_t byte;        /* writes take one byte at a time */
    int64_t shift_s;     /* of the wall clock */
    int64_t frozen_s;    /* the wall clock stands there; 0: it goes */
    int64_t hostname;    /* error of gethostname */
    int64_t threads;     /* error of pthread_create, in processes that train */
    int64_t poll;        /* error of poll, there too */
    int64_t calls;       /* file calls below FAULT_PATH so far that may fail */
    int64_t on_training; /* those of them, and looks at names, made by the first thread of a process that trains */
};

static struct control *control;
static char path[PATH_MAX];
static pid_t training; /* this process, and so its first thread, if it was started as `python ... -m FAULT_TRAINING ...` */

static int trains(void) {
    const char *module = getenv("FAULT_TRAINING");
    char words[4096];
    int fd = (int)syscall(SYS_openat, AT_FDCWD, "/proc/self/cmdline", O_RDONLY | O_CLOEXEC, 0);
    ssize_t size = module && fd >= 0 ? read(fd, words, sizeof words - 1) : 0;
    if (fd >= 0) close(fd);
    if (size <= 0) return 0;
    words[size] = 0;
    for (const char *word = words; word < words + size; word += strlen(word) + 1)
        if (!strcmp(word, "-m")) return !strcmp(word + 3, module); /* the first one: torchrun has the training's behind its own */
    return 0;
}

__attribute__((constructor)) static void attach(void) {
    const char *file = getenv("FAULT_CONTROL"), *below = getenv("FAULT_PATH");
    int fd = file ? (int)syscall(SYS_openat, AT_FDCWD, file, O_RDWR | O_CLOEXEC, 0) : -1;
    if (fd < 0) return;
    void *map = mmap(0, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (below) strncpy(path, below, sizeof path - 1);
    if (map == MAP_FAILED) return;
    control = map;
    if (trains()) training = getpid();
}

static void *next(const char *name) { return dlsym(RTLD_NEXT, name); }

static void dawdle(int64_t ms) {
    struct timespec left = {ms / 1000, ms % 1000 * 1000000};
    if (ms < 0) for (;;) pause();
    while (nanosleep(&left, &left)) continue;
}

static void watch(void) {
    if (training && syscall(SYS_gettid) == training) __atomic_add_fetch(&control->on_training, 1, __ATOMIC_RELAXED);
}

/* Whether the call fails; errno says how. */
static int fails(void) {
    __atomic_add_fetch(&control->calls, 1, __ATOMIC_RELAXED);
    watch();
    if (control->every > 1 && (uint64_t)control->calls * 0x9e3779b97f4a7c15u % 1000003 % (uint64_t)control->every) return 0;
    if (control->block_ms) dawdle(control->block_ms);
    errno = (int)control->error;
    return control->error != 0;
}

static int is_below(const char *name) {
    size_t length = strlen(path);
    return control && length && !strncmp(name, path, length) && (name[length] == '/' || !name[length]);
}

static int is_open_below(int fd) {
    char link[64] = "/proc/self/fd/", name[PATH_MAX + 1] = "", digits[16];
    int count = 0, number = fd;
    if (!control || !*path || fd < 3) return 0;
    do digits[count++] = (char)('0' + number % 10); while (number /= 10);
    char *end = link + strlen(link);
    while (count) *end++ = digits[--count];
    int saved = errno;
    ssize_t length = readlink(link, name, PATH_MAX);
    errno = saved;
    return length > 0 && is_below(name);
}

ssize_t write(int fd, const void *data, size_t size) {
    ssize_t (*real)(int, const void *, size_t) = next("write");
    if (!is_open_below(fd)) return real(fd, data, size);
    if (fails()) return -1;
    return real(fd, data, control->byte && size > 1 ? 1 : size);
}

#define OPEN(name)                                             \
    int name(const char *file, int flags, ...) {               \
        int (*real)(const char *, int, ...) = next(#name);     \
        va_list rest;                                          \
        va_start(rest, flags);                                 \
        int mode = va_arg(rest, int);                          \
        va_end(rest);                                          \
        if (is_below(file) && fails()) return -1;              \
        return real(file, flags, mode);                        \
    }
OPEN(open)
OPEN(open64)

int mkdir(const char *file, mode_t mode) {
    int (*real)(const char *, mode_t) = next("mkdir");
    return is_below(file) && fails() ? -1 : real(file, mode);
}

int rename(const char *from, const char *to) {
    int (*real)(const char *, const char *) = next("rename");
    return is_below(to) && fails() ? -1 : real(from, to);
}

int fsync(int fd) {
    int (*real)(int) = next("fsync");
    return is_open_below(fd) && fails() ? -1 : real(fd);
}

/* Never fails, but a training must not wait for it either. */
#define LOOK(type, name, more, given)                     \
    type name(const char *file more) {                    \
        type (*real)(const char *more) = next(#name);     \
        if (is_below(file)) watch();                      \
        return real(file given);                          \
    }
#define AND ,
LOOK(int, stat, AND struct stat *out, AND out)
LOOK(int, stat64, AND struct stat64 *out, AND out)
LOOK(int, lstat, AND struct stat *out, AND out)
LOOK(int, lstat64, AND struct stat64 *out, AND out)
LOOK(int, unlink, , )
LOOK(DIR *, opendir, , )

int clock_gettime(clockid_t clock, struct timespec *now) {
    int (*real)(clockid_t, struct timespec *) = next("clock_gettime");
    int result = real(clock, now);
    if (!result && clock == CLOCK_REALTIME && control) {
        if (control->frozen_s) now->tv_sec = control->frozen_s, now->tv_nsec = 0;
        now->tv_sec += control->shift_s;
    }
    return result;
}

int gettimeofday(struct timeval *now, void *zone) {
    struct timespec precise;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &precise)) return -1;
    now->tv_sec = precise.tv_sec, now->tv_usec = precise.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *out) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out) *out = now.tv_sec;
    return now.tv_sec;
}

int gethostname(char *name, size_t size) {
    int (*real)(char *, size_t) = next("gethostname");
    if (!control || !control->hostname) return real(name, size);
    errno = (int)control->hostname;
    return -1;
}

int pthread_create(pthread_t *thread, const pthread_attr_t *how, void *(*run)(void *), void *given) {
    int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *) = next("pthread_create");
    return control && control->threads && getpid() == training ? (int)control->threads : real(thread, how, run, given);
}

int poll(struct pollfd *files, nfds_t count, int timeout_ms) {
    int (*real)(struct pollfd *, nfds_t, int) = next("poll");
    if (!control || !control->poll || getpid() != training) return real(files, count, timeout_ms);
    errno = (int)control->poll;
    return -1;
}

/* What a program built with fortified headers calls instead. */
int __poll_chk(struct pollfd *files, nfds_t count, int timeout_ms, size_t size) {
    (void)size;
    return poll(files, count, timeout_ms);
}
