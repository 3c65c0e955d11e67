#include <array>

#include "runlog/parse/detail.h"
#include "runlog/parse/log.h"

namespace gdnctl::runlog {

namespace {

enum class Match { prefix, anywhere };
struct LabelRule {
    std::string_view label;  // normalised
    std::string_view key;
    Match match = Match::prefix;
};

// The first match wins.
constexpr std::array k_labels = {
    LabelRule{"ce attributed while", "ce_attributed_while_ms"},
    LabelRule{"ce control budget", "ce_control_budget_ms"},
    LabelRule{"forward closed call", "forward_closed_call_ms", Match::anywhere},
    LabelRule{"backward closed call", "backward_closed_call_ms", Match::anywhere},
    LabelRule{"while", "while_ms"},
    LabelRule{"conditional", "conditional_ms"},
    LabelRule{"kernel budget", "kernel_budget_ms"},
    LabelRule{"control budget", "control_budget_ms"},
    LabelRule{"train path budget", "train_path_budget_ms"},
    LabelRule{"step duration", "step_duration_ms"},
    LabelRule{"remainder budget", "remainder_budget_ms"},
    LabelRule{"decoder layer shell budget", "decoder_layer_shell_budget_ms"},
    LabelRule{"hybrid generic shell delta budget", "hybrid_generic_shell_delta_budget_ms"},
    LabelRule{"dispatch shard shell delta budget", "dispatch_shard_shell_delta_ms"},
    LabelRule{"xprof dispatch shard", "xprof_dispatch_shard_shell_delta_ms"},
    LabelRule{"ad wrapper shell delta budget", "ad_wrapper_shell_delta_ms"},
    LabelRule{"xprof ad wrapper", "xprof_ad_wrapper_shell_delta_ms"},
    LabelRule{"ad shell budget", "ad_shell_budget_ms"},
    LabelRule{"sharding shell budget", "sharding_shell_budget_ms"},
    LabelRule{"layout shell budget", "layout_shell_budget_ms"},
    LabelRule{"layout shell delta budget", "layout_shell_delta_ms"},
    LabelRule{"xprof layout shell delta budget", "xprof_layout_shell_delta_ms"},
    LabelRule{"residual add shell budget", "residual_add_shell_budget_ms"},
    LabelRule{"add shell budget", "residual_add_shell_budget_ms"},
    LabelRule{"residual add shell delta budget", "residual_add_shell_delta_ms"},
    LabelRule{"xprof residual add", "xprof_residual_add_shell_delta_ms"},
    LabelRule{"xprof hybrid generic shell delta budget", "xprof_hybrid_generic_shell_delta_budget_ms"},
    LabelRule{"interaction remainder", "interaction_remainder_ms"},
    LabelRule{"xprof idle attributed", "xprof_idle_attributed_ms"},
    LabelRule{"xprof custom call attributed", "xprof_custom_call_attributed_ms"},
    LabelRule{"xprof all gather attributed", "xprof_all_gather_attributed_ms"},
    LabelRule{"xprof custom fusion attributed", "xprof_custom_fusion_attributed_ms"},
    LabelRule{"xprof data formatting attributed", "xprof_data_formatting_attributed_ms"},
    LabelRule{"shard map", "shard_map_ms"},
    LabelRule{"all gather", "all_gather_ms"},
    LabelRule{"upper bound gap", "upper_bound_gap_ms"},
    LabelRule{"upper bound step", "upper_bound_ms"},
    LabelRule{"upper bound", "upper_bound_ms"},
    LabelRule{"gdn layer fraction", "gdn_layer_fraction"},
};

bool has_prefix(std::string_view label, std::string_view prefix) {
    if (label.empty() || label[0] != prefix[0]) return false;
    return label.starts_with(prefix) && (label.size() == prefix.size() || !detail::is_word(label[prefix.size()]));
}

std::string snake(std::string_view normalised) {
    std::string key(normalised);
    for (char& c : key) {
        if (c == ' ') c = '_';
    }
    return key;
}

// "throughput/mfu", as W&B names it.
std::optional<std::string> throughput_key(std::string_view normalised) {
    constexpr std::string_view prefix = "throughput ";
    if (!normalised.starts_with(prefix)) return std::nullopt;
    const std::string_view rest = normalised.substr(prefix.size());
    for (const std::string_view name : {"mfu", "duration", "tokens per second", "examples per second",
                                        "gflops per second", "total gflops", "total tokens", "loading time"}) {
        if (has_prefix(rest, name)) return "throughput/" + snake(name);
    }
    return std::nullopt;
}

// "gap explained by train-path" and "gap_explained_by_train_path".
std::optional<std::string> explained_key(std::string_view normalised) {
    constexpr std::string_view prefix = "gap explained by ";
    if (!normalised.starts_with(prefix)) return std::nullopt;
    std::string_view rest = normalised.substr(prefix.size());
    for (const std::string_view name :
         {"train path", "decoder layer shell", "hybrid generic shell delta", "xprof hybrid generic shell delta"}) {
        if (has_prefix(rest, name)) return "gap_explained_by_" + snake(name);
    }
    rest = rest.substr(0, rest.find('('));
    return "gap_explained_by_" + snake(strip_marks(rest));
}

}  // namespace

std::string normalise_label(std::string_view label) {
    std::string out;
    out.reserve(label.size());
    for (const char c : label) {
        if (c == '`' || c == '*') continue;
        const bool blank = detail::is_blank(c) || c == '-' || c == '_' || c == '/';
        if (!blank) {
            out += detail::lower(c);
        } else if (!out.empty() && out.back() != ' ') {
            out += ' ';
        }
    }
    while (!out.empty() && out.back() == ' ') out.pop_back();
    return out;
}

std::optional<std::string> metric_key(std::string_view label) {
    if (label.size() > 300) return std::nullopt;
    const std::string name = normalise_label(label);
    // Snake-case keys are used as they are ("dispatch_shard_shell_delta_ms").
    if (name.ends_with(" ms")) {
        const std::string key = snake(name);
        for (const LabelRule& rule : k_labels) {
            if (rule.key == key) return key;
        }
    }
    const bool closed_call = name.find("closed call") != std::string::npos;
    for (const LabelRule& rule : k_labels) {
        if (rule.match == Match::anywhere && !closed_call) continue;
        const bool hit =
            rule.match == Match::anywhere ? detail::contains_word(name, rule.label) : has_prefix(name, rule.label);
        if (hit) return std::string(rule.key);
    }
    if (auto key = explained_key(name)) return key;
    return throughput_key(name);
}

}  // namespace gdnctl::runlog
