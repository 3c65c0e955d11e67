#include "loop/perf/state.h"

#include <chrono>
#include <cmath>
#include <map>

#include "core/json.h"
#include "platform/fs.h"
#include "platform/lock.h"

namespace gdnctl::loop {

namespace {

// The recipe keeps what a run reports of itself apart from where its time went.
bool is_hotspot(std::string_view name, std::string_view metric) {
    return name != metric && !name.starts_with("throughput/");
}

Json numbers_json(const MetricMap& metrics, std::string_view metric, bool hotspots) {
    Json out = Json::object();
    for (const auto& [name, value] : metrics) {
        if (is_hotspot(name, metric) == hotspots && std::isfinite(value)) out[name] = value;
    }
    return out;
}

void read_numbers(const Json& value, const char* field, MetricMap& into) {
    const Json* it = json::object(value, field);
    if (it == nullptr) return;
    for (const auto& [name, number] : it->items()) {
        if (number.is_number()) into[name] = number.get<double>();
    }
}

std::map<std::string, std::string> words_in(const Json& value, const char* field) {
    std::map<std::string, std::string> out;
    const Json* it = json::object(value, field);
    if (it == nullptr) return out;
    for (const auto& [name, word] : it->items()) {
        if (word.is_string()) out[name] = word.get<std::string>();
    }
    return out;
}

Json ce_compare_json(const CeCompare& c, const std::string& metric) {
    Json out;
    out["ce_requested_implementation"] = c.implementation;
    out["ce_bwd_mode"] = c.bwd_mode;
    out["ce_backend_selected"] = json::or_null(c.backend_selected);
    out["profile_prefix"] = c.profile_prefix;
    out["metric_value"] = json::or_null(c.value);
    out["metric_source"] = json::or_null(c.source);
    out["metric_points"] = json::or_null(c.window_points);
    out["delta_pct"] = json::or_null(c.delta_pct);
    out["metrics"] = numbers_json(c.metrics, metric, false);
    out["hotspot_metrics"] = numbers_json(c.metrics, metric, true);
    out["run_url"] = json::or_null(c.run_url);
    out["failure"] = json::or_null(c.failure);
    return out;
}

// What another program has written there is of another form, and not looked at.
std::optional<CeCompare> read_ce_compare(const Json& value) {
    const Json* it = json::object(value, "ce_ab_compare");
    if (it == nullptr || json::text(*it, "profile_prefix").empty()) return std::nullopt;
    CeCompare c;
    c.implementation = json::text(*it, "ce_requested_implementation");
    c.bwd_mode = json::text(*it, "ce_bwd_mode");
    c.backend_selected = json::text(*it, "ce_backend_selected");
    c.profile_prefix = json::text(*it, "profile_prefix");
    c.value = json::number(*it, "metric_value");
    c.source = json::text(*it, "metric_source");
    c.window_points = json::integer(*it, "metric_points");
    c.delta_pct = json::number(*it, "delta_pct");
    read_numbers(*it, "metrics", c.metrics);
    read_numbers(*it, "hotspot_metrics", c.metrics);
    c.run_url = json::text(*it, "run_url");
    c.failure = json::text(*it, "failure");
    return c;
}

void put_measurement(Json& out, const Measurement& m) {
    out["metric"] = m.metric;
    out["metric_value"] = json::or_null(m.value);
    out["metric_source"] = m.source;
    out["metric_points"] = m.window_points ? Json(*m.window_points) : Json(m.points.size());
    out["points"] = m.points;
    out["ce_backend_selected"] = json::or_null(m.ce_backend_selected);
    out["ce_requested_implementation"] = json::or_null(m.ce_requested_implementation);
    out["ce_bwd_mode"] = json::or_null(m.ce_bwd_mode);
    out["ce_ab_compare"] = m.ce_ab_compare ? ce_compare_json(*m.ce_ab_compare, m.metric) : Json(nullptr);
    out["profile_architecture"] = json::or_null(m.profile_architecture);
    out["gdn_layers_per_block"] = json::or_null(m.gdn_layers_per_block);
    out["gdn_block_size"] = json::or_null(m.gdn_block_size);
    out["gdn_layer_fraction"] = json::or_null(m.gdn_layer_fraction);
    out["metrics"] = numbers_json(m.metrics, m.metric, false);
    out["hotspot_metrics"] = numbers_json(m.metrics, m.metric, true);
    if (m.trace) out["trace"] = {{"path", m.trace->path}, {"sha256", m.trace->sha256}};
    if (!m.wall_ms.empty()) out["wall_ms"] = m.wall_ms;
    out["run_url"] = json::or_null(m.run_url);
    if (!m.warnings.empty()) out["warnings"] = m.warnings;
    if (!m.busy.empty()) out["busy"] = m.busy;
    out["fingerprint_key"] = m.fingerprint.key();
    out["fingerprint"] = {{"asked", m.fingerprint.asked}, {"effective", m.fingerprint.effective}};
}

void read_gates(const Json& value, std::vector<GateResult>& into) {
    const Json* it = json::array(value, "gates");
    if (it == nullptr) return;
    for (const Json& gate : *it) {
        if (!gate.is_object()) continue;
        const std::string result = json::text(gate, "result");
        using Kind = GateResult::Kind;
        into.push_back({json::text(gate, "id"),
                        result == "fail"   ? Kind::fail
                        : result == "skip" ? Kind::skip
                                           : Kind::pass,
                        json::text(gate, "reason"), json::text(gate, "numbers")});
    }
}

std::optional<PairLook> read_pairs(const Json& value) {
    const Json* it = json::object(value, "pairs");
    if (it == nullptr) return std::nullopt;
    PairLook look;
    const auto share = [&](const char* field) { return std::log1p(json::number(*it, field).value_or(0.0) / 100.0); };
    look.n = static_cast<int>(json::integer(*it, "n").value_or(0));
    look.mean = share("gain_pct");
    look.low = share("low_pct");
    look.high = share("high_pct");
    look.deviation = json::number(*it, "deviation_pct").value_or(0.0) / 100.0;
    const std::string verdict = json::text(*it, "verdict");
    for (const PairVerdict one : {PairVerdict::next, PairVerdict::keep, PairVerdict::refuse, PairVerdict::tie}) {
        if (to_text(one) == verdict) look.verdict = one;
    }
    return look;
}

// shares as per cent
Json pairs_json(const PairLook& look) {
    return {{"n", look.n},
            {"gain_pct", to_percent(look.mean)},
            {"low_pct", to_percent(look.low)},
            {"high_pct", to_percent(look.high)},
            {"deviation_pct", 100.0 * look.deviation},
            {"verdict", to_text(look.verdict)}};
}

constexpr std::int64_t k_perf_state_version = 2;

bool belongs(const Json& record, const std::string& key) {
    const std::string own = json::text(record, "fingerprint_key");
    return own.empty() || own == key;
}

std::optional<PerfVerdict> verdict_in(const Json& record) {
    const auto word = json::maybe_text(record, "decision");
    return word ? parse_perf_verdict(*word) : std::nullopt;
}

tl::unexpected<Error> damaged(std::string_view name, std::string_view what) {
    return fail(ErrorKind::config, std::string(name) + ": " + std::string(what),
                "it was left unchanged: repair it, or move it away to start without a champion");
}

}  // namespace

Json gates_json(const std::vector<GateResult>& gates) {
    Json out = Json::array();
    for (const GateResult& gate : gates) {
        out.push_back({{"id", gate.id},
                       {"result", to_text(gate.kind)},
                       {"reason", json::or_null(gate.reason)},
                       {"numbers", json::or_null(gate.numbers)}});
    }
    return out;
}

Json measurement_json(const Measurement& measurement) {
    Json out;
    out["schema"] = "gdnctl.measurement/1";
    put_measurement(out, measurement);
    return out;
}

Measurement parse_measurement(const Json& value) {
    Measurement m;
    m.metric = json::text(value, "metric");
    m.value = json::number(value, "metric_value");
    m.source = json::text(value, "metric_source");
    m.points = json::numbers(value, "points");
    if (m.points.empty() && m.value) m.points.push_back(*m.value);
    if (m.source.starts_with("wandb-history-")) m.window_points = json::integer(value, "metric_points");
    read_numbers(value, "metrics", m.metrics);
    read_numbers(value, "hotspot_metrics", m.metrics);
    m.ce_backend_selected = json::text(value, "ce_backend_selected");
    m.ce_requested_implementation = json::text(value, "ce_requested_implementation");
    m.ce_bwd_mode = json::text(value, "ce_bwd_mode");
    m.ce_ab_compare = read_ce_compare(value);
    m.profile_architecture = json::text(value, "profile_architecture");
    m.gdn_layers_per_block = json::integer(value, "gdn_layers_per_block");
    m.gdn_block_size = json::integer(value, "gdn_block_size");
    m.gdn_layer_fraction = json::number(value, "gdn_layer_fraction");
    m.run_url = json::text(value, "run_url");
    m.busy = json::text(value, "busy");
    m.warnings = json::texts(value, "warnings");
    m.wall_ms = json::numbers(value, "wall_ms");
    if (const Json* it = json::object(value, "trace")) m.trace = {json::text(*it, "path"), json::text(*it, "sha256")};
    if (const Json* it = json::object(value, "fingerprint")) {
        m.fingerprint = {words_in(*it, "asked"), words_in(*it, "effective")};
    }
    return m;
}

Json record_json(const PerfRecord& record) {
    Json out;
    out["iteration"] = record.iteration;
    out["commit"] = record.commit;
    put_measurement(out, record.measured);
    out["hotspot_heading"] = nullptr;
    out["hotspot_baseline_heading"] = nullptr;
    out["timestamp_unix"] = record.timestamp_unix;
    out["decision"] = to_text(record.decision);
    out["delta_vs_champion_pct"] = json::or_null(record.delta_vs_champion_pct);
    out["hotspot_baseline_source"] = json::or_null(record.baseline_source);
    out["hotspot_baseline_metrics"] = numbers_json(record.baseline_metrics, record.measured.metric, true);
    out["control_gate_reasons"] = Json::array();
    for (const GateResult& gate : record.gates) {
        if (gate.kind == GateResult::Kind::fail) out["control_gate_reasons"].push_back(gate.reason);
    }
    out["change_class"] = json::or_null(record.change_class);
    out["gates"] = gates_json(record.gates);
    out["pairs"] = record.pairs ? pairs_json(*record.pairs) : Json(nullptr);
    out["metric_unit"] = json::or_null(record.unit);
    out["gain"] = record.gain ? runlog::gain_json(*record.gain) : Json(nullptr);
    if (!record.labels.empty()) out["labels"] = record.labels;
    out["suspect"] = record.suspect;
    return out;
}

PerfRecord parse_record(const Json& value) {
    PerfRecord record;
    record.iteration = static_cast<int>(json::integer(value, "iteration").value_or(0));
    record.commit = json::text(value, "commit");
    record.measured = parse_measurement(value);
    record.timestamp_unix = static_cast<std::int64_t>(json::number(value, "timestamp_unix").value_or(0.0));
    record.decision = parse_perf_verdict(json::text(value, "decision")).value_or(PerfVerdict::within_threshold);
    record.delta_vs_champion_pct = json::number(value, "delta_vs_champion_pct");
    record.baseline_source = json::text(value, "hotspot_baseline_source");
    read_numbers(value, "hotspot_baseline_metrics", record.baseline_metrics);
    record.change_class = json::text(value, "change_class");
    read_gates(value, record.gates);
    record.pairs = read_pairs(value);
    if (const auto gain = value.find("gain"); gain != value.end()) record.gain = runlog::parse_gain(*gain);
    record.unit = json::text(value, "metric_unit");
    record.labels = json::texts(value, "labels");
    record.suspect = json::boolean(value, "suspect").value_or(false);
    return record;
}

struct PerfState::Document {
    Json root;
};

PerfState::PerfState() : m_document(std::make_unique<Document>()) {
    m_document->root = {{"version", k_perf_state_version}, {"champion", nullptr}, {"history", Json::array()}};
}
PerfState::PerfState(std::unique_ptr<Document> document) : m_document(std::move(document)) {}
PerfState::PerfState(PerfState&&) noexcept = default;
PerfState& PerfState::operator=(PerfState&&) noexcept = default;
PerfState::~PerfState() = default;

Result<PerfState> PerfState::parse(std::string_view text, std::string_view name) {
    auto document = std::make_unique<Document>();
    Json& root = document->root;
    root = Json::parse(text, nullptr, false);
    if (root.is_discarded() || !root.is_object()) return damaged(name, "the performance state is not a JSON object");
    const auto version = json::integer(root, "version");
    if (!version || *version < 1 || *version > k_perf_state_version) {
        return damaged(name, "the performance state has a version that this gdnctl does not know");
    }
    if (!root.contains("champion")) root["champion"] = nullptr;
    if (!root.contains("history")) root["history"] = Json::array();
    if (!root["champion"].is_null() && !root["champion"].is_object()) {
        return damaged(name, "the champion is neither a record nor null");
    }
    if (root.contains("champions") && !root["champions"].is_object()) {
        return damaged(name, "`champions` is not an object");
    }
    if (!root["history"].is_array()) return damaged(name, "`history` is not a list");
    for (const Json& record : root["history"]) {
        if (!record.is_object()) return damaged(name, "a line of `history` is not a record");
    }
    root["version"] = k_perf_state_version;
    return PerfState(std::move(document));
}

std::string PerfState::text() const {
    return sorted(m_document->root).dump(2) + "\n";  // the recipe's program writes its keys in order
}

std::optional<PerfRecord> PerfState::champion(const std::string& key) const {
    const Json& root = m_document->root;
    const Json* champions = json::find(root, "champions");
    const Json* own = champions != nullptr ? json::find(*champions, key) : nullptr;
    if (own != nullptr && own->is_object()) return parse_record(*own);
    const Json& latest = root["champion"];
    if (latest.is_null() || !belongs(latest, key)) return std::nullopt;
    return parse_record(latest);
}

std::vector<std::string> PerfState::champion_keys() const {
    std::vector<std::string> keys;
    const auto all = m_document->root.find("champions");
    if (all == m_document->root.end()) return keys;
    for (const auto& [key, record] : all->items()) keys.push_back(key);
    return keys;
}

void PerfState::set_champion(const PerfRecord& record) {
    const Json value = record_json(record);
    m_document->root["champion"] = value;
    m_document->root["champions"][record.measured.fingerprint.key()] = value;
}

void PerfState::append(const PerfRecord& record) { m_document->root["history"].push_back(record_json(record)); }

std::vector<PerfRecord> PerfState::history() const {
    std::vector<PerfRecord> out;
    for (const Json& record : m_document->root["history"]) out.push_back(parse_record(record));
    return out;
}

std::vector<PerfRecord> PerfState::history(const std::string& key) const {
    std::vector<PerfRecord> out;
    for (const Json& record : m_document->root["history"]) {
        if (belongs(record, key)) out.push_back(parse_record(record));
    }
    return out;
}

int PerfState::mark_suspects(const std::string& key) {
    int marked = 0;
    Json& all = m_document->root["history"];
    for (auto it = all.rbegin(); it != all.rend(); ++it) {
        if (!belongs(*it, key)) continue;
        const auto verdict = verdict_in(*it);
        if (verdict == PerfVerdict::aa_ok || verdict == PerfVerdict::baseline_shift ||
            verdict == PerfVerdict::baseline) {
            break;
        }
        if (!verdict || !is_rejection(*verdict)) continue;
        (*it)["suspect"] = true;
        ++marked;
    }
    return marked;
}

Result<PerfState> load_perf_state(const std::filesystem::path& path) {
    GDNCTL_TRY_ASSIGN(const auto text, read_file_if_exists(path));
    if (!text) return PerfState();
    return PerfState::parse(*text, path.string());
}

Status update_perf_state(const std::filesystem::path& path, const std::function<Status(PerfState&)>& change) {
    constexpr std::chrono::seconds k_patience{10};
    std::filesystem::path lock = path;
    lock += ".lock";
    GDNCTL_TRY_ASSIGN(const FileLock held, FileLock::acquire(lock, {k_patience}));
    GDNCTL_TRY_ASSIGN(PerfState state, load_perf_state(path));
    GDNCTL_TRY(change(state));
    return atomic_replace(path, state.text(), 0600);
}

}  // namespace gdnctl::loop
