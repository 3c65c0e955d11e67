#include "sweep/lines.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include <nlohmann/json.hpp>

#include "core/text.h"

namespace gdnctl::sweep {

namespace {

// Those of one result come once each.
constexpr std::array<std::string_view, 27> k_figures = {"loss",
                                                        "compile_time_s",
                                                        "steady_time_s",
                                                        "tokens_per_s",
                                                        "bwd_compile_time_s",
                                                        "batch",
                                                        "bwd_steady_time_s",
                                                        "bwd_tokens_per_s",
                                                        "b_block_size",
                                                        "combined_tokens_per_s",
                                                        "pos",
                                                        "h_block_size",
                                                        "v_block_size",
                                                        "disable_megacore",
                                                        "skip_label_logits",
                                                        "embed",
                                                        "fwd_xw_bf16",
                                                        "fwd_full_h_dot",
                                                        "fwd_dot_accum_bf16",
                                                        "fwd_split_label_dot",
                                                        "vocab",
                                                        "fwd_lse_fori_loop",
                                                        "fwd_lse_store_path",
                                                        "fwd_lse_fori_v_mult",
                                                        "fwd_split_label_bf16_mul",
                                                        "fwd_inline_label_take",
                                                        "fwd_inline_label_scalar"};

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_alpha(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

// A date, a time, a level: what loggers begin a line with.
bool is_logger_word(std::string_view word) {
    constexpr std::array<std::string_view, 8> k_words = {"INFO",    "WARNING", "ERROR", "DEBUG",
                                                         "stdout:", "stderr:", "|",     "--"};
    if (std::find(k_words.begin(), k_words.end(), word) != k_words.end()) return true;
    if (word.empty() || !is_digit(word.front()) || word.find_first_of(":-") == std::string_view::npos) return false;
    return word.find_first_not_of("0123456789-:.,TZ/+") == std::string_view::npos;
}

// Text that counts at the end of a line with any prefix, because no other program prints it.
constexpr std::array<std::string_view, 13> k_own_words = {
    "compile_time_s",       "steady_time_s",  "tokens_per_s",          "bwd_compile_time_s", "bwd_steady_time_s",
    "bwd_tokens_per_s",     "b_block_size",   "combined_tokens_per_s", "h_block_size",       "v_block_size",
    "roofline.device_kind", "roofline.chips", "roofline.tokens_per_s"};

// The text from one of those words on; all of it if none occurs.
std::string_view from_own_word(std::string_view text) {
    if (const auto at = text.find("result_json {"); at != std::string_view::npos) return text.substr(at);
    if (const auto at = text.find("Running entrypoint for job "); at != std::string_view::npos) return text.substr(at);
    for (const std::string_view word : k_own_words) {
        const auto at = text.rfind(std::string(word) + " ");
        if (at == std::string_view::npos || at == 0 ||
            std::string_view(" ])|:").find(text[at - 1]) == std::string_view::npos)
            continue;
        return text.substr(at);
    }
    return text;
}

}  // namespace

Line clean_line(std::string_view raw) {
    Line line;
    const std::string plain = text::without_colour(raw);
    std::string_view text = text::trim(plain);
    while (!text.empty()) {
        if (text.front() == '(' || text.front() == '[') {
            const auto end = text.find(text.front() == '(' ? ')' : ']');
            if (end == std::string_view::npos) break;
            const std::string_view inside = text.substr(1, end - 1);
            if (text.front() == '(' && inside.find("pid=") == std::string_view::npos) break;
            if (text.front() == '(') line.process = inside;
            text = text::trim(text.substr(end + 1));
            continue;
        }
        const auto word = split_key(text);
        if (!is_logger_word(word.key)) break;
        text = word.value;
    }
    if (const auto repeated = text.rfind(" [repeated "); repeated != std::string_view::npos && text.ends_with(']')) {
        text = text::trim(text.substr(0, repeated));
    }
    line.text = from_own_word(text);
    return line;
}

KeyValue split_key(std::string_view text) {
    const auto at = text.find(' ');
    if (at == std::string_view::npos) return {text, {}};
    return {text.substr(0, at), text::trim(text.substr(at + 1))};
}

bool is_figure(std::string_view key) {
    return std::find(k_figures.begin(), k_figures.end(), key) != k_figures.end() || key == "fwd_split_label_pallas";
}

std::optional<double> parse_figure(std::string_view text) {
    const std::string lower = text::to_lower(text);
    if (lower == "nan") return std::numeric_limits<double>::quiet_NaN();
    if (lower == "inf" || lower == "infinity") return std::numeric_limits<double>::infinity();
    if (lower == "-inf" || lower == "-infinity") return -std::numeric_limits<double>::infinity();
    return text::parse_double(text);
}

std::optional<Json> parse_python_json(std::string_view text) {
    std::string strict;
    strict.reserve(text.size());
    bool quoted = false;
    for (std::size_t at = 0; at < text.size(); ++at) {
        const char c = text[at];
        if (quoted && c == '\\' && at + 1 < text.size()) {
            strict += c;
            strict += text[++at];
            continue;
        }
        if (c == '"') quoted = !quoted;
        if (!quoted && (c == 'N' || c == 'I' || (c == '-' && text.substr(at).starts_with("-I")))) {
            std::size_t end = at + 1;
            while (end < text.size() && is_alpha(text[end])) ++end;
            strict += '"' + std::string(text.substr(at, end - at)) + '"';
            at = end - 1;
            continue;
        }
        strict += c;
    }
    auto json = parse_json(strict, "result_json");
    if (!json || !json->is_object()) return std::nullopt;
    return std::move(*json);
}

std::optional<std::int64_t> dict_number(std::string_view dict, std::string_view key) {
    const auto at = dict.find("'" + std::string(key) + "':");
    if (at == std::string_view::npos) return std::nullopt;
    const std::string_view rest = text::trim(dict.substr(at + key.size() + 3));
    return text::parse_int(rest.substr(0, rest.find_first_not_of("0123456789")));
}

std::optional<BlockSizes> parse_block_sizes(std::string_view text) {
    const auto at = text.find("BlockSizes(");
    if (at == std::string_view::npos) return std::nullopt;
    text = text.substr(at);
    BlockSizes sizes;
    const std::array<std::pair<std::string_view, std::int64_t*>, 3> parts = {
        {{"b_block_size=", &sizes.b}, {"h_block_size=", &sizes.h}, {"v_block_size=", &sizes.v}}};
    for (const auto& [name, to] : parts) {
        const auto begin = text.find(name);
        if (begin == std::string_view::npos) return std::nullopt;
        const std::string_view digits = text.substr(begin + name.size());
        const auto number = text::parse_int(digits.substr(0, digits.find_first_not_of("0123456789")));
        if (!number) return std::nullopt;
        *to = *number;
    }
    return sizes;
}

CommandLine parse_command_line(std::string_view command) {
    CommandLine to;
    std::vector<std::string> words;
    if (auto split = text::shell_split(command)) {
        words = std::move(*split);
    } else {
        for (const std::string_view word : text::split(command, ' ')) words.emplace_back(word);
    }
    const std::array<std::pair<std::string_view, std::optional<std::int64_t>*>, 9> numbers = {
        {{"--batch", &to.batch},
         {"--pos", &to.pos},
         {"--seq-len", &to.seq_len},
         {"--embed", &to.embed},
         {"--vocab", &to.vocab},
         {"--data-shards", &to.data_shards},
         {"--b-block-size", &to.b},
         {"--h-block-size", &to.h},
         {"--v-block-size", &to.v}}};
    const std::array<std::pair<std::string_view, std::string*>, 3> names = {{{"--implementation", &to.implementation},
                                                                             {"--input-dtype", &to.input_dtype},
                                                                             {"--accum-dtype", &to.accum_dtype}}};
    for (std::size_t i = 0; i < words.size(); ++i) {
        const std::string_view word = words[i];
        const auto equals = word.find('=');
        const std::string_view name = word.substr(0, equals);
        const std::string_view value = equals != std::string_view::npos ? word.substr(equals + 1)
                                       : i + 1 < words.size()           ? std::string_view(words[i + 1])
                                                                        : std::string_view();
        for (const auto& [option, number] : numbers) {
            if (name == option) *number = text::parse_int(value);
        }
        for (const auto& [option, text] : names) {
            if (name == option) *text = value;
        }
        to.shard_map = to.shard_map || name == "--shard-map";
        to.forward_only = to.forward_only || name == "--forward-only";
        to.infer = to.infer || (name == "--block-sizes" && value == "infer");
        const bool lane = name.starts_with("--fwd-") && name != "--fwd-lse-fori-v-mult";
        to.benchmark_only = to.benchmark_only || lane || name == "--skip-label-logits";
    }
    return to;
}

}  // namespace gdnctl::sweep
