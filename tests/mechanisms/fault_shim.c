/* Faults at a chosen call: everything that changes a file is counted once the shim is armed, and the
   chosen call kills the process (before it, or in the middle of a write), or fails. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/types.h>
#include <unistd.h>

enum { KILL_BEFORE = 1, KILL_TORN = 2, NO_SPACE = 3, IO_ERROR = 4 };

static int mode, at, seen;

void fault_arm(int chosen_mode, int call) { mode = chosen_mode; at = call; seen = 0; }
int fault_seen(void) { return seen; }

/* 0: go on; 1: the call must fail; 2: write half, then die */
static int due(int is_write) {
    if (!mode || ++seen != at) return 0;
    if (mode == KILL_BEFORE || (mode == KILL_TORN && !is_write)) kill(getpid(), SIGKILL);
    if (mode == KILL_TORN) return 2;
    errno = mode == NO_SPACE ? ENOSPC : EIO;
    return 1;
}

#define REAL(name) static __typeof__(&name) real; if (!real) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

ssize_t write(int fd, const void *data, size_t count) {
    REAL(write);
    int fault = fd > 2 ? due(1) : 0;
    if (fault == 1) return -1;
    if (fault == 2) { real(fd, data, count / 2); kill(getpid(), SIGKILL); }
    return real(fd, data, count);
}
ssize_t pwrite64(int fd, const void *data, size_t count, off64_t where) {
    REAL(pwrite64);
    int fault = due(1);
    if (fault == 1) return -1;
    if (fault == 2) { real(fd, data, count / 2, where); kill(getpid(), SIGKILL); }
    return real(fd, data, count, where);
}
ssize_t pwrite(int fd, const void *data, size_t count, off_t where) {
    return pwrite64(fd, data, count, where);
}
int fsync(int fd) { REAL(fsync); return due(0) ? -1 : real(fd); }
int fdatasync(int fd) { REAL(fdatasync); return due(0) ? -1 : real(fd); }
int unlink(const char *path) { REAL(unlink); return due(0) ? -1 : real(path); }
int rename(const char *old, const char *new) { REAL(rename); return due(0) ? -1 : real(old, new); }
int ftruncate64(int fd, off64_t size) { REAL(ftruncate64); return due(0) ? -1 : real(fd, size); }
int ftruncate(int fd, off_t size) { return ftruncate64(fd, size); }
int open64(const char *path, int flags, ...) {
    REAL(open64);
    va_list rest;
    va_start(rest, flags);
    mode_t permissions = va_arg(rest, mode_t);
    va_end(rest);
    if ((flags & O_CREAT) && due(0)) return -1;
    return real(path, flags, permissions);
}
