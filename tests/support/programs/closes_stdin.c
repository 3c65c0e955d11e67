/* Closes its stdin without reading all of it, and continues. */
#include <unistd.h>

int main(void) {
    char first;
    if (read(0, &first, 1) != 1) return 1;
    close(0);
    return write(1, &first, 1) == 1 ? 0 : 1;
}
