// Chrome's trace event JSON, read in one pass without building a tree. An element (an event, a member of the outer
// object) is parsed from contiguous bytes into views of them, and takes effect only when all of it is there; an element
// that a piece cuts waits in `m_tail`.
#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstring>
#include <deque>
#include <functional>
#include <limits>
#include <string>
#include <system_error>
#include <unordered_map>
#include <utility>

#include "core/text.h"
#include "trace/readers/json_scanner.h"
#include "trace/readers/readers.h"

namespace gdnctl::trace {

namespace {

__extension__ using HashProduct = unsigned __int128;

constexpr std::size_t k_element_limit = std::size_t{64} << 20;
constexpr std::size_t k_min_growth = 4096;  // an element that waits is tried again after at least so many bytes
// XLA's times are relative to the profile's start. Beyond this (11 days) they are taken to count from an epoch.
constexpr WidePs k_epoch_ps = WidePs{1'000'000'000'000} * k_ps_per_us;
// Leaves room for rounding the base down to a whole microsecond.
constexpr WidePs k_longest_span_ps = std::numeric_limits<Ps>::max() - k_ps_per_us;

// A signed 64-bit integer; an unsigned one beyond that wraps, as ids do in an xplane.
std::optional<std::int64_t> parse_id(std::string_view s) {
    if (const std::optional<std::int64_t> value = text::parse_int(s)) return value;
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(s.data(), s.data() + s.size(), value);
    if (error != std::errc() || end != s.data() + s.size()) return std::nullopt;
    return static_cast<std::int64_t>(value);
}

// The members of an event that matter.
struct ChromeFields {
    struct Args {
        JsonText name, long_name, hlo_category, tf_op, source, stable_op_id, flops, model_flops, bytes_accessed;
        JsonText hlo_op, hlo_module, run_id, step_num, device, stream;

        JsonText* find(std::string_view key) {
            switch (key.size()) {
                case 4: return key == "name" ? &name : nullptr;
                case 5: return key == "tf_op" ? &tf_op : key == "flops" ? &flops : nullptr;
                case 6:
                    if (key == "source") return &source;
                    if (key == "hlo_op") return &hlo_op;
                    if (key == "run_id") return &run_id;
                    return key == "device" ? &device : key == "stream" ? &stream : nullptr;
                case 8: return key == "step_num" ? &step_num : nullptr;
                case 9: return key == "long_name" ? &long_name : nullptr;
                case 10: return key == "hlo_module" ? &hlo_module : nullptr;
                case 11: return key == "model_flops" ? &model_flops : nullptr;
                case 12: return key == "hlo_category" ? &hlo_category : key == "stable_op_id" ? &stable_op_id : nullptr;
                case 14: return key == "bytes_accessed" ? &bytes_accessed : nullptr;
                default: return nullptr;
            }
        }
    };

    JsonText ph, name, cat, pid, tid, ts, dur;
    Args args;

    JsonText* find(std::string_view key) {
        switch (key.size()) {
            case 2: return key == "ts" ? &ts : key == "ph" ? &ph : nullptr;
            case 3:
                return key == "dur" ? &dur : key == "pid" ? &pid : key == "tid" ? &tid : key == "cat" ? &cat : nullptr;
            case 4: return key == "name" ? &name : nullptr;
            default: return nullptr;
        }
    }

    bool is_host_op() const { return args.hlo_op.has_text(); }
    bool is_step() const { return !is_host_op() && args.step_num.has_text(); }
};

constexpr std::uint32_t k_no_draft = std::numeric_limits<std::uint32_t>::max();

// What is known of an operation before the plane of its events is.
struct OpDraft {
    Op op;  // named after the event, with every stat it carries
    std::string hlo_op;
    std::string stat_name;  // args.name
    bool is_step = false;
    const std::string* key = nullptr;  // in the index of drafts
    std::uint32_t next = k_no_draft;   // the draft of the event that followed, the last time
};

// A hash of all bytes, in two lanes so that the processor can overlap their multiplications: keys hold whole HLO texts.
// It is not noexcept, so that libstdc++ stores it with each key instead of computing it again.
struct ChromeKeyHash {
    using is_transparent = void;

    std::size_t operator()(std::string_view s) const {
        std::uint64_t first = s.size();
        std::uint64_t second = ~first;
        for (; s.size() >= 32; s.remove_prefix(32)) {
            first = mix(first, s.data());
            second = mix(second, s.data() + 16);
        }
        std::array<char, 32> last{};
        std::copy(s.begin(), s.end(), last.begin());
        return static_cast<std::size_t>(mix(first, last.data()) ^ std::rotl(mix(second, last.data() + 16), 32));
    }

private:
    static std::uint64_t mix(std::uint64_t hash, const char* bytes) {
        constexpr std::uint64_t k_golden = 0x9e3779b97f4a7c15u;  // 2^64 / golden ratio
        std::array<std::uint64_t, 2> words{};
        std::memcpy(words.data(), bytes, 16);
        const HashProduct product = HashProduct{words[0] ^ hash} * (words[1] ^ k_golden);
        return (static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64)) + k_golden;
    }
};

template <class T>
using ChromeIndex = std::unordered_map<std::string, T, ChromeKeyHash, std::equal_to<>>;

// Appends the length of `field` and its bytes, so that two lists of fields never look the same.
void append_key(std::string& key, std::string_view field) {
    const auto size = static_cast<std::uint32_t>(field.size());
    std::array<char, sizeof size> bytes{};
    std::memcpy(bytes.data(), &size, sizeof size);
    key.append(bytes.data(), bytes.size());
    key += field;
}

void append_key(std::string& key, const std::optional<double>& number) {
    std::array<char, sizeof(double)> bytes{};
    if (number) std::memcpy(bytes.data(), &*number, sizeof *number);
    append_key(key, number ? std::string_view(bytes.data(), bytes.size()) : std::string_view());
}

constexpr std::size_t k_key_fields = 14;

// What tells one operation from another, as the file spells it.
std::array<std::string_view, k_key_fields> key_fields(const ChromeFields& fields, std::string_view cat) {
    if (!cat.empty()) return {cat, fields.name.raw()};
    const ChromeFields::Args& args = fields.args;
    const auto scalar = [](const JsonText& field) { return field.is_scalar() ? field.raw() : std::string_view(); };
    return {std::string_view(),
            fields.name.raw(),
            std::string_view(fields.is_step() ? "step" : ""),
            scalar(args.long_name),
            scalar(args.hlo_category),
            scalar(args.tf_op),
            scalar(args.source),
            scalar(args.stable_op_id),
            scalar(args.flops),
            scalar(args.model_flops),
            scalar(args.bytes_accessed),
            scalar(args.hlo_op),
            scalar(args.hlo_module),
            scalar(args.name)};
}

// Whether `key` is what append_key() makes of the fields.
bool is_key_of(std::string_view key, const std::array<std::string_view, k_key_fields>& fields) {
    for (const std::string_view field : fields) {
        std::uint32_t size = 0;
        if (key.size() < sizeof size + field.size()) return false;
        std::memcpy(&size, key.data(), sizeof size);
        if (size != field.size() || key.substr(sizeof size, size) != field) return false;
        key.remove_prefix(sizeof size + size);
    }
    return key.empty();
}

// A cost that the compiler claims; it says -1 where it knows none.
std::optional<double> cost_of(const JsonText& text) {
    const std::optional<double> cost = text::parse_double(text.raw());
    return cost && *cost >= 0 ? cost : std::nullopt;
}

OpDraft make_draft(const ChromeFields& fields, std::string_view cat, const std::string& key) {
    OpDraft draft;
    draft.key = &key;
    draft.op.name = decoded(fields.name);
    draft.op.category = cat;
    if (!cat.empty()) return draft;
    const ChromeFields::Args& args = fields.args;
    draft.op.text = decoded(args.long_name);
    draft.op.category = decoded(args.hlo_category);
    draft.op.tf_op = decoded(args.tf_op);
    draft.op.source = decoded(args.source);
    draft.op.stable_id = decoded(args.stable_op_id);
    draft.op.program = decoded(args.hlo_module);
    draft.op.flops = cost_of(args.flops);
    draft.op.model_flops = cost_of(args.model_flops);
    draft.op.bytes_accessed = cost_of(args.bytes_accessed);
    draft.hlo_op = decoded(args.hlo_op);
    draft.stat_name = decoded(args.name);
    draft.is_step = fields.is_step();
    return draft;
}

// Gives every different Op one index.
class ChromeOps {
public:
    std::uint32_t intern(Op op) {
        m_key.clear();
        for (const std::string* field :
             {&op.name, &op.text, &op.program, &op.category, &op.tf_op, &op.source, &op.stable_id}) {
            append_key(m_key, *field);
        }
        for (const auto* number : {&op.flops, &op.model_flops, &op.bytes_accessed}) append_key(m_key, *number);
        m_key += static_cast<char>((op.is_host_op ? 1 : 0) + (op.is_step ? 2 : 0));
        const auto [place, added] = m_index.try_emplace(m_key, static_cast<std::uint32_t>(m_ops.size()));
        if (added) m_ops.push_back(std::move(op));
        return place->second;
    }
    std::vector<Op> take() { return std::move(m_ops); }

private:
    std::string m_key;
    ChromeIndex<std::uint32_t> m_index;
    std::vector<Op> m_ops;
};

// The events of one (pid, tid). Until finish() `Event::op` is the index of a draft, `start` counts from the base, and
// `self` holds the event's number in the file, by which lines of one name are merged.
struct ChromeTrack {
    struct Open {  // a "B" that waits for its "E"
        Event event;
        ChromeTrack* target = nullptr;
        bool kept = false;
    };

    std::string name;
    std::int64_t count = 0;
    std::vector<Event> events;
    std::vector<Open> open;
};

// One pid, or one device of kineto.
struct ChromeProcess {
    enum class Kind : std::uint8_t { unnamed, host, device };

    std::size_t index = 0;
    std::string name;
    Kind kind = Kind::unnamed;
    std::vector<ChromeTrack*> tracks;  // in order of appearance
};

// "ProfilerStep#2" is {"ProfilerStep", 2}. nullopt: no stem, or no number.
std::optional<std::pair<std::string, std::int64_t>> split_step_name(const std::string& name) {
    const std::size_t last = name.find_last_not_of("0123456789");
    if (last == std::string::npos) return std::nullopt;
    const std::optional<std::int64_t> number = text::parse_int(std::string_view(name).substr(last + 1));
    const std::size_t stem = name.find_last_not_of("#_-:. ", last);
    if (!number || stem == std::string::npos) return std::nullopt;
    return std::pair(name.substr(0, stem + 1), *number);
}

// A pid or tid as the file spells it; "0" where there is none.
std::string_view chrome_id(const JsonText& id) { return id.is_scalar() ? id.raw() : std::string_view("0"); }

bool is_kineto_device_cat(std::string_view cat) {
    return cat == "kernel" || cat == "gpu_memcpy" || cat == "gpu_memset";
}

bool is_kineto_member(std::string_view key) {
    return key == "deviceProperties" || key == "schemaVersion" || key == "baseTimeNanoseconds" || key == "traceName";
}

}  // namespace

Format detect_format(std::string_view head) {
    if (head.starts_with("\x1f\x8b")) return Format::gzip;
    const bool may_be_xplane = head.starts_with('\n');
    if (head.starts_with("\xef\xbb\xbf")) head.remove_prefix(3);
    const auto skip_space = [&head] {
        while (!head.empty() && is_json_space(head[0])) head.remove_prefix(1);
    };
    skip_space();
    const char open = head.empty() ? '\0' : head[0];
    const bool may_be_json = open == '{' || open == '[';
    if (!may_be_xplane) return may_be_json ? Format::json : Format::unknown;
    // Kineto's JSON begins with a new line, which is also an xplane's first byte: its second character decides.
    if (may_be_json) {
        head.remove_prefix(1);
        skip_space();
        if (head.empty()) return Format::json;
        const std::string_view second = open == '{' ? "\"}" : "{]";
        if (second.find(head[0]) != std::string_view::npos) return Format::json;
    }
    return Format::xplane;
}

class ChromeReader::Impl {
public:
    explicit Impl(const ReadOptions& options) : m_options(options) {}

    Status feed(std::string_view bytes);
    Result<RawTrace> finish();

private:
    enum class State : std::uint8_t {
        start,
        first_member,
        member,
        after_member,
        first_event,
        event,
        after_event,
        end,
        stopped,  // after an error
    };

    std::size_t consume(std::string_view text);
    void stop(std::size_t offset, std::string_view problem);
    Status status() const;

    bool element(JsonScanner& in);
    bool begin(JsonScanner& in);
    bool after(JsonScanner& in, char close, State next, State closed);
    bool top_member(JsonScanner& in);
    bool device_properties(JsonScanner& in);
    bool metadata(JsonScanner& in);
    bool event(JsonScanner& in);

    bool commit(JsonScanner& in);
    void name_things();
    bool timed(JsonScanner& in, char phase);
    std::optional<Event> make_event(JsonScanner& in, bool has_duration);
    bool is_kept(const ChromeProcess& process) const;
    ChromeProcess& process_of(char kind, std::string_view id);
    ChromeTrack& track_of(ChromeProcess& process, std::string_view tid);
    ChromeTrack& stream_of();
    ChromeTrack* kineto_track(Event& event);
    void describe(Event& event);
    void end_event(Ps end);
    std::uint32_t draft(std::string_view cat);
    std::int32_t number_index(std::int64_t number);

    void place_process(ChromeProcess& process, RawTrace& trace);
    void place_track(ChromeTrack& track, ChromeProcess::Kind kind, bool gpu, Line& line);
    std::uint32_t final_op(std::uint32_t draft, ChromeProcess::Kind kind, bool gpu);
    void describe_devices(RawTrace& trace) const;
    RawTrace build();

    ReadOptions m_options;
    State m_state = State::start;
    std::string m_tail;         // bytes of an element whose end has not come
    std::size_t m_wanted = 0;   // size of m_tail at which it is worth another try
    std::size_t m_offset = 0;   // of m_tail, or of the next piece, in the text
    std::size_t m_element = 0;  // of the element that is being read
    bool m_bare = false;        // a list without an object around it
    bool m_has_list = false;
    std::optional<Error> m_error;
    std::string m_damage;

    ChromeFields m_fields;
    std::deque<ChromeProcess> m_processes;
    ChromeIndex<ChromeProcess*> m_process_index;
    std::deque<ChromeTrack> m_tracks;
    ChromeIndex<ChromeTrack*> m_track_index;
    // Of the last event: the next one is usually on the same track.
    std::string m_last_pid, m_last_tid;
    ChromeProcess* m_last_process = nullptr;
    ChromeTrack* m_last_track = nullptr;

    std::string m_key;
    ChromeIndex<std::uint32_t> m_draft_index;
    std::vector<OpDraft> m_drafts;
    std::uint32_t m_last_draft = k_no_draft;
    std::unordered_map<std::int64_t, std::int32_t> m_number_index;
    std::vector<std::int64_t> m_numbers;

    bool m_kineto = false;
    std::vector<std::pair<std::string, std::string>> m_devices;  // deviceProperties: id, name
    std::string m_jax, m_jaxlib;
    std::int64_t m_x_events = 0, m_negative_times = 0;
    std::int64_t m_timed = 0;
    WidePs m_base = 0;  // the first time, rounded down to a whole microsecond
    WidePs m_first = 0, m_last = 0;

    // Of build().
    ChromeIndex<std::size_t> m_plane_index, m_line_index;
    ChromeOps m_ops;
    std::array<std::vector<std::uint32_t>, 3> m_final_ops;  // by draft: on a host, a GPU, another device
};

ChromeReader::ChromeReader(const ReadOptions& options) : m_impl(std::make_unique<Impl>(options)) {}
ChromeReader::~ChromeReader() = default;
Status ChromeReader::feed(std::string_view bytes) { return m_impl->feed(bytes); }
Result<RawTrace> ChromeReader::finish() { return m_impl->finish(); }

// Elements are read where the piece lies. One that it cuts is completed in m_tail, which doubles between two tries, so
// that time stays linear whatever the size of the pieces.
Status ChromeReader::Impl::feed(std::string_view bytes) {
    while (!bytes.empty() && m_state != State::stopped) {
        if (m_tail.empty()) {
            bytes.remove_prefix(consume(bytes));
            if (m_state == State::stopped) break;
            m_tail = bytes;
            bytes = {};
        } else {
            const std::size_t before = m_tail.size();
            const std::size_t taken = std::min(bytes.size(), m_wanted - before);
            m_tail += bytes.substr(0, taken);
            if (m_tail.size() < m_wanted) return {};
            const std::size_t done = consume(m_tail);
            if (m_state == State::stopped) break;
            if (done >= before) {  // what follows the completed elements is still in the piece
                bytes.remove_prefix(done - before);
                m_tail.clear();
                continue;
            }
            m_tail.erase(0, done);
            bytes.remove_prefix(taken);
        }
        m_wanted = std::min(std::max(2 * m_tail.size(), m_tail.size() + k_min_growth), k_element_limit);
    }
    return status();
}

Status ChromeReader::Impl::status() const {
    if (m_error && !m_options.salvage) return tl::unexpected(*m_error);
    return {};
}

// Reads as many whole elements as `text` has and returns their size in bytes.
std::size_t ChromeReader::Impl::consume(std::string_view text) {
    std::size_t done = 0;
    while (m_state != State::stopped) {
        while (done < text.size() && is_json_space(text[done])) ++done;
        if (done == text.size()) break;
        m_element = m_offset + done;
        JsonScanner in(text.substr(done, k_element_limit));
        if (!element(in)) {
            if (in.problem() != nullptr) {
                stop(m_element + in.position(), in.problem());
            } else if (text.size() - done >= k_element_limit) {
                stop(m_element, "an event or member is larger than 64 MiB");
            }
            break;
        }
        done += in.position();
    }
    m_offset += done;
    return done;
}

void ChromeReader::Impl::stop(std::size_t offset, std::string_view problem) {
    m_state = State::stopped;
    std::string message = "trace JSON: " + std::string(problem) + " at offset " + std::to_string(offset);
    if (m_options.salvage && m_has_list) {
        m_damage = std::move(message);
        return;
    }
    m_error = Error{ErrorKind::bad_input,
                    std::move(message),
                    m_has_list ? "pass --salvage to analyse the events before it" : "",
                    {}};
}

bool ChromeReader::Impl::element(JsonScanner& in) {
    switch (m_state) {
        case State::start: return begin(in);
        case State::first_member:
            if (in.peek() == '}') return after(in, '}', State::member, State::end);
            return top_member(in);
        case State::member: return top_member(in);
        case State::after_member: return after(in, '}', State::member, State::end);
        case State::first_event:
        case State::after_event:
            if (m_state == State::after_event || in.peek() == ']') {
                return after(in, ']', State::event, m_bare ? State::end : State::after_member);
            }
            return event(in);
        case State::event: return event(in);
        case State::end: return in.fail("unexpected text after the end");
        case State::stopped: break;
    }
    return false;
}

bool ChromeReader::Impl::begin(JsonScanner& in) {
    constexpr std::string_view k_bom = "\xef\xbb\xbf";
    if (m_element == 0 && in.peek() == k_bom[0]) {
        if (in.rest().size() < k_bom.size() && k_bom.starts_with(in.rest())) return false;
        if (!in.rest().starts_with(k_bom)) return in.fail("expected '{' or '['");
        in.skip(k_bom.size());
        if (!in.space()) return false;
    }
    if (in.peek() != '{' && in.peek() != '[') return in.fail("expected '{' or '['");
    m_bare = in.peek() == '[';
    m_has_list = m_bare;
    m_state = m_bare ? State::first_event : State::first_member;
    in.skip(1);
    return true;
}

bool ChromeReader::Impl::after(JsonScanner& in, char close, State next, State closed) {
    if (in.peek() != close && in.peek() != ',') {
        return in.fail(close == '}' ? "expected ',' or '}'" : "expected ',' or ']'");
    }
    m_state = in.peek() == ',' ? next : closed;
    in.skip(1);
    return true;
}

bool ChromeReader::Impl::top_member(JsonScanner& in) {
    JsonText key;
    if (!in.member_key(key)) return false;
    const std::string name = decoded(key);
    if (name == "traceEvents") {
        if (in.peek() != '[') return in.fail("traceEvents is not a list");
        if (m_has_list) return in.fail_at(key.data, "a second traceEvents");
        in.skip(1);
        m_has_list = true;
        m_state = State::first_event;
        return true;
    }
    JsonText ignored;
    const bool whole = name == "deviceProperties" && in.peek() == '[' ? device_properties(in)
                       : name == "metadata" && in.peek() == '{'       ? metadata(in)
                                                                      : in.value(ignored);
    if (!whole) return false;
    m_kineto = m_kineto || is_kineto_member(name);
    m_state = State::after_member;
    return true;
}

bool ChromeReader::Impl::device_properties(JsonScanner& in) {
    std::vector<std::pair<std::string, std::string>> devices;
    const bool whole = in.array([&] {
        JsonText id, name, ignored;
        if (in.peek() != '{') return in.value(ignored);
        if (!in.object([&](std::string_view key) {
                return in.value(key == "id" ? id : key == "name" ? name : ignored);
            })) {
            return false;
        }
        devices.emplace_back(decoded(id), decoded(name));
        return true;
    });
    if (whole) m_devices = std::move(devices);
    return whole;
}

bool ChromeReader::Impl::metadata(JsonScanner& in) {
    JsonText jax, jaxlib, ignored;
    if (!in.object([&](std::string_view key) {
            return in.value(key == "jax_version" ? jax : key == "jaxlib_version" ? jaxlib : ignored);
        })) {
        return false;
    }
    m_jax = decoded(jax);
    m_jaxlib = decoded(jaxlib);
    return true;
}

bool ChromeReader::Impl::event(JsonScanner& in) {
    if (in.peek() != '{') return in.fail("expected an event, which begins with '{'");
    m_fields = {};
    JsonText ignored;
    const bool whole = in.object([&](std::string_view key) {
        if (key == "args") {
            m_fields.args = {};
            if (in.peek() != '{') return in.value(ignored);
            return in.object([&](std::string_view arg) {
                JsonText* const place = m_fields.args.find(arg);
                return in.value(place == nullptr ? ignored : *place);
            });
        }
        JsonText* const place = m_fields.find(key);
        return in.value(place == nullptr ? ignored : *place);
    });
    if (!whole || !commit(in)) return false;
    m_state = State::after_event;
    return true;
}

bool ChromeReader::Impl::commit(JsonScanner& in) {
    if (m_fields.ph.size != 1) return true;
    switch (m_fields.ph.data[0]) {
        case 'M': name_things(); return true;
        case 'X': ++m_x_events; return timed(in, 'X');
        case 'B': return timed(in, 'B');
        case 'E': return timed(in, 'E');
        default: return true;
    }
}

// `kind` is 'p' for the pid `id`, 'd' for that device of kineto, 's' for kineto's steps.
ChromeProcess& ChromeReader::Impl::process_of(char kind, std::string_view id) {
    m_key.assign(1, kind).append(id);
    const auto [place, added] = m_process_index.try_emplace(m_key, nullptr);
    if (added) {
        ChromeProcess& process = m_processes.emplace_back();
        process.index = m_processes.size() - 1;
        process.name = "pid " + text::repair_utf8(id);
        place->second = &process;
    }
    return *place->second;
}

ChromeTrack& ChromeReader::Impl::track_of(ChromeProcess& process, std::string_view tid) {
    m_key = std::to_string(process.index).append(1, ' ').append(tid);
    const auto [place, added] = m_track_index.try_emplace(m_key, nullptr);
    if (added) {
        ChromeTrack& track = m_tracks.emplace_back();
        track.name = "tid " + text::repair_utf8(tid);
        process.tracks.push_back(&track);
        place->second = &track;
    }
    return *place->second;
}

void ChromeReader::Impl::name_things() {
    const std::string_view what = m_fields.name.raw();
    if ((what != "process_name" && what != "thread_name") || !m_fields.args.name.is_scalar()) return;
    ChromeProcess& process = process_of('p', chrome_id(m_fields.pid));
    const std::string name = decoded(m_fields.args.name);
    if (what == "thread_name") {
        track_of(process, chrome_id(m_fields.tid)).name = name;
        return;
    }
    process.name = name;
    process.kind = name.starts_with("/device:") ? ChromeProcess::Kind::device : ChromeProcess::Kind::host;
}

std::int32_t ChromeReader::Impl::number_index(std::int64_t number) {
    const auto [place, added] = m_number_index.try_emplace(number, static_cast<std::int32_t>(m_numbers.size()));
    if (added) m_numbers.push_back(number);
    return place->second;
}

// Start and duration of an event, the start from m_base. nullopt: in.problem() says why.
std::optional<Event> ChromeReader::Impl::make_event(JsonScanner& in, bool has_duration) {
    const JsonText& ts = m_fields.ts;
    const JsonText& dur = m_fields.dur;
    const std::optional<WidePs> start = ts.is_scalar() ? parse_microseconds(ts.raw()) : std::nullopt;
    if (!start) {
        in.fail_at(ts.data, ts.data == nullptr ? "an event without ts ends" : "ts is not a usable number");
        return std::nullopt;
    }
    WidePs duration = 0;
    if (has_duration && dur.data != nullptr) {
        const std::optional<WidePs> value = dur.is_scalar() ? parse_microseconds(dur.raw()) : std::nullopt;
        if (!value || *value > k_longest_span_ps) {
            in.fail_at(dur.data, "dur is not a usable number");
            return std::nullopt;
        }
        if (*value < 0) ++m_negative_times;
        duration = *value <= 1 ? 0 : *value;  // XLA writes a duration of 0 as 1 ps
    }
    if (m_timed == 0) {
        WidePs rest = *start % k_ps_per_us;
        if (rest < 0) rest += k_ps_per_us;
        m_base = *start - rest;
        m_first = *start;
        m_last = *start;
    }
    m_first = std::min(m_first, *start);
    m_last = std::max(m_last, *start + duration);
    if (m_last - m_first > k_longest_span_ps) {
        in.fail_at(ts.data, "the events span more than 106 days");
        return std::nullopt;
    }
    Event event;
    event.start = static_cast<Ps>(*start - m_base);
    event.duration = static_cast<Ps>(duration);
    event.self = m_timed++;
    return event;
}

// The index of the operation that the current event's fields describe; `cat` is that of a device operation of kineto,
// else empty. Programs run the same operations again and again in one order: whatever followed the last operation
// before is tried first, which saves most events a hash of their texts.
std::uint32_t ChromeReader::Impl::draft(std::string_view cat) {
    const std::array<std::string_view, k_key_fields> fields = key_fields(m_fields, cat);
    if (m_last_draft < m_drafts.size()) {
        const std::uint32_t next = m_drafts[m_last_draft].next;
        if (next < m_drafts.size() && is_key_of(*m_drafts[next].key, fields)) return m_last_draft = next;
    }
    m_key.clear();
    for (const std::string_view field : fields) append_key(m_key, field);
    const auto [place, added] = m_draft_index.try_emplace(m_key, static_cast<std::uint32_t>(m_drafts.size()));
    if (added) m_drafts.push_back(make_draft(m_fields, cat, place->first));
    if (m_last_draft < m_drafts.size()) m_drafts[m_last_draft].next = place->second;
    return m_last_draft = place->second;
}

// Whether an event of a pid can matter. It can as long as the pid has no name.
bool ChromeReader::Impl::is_kept(const ChromeProcess& process) const {
    return m_options.all_events || process.kind != ChromeProcess::Kind::host || m_fields.is_host_op() ||
           m_fields.is_step();
}

// The line of kineto's device operations, which only their fields name.
ChromeTrack& ChromeReader::Impl::stream_of() {
    const ChromeFields::Args& args = m_fields.args;
    const std::string_view device = chrome_id(args.device.has_text() ? args.device : m_fields.pid);
    const std::string_view stream = chrome_id(args.stream.has_text() ? args.stream : m_fields.tid);
    ChromeProcess& process = process_of('d', device);
    if (process.kind == ChromeProcess::Kind::unnamed) {
        process.kind = ChromeProcess::Kind::device;
        process.name = "/device:GPU:" + text::repair_utf8(device);
    }
    ChromeTrack& track = track_of(process, stream);
    if (track.count == 0) track.name = "Stream #" + text::repair_utf8(stream);
    return track;
}

// The track of a device operation or a step of kineto, which `event` then refers to; nullptr: it is neither.
ChromeTrack* ChromeReader::Impl::kineto_track(Event& event) {
    const std::string_view cat = m_fields.cat.raw();
    if (is_kineto_device_cat(cat)) {
        m_kineto = true;
        ChromeTrack& track = stream_of();
        event.op = draft(cat);
        return &track;
    }
    if (cat != "user_annotation" && cat != "gpu_user_annotation") return nullptr;
    auto step = split_step_name(decoded(m_fields.name));
    if (!step) return nullptr;
    ChromeProcess& process = process_of('s', "");
    process.kind = ChromeProcess::Kind::host;
    process.name = "/host:CPU";
    ChromeTrack& track = track_of(process, cat);
    track.name = cat;
    OpDraft annotation;
    annotation.op.name = std::move(step->first);
    annotation.is_step = true;
    m_key.assign("step ").append(annotation.op.name);
    const auto [place, added] = m_draft_index.try_emplace(m_key, static_cast<std::uint32_t>(m_drafts.size()));
    annotation.key = &place->first;
    if (added) m_drafts.push_back(std::move(annotation));
    event.op = place->second;
    event.number = number_index(step->second);
    return &track;
}

// Makes `event` refer to what the fields of an event of XLA say.
void ChromeReader::Impl::describe(Event& event) {
    const JsonText& number = m_fields.is_step() ? m_fields.args.step_num : m_fields.args.run_id;
    if (const auto id = number.has_text() ? parse_id(number.raw()) : std::nullopt) event.number = number_index(*id);
    event.op = draft("");
}

bool ChromeReader::Impl::timed(JsonScanner& in, char phase) {
    std::optional<Event> event = make_event(in, phase == 'X');
    if (!event) return false;
    ChromeTrack* target = phase == 'E' ? nullptr : kineto_track(*event);
    bool kept = target != nullptr;
    if (!kept || phase == 'B') {
        const std::string_view pid = chrome_id(m_fields.pid);
        const std::string_view tid = chrome_id(m_fields.tid);
        if (m_last_track == nullptr || pid != m_last_pid || tid != m_last_tid) {
            m_last_process = &process_of('p', pid);
            m_last_track = &track_of(*m_last_process, tid);
            m_last_pid = pid;
            m_last_tid = tid;
        }
    }
    if (phase == 'E') {
        end_event(event->start);
        return true;
    }
    if (target == nullptr) {
        target = m_last_track;
        kept = is_kept(*m_last_process);
        if (kept) describe(*event);
    }
    if (phase == 'B') {
        m_last_track->open.push_back({*event, target, kept});
        return true;
    }
    ++target->count;
    if (kept) target->events.push_back(*event);
    return true;
}

// Completes the innermost open event of the last track. An end without a beginning is ignored.
void ChromeReader::Impl::end_event(Ps end) {
    if (m_last_track->open.empty()) return;
    ChromeTrack::Open open = m_last_track->open.back();
    m_last_track->open.pop_back();
    open.event.duration = std::max<Ps>(end - open.event.start, 0);
    ++open.target->count;
    if (open.kept) open.target->events.push_back(open.event);
}

Result<RawTrace> ChromeReader::Impl::finish() {
    if (m_state != State::stopped) {
        m_tail.erase(0, consume(m_tail));
    }
    if (m_state != State::stopped && m_state != State::end) {
        stop(m_offset + m_tail.size(), m_has_list ? "unexpected end before the closing brackets" : "unexpected end");
    }
    if (m_error) return tl::unexpected(*m_error);
    if (!m_has_list) return fail(ErrorKind::bad_input, "trace JSON: no list of events (traceEvents)");
    return build();
}

std::uint32_t ChromeReader::Impl::final_op(std::uint32_t draft, ChromeProcess::Kind kind, bool gpu) {
    const bool on_device = kind == ChromeProcess::Kind::device;
    std::vector<std::uint32_t>& known = m_final_ops[!on_device ? 0 : gpu ? 1 : 2];
    known.resize(m_drafts.size(), k_no_draft);
    if (known[draft] != k_no_draft) return known[draft];
    const OpDraft& from = m_drafts[draft];
    Op op = from.op;
    if (!on_device) {
        op.is_host_op = !from.hlo_op.empty();
        op.is_step = from.is_step;
        if (op.is_host_op) op.name = from.hlo_op;
    } else if (gpu && !from.stat_name.empty() && (op.tf_op.empty() || op.tf_op.starts_with("XlaModule:"))) {
        op.tf_op = from.stat_name;
    }
    known[draft] = m_ops.intern(std::move(op));
    return known[draft];
}

// Moves the events of `track` that are to be kept to the end of `line`.
void ChromeReader::Impl::place_track(ChromeTrack& track, ChromeProcess::Kind kind, bool gpu, Line& line) {
    line.count += track.count;
    if (kind != ChromeProcess::Kind::device && !m_options.all_events) {
        std::erase_if(track.events, [this](const Event& event) {
            const OpDraft& draft = m_drafts[event.op];
            return draft.hlo_op.empty() && !draft.is_step;
        });
    }
    for (Event& event : track.events) event.op = final_op(event.op, kind, gpu);
    if (line.events.empty()) {
        line.events = std::move(track.events);
    } else {
        line.events.insert(line.events.end(), track.events.begin(), track.events.end());
    }
    track.events = {};
}

void ChromeReader::Impl::place_process(ChromeProcess& process, RawTrace& trace) {
    const auto [found, added] = m_plane_index.try_emplace(process.name, trace.planes.size());
    if (added) trace.planes.emplace_back().name = process.name;
    Plane& plane = trace.planes[found->second];
    const bool gpu = process.name.starts_with("/device:GPU");
    for (ChromeTrack* track : process.tracks) {
        const std::string key = std::to_string(found->second) + ' ' + track->name;
        const auto [place, is_new] = m_line_index.try_emplace(key, plane.lines.size());
        if (is_new) plane.lines.emplace_back().name = track->name;
        place_track(*track, process.kind, gpu, plane.lines[place->second]);
    }
}

void ChromeReader::Impl::describe_devices(RawTrace& trace) const {
    for (const auto& [id, name] : m_devices) {
        const auto place = m_plane_index.find("/device:GPU:" + id);
        if (place == m_plane_index.end() || name.empty()) continue;
        Plane& plane = trace.planes[place->second];
        plane.texts["device_type_string"] = name;
        for (const std::string_view vendor : {"NVIDIA", "AMD"}) {
            if (name.starts_with(vendor)) plane.texts["device_vendor"] = vendor;
        }
    }
}

RawTrace ChromeReader::Impl::build() {
    RawTrace trace;
    trace.kind = m_kineto ? TraceKind::kineto_json : TraceKind::chrome_json;
    trace.jax = m_jax;
    trace.jaxlib = m_jaxlib;
    trace.x_events = m_x_events;
    if (!m_damage.empty()) trace.damage.push_back(m_damage);
    if (m_negative_times > 0) {
        trace.hints.push_back(std::to_string(m_negative_times) + " events have a negative duration, which counts as 0");
    }
    for (ChromeProcess& process : m_processes) place_process(process, trace);
    trace.ops = m_ops.take();
    trace.numbers = std::move(m_numbers);
    describe_devices(trace);
    // Times from an epoch do not fit 64 bits of ps: they are shifted to begin within the first microsecond, whichever
    // event came first in the file.
    WidePs shift = m_base;
    if (m_last > k_epoch_ps || m_first < -k_epoch_ps) {
        WidePs rest = m_first % k_ps_per_us;
        if (rest < 0) rest += k_ps_per_us;
        shift = m_base - (m_first - rest);
    }
    for (Plane& plane : trace.planes) {
        for (Line& line : plane.lines) {
            if (!std::ranges::is_sorted(line.events, {}, &Event::self)) {
                std::ranges::sort(line.events, {}, &Event::self);
            }
            for (Event& event : line.events) {
                event.start = static_cast<Ps>(event.start + shift);
                event.self = 0;
            }
        }
        // Kineto also names the threads of streams, whose events are on the lines of their device.
        if (m_kineto) std::erase_if(plane.lines, [](const Line& line) { return line.count == 0; });
    }
    if (m_kineto) std::erase_if(trace.planes, [](const Plane& plane) { return plane.lines.empty(); });
    return trace;
}

}  // namespace gdnctl::trace
