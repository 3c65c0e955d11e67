/* leaves_daemon [deaf]: leaves a process behind that holds its stdout, and prints that process's id.
   The process has left group, session and parent and cleared its environment; "deaf": it also ignores SIGTERM. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

enum { k_ready = 100 };

static int linger(void) {
    printf("%d\n", (int)getpid());
    fflush(stdout);
    close(k_ready); /* the last copy: the program that started us now sees the end of its pipe */
    for (;;) pause();
}

int main(int argc, char** argv) {
    if (argc > 1 && strcmp(argv[1], "linger") == 0) return linger();
    if (argc > 1 && strcmp(argv[1], "deaf") == 0) signal(SIGTERM, SIG_IGN);
    int ready[2];
    if (pipe(ready) != 0) return 1;
    if (fork() == 0) {
        setsid();
        if (fork() != 0) _exit(0);
        dup2(ready[1], k_ready);
        close(ready[0]);
        close(ready[1]);
        char* const nothing[] = {NULL};
        char* const args[] = {argv[0], "linger", NULL};
        execve("/proc/self/exe", args, nothing);
        _exit(1);
    }
    close(ready[1]);
    char byte;
    return read(ready[0], &byte, 1) == 0 ? 0 : 1;
}
