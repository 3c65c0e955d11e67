/* Writes 1 MB to stdout and 1 MB to stderr, alternating, in blocks larger than a pipe. */
#include <string.h>
#include <unistd.h>

static char block[1 << 18];

static int put(int fd) {
    size_t done = 0;
    while (done < sizeof block) {
        ssize_t n = write(fd, block + done, sizeof block - done);
        if (n <= 0) return 1;
        done += (size_t)n;
    }
    return 0;
}

int main(void) {
    memset(block, 'x', sizeof block);
    for (int i = 0; i < 4; ++i) {
        if (put(1) || put(2)) return 1;
    }
    return 0;
}
