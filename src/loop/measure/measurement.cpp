#include "loop/measure/measurement.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>

#include <fmt/format.h>

#include "core/for_people.h"
#include "core/json.h"
#include "core/text.h"
#include "jobs/metric.h"
#include "loop/measure/pairs.h"
#include "platform/fs.h"

namespace gdnctl::loop {

std::string Fingerprint::key() const {
    // FNV-1a: names a few configurations; not meant to resist attacks.
    std::uint64_t hash = 0xcbf29ce484222325U;
    const auto add = [&hash](std::string_view bytes) {
        for (const char c : bytes) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
        hash = (hash ^ 0xffU) * 0x100000001b3U;  // occurs in no UTF-8 text: terminates a word
    };
    for (const auto& [name, value] : asked) {
        add(name);
        add(value);
    }
    return fmt::format("{:016x}", hash);
}

std::vector<std::string> differences(const std::map<std::string, std::string>& before,
                                     const std::map<std::string, std::string>& after) {
    std::vector<std::string> out;
    const auto value_in = [](const auto& map, const std::string& name) {
        const auto it = map.find(name);
        return it == map.end() ? std::string("(none)") : it->second;
    };
    std::map<std::string, std::string> all = before;
    all.insert(after.begin(), after.end());
    for (const auto& [name, unused] : all) {
        const std::string a = value_in(before, name), b = value_in(after, name);
        if (a != b) out.push_back(fmt::format("{}: {} -> {}", name, a, b));
    }
    return out;
}

namespace {

template <class Pick>
std::optional<double> median_value(const std::vector<Measurement>& runs, Pick pick) {
    std::vector<double> values;
    for (const Measurement& run : runs) {
        if (const auto value = pick(run)) values.push_back(*value);
    }
    if (values.empty()) return std::nullopt;
    return median_of(values);
}

void add_numbers(const Json& value, const std::string& path, MetricMap& into) {
    constexpr std::size_t k_most = 500;
    if (into.size() >= k_most) return;
    if (value.is_number()) {
        into[path] = value.get<double>();
    } else if (value.is_object()) {
        for (const auto& [key, item] : value.items()) add_numbers(item, path.empty() ? key : path + "/" + key, into);
    }
}

// "FAILED tests/test_x.py::test_y[1] - AssertionError" of pytest's short summary.
std::optional<std::string> failed_test(std::string_view line) {
    constexpr std::string_view k_word = "FAILED ";
    if (!line.starts_with(k_word)) return std::nullopt;
    std::string_view name = line.substr(k_word.size());
    name = text::trim(name.substr(0, name.find(" - ")));
    if (name.find("::") == std::string_view::npos) return std::nullopt;
    return std::string(name);
}

// "max_abs=1.19e-05", "Max absolute difference: 1.19e-05"
std::optional<double> difference_in(std::string_view line) {
    for (const std::string_view key :
         {"max_abs", "Max absolute difference among violations", "Max absolute difference"}) {
        if (const std::size_t at = line.find(key); at != std::string_view::npos) {
            std::string_view rest = line.substr(at + key.size());
            const std::size_t from = rest.find_first_of("0123456789");
            if (from > 4) continue;  // not found, so larger than every known one
            rest.remove_prefix(from);
            return text::parse_double(rest.substr(0, rest.find_first_not_of("0123456789.eE+-")));
        }
    }
    return std::nullopt;
}

// Passes a log in pieces to everything that reads it.
class EvidenceReader {
public:
    void feed(std::string_view bytes) {
        m_out.output.feed(bytes);
        m_objects.feed(bytes);
        while (!bytes.empty()) {
            const std::size_t end = bytes.find('\n');
            const std::string_view piece = bytes.substr(0, end);
            if (m_line.size() < k_longest) m_line.append(piece.substr(0, k_longest - m_line.size()));
            if (end == std::string_view::npos) return;
            line();
            bytes.remove_prefix(end + 1);
        }
    }
    Evidence finish() {
        line();
        m_out.output.finish();
        m_objects.finish();
        if (const auto last = m_objects.last()) m_out.last_object = gdnctl::to_text(*last);
        m_out.oracle = m_oracle.finding();
        return std::move(m_out);
    }

private:
    void line() {
        if (auto name = failed_test(m_line)) {
            auto& all = m_out.failed_tests;
            if (all.size() < k_most_failures && std::find(all.begin(), all.end(), *name) == all.end()) {
                all.push_back(std::move(*name));
            }
        }
        if (const auto difference = difference_in(m_line)) {
            m_out.max_abs = std::max(m_out.max_abs.value_or(0.0), *difference);
        }
        m_oracle.line(m_line);
        m_line.clear();
    }
    static constexpr std::size_t k_longest = std::size_t{64} << 10U;
    static constexpr std::size_t k_most_failures = 100;
    Evidence m_out;
    JsonObjects m_objects;
    OracleFindingReader m_oracle;
    std::string m_line;
};

std::optional<std::int64_t> whole_word(const std::map<std::string, std::string>& words, const char* key) {
    const auto it = words.find(key);
    return it == words.end() ? std::nullopt : text::parse_int(it->second);
}

std::string joined_words(const std::map<std::string, std::string>& words) {
    std::string out;
    for (const auto& [key, value] : words) out += fmt::format("{}{}={}", out.empty() ? "" : " ", key, value);
    return out;
}

// The numbers of a JSON object, with nested ones by path ("forward/median_ms"); at most 500.
MetricMap numbers_of(std::string_view object) {
    MetricMap out;
    if (object.empty()) return out;
    const auto value = parse_json(object, "the result");
    if (value) add_numbers(*value, {}, out);
    return out;
}

}  // namespace

bool is_same_source(const Measurement& a, const Measurement& b) {
    return a.source.empty() || b.source.empty() || a.source == b.source;
}

Measurement merged(std::vector<Measurement> runs) {
    if (runs.empty()) return {};
    Measurement out = runs.front();
    out.points.clear();
    out.wall_ms.clear();
    for (const Measurement& run : runs) {
        out.points.insert(out.points.end(), run.points.begin(), run.points.end());
        out.wall_ms.insert(out.wall_ms.end(), run.wall_ms.begin(), run.wall_ms.end());
    }
    out.value = out.points.empty() ? std::nullopt : std::optional(median_of(out.points));
    out.warnings.clear();
    for (const Measurement& run : runs) {
        if (out.busy.empty()) out.busy = run.busy;
        if (run.window_points)
            out.window_points = std::min(out.window_points.value_or(*run.window_points), *run.window_points);
        for (const std::string& warning : run.warnings) {
            if (std::find(out.warnings.begin(), out.warnings.end(), warning) == out.warnings.end()) {
                out.warnings.push_back(warning);
            }
        }
    }
    MetricMap names;
    for (const Measurement& run : runs) names.insert(run.metrics.begin(), run.metrics.end());
    for (auto& [name, value] : names) {
        value = *median_value(runs, [&wanted = name](const Measurement& run) -> std::optional<double> {
            const auto it = run.metrics.find(wanted);
            return it == run.metrics.end() ? std::nullopt : std::optional(it->second);
        });
    }
    out.metrics = std::move(names);
    return out;
}

std::string noise_text(const std::vector<double>& points, std::string_view unit) {
    return fmt::format("n={}, median {}, MAD {}", points.size(), quantity(median_of(points), unit),
                       quantity(mad_of(points), unit, 2));
}

Evidence evidence_of(std::string_view log) {
    EvidenceReader reader;
    reader.feed(log);
    return reader.finish();
}

Result<Evidence> read_evidence(const std::filesystem::path& log) {
    std::ifstream in(log, std::ios::binary);
    if (!in) return tl::unexpected(file_error(ErrorKind::local_io, "read", log, errno));
    EvidenceReader reader;
    std::array<char, std::size_t{64} << 10U> buffer;
    while (in.read(buffer.data(), buffer.size()) || in.gcount() > 0) {
        reader.feed({buffer.data(), static_cast<std::size_t>(in.gcount())});
    }
    return reader.finish();
}

ProfileModel model_of(const ProfileSettings& asked, const std::map<std::string, std::string>& reported) {
    ProfileModel model;
    model.layers_per_block = asked.gdn_layers_per_block;
    model.block_size = asked.gdn_block_size;
    if (const auto layers = whole_word(reported, "gdn_layers_per_block")) model.layers_per_block = layers;
    if (const auto block = whole_word(reported, "gdn_block_size")) model.block_size = block;
    if (model.layers_per_block && model.block_size && *model.block_size > 0) {
        const auto layers = std::clamp<std::int64_t>(*model.layers_per_block, 0, *model.block_size);
        model.fraction = static_cast<double>(layers) / static_cast<double>(*model.block_size);
    }
    if (asked.all_transformer) model.fraction = 0.0;
    if (const auto it = reported.find("gdn_layer_fraction"); it != reported.end()) {
        if (const auto fraction = text::parse_double(it->second)) model.fraction = fraction;
    }
    if (whole_word(reported, "all_transformer") == 1) model.fraction = 0.0;
    if (model.fraction) model.architecture = *model.fraction == 0.0 ? "attn_only" : "hybrid";
    return model;
}

SettingWords setting_words(const ProfileSettings& asked, const ProfileReport& reported) {
    const auto number = [](const std::optional<std::int64_t>& value) {
        return value ? std::to_string(*value) : std::string();
    };
    const auto fraction = model_of(asked, {}).fraction;
    const std::map<std::string, std::string> wanted = {
        {"all_transformer", asked.all_transformer ? "1" : "0"},
        {"ce_implementation", asked.ce_implementation},
        {"chunk_size", number(asked.chunk_size)},
        {"gdn_block_size", number(asked.gdn_block_size)},
        {"gdn_layer_fraction", fraction ? fmt::format("{:.6f}", *fraction) : std::string()},
        {"gdn_layers_per_block", number(asked.gdn_layers_per_block)},
        {"segment_size", number(asked.segment_size)}};
    std::map<std::string, std::string> found = reported.model;
    if (reported.ce_implementation) found["ce_implementation"] = *reported.ce_implementation;
    SettingWords words;
    for (const auto& [name, value] : wanted) {
        const auto it = found.find(name);
        if (it == found.end()) continue;
        words.effective[name] = it->second;
        if (!value.empty() && value != "auto") words.requested[name] = value;
    }
    return words;
}

Measurement measurement_of(const JobReport& report, const Evidence& evidence, const ProfileQuestion& question) {
    Measurement m;
    m.metric = question.metric;
    m.source = "cli-output";
    m.metrics = numbers_of(evidence.last_object);
    const ProfileReport& profile = evidence.output.profile();
    const auto put = [&m](const char* name, const std::optional<double>& value) {
        if (value) m.metrics[name] = *value;
    };
    put("throughput/mfu", profile.mfu);
    put("throughput/tokens_per_second", profile.tokens_per_second);
    put("throughput/duration", profile.duration);
    if (profile.duration) m.metrics["step_duration_ms"] = *profile.duration * 1000.0;
    if (report.metric_value && !report.metric_name.empty()) m.metrics[report.metric_name] = *report.metric_value;
    if (const auto it = m.metrics.find(question.metric); it != m.metrics.end() && std::isfinite(it->second)) {
        m.value = it->second;
        m.points = {it->second};
    }
    m.ce_backend_selected = profile.ce_implementation.value_or("");
    m.run_url = profile.run_url.value_or("");
    m.fingerprint.asked = question.asked;
    m.fingerprint.asked["metric"] = question.metric;
    if (!report.target.empty()) m.fingerprint.asked["target"] = report.target;
    if (!report.cluster.empty()) m.fingerprint.asked["cluster"] = report.cluster;
    if (!report.tpu.empty()) m.fingerprint.asked["tpu"] = report.tpu;
    if (report.runs_as_written) {
        if (!report.entrypoint.empty()) m.fingerprint.asked["command"] = report.entrypoint;
        return m;
    }
    const ProfileModel model = model_of(question.settings, profile.model);
    m.ce_requested_implementation = question.settings.ce_implementation;
    m.ce_bwd_mode = question.settings.ce_bwd_mode;
    m.profile_architecture = model.architecture;
    m.gdn_layers_per_block = model.layers_per_block;
    m.gdn_block_size = model.block_size;
    m.gdn_layer_fraction = model.fraction;
    if (!m.ce_backend_selected.empty()) m.fingerprint.effective["cross-entropy"] = m.ce_backend_selected;
    if (!profile.model.empty()) m.fingerprint.effective["model"] = joined_words(profile.model);
    return m;
}

std::string bucket_of(std::string_view cluster) {
    constexpr std::string_view k_owner = "marin-";
    if (cluster.starts_with(k_owner)) cluster.remove_prefix(k_owner.size());
    // A zone is a region plus one letter.
    if (cluster.size() > 2 && cluster[cluster.size() - 2] == '-' && cluster.back() >= 'a' && cluster.back() <= 'z') {
        cluster.remove_suffix(2);
    }
    return "gs://" + std::string(k_owner) + std::string(cluster);
}

}  // namespace gdnctl::loop
