#include "sweep/parse.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>

#include "core/json.h"
#include "core/text.h"
#include "sweep/journal.h"

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

namespace {

constexpr std::size_t k_kept_text = std::size_t{64} << 10;  // of unrecognised lines, which may explain a failure

void keep(std::string& to, std::string_view line) {
    if (to.size() + line.size() + 1 > k_kept_text) to.erase(0, std::min(to.size(), line.size() + 1));
    to += line.substr(0, k_kept_text / 2);
    to += '\n';
}

// One process: what it has said of its job, and the result that it is in the middle of.
struct Stream {
    std::string shape;  // the tune script's dict
    std::optional<std::int64_t> chips;
    std::string device_kind;
    std::vector<Figure> roofline;
    std::optional<Record> open;
    std::string variant, input_dtype, accum_dtype;  // of the open one
    std::string text;                               // unknown lines since it began
    bool failed_first = false;                      // opened by variant_failed: `variant` continues it
    std::int64_t results = 0;
};

class Parser {
public:
    Parser(std::string_view file, const Assumed& assumed) : m_file(file), m_assumed(assumed) {}

    void line(std::string_view raw, std::int64_t number) {
        m_line = number;
        const Line l = clean_line(raw);
        if (l.text.empty()) return;
        Stream& s = m_streams[l.process];
        const auto [key, value] = split_key(l.text);
        if (l.text.starts_with("Running entrypoint for job ")) {
            end_job();
            const auto at = l.text.find(": ");
            m_job = parse_command_line(at == std::string::npos ? std::string_view()
                                                               : std::string_view(l.text).substr(at + 2));
            m_named = true;
            m_job_line = m_line;
        } else if (!job_line(s, key, value) && !begin_line(s, key, value) && !result_line(s, key, value)) {
            keep(s.open ? s.text : m_text, l.text);
        }
    }

    std::vector<Record> finish() {
        end_job();
        std::stable_sort(m_records.begin(), m_records.end(),
                         [](const Record& a, const Record& b) { return a.line < b.line; });
        return std::move(m_records);
    }

private:
    // What holds for all results that follow.
    bool job_line(Stream& s, std::string_view key, std::string_view value) {
        if (key == "devices:") {
            close(s, true);
            end_if_silent();
            s = {};
            std::int64_t devices = 0;
            for (auto at = value.find("(id="); at != std::string_view::npos; at = value.find("(id=", at + 1)) ++devices;
            s.chips = devices;
            note_job();
        } else if (key == "shape" && value.starts_with('{') && dict_number(value, "vocab")) {
            close(s, true);
            s.shape = value;
            note_job();
        } else if (key.starts_with("roofline.")) {
            if (key == "roofline.device_kind") s.device_kind = value;
            if (const auto number = parse_figure(value)) s.roofline.emplace_back(key, *number);
            if (key == "roofline.chips") s.chips = text::parse_int(value);
            note_job();
        } else {
            return false;
        }
        return true;
    }

    void note_job() {
        m_named = true;
        if (m_job_line == 0) m_job_line = m_line;
    }

    // What begins a result, or ends one whole.
    bool begin_line(Stream& s, std::string_view key, std::string_view value) {
        const auto words = text::split(value, ' ');
        const auto sizes = parse_block_sizes(value);
        if (key == "config" && (sizes || (words.size() == 2 && words[1] == "None"))) {
            begin(s, Script::tune);
            s.open->forward_only = value.starts_with("BlockSizes(");
            if (!s.open->forward_only) s.open->label = words.front();
            s.open->sizes = sizes;
        } else if (key == "variant" && words.size() >= 4) {
            begin(s, Script::tune);
            s.variant = words[0];
            s.open->implementation = words[1];
            s.open->label = words[2];
            s.open->sizes = sizes;
        } else if (key == "variant" && words.size() == 1 && !value.empty()) {
            if (!(s.open && s.failed_first && s.variant == value)) begin(s, Script::bench);
            s.failed_first = false;
            s.variant = value;
        } else if (key == "variant_failed" && words.size() >= 2) {
            begin(s, Script::bench);
            s.variant = words[0];
            s.failed_first = true;
            fail_open(s, text::trim(value.substr(words[0].size())));
        } else if (key == "result_json" && value.starts_with('{')) {
            whole_result(s, value);
        } else {
            return false;
        }
        return true;
    }

    // What belongs to the open result.
    bool result_line(Stream& s, std::string_view key, std::string_view value) {
        if (is_figure(key)) {
            const auto number = parse_figure(value);
            if (!number) return false;
            if (s.open && s.open->figure(key) != nullptr) close(s, false);
            Record& open = open_if_none(s);
            open.figures.emplace_back(key, *number);
            const bool of_bench = key == "batch" || key == "pos" || key == "embed" || key.starts_with("bwd_");
            if (of_bench) open.script = Script::bench;
        } else if (key == "implementation" && !value.empty() && value.find(' ') == std::string_view::npos) {
            if (s.open && !s.open->implementation.empty() && s.open->script == Script::bench) close(s, false);
            open_if_none(s).implementation = value;
            s.open->script = Script::bench;
        } else if (key == "status" && (value == "ok" || value == "failed")) {
            if (value == "failed") open_if_none(s).status = ResultStatus::failed;
        } else if (key == "input_dtype" || key == "accum_dtype") {
            open_if_none(s);
            (key == "input_dtype" ? s.input_dtype : s.accum_dtype) = value;
        } else if (s.open &&
                   ((key == "failed" && s.open->script == Script::tune) || key == "error_type" || key == "error")) {
            if (value != "<omitted>") fail_open(s, value);
        } else {
            return false;
        }
        return true;
    }

    static void fail_open(Stream& s, std::string_view what) {
        s.open->status = ResultStatus::failed;
        if (!s.open->error.empty() && s.open->error.find(what) == std::string::npos) s.open->error += '\n';
        if (s.open->error.find(what) == std::string::npos) s.open->error += what;
    }

    void begin(Stream& s, Script script) {
        close(s, false);
        Record record;
        record.file = m_file;
        record.line = m_line;
        record.script = script;
        s.open = std::move(record);
        s.variant.clear();
        s.input_dtype.clear();
        s.accum_dtype.clear();
        s.text.clear();
        s.failed_first = false;
        note_job();
    }

    Record& open_if_none(Stream& s) {
        if (!s.open) begin(s, s.roofline.empty() ? Script::tune : Script::bench);
        return *s.open;
    }

    void whole_result(Stream& s, std::string_view value) {
        const auto json = parse_python_json(value);
        if (!json) {
            open_if_none(s).truncated = true;
            close(s, false);
            return;
        }
        const auto word = [&](const char* key) { return json::text(*json, key); };
        const std::string label = word("label");
        std::optional<Stream> kept;
        if (s.open && !s.open->label.empty() && !label.empty() && s.open->label != label) kept = s;  // somebody else's
        if (kept || !s.open) {
            s.open.reset();
            begin(s, json->contains("embed") ? Script::bench : Script::tune);
        }
        Record& r = *s.open;
        if (!label.empty()) r.label = label;
        if (const auto name = word("implementation"); !name.empty()) r.implementation = name;
        if (const auto name = word("variant"); !name.empty()) s.variant = name;
        if (const auto name = word("input_dtype"); !name.empty()) s.input_dtype = name;
        if (const auto name = word("accum_dtype"); !name.empty()) s.accum_dtype = name;
        for (const auto& [key, item] : json->items()) {
            if (!is_figure(key) || r.figure(key) != nullptr) continue;
            if (item.is_number()) r.figures.emplace_back(key, item.get<double>());
            if (item.is_string()) {
                if (const auto number = parse_figure(item.get<std::string>())) r.figures.emplace_back(key, *number);
            }
        }
        if (word("status") == "failed") {
            const std::string type = word("error_type");
            fail_open(s, type.empty() || word("error").starts_with(type) ? word("error") : type + " " + word("error"));
        }
        close(s, false);
        if (kept) s = std::move(*kept);
    }

    // The open result is over. `ended`: and with it what it was part of.
    void close(Stream& s, bool ended) {
        if (!s.open) return;
        Record r = std::move(*s.open);
        s.open.reset();
        describe_context(s, r);
        const bool timed = r.figure("steady_time_s") != nullptr || r.figure("tokens_per_s") != nullptr ||
                           r.figure("combined_tokens_per_s") != nullptr;
        const bool half = (r.figure("bwd_compile_time_s") != nullptr || r.figure("bwd_steady_time_s") != nullptr) &&
                          r.figure("bwd_tokens_per_s") == nullptr;
        if (r.status == ResultStatus::failed || !timed) {
            r.failure = classify_failure(r.error + "\n" + s.text);
            if (r.error.empty() && r.failure.kind) r.error = telling_line(s.text);
            if (!r.failure.kind) {
                r.failure.kind = r.status == ResultStatus::failed ? FailureKind::crashed : FailureKind::no_result;
            }
            r.truncated = r.truncated || (ended && r.failure.kind == FailureKind::no_result);
            r.status = ResultStatus::failed;
        } else {
            r.truncated = r.truncated || (ended && half);
        }
        ++s.results;
        ++m_results;
        m_records.push_back(std::move(r));
    }

    // Of several lines the first that tells the kind.
    static std::string telling_line(std::string_view text) {
        for (const std::string_view line : text::split(text, '\n')) {
            if (classify_failure(line).kind) return std::string(line);
        }
        return {};
    }

    void describe_context(const Stream& s, Record& r) const;

    // A job without any result, for a reason that its log gives.
    void end_if_silent() {
        if (m_results == 0) {
            const Failure failure = classify_failure(m_text);
            if (failure.kind && (m_named || !is_own(*failure.kind))) {
                Record r;
                r.file = m_file;
                r.line = std::max<std::int64_t>(m_job_line, 1);
                r.script = m_job.seq_len ? Script::tune : Script::bench;
                r.status = ResultStatus::failed;
                r.failure = failure;
                r.error = telling_line(m_text);
                describe_context(m_streams[""], r);
                m_records.push_back(std::move(r));
            }
        }
        m_results = 0;
        m_text.clear();
    }

    void end_job() {
        for (auto& [process, stream] : m_streams) close(stream, true);
        end_if_silent();
        m_streams.clear();
        m_job = {};
        m_named = false;
        m_job_line = 0;
    }

    std::string m_file;
    Assumed m_assumed;
    std::int64_t m_line = 0, m_job_line = 0, m_results = 0;
    bool m_named = false;  // the log says that one of the scripts runs
    CommandLine m_job;
    std::string m_text;
    std::map<std::string, Stream> m_streams;
    std::vector<Record> m_records;
};

void Parser::describe_context(const Stream& s, Record& r) const {
    const auto number = [&](std::string_view key) -> std::optional<std::int64_t> {
        const double* f = r.figure(key);
        return f != nullptr && *f >= -1 && *f < 9e15 ? std::optional(static_cast<std::int64_t>(*f)) : std::nullopt;
    };
    const auto either = [](const auto& first, const auto& second) { return first ? first : second; };
    if (!s.shape.empty()) {
        r.hidden = dict_number(s.shape, "embed");
        r.vocab = dict_number(s.shape, "vocab");
        r.kernel_batch = dict_number(s.shape, "kernel_batch");
        const auto batch = dict_number(s.shape, "global_batch");
        const auto length = dict_number(s.shape, "seq_len");
        if (batch && length && *batch < 4'000'000'000 && *length < 2'000'000'000) r.global_batch = *batch * *length;
    } else {
        const auto batch = either(number("batch"), m_job.batch);
        const auto pos = either(number("pos"), either(m_job.pos, m_job.seq_len));
        r.hidden = either(number("embed"), m_job.embed);
        r.vocab = either(number("vocab"), m_job.vocab);
        if (batch && pos && *batch < 4'000'000'000 && *pos < 2'000'000'000) r.global_batch = *batch * *pos;
        std::optional<std::int64_t> shards = m_assumed.shards;
        if (m_job.shard_map) shards = m_job.data_shards.value_or(0) > 0 ? m_job.data_shards : s.chips;
        if (r.global_batch) r.kernel_batch = *r.global_batch / std::max<std::int64_t>(shards.value_or(1), 1);
    }
    r.chips = s.chips;
    for (const Figure& f : s.roofline) r.figures.push_back(f);
    r.device_kind = s.device_kind.empty() ? m_assumed.device_kind : s.device_kind;
    const auto word = [](const std::string& first, const std::string& second, const std::string& third) {
        return long_dtype(!first.empty() ? first : !second.empty() ? second : third);
    };
    r.x_dtype = word(s.input_dtype, m_job.input_dtype, m_assumed.x_dtype);
    r.accum_dtype = word(s.accum_dtype, m_job.accum_dtype, "");
    if (r.implementation.empty()) r.implementation = m_job.implementation;
    const bool bench = r.script == Script::bench;
    const bool step = r.figure("bwd_steady_time_s") != nullptr || r.figure("bwd_tokens_per_s") != nullptr;
    r.forward_only = r.forward_only || m_job.forward_only || (bench && !step);
    bool toggled = false, toggles = false;
    for (const auto& [key, value] : r.figures) {
        if (!(key.starts_with("fwd_") || key == "skip_label_logits") || key == "fwd_lse_fori_v_mult") continue;
        toggles = true;
        toggled = toggled || value != 0;
    }
    r.real_kernel = toggles ? !toggled : !(m_job.benchmark_only || s.variant.starts_with("pallas_fwd_"));
    const auto b = either(number("b_block_size"), m_job.b), h = either(number("h_block_size"), m_job.h),
               v = either(number("v_block_size"), m_job.v);
    if (!r.sizes && b && h && v && *b > 0 && *h > 0 && *v > 0) r.sizes = BlockSizes{*b, *h, *v};
    if (!r.sizes) r.sizes = sizes_of_label(r.label);
    if (!r.label.empty()) return;
    const bool plain = s.variant.empty() || s.variant == r.implementation;
    const bool inferred = number("b_block_size") == -1 || m_job.infer;
    r.label = !plain ? s.variant : r.sizes ? label_of(*r.sizes) : inferred ? "infer" : bench ? "none" : "";
}

}  // namespace

std::vector<Record> parse_results(std::string_view text, std::string_view file, const Assumed& assumed) {
    Parser parser(file, assumed);
    JournalReader journal(file);
    std::int64_t number = 0;
    for (std::size_t at = 0; at < text.size();) {
        const auto end = std::min(text.find('\n', at), text.size());
        std::string_view line = text.substr(at, end - at);
        at = end + 1;
        if (line.ends_with('\r')) line.remove_suffix(1);
        ++number;
        if (!journal.line(line, number)) parser.line(line, number);
    }
    std::vector<Record> records = parser.finish();
    for (Record& r : journal.finish()) records.push_back(std::move(r));
    std::stable_sort(records.begin(), records.end(), [](const Record& a, const Record& b) { return a.line < b.line; });
    return records;
}

}  // namespace gdnctl::sweep
