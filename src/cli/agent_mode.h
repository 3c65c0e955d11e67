// Agent mode: a report as short Markdown and an error as one JSON line, where a coding agent reads the output.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "platform/terminal.h"

namespace gdnctl::cli {

struct AgentCase {
    bool report = false;  // the command's output is a report, and not data, a log or a job's output
    bool out_is_tty = false;
    bool chosen = false;  // the command line says what to print: see chooses_output()
};
using Variables = std::function<std::optional<std::string>(std::string_view)>;

// The variable that says that an agent reads this output; empty: none, or the mode does not apply. Pure.
std::string_view agent_mode(const AgentCase& it, const Variables& variables);

// Whether the words of a command line choose a format (--json, --html, ...), or run the command as a job, whose output
// is passed on.
bool chooses_output(const std::vector<std::string>& words);

inline constexpr std::size_t k_agent_bytes = 8000;

// The report of `command` as Markdown of at most k_agent_bytes. Text that begins with a heading is Markdown already;
// other text becomes a code block below a heading. Lines in the middle are left out if it is too long, since a verdict
// is at the end.
std::string agent_markdown(std::string_view command, std::string_view text);

// gdnctl.error/1, on one line: what failed, the exit code, and what to do about it (null: nothing is known).
std::string agent_error(const Error& error);

// Collects stdout, and prints it as agent_markdown() at the end.
class AgentTerminal final : public Terminal {
public:
    AgentTerminal(Terminal& real, std::string_view command) : m_real(real), m_command(command) {}
    // Prints what was collected; nothing is printed for an empty report.
    void finish();

    void out(std::string_view bytes) override { m_text += bytes; }
    void err(std::string_view bytes) override { m_real.err(bytes); }
    void move_out(std::string_view) override {}
    void move_err(std::string_view sequence) override { m_real.move_err(sequence); }
    Status flush() override { return {}; }
    bool out_closed() const override { return m_real.out_closed(); }
    bool out_is_tty() const override { return false; }
    bool err_is_tty() const override { return m_real.err_is_tty(); }
    int columns() const override { return m_real.columns(); }
    bool color_out() const override { return false; }
    bool color_err() const override { return m_real.color_err(); }

private:
    Terminal& m_real;
    std::string_view m_command;
    std::string m_text;
};

}  // namespace gdnctl::cli
