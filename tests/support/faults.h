// Worlds in which things go wrong.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include <sys/resource.h>

namespace gdnctl::test {

// No file may grow beyond `bytes` while it lives: writes fail with EFBIG, as on a full disk they do with ENOSPC.
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
    int exit_code = 0;  // -N: died of signal N
    std::string output;
};
// Calls `body` in a forked child and returns what it returned as exit code (doctest's checks do not work in there);
// `output` is what it wrote to its stdout.
ChildEnd in_child(const std::function<int()>& body);
// The same as user 65534 with no rights over other people's files; as in_child() where the test is not run by root.
ChildEnd as_nobody(const std::function<int()>& body);

// Runs `body` in a forked child again and again, and kills it (SIGKILL) at its first system call, at its second and so
// on, until it comes to its end; `after` looks at what is left, each time with what the child had written to its
// stdout. Returns how often it was killed; 0 where the system does not allow tracing (say so with a MESSAGE and leave).
int kill_at_each_step(const std::function<void()>& body, const std::function<void(std::string_view output)>& after);

}  // namespace gdnctl::test
