/* kill_after_step N COMMAND...: runs COMMAND, and kills it (SIGKILL) right after the N-th of its own system calls that
   changed something which outlives it: files, processes, bytes sent. Processes that it starts are left alone. Reports
   on stderr after which call it was killed, or after how many steps it ended by itself. Exit code: that of COMMAND, 137
   if it was killed, 77 if tracing is not allowed. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

/* <linux/ptrace.h> has it, but cannot be included together with <sys/ptrace.h>. */
struct call_info {
    unsigned char op; /* 1: entry, 2: exit */
    unsigned char pad[3];
    unsigned arch;
    unsigned long long instruction_pointer, stack_pointer;
    union {
        struct {
            unsigned long long number, arguments[6];
        } entry;
        struct {
            long long result;
            unsigned char is_error;
        } exit;
    } of;
};

static const struct {
    long number;
    const char* name;
} k_steps[] = {
#ifdef SYS_mkdir
    {SYS_mkdir, "mkdir"},
    {SYS_rmdir, "rmdir"},
    {SYS_rename, "rename"},
    {SYS_unlink, "unlink"},
    {SYS_symlink, "symlink"},
    {SYS_link, "link"},
    {SYS_chmod, "chmod"},
    {SYS_fork, "fork"},
    {SYS_vfork, "vfork"},
#endif
#ifdef SYS_renameat
    {SYS_renameat, "renameat"},
#endif
    {SYS_mkdirat, "mkdirat"},
    {SYS_renameat2, "renameat2"},
    {SYS_unlinkat, "unlinkat"},
    {SYS_symlinkat, "symlinkat"},
    {SYS_linkat, "linkat"},
    {SYS_ftruncate, "ftruncate"},
    {SYS_fchmod, "fchmod"},
    {SYS_fchmodat, "fchmodat"},
    {SYS_sendto, "sendto"},
    {SYS_kill, "kill"},
    {SYS_pidfd_send_signal, "pidfd_send_signal"},
};

/* Sanitizers write to their own pipes, and output to a terminal does not count. */
static int is_file(pid_t process, unsigned long long descriptor) {
    char link[64];
    char target[16] = "";
    snprintf(link, sizeof link, "/proc/%d/fd/%llu", (int)process, descriptor);
    if (readlink(link, target, sizeof target - 1) <= 0) return 0;
    return target[0] == '/' && strncmp(target, "/dev/", 5) != 0;
}

/* The name of a call that counts; NULL: another one. */
static const char* step_name(pid_t process, const struct call_info* call) {
    const long number = (long)call->of.entry.number;
    const unsigned long long* arguments = call->of.entry.arguments;
    if (number == SYS_openat) return (arguments[2] & (O_CREAT | O_TRUNC)) != 0 ? "openat" : NULL;
#ifdef SYS_open
    if (number == SYS_open) return (arguments[1] & (O_CREAT | O_TRUNC)) != 0 ? "open" : NULL;
#endif
    if (number == SYS_write || number == SYS_pwrite64) return is_file(process, arguments[0]) ? "write" : NULL;
    if (number == SYS_clone) return (arguments[0] & CLONE_THREAD) == 0 ? "clone" : NULL;
    for (size_t i = 0; i < sizeof k_steps / sizeof *k_steps; ++i) {
        if (k_steps[i].number == number) return k_steps[i].name;
    }
    return NULL;
}

static int follow(pid_t child, long last) {
    long steps = 0;
    const char* step = NULL;
    for (;;) {
        int status = 0;
        if (waitpid(child, &status, 0) != child) return 70;
        if (WIFEXITED(status) || WIFSIGNALED(status)) {
            fprintf(stderr, "ended after %ld steps\n", steps);
            return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        }
        int pass_on = 0;
        if (WSTOPSIG(status) == (SIGTRAP | 0x80)) {
            struct call_info call;
            memset(&call, 0, sizeof call);
            if (ptrace(PTRACE_GET_SYSCALL_INFO, child, sizeof call, &call) <= 0) return 77;
            if (call.op == 1) step = step_name(child, &call);
            if (call.op == 2 && step != NULL && !call.of.exit.is_error && ++steps == last) {
                kill(child, SIGKILL);
                waitpid(child, &status, 0);
                fprintf(stderr, "killed after step %ld: %s\n", steps, step);
                return 137;
            }
        } else if (status >> 8 != (SIGTRAP | (PTRACE_EVENT_EXEC << 8))) {
            pass_on = WSTOPSIG(status);
        }
        if (ptrace(PTRACE_SYSCALL, child, 0, pass_on) != 0 && errno != ESRCH) return 70;
    }
}

int main(int argc, char** argv) {
    if (argc < 3) return 2;
    const pid_t child = fork();
    if (child < 0) return 70;
    if (child == 0) {
        if (ptrace(PTRACE_TRACEME, 0, 0, 0) != 0) _exit(77);
        raise(SIGSTOP);
        /* Counters of the coverage build are not steps of the program, and half-written ones corrupt the report. */
        setenv("GCOV_PREFIX", "/dev/null", 1);
        setenv("GCOV_ERROR_FILE", "/dev/null", 1);
        execvp(argv[2], argv + 2);
        _exit(127);
    }
    /* So that its sockets and pipes are closed when it dies. */
    close_range(3, ~0U, 0);
    int status = 0;
    if (waitpid(child, &status, 0) != child || !WIFSTOPPED(status)) return 77;
    const long options = PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACEEXEC | PTRACE_O_EXITKILL;
    if (ptrace(PTRACE_SETOPTIONS, child, 0, options) != 0) return 77;
    if (ptrace(PTRACE_SYSCALL, child, 0, 0) != 0) return 77;
    return follow(child, strtol(argv[1], NULL, 10));
}
