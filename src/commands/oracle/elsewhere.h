// oracle verify and bench on another machine: as a job on a cluster, or on a held TPU. The tree and this program are
// sent along.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "cli/args.h"
#include "commands/oracle/kernel_options.h"
#include "core/result.h"
#include "jobs/job_destination.h"
#include "jobs/submit.h"
#include "platform/context.h"

namespace gdnctl::commands {

struct Elsewhere {
    DestinationOptions place;
    SubmitOptions submit;
    std::string tpu = "auto";
    std::optional<std::string> tpu_name;
    bool allow_cpu = false;
    std::optional<std::string> save_failures;  // the folder here, as --save-failures names it

    bool wanted() const { return tpu_name || place.given(); }
};

void describe_elsewhere(cli::Args& args, Elsewhere& options);

// The command line for there, "oracle VERB OP ...", which runs in the root of the repository.
class RemoteCommand {
public:
    RemoteCommand(std::string_view verb, const std::string& op, const Context& context)
        : m_context(context), m_words{"oracle", std::string(verb), op} {}

    template <class T>
    void add(std::string_view name, const T& value) {
        m_words.insert(m_words.end(), {std::string(name), fmt::format("{}", value)});
    }
    template <class T>
    void add(std::string_view name, const std::optional<T>& value) {
        if (value) add(name, *value);
    }
    template <class T>
    void add(std::string_view name, const std::vector<T>& values) {
        for (const T& value : values) add(name, value);
    }
    template <class T>
    void add_unless(const T& usual, std::string_view name, const T& value) {
        if (value != usual) add(name, value);
    }
    void flag(std::string_view name, bool set) {
        if (set) m_words.emplace_back(name);
    }
    // A kernel whose path is relative to the working directory, or absolute, and in the repository.
    void kernel(std::string_view name, std::string spelling);
    void limits(const LimitOptions& limits);
    void python(const PythonChoice& choice);

    const std::vector<std::string>& words() const { return m_words; }
    // A usage error for what must not or cannot be sent.
    const Status& status() const { return m_status; }
    // Whether some kernel is a Python function, whose interpreter the words do not name.
    bool needs_python() const { return m_python && !m_python_named; }

private:
    const Context& m_context;
    std::vector<std::string> m_words;
    Status m_status;
    bool m_python = false, m_python_named = false;
};

// Runs this program there with these words, prints what it prints, and exits as it does. Errors: those of a job, and
// bad_input if no TPU was seen where one was asked for.
Result<ExitCode> run_elsewhere(const Elsewhere& options, const RemoteCommand& words, Context& context);

}  // namespace gdnctl::commands
