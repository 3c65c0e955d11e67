// gdnctl doctor
#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/args.h"
#include "commands/print.h"
#include "commands/rows.h"
#include "commands/setup/doctor_checks.h"
#include "core/json.h"
#include "core/log.h"
#include "core/redact.h"
#include "core/version.h"
#include "platform/context.h"
#include "platform/signals.h"
#include "platform/terminal.h"

namespace gdnctl::commands::doctor {

struct Options {};

namespace {

using Need = Check::Need;

std::string_view status_word(const Check& check) {
    if (check.ok) return "ok";
    return check.need == Need::required ? "missing" : "absent";
}

std::string_view need_word(Need need) {
    switch (need) {
        case Need::required: return "required";
        case Need::optional: return "optional";
        case Need::information: return "information";
    }
    return {};
}

std::string colored(std::string_view word, const Check& check, bool color) {
    const std::string padded = fmt::format("{:<8}", word);
    if (!color) return padded;
    const std::string_view code = check.ok ? "32" : check.need == Need::required ? "31" : "33";
    return fmt::format("\x1b[{}m{}\x1b[0m", code, padded);
}

void print_text(const std::vector<Check>& checks, Terminal& terminal) {
    for (const Check& check : checks) {
        std::string line = fmt::format("{}{:<17}{}\n", colored(status_word(check), check, terminal.color_out()),
                                       check.name, redact(check.detail));
        if (!check.ok) {
            line += fmt::format("{:25}{}, for: {}\n", "", need_word(check.need), check.purpose);
            line += fmt::format("{:25}to fix it: {}\n", "", check.fix);
        }
        terminal.out(line);
    }
}

Json to_json(const std::vector<Check>& checks, bool ok) {
    Json report = {
        {"schema", "gdnctl.doctor/1"}, {"version", gdnctl::version()}, {"ok", ok}, {"checks", Json::array()}};
    for (const Check& check : checks) {
        Json entry = {{"name", check.name},
                      {"status", status_word(check)},
                      {"need", need_word(check.need)},
                      {"detail", redact(check.detail)},
                      {"purpose", check.purpose}};
        if (!check.ok) entry["fix"] = check.fix;
        report["checks"].push_back(std::move(entry));
    }
    return report;
}

}  // namespace

void describe(cli::Args& args, Options& /*options*/) {
    args.about(
        "Checks your setup: programs, libraries, folders, configuration and keys. Each missing item shows what it is "
        "for and how to install it. Keys are never shown, only whether they are set.");
    args.about("Only required items affect the exit code. A missing optional item limits what you can do.");
    args.example("gdnctl doctor");
    args.example("gdnctl doctor --json", "the same as gdnctl.doctor/1");
    args.exit_code(0, "everything required is present");
    args.exit_code(1, "something required is missing");
    args.see_also("config show");
    args.see_also("docs/configuration.md");
}

Result<ExitCode> run(const Options& /*options*/, Context& context) {
    const std::vector<Check> checks = all_checks(context);
    if (context.stop.stop_requested()) return tl::unexpected(stopped_error());
    const bool ok = std::all_of(checks.begin(), checks.end(),
                                [](const Check& check) { return check.ok || check.need != Need::required; });
    if (context.global.json) {
        print_json(to_json(checks, ok), context);
    } else {
        print_text(checks, context.terminal);
        if (!ok) log::warning("something required is missing");
    }
    return ok ? ExitCode::ok : ExitCode::check_failed;
}

}  // namespace gdnctl::commands::doctor

namespace gdnctl::commands {

constinit const cli::Command k_doctor_row =
    cli::make<&doctor::describe, &doctor::run>(
        "doctor", "Setup", "check your setup and show how to install what is missing", Tier::process)
        .without_config();

}  // namespace gdnctl::commands
