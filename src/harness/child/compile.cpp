#include "harness/child/compile.h"

#include <chrono>

#include <fmt/format.h>

#include "core/text.h"
#include "platform/c_compiler.h"
#include "platform/env.h"
#include "platform/process.h"
#include "platform/signals.h"

namespace gdnctl::harness {

namespace {

constexpr std::chrono::seconds k_compile_limit{300};

}  // namespace

Result<std::optional<oracle::KernelFault>> compile(std::string_view what, const std::vector<std::string>& words,
                                                   const std::filesystem::path& cwd, const Context& context) {
    ProcessSpec spec;
    spec.argv = c_compiler(context.env);
    for (const char* word : {"-O3", "-march=native", "-std=gnu11", "-pthread"}) spec.argv.emplace_back(word);
    spec.argv.insert(spec.argv.end(), words.begin(), words.end());
    spec.cwd = cwd;
    spec.merge_stderr = true;
    spec.wall_limit = k_compile_limit;
    spec.stop = context.stop;
    auto result = context.process.run(spec);
    if (!result) {
        Error error = std::move(result).error();
        error.hint = "install a C compiler (Debian: apt-get install gcc), or set CC to one";
        return tl::unexpected(std::move(error).within(fmt::format("compiling {}", what)));
    }
    if (result->end == ProcessResult::End::stopped) return tl::unexpected(stopped_error());
    if (result->ok()) return std::nullopt;
    return oracle::KernelFault{
        oracle::KernelFaultKind::build_failed,
        fmt::format("{} does not compile: {} {}", what, spec.argv.front(), describe_end(*result, spec)),
        std::string(text::trim(result->out))};
}

}  // namespace gdnctl::harness
