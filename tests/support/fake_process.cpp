#include "support/fake_process.h"

#include <doctest/doctest.h>

#include "core/text.h"

namespace gdnctl::test {

namespace {

bool matches(const std::vector<std::string>& expected, const std::vector<std::string>& actual) {
    if (expected.size() != actual.size()) return false;
    for (std::size_t i = 0; i < expected.size(); ++i) {
        if (expected[i] != "*" && expected[i] != actual[i]) return false;
    }
    return true;
}

void hand_out_lines(const std::function<void(std::string_view)>& on_line, std::string& bytes) {
    if (!on_line || bytes.empty()) return;
    std::string_view rest = bytes;
    if (rest.ends_with('\n')) rest.remove_suffix(1);
    for (const auto line : text::split(rest, '\n')) on_line(line);
    bytes.clear();
}

}  // namespace

FakeProcess::~FakeProcess() {
    for (const auto& call : m_expected) FAIL_CHECK("expected but never run: " << text::shell_join(call.argv));
}

void FakeProcess::expect(std::vector<std::string> argv, Result<ProcessResult> result,
                         std::function<void(const ProcessSpec&)> also) {
    m_expected.push_back({std::move(argv), std::move(result), std::move(also)});
}

void FakeProcess::expect(std::vector<std::string> argv, int exit_code, std::string out) {
    ProcessResult result;
    result.exit_code = exit_code;
    result.out = std::move(out);
    expect(std::move(argv), std::move(result));
}

Result<ProcessResult> FakeProcess::run(const ProcessSpec& spec) {
    calls.push_back(spec);
    if (m_expected.empty() || !matches(m_expected.front().argv, spec.argv)) {
        const std::string wanted = m_expected.empty() ? "nothing" : text::shell_join(m_expected.front().argv);
        FAIL_CHECK("unexpected program: " << text::shell_join(spec.argv) << "; expected: " << wanted);
        return fail(ErrorKind::internal, "unexpected program in a test");
    }
    Call call = std::move(m_expected.front());
    m_expected.pop_front();
    if (call.also) call.also(spec);
    if (call.result) {
        if (spec.on_stdout) spec.on_stdout(call.result->out);
        if (spec.on_stderr) spec.on_stderr(call.result->err);
        hand_out_lines(spec.on_stdout_line, call.result->out);
        hand_out_lines(spec.on_stderr_line, call.result->err);
    }
    return std::move(call.result);
}

}  // namespace gdnctl::test
