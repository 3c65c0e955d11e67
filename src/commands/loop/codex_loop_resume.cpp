#include "commands/loop/codex_loop_resume.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "core/redact.h"
#include "core/text.h"

namespace gdnctl::commands::codex_loop {

namespace {

using loop::OptionWords;
using Names = std::span<const std::string_view>;

constexpr std::array<std::string_view, 5> k_of_the_call = {"--resume", "--dry-run", "--log-dir",
                                                           "--accept-config-change", "--accept-device-change"};
constexpr std::array<std::string_view, 5> k_budgets = {"--iterations", "--max-wall", "--max-tokens",
                                                       "--max-tpu-minutes", "--plateau"};
// Of an evolve run: what its attempts and verdicts depend on. Everything else may change.
constexpr std::array<std::string_view, 16> k_evolve_fixed = {"--mode",
                                                             "--agent",
                                                             "--agent-command",
                                                             "--model",
                                                             "--reasoning-effort",
                                                             "--edit-protocol",
                                                             "--lineages",
                                                             "--stagnation",
                                                             "--operator-mix",
                                                             "--seed",
                                                             "--from",
                                                             "--perf-min-improvement-pct",
                                                             "--perf-pairs",
                                                             "--target-gain-pct",
                                                             "--max-shape-regression-pct",
                                                             "--validation-ray-cluster"};
constexpr std::string_view k_hint =
    "leave it out: --resume uses the run's own options, and only --iterations, --max-* and --plateau may change; "
    "without --resume a new run starts";
constexpr std::string_view k_evolve_hint =
    "leave it out: --resume uses the run's own options; or accept the change with --accept-config-change";

bool is_among(Names names, std::string_view name) { return std::find(names.begin(), names.end(), name) != names.end(); }

std::string shown(const cli::OptionDef& option, const std::vector<std::string>& words) {
    if (option.kind == cli::OptionDef::Kind::flag) return !words.empty() && words.back() == "true" ? "on" : "off";
    if (words.empty()) return option.default_text.empty() ? "none" : option.default_text;
    return redact(text::shell_join(words));
}

bool same_value(const std::string& one, const std::string& other) {
    if (one == other) return true;
    const auto a = text::parse_double(one), b = text::parse_double(other);
    return a && b && *a == *b;
}

// Whether the words mean the same as the run's; without words, the run has the default.
bool same_words(const cli::OptionDef& option, const std::vector<std::string>& now, std::vector<std::string> then) {
    if (then.empty()) then = option.initial;
    if (option.kind == cli::OptionDef::Kind::list) return now == then;
    if (then.empty()) return now.back() == option.default_text;
    return same_value(now.back(), then.back());
}

const std::vector<std::string>& words_for(const OptionWords& words, const std::string& option) {
    static const std::vector<std::string> none;
    const auto at = words.find(option);
    return at == words.end() ? none : at->second;
}

// Compares the call with the run, option by option.
class Continuation {
public:
    Continuation(const Options& now, loop::RunWords& kept) : m_now(now), m_kept(kept) {
        for (const cli::GivenOption& one : now.given) {
            (one.typed ? m_typed : m_configured)[one.option].push_back(one.value);
            if (!one.typed) m_origins[one.option] = one.origin;
        }
    }

    void take(const cli::OptionDef& option) {
        const std::string& name = option.canonical();
        const auto& typed = words_for(m_typed, name);
        const auto& configured = words_for(m_configured, name);
        const auto& before = words_for(m_kept.configured, name);
        if (!typed.empty()) {
            consider(option, typed, fmt::format("{} {}", name, shown(option, typed)));
        } else if (!configured.empty() &&
                   (configured != before || (masked(name) && before == words_for(m_kept.given, name)))) {
            consider(option, configured, fmt::format("{}: {} {}", m_origins[name], name, shown(option, configured)));
        } else if (masked(name)) {
            m_missing.push_back(name);
        }
    }

    Status end() {
        if (!m_missing.empty()) {
            return fail(ErrorKind::usage,
                        fmt::format("--resume: run {} has a secret in {}, which its journal does not keep", m_kept.run,
                                    text::join(m_missing, ", ")),
                        "pass it again with --resume");
        }
        if (!m_differences.empty()) {
            return fail(ErrorKind::usage,
                        fmt::format("--resume: not what run {} was started with: {}", m_kept.run,
                                    text::join(m_differences, "; ")),
                        std::string(m_now.evolves ? k_evolve_hint : k_hint));
        }
        m_kept.configured = std::move(m_configured);
        m_kept.masked.clear();
        return {};
    }

private:
    bool masked(const std::string& name) const { return m_kept.masked.contains(name); }

    void consider(const cli::OptionDef& option, const std::vector<std::string>& now, std::string said) {
        const std::string& name = option.canonical();
        const auto& then = words_for(m_kept.given, name);
        // The seed of a run never changes: earlier draws depend on it.
        const bool accepted = m_now.evolve.accept_config_change && name != "--seed";
        const bool is_free = m_now.evolves ? !is_among(k_evolve_fixed, name) : is_among(k_budgets, name);
        if (is_free || masked(name) || accepted) {
            m_kept.given[name] = now;
        } else if (!same_words(option, now, then)) {
            const auto& meant = then.empty() && option.default_text.empty() ? option.initial : then;
            m_differences.push_back(fmt::format("{} (the run has {})", said, shown(option, meant)));
        }
    }

    const Options& m_now;
    loop::RunWords& m_kept;
    OptionWords m_typed, m_configured;
    std::map<std::string, std::string> m_origins;
    std::vector<std::string> m_differences, m_missing;
};

Status assign_all(const cli::Args& args, const loop::RunWords& kept) {
    OptionWords left = kept.given;
    for (const cli::OptionDef& option : args.options()) {
        for (const std::string& word : words_for(kept.given, option.canonical())) {
            if (const Status done = option.assign(word); !done) {
                return fail(ErrorKind::config, fmt::format("--resume: {} {} of run {}: {}", option.canonical(),
                                                           redact(word), kept.run, done.error().message));
            }
        }
        left.erase(option.canonical());
    }
    if (left.empty()) return {};
    return fail(
        ErrorKind::config,
        fmt::format("--resume: run {} has an option that this gdnctl does not know: {}", kept.run, left.begin()->first),
        "use the gdnctl that started it");
}

}  // namespace

void keep_words(const std::vector<cli::GivenOption>& given, loop::RunWords& words) {
    OptionWords typed;
    for (const cli::GivenOption& one : given) {
        if (!is_among(k_of_the_call, one.option))
            (one.typed ? typed : words.configured)[one.option].push_back(one.value);
    }
    words.given = words.configured;
    for (auto& [option, values] : typed) words.given[option] = std::move(values);
}

Result<Options> resumed_options(const Options& now, loop::RunWords& kept) {
    Options options;
    cli::Args args;
    describe(args, options);
    Continuation continuation(now, kept);
    for (const cli::OptionDef& option : args.options()) {
        if (!is_among(k_of_the_call, option.canonical())) continuation.take(option);
    }
    GDNCTL_TRY(continuation.end());
    GDNCTL_TRY(assign_all(args, kept));
    for (const auto& check : args.checks()) GDNCTL_TRY(check());
    options.loop.resume = true;
    options.loop.log_dir = now.loop.log_dir;
    options.dry_run = now.dry_run;
    options.evolve.accept_config_change = now.evolve.accept_config_change;
    options.evolve.accept_device_change = now.evolve.accept_device_change;
    return options;
}

}  // namespace gdnctl::commands::codex_loop
