/* Ends a process before or within a chosen operation on files below a folder.
 *
 * Loaded with LD_PRELOAD, it hears of Python's operations and of those of C and C++ libraries.
 * `fault_arm` begins to count. Each operation is written to a log before it happens; the one of
 * the given number never happens (or, within a write, only its first half), since the process
 * kills itself.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static char folder[PATH_MAX];
static size_t folder_length;
static int armed, last, within, log_descriptor = -1;
static atomic_int count;

void fault_arm(const char *path, int at, int half, const char *log) {
    snprintf(folder, sizeof folder, "%s", path);
    folder_length = strlen(folder);
    last = at;
    within = half;
    log_descriptor = syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_CREAT | O_APPEND, 0644);
    armed = 1;
}

static int is_inside(const char *path) {
    return strncmp(path, folder, folder_length) == 0 &&
           (path[folder_length] == '/' || path[folder_length] == 0);
}

static int path_of(int descriptor, char *path) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = syscall(SYS_readlinkat, AT_FDCWD, link, path, PATH_MAX - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return 1;
}

static const char *absolute(int folder_descriptor, const char *name, char *path) {
    if (name[0] == '/') return name;
    char parent[PATH_MAX];
    if (folder_descriptor == AT_FDCWD) {
        if (syscall(SYS_getcwd, parent, sizeof parent) < 0) return name;
    } else if (!path_of(folder_descriptor, parent)) {
        return name;
    }
    snprintf(path, PATH_MAX, "%.2000s/%.2000s", parent, name);
    return path;
}

static void die(void) {
    syscall(SYS_kill, getpid(), SIGKILL);
    for (;;) pause();
}

/* Returns whether the process is to die within this operation. */
static int take(const char *kind, const char *path, const char *other) {
    if (!armed || !(is_inside(path) || (other && is_inside(other)))) return 0;
    char line[2 * PATH_MAX + 64];
    int number = atomic_fetch_add(&count, 1) + 1;
    int length = snprintf(line, sizeof line, "%s\t%s\t%s\n", kind, path, other ? other : "");
    if (number != last) {
        syscall(SYS_write, log_descriptor, line, length);
        return 0;
    }
    if (!within || strcmp(kind, "write")) die();
    syscall(SYS_write, log_descriptor, line, length);
    return 1;
}

#define REAL(name) \
    static __typeof__(name) *real; \
    if (!real) real = dlsym(RTLD_NEXT, #name)

static void opening(int parent, const char *name, int flags) {
    char path[PATH_MAX];
    struct stat found;
    if (!armed || !(flags & (O_WRONLY | O_RDWR))) return;
    const char *whole = absolute(parent, name, path);
    int exists = syscall(SYS_newfstatat, AT_FDCWD, whole, &found, 0) == 0;
    if (!exists) take("create", whole, 0);
    else if (flags & O_TRUNC) take("empty", whole, 0);
}

static int mode_of(int flags, va_list arguments) {
    return flags & (O_CREAT | __O_TMPFILE) ? va_arg(arguments, int) : 0;
}

#define OPEN(name) \
    int name(const char *path, int flags, ...) { \
        REAL(name); \
        va_list arguments; \
        va_start(arguments, flags); \
        int mode = mode_of(flags, arguments); \
        va_end(arguments); \
        opening(AT_FDCWD, path, flags); \
        return real(path, flags, mode); \
    }
#define OPENAT(name) \
    int name(int parent, const char *path, int flags, ...) { \
        REAL(name); \
        va_list arguments; \
        va_start(arguments, flags); \
        int mode = mode_of(flags, arguments); \
        va_end(arguments); \
        opening(parent, path, flags); \
        return real(parent, path, flags, mode); \
    }
OPEN(open)
OPEN(open64)
OPENAT(openat)
OPENAT(openat64)

static void opening_stream(const char *path, const char *mode) {
    int flags = mode[0] == 'r' ? (strchr(mode, '+') ? O_RDWR : O_RDONLY) : O_WRONLY;
    opening(AT_FDCWD, path, flags | (mode[0] == 'w' ? O_TRUNC : 0));
}
#define FOPEN(name) \
    FILE *name(const char *path, const char *mode) { \
        REAL(name); \
        opening_stream(path, mode); \
        return real(path, mode); \
    }
FOPEN(fopen)
FOPEN(fopen64)

ssize_t write(int descriptor, const void *data, size_t size) {
    REAL(write);
    char path[PATH_MAX];
    if (armed && path_of(descriptor, path) && take("write", path, 0)) {
        real(descriptor, data, size / 2);
        die();
    }
    return real(descriptor, data, size);
}
#define PWRITE(name) \
    ssize_t name(int descriptor, const void *data, size_t size, off_t offset) { \
        REAL(name); \
        char path[PATH_MAX]; \
        if (armed && path_of(descriptor, path) && take("write", path, 0)) { \
            real(descriptor, data, size / 2, offset); \
            die(); \
        } \
        return real(descriptor, data, size, offset); \
    }
PWRITE(pwrite)
PWRITE(pwrite64)

size_t fwrite(const void *data, size_t size, size_t number, FILE *stream) {
    REAL(fwrite);
    char path[PATH_MAX];
    if (armed && path_of(fileno(stream), path) && take("write", path, 0)) {
        real(data, 1, size * number / 2, stream);
        fflush(stream);
        die();
    }
    return real(data, size, number, stream);
}

#define SENDFILE(name) \
    ssize_t name(int to, int from, off_t *offset, size_t size) { \
        REAL(name); \
        char path[PATH_MAX]; \
        if (armed && path_of(to, path) && take("write", path, 0)) { \
            real(to, from, offset, size / 2); \
            die(); \
        } \
        return real(to, from, offset, size); \
    }
extern ssize_t sendfile(int, int, off_t *, size_t);
extern ssize_t sendfile64(int, int, off_t *, size_t);
SENDFILE(sendfile)
SENDFILE(sendfile64)

#define SYNC(name) \
    int name(int descriptor) { \
        REAL(name); \
        char path[PATH_MAX], size[32]; \
        struct stat found; \
        if (armed && path_of(descriptor, path)) { \
            long long bytes = fstat(descriptor, &found) ? 0 : (long long)found.st_size; \
            snprintf(size, sizeof size, "%lld", bytes); \
            take("fsync", path, size); \
        } \
        return real(descriptor); \
    }
SYNC(fsync)
SYNC(fdatasync)

#define RESIZE(name) \
    int name(int descriptor, off_t size) { \
        REAL(name); \
        char path[PATH_MAX]; \
        if (armed && path_of(descriptor, path)) take("resize", path, 0); \
        return real(descriptor, size); \
    }
RESIZE(ftruncate)
RESIZE(ftruncate64)

int rename(const char *from, const char *to) {
    REAL(rename);
    char one[PATH_MAX], other[PATH_MAX];
    if (armed) take("rename", absolute(AT_FDCWD, from, one), absolute(AT_FDCWD, to, other));
    return real(from, to);
}
int mkdir(const char *name, mode_t mode) {
    REAL(mkdir);
    char path[PATH_MAX];
    if (armed) take("mkdir", absolute(AT_FDCWD, name, path), 0);
    return real(name, mode);
}
int unlink(const char *name) {
    REAL(unlink);
    char path[PATH_MAX];
    if (armed) take("remove", absolute(AT_FDCWD, name, path), 0);
    return real(name);
}
int unlinkat(int parent, const char *name, int flags) {
    REAL(unlinkat);
    char path[PATH_MAX];
    if (armed) take("remove", absolute(parent, name, path), 0);
    return real(parent, name, flags);
}
int rmdir(const char *name) {
    REAL(rmdir);
    char path[PATH_MAX];
    if (armed) take("remove", absolute(AT_FDCWD, name, path), 0);
    return real(name);
}
