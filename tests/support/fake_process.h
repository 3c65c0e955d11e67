// Scripted programs: a test defines which calls come, in which order, and how each ends. An unexpected call and a
// missing one both fail the test.
#pragma once

#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "platform/process.h"

namespace gdnctl::test {

class FakeProcess final : public Process {
public:
    struct Call {
        std::vector<std::string> argv;                 // expected, word by word; "*" matches any one word
        Result<ProcessResult> result;                  // `out` and `err` also reach the line callbacks
        std::function<void(const ProcessSpec&)> also;  // checks of the spec, side effects
    };

    FakeProcess() = default;
    FakeProcess(const FakeProcess&) = delete;
    FakeProcess& operator=(const FakeProcess&) = delete;
    ~FakeProcess() override;

    void expect(std::vector<std::string> argv, Result<ProcessResult> result,
                std::function<void(const ProcessSpec&)> also = {});
    // Shorthand: the program writes `out` and exits with `exit_code`.
    void expect(std::vector<std::string> argv, int exit_code, std::string out = {});

    Result<ProcessResult> run(const ProcessSpec& spec) override;

    std::vector<ProcessSpec> calls;  // in order

private:
    std::deque<Call> m_expected;
};

}  // namespace gdnctl::test
