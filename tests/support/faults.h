// Environments in which things fail.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include <sys/resource.h>

namespace gdnctl::test {

// While it lives, no file may grow beyond `bytes`: writes fail with EFBIG, like ENOSPC on a full disk.
class FileSizeLimit {
public:
    explicit FileSizeLimit(std::size_t bytes);
    ~FileSizeLimit();
    FileSizeLimit(const FileSizeLimit&) = delete;
    FileSizeLimit& operator=(const FileSizeLimit&) = delete;

private:
    rlimit m_before{};
};

struct ChildEnd {
    int exit_code = 0;  // -N: killed by signal N
    std::string output;
};
// Calls `body` in a forked child and returns its result as exit code (doctest's checks do not work there); `output` is
// what it wrote to stdout.
ChildEnd in_child(const std::function<int()>& body);
// The same as user 65534, without rights on other users' files. Like in_child() if the test does not run as root.
ChildEnd as_nobody(const std::function<int()>& body);

// Runs `body` in a forked child repeatedly, and kills it (SIGKILL) at its first system call, then at its second and so
// on, until it finishes. `after` checks what is left each time, and gets the child's stdout. Returns the number of
// kills; 0 if the system does not allow tracing (report that with a MESSAGE and return).
int kill_at_each_step(const std::function<void()>& body, const std::function<void(std::string_view output)>& after);

}  // namespace gdnctl::test
