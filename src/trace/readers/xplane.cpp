// The XSpace protobuf (*.xplane.pb), decoded straight from its bytes: tsl/profiler/protobuf/xplane.proto, and
// llo_lite.proto for the compiler's schedules. Nothing here recurses, and what is allocated is bounded by the file.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/text.h"
#include "trace/readers/readers.h"

namespace gdnctl::trace {

namespace {

// ---- The wire format ----

// What is wrong with the file, by whatever was found first.
struct Damage {
    const char* origin = nullptr;  // of the file
    const char* stop = nullptr;    // nothing from here on is to be decoded; nullptr: no damage
    std::string message;
    std::size_t count = 0;

    bool found() const { return stop != nullptr; }
    // True if the damage lies before what begins at `place`.
    bool is_before(const char* place) const { return found() && place >= stop; }
    std::size_t offset(const char* place) const { return static_cast<std::size_t>(place - origin); }

    [[gnu::cold, gnu::noinline]] void add(const char* where, std::string text) {
        if (!found()) message = std::move(text);
        stop = found() ? std::min(stop, where) : where;
        ++count;
    }
};

enum class Wire : std::uint8_t { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };

struct Field {
    const char* at = nullptr;  // its tag
    std::uint32_t number = 0;
    Wire wire = Wire::varint;
    std::uint64_t value = 0;  // of a varint or fixed64
    std::string_view bytes;
    bool overrun = false;  // its length is past the end of the message: `bytes` are those that are there

    std::int64_t integer() const { return static_cast<std::int64_t>(value); }
    bool is(std::uint32_t n, Wire w) const { return number == n && wire == w; }
};

// nullptr: cut, or longer than ten bytes.
[[gnu::noinline]] const char* read_varint_slowly(const char* at, const char* end, std::uint64_t& value) {
    value = 0;
    for (unsigned shift = 0; shift < 70 && at != end; shift += 7) {
        const auto byte = static_cast<std::uint8_t>(*at++);
        value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
        if (byte < 0x80) return at;
    }
    return nullptr;
}

// Of two bytes or more. Up to eight bytes are taken from one load: the lowest byte without its top bit ends the number,
// and three steps close the gaps that the top bits leave.
inline const char* read_long_varint(const char* at, const char* end, std::uint64_t& value) {
    if (end - at < 8 || std::endian::native != std::endian::little) return read_varint_slowly(at, end, value);
    std::uint64_t word = 0;
    std::memcpy(&word, at, sizeof word);
    const std::uint64_t ends = ~word & 0x8080808080808080u;
    if (ends == 0) return read_varint_slowly(at, end, value);
    word &= ends ^ (ends - 1);
    word = (word & 0x007f007f007f007fu) | (word & 0x7f007f007f007f00u) >> 1;
    word = (word & 0x00003fff00003fffu) | (word & 0x3fff00003fff0000u) >> 2;
    value = (word & 0x000000000fffffffu) | (word & 0x0fffffff00000000u) >> 4;
    return at + (std::countr_zero(ends) + 1) / 8;
}

inline const char* read_varint(const char* at, const char* end, std::uint64_t& value) {
    if (at != end && static_cast<std::uint8_t>(*at) < 0x80) {
        value = static_cast<std::uint8_t>(*at);
        return at + 1;
    }
    return read_long_varint(at, end, value);
}

std::uint64_t read_fixed64(const char* at) {
    std::uint64_t value = 0;
    for (unsigned i = 0; i < 8; ++i) value |= static_cast<std::uint64_t>(static_cast<std::uint8_t>(at[i])) << (8 * i);
    return value;
}

// The fields of one message, in the file's order.
class Message {
public:
    Message(std::string_view bytes, Damage& damage)
        : m_at(bytes.data()), m_end(bytes.data() + bytes.size()), m_damage(damage) {}

    // False at the end, and at a damage, which is then added to the Damage.
    bool next(Field& field) { return next_inline(field); }
    // The same, for the loops that see every event.
    [[gnu::always_inline]] bool next_inline(Field& field) {
        if (m_at == m_end) return false;
        field.at = m_at;
        std::uint64_t tag = 0;
        const char* at = read_varint(m_at, m_end, tag);
        if (at == nullptr) return bad_varint(field, m_at, {});
        field.number = static_cast<std::uint32_t>(tag >> 3);
        if (tag < 8 || tag > std::numeric_limits<std::uint32_t>::max()) return bad_number(field, tag >> 3);
        field.wire = static_cast<Wire>(tag & 7);
        switch (field.wire) {
            case Wire::varint: {
                const char* end = read_varint(at, m_end, field.value);
                if (end == nullptr) return bad_varint(field, at, "value");
                m_at = end;
                return true;
            }
            case Wire::bytes: {
                std::uint64_t length = 0;
                const char* start = read_varint(at, m_end, length);
                if (start == nullptr) return bad_varint(field, at, "length");
                if (length > static_cast<std::uint64_t>(m_end - start)) return too_long(field, start, length);
                field.bytes = {start, static_cast<std::size_t>(length)};
                m_at = start + length;
                return true;
            }
            case Wire::fixed64:
                if (m_end - at < 8) return too_long(field, at, 8);
                field.value = read_fixed64(at);
                m_at = at + 8;
                return true;
            case Wire::fixed32:
                if (m_end - at < 4) return too_long(field, at, 4);
                m_at = at + 4;
                return true;
        }
        return bad_wire(field, static_cast<unsigned>(tag & 7));
    }

private:
    [[gnu::cold, gnu::noinline]] bool stop(const char* where, std::string text) {
        m_damage.add(where, "xplane: " + std::move(text));
        m_at = m_end;
        return false;
    }
    // `part` is "value" or "length"; empty: the varint is the tag.
    [[gnu::cold, gnu::noinline]] bool bad_varint(const Field& field, const char* at, std::string_view part) {
        const std::size_t offset = m_damage.offset(field.at);
        const std::string what = part.empty()
                                     ? fmt::format("the field tag at offset {}", offset)
                                     : fmt::format("field {} at offset {}: its {}", field.number, offset, part);
        return stop(field.at, what + (m_end - at < 10 ? " is a varint that ends too early"
                                                      : " is a varint of more than 10 bytes"));
    }
    [[gnu::cold, gnu::noinline]] bool bad_number(const Field& field, std::uint64_t number) {
        return stop(field.at,
                    fmt::format("field {} at offset {}: not a valid field number", number, m_damage.offset(field.at)));
    }
    [[gnu::cold, gnu::noinline]] bool bad_wire(const Field& field, unsigned wire) {
        return stop(field.at, fmt::format("field {} at offset {} has wire type {}, which profiles do not use",
                                          field.number, m_damage.offset(field.at), wire));
    }
    [[gnu::cold, gnu::noinline]] bool too_long(Field& field, const char* start, std::uint64_t length) {
        field.bytes = {start, static_cast<std::size_t>(m_end - start)};
        field.overrun = true;
        return stop(m_end, fmt::format("field {} at offset {} claims {} bytes, {} remain", field.number,
                                       m_damage.offset(field.at), length, field.bytes.size()));
    }

    const char* m_at;
    const char* m_end;
    Damage& m_damage;
};

// ---- Metadata ----

// A table by id, for ids that are mostly small and dense.
template <class Item>
class ById {
public:
    explicit ById(std::size_t expected) : m_dense(4 * expected + 64, k_none) { m_items.reserve(expected); }

    // An id that is there already is replaced.
    void set(std::uint64_t id, Item item) {
        std::uint32_t& place = id < m_dense.size() ? m_dense[id] : m_sparse.try_emplace(id, k_none).first->second;
        if (place == k_none) {
            place = static_cast<std::uint32_t>(m_items.size());
            m_items.push_back(std::move(item));
        } else {
            m_items[place] = std::move(item);
        }
    }
    // nullptr: there is none.
    Item* find(std::uint64_t id) {
        if (id < m_dense.size()) return m_dense[id] == k_none ? nullptr : &m_items[m_dense[id]];
        const auto found = m_sparse.find(id);
        return found == m_sparse.end() ? nullptr : &m_items[found->second];
    }
    std::vector<Item>& items() { return m_items; }

private:
    static constexpr std::uint32_t k_none = std::numeric_limits<std::uint32_t>::max();
    std::vector<Item> m_items;
    std::vector<std::uint32_t> m_dense;
    std::unordered_map<std::uint64_t, std::uint32_t> m_sparse;
};

enum class PlaneKind : std::uint8_t { tpu, gpu, metadata, environment, host };

bool is_device_name(std::string_view name, std::string_view prefix) {
    if (!name.starts_with(prefix) || name.size() == prefix.size()) return false;
    return std::ranges::all_of(name.substr(prefix.size()), [](char c) { return c >= '0' && c <= '9'; });
}

PlaneKind plane_kind(std::string_view name) {
    if (is_device_name(name, "/device:TPU:")) return PlaneKind::tpu;
    if (is_device_name(name, "/device:GPU:")) return PlaneKind::gpu;
    if (name == "/host:metadata") return PlaneKind::metadata;
    if (name == "Task Environment") return PlaneKind::environment;
    return PlaneKind::host;
}

// What a stat of an event or of its metadata says.
enum class Meaning : std::uint8_t {
    ignored,
    category,
    program_id,
    tf_op,
    source,
    flops,
    model_flops,
    bytes_accessed,
    breakdown,
    stable_id,
    step_name,
    hlo_module,
    hlo_op,
    annotation,  // the GPU's `name`
    run_id,
    step_num,
};

Meaning meaning_of(std::string_view stat, PlaneKind plane) {
    static constexpr std::array<std::pair<std::string_view, Meaning>, 15> k_names{{
        {"hlo_category", Meaning::category},
        {"program_id", Meaning::program_id},
        {"tf_op", Meaning::tf_op},
        {"source", Meaning::source},
        {"flops", Meaning::flops},
        {"model_flops", Meaning::model_flops},
        {"bytes_accessed", Meaning::bytes_accessed},
        {"memory_access_breakdown", Meaning::breakdown},
        {"stable_op_id", Meaning::stable_id},
        {"step_name", Meaning::step_name},
        {"hlo_module", Meaning::hlo_module},
        {"hlo_op", Meaning::hlo_op},
        {"name", Meaning::annotation},
        {"run_id", Meaning::run_id},
        {"step_num", Meaning::step_num},
    }};
    const auto* found = std::ranges::find(k_names, stat, &std::pair<std::string_view, Meaning>::first);
    if (found == k_names.end()) return Meaning::ignored;
    const Meaning meaning = found->second;
    // On a TPU, hlo_op is of asynchronous events alone, and names the other end of the pair.
    if (meaning == Meaning::hlo_op && plane != PlaneKind::host) return Meaning::ignored;
    if (meaning == Meaning::hlo_module && plane == PlaneKind::tpu) return Meaning::ignored;
    if (meaning == Meaning::annotation && plane != PlaneKind::gpu) return Meaning::ignored;
    return meaning;
}

struct StatName {
    std::string_view name;
    Meaning meaning = Meaning::ignored;
};

constexpr std::uint32_t k_unresolved = std::numeric_limits<std::uint32_t>::max();
constexpr std::uint32_t k_dropped = k_unresolved - 1;

struct EventName {
    std::uint64_t id = 0;
    std::string_view name, display_name, bytes;
    std::uint32_t op = k_unresolved;  // of its events without stats of their own that matter
};

// The value of an XStat. A reference is resolved to text; a gzipped string counts as none.
struct Stat {
    enum class Type : std::uint8_t { none, real, integer, text, bytes };
    std::uint64_t id = 0;
    Type type = Type::none;
    double real = 0;
    std::int64_t integer = 0;  // unsigned ones as the same 64 bits
    bool is_unsigned = false;
    std::string_view text;  // or bytes

    // nullopt: not a number, or not a finite one.
    std::optional<double> number() const {
        if (type == Type::real) return std::isfinite(real) ? std::optional(real) : std::nullopt;
        if (type != Type::integer) return std::nullopt;
        return is_unsigned ? static_cast<double>(static_cast<std::uint64_t>(integer)) : static_cast<double>(integer);
    }
    // A cost that the compiler claims; it says -1 where it knows none.
    std::optional<double> cost() const {
        const std::optional<double> n = number();
        return n && *n >= 0 ? n : std::nullopt;
    }
};

std::string clean(std::string_view s) { return text::is_valid_utf8(s) ? std::string(s) : text::repair_utf8(s); }

// "jit_f(12)": "jit_f" and 12. nullopt: `name` does not end in a number in brackets.
std::optional<std::pair<std::string_view, std::uint64_t>> split_program_id(std::string_view name) {
    const std::size_t open = name.rfind('(');
    if (open == std::string_view::npos || !name.ends_with(')')) return std::nullopt;
    const std::string_view digits = name.substr(open + 1, name.size() - open - 2);
    if (digits.empty()) return std::nullopt;
    std::uint64_t id = 0;
    for (const char c : digits) {
        if (c < '0' || c > '9') return std::nullopt;
        id = id * 10 + static_cast<std::uint64_t>(c - '0');
    }
    return std::pair(name.substr(0, open), id);
}

// The last number in "train 12"; nullopt: there is none.
std::optional<std::int64_t> last_number(std::string_view name) {
    const std::size_t end = name.find_last_of("0123456789");
    if (end == std::string_view::npos) return std::nullopt;
    const std::size_t before = name.find_last_not_of("0123456789", end);
    const std::size_t start = before == std::string_view::npos ? 0 : before + 1;
    return text::parse_int(name.substr(start, end + 1 - start));
}

// ---- The compiler's schedule (llo_lite.proto) ----

// A list of counts, one a bundle.
struct Counts {
    std::int64_t length = 0, sum = 0;
};

// Adds a packed or a single value. False: a count below zero or above 31 bits.
bool add_counts(const Field& field, Counts& counts) {
    const auto add = [&counts](std::uint64_t value) {
        ++counts.length;
        counts.sum += static_cast<std::int64_t>(value & 0x7fffffff);
        return value <= 0x7fffffff;
    };
    if (field.wire == Wire::varint) return add(field.value);
    if (field.wire != Wire::bytes) return true;
    const char* end = field.bytes.data() + field.bytes.size();
    for (const char* at = field.bytes.data(); at != end;) {
        std::uint64_t value = 0;
        at = read_varint(at, end, value);
        if (at == nullptr || !add(value)) return false;
    }
    return true;
}

struct UnitCounts {
    Counts used;
    std::int64_t slots = 0;
};

// {1 slots used per bundle, 2 slots per bundle}
bool read_unit(std::string_view bytes, UnitCounts& unit, Damage& damage) {
    Message message(bytes, damage);
    Field field;
    while (message.next(field)) {
        if (field.number == 1 && !add_counts(field, unit.used)) return false;
        if (!field.is(2, Wire::varint)) continue;
        if (field.value > 0x7fffffff) return false;
        unit.slots = field.integer();
    }
    return !damage.found();
}

struct Utilization {
    std::array<UnitCounts, 7> units;  // in the order of Schedule::units
    Counts spill, fill;
};

bool read_utilization(std::string_view bytes, Utilization& all, Damage& damage) {
    Message message(bytes, damage);
    Field field;
    while (message.next(field)) {
        const bool is_unit = field.wire == Wire::bytes && field.number <= all.units.size();
        if (is_unit && !read_unit(field.bytes, all.units[field.number - 1], damage)) return false;
        if (field.number == 8 && !add_counts(field, all.spill)) return false;
        if (field.number == 9 && !add_counts(field, all.fill)) return false;
    }
    return !damage.found();
}

// nullopt: damaged, without a bundle, or with counts that cannot be. As in xprof, the longest list gives the number of
// bundles, and a shorter one is zero from its end on; `uneven` says that there is such a list.
std::optional<Schedule> read_schedule(std::string_view llo_proto, bool& uneven) {
    static constexpr std::array k_units{"mxu", "xlu", "valu", "eup", "vload", "vstore", "salu"};
    Damage damage;
    damage.origin = llo_proto.data();
    Message message(llo_proto, damage);
    Field field;
    Utilization all;
    while (message.next(field)) {
        if (field.is(6, Wire::bytes) && !read_utilization(field.bytes, all, damage)) return std::nullopt;
    }
    Schedule schedule;
    schedule.bundles = std::max(all.spill.length, all.fill.length);
    for (const UnitCounts& unit : all.units) schedule.bundles = std::max(schedule.bundles, unit.used.length);
    if (damage.found() || schedule.bundles == 0) return std::nullopt;
    const auto is_short = [&schedule](const Counts& c) { return c.length != 0 && c.length != schedule.bundles; };
    uneven = is_short(all.spill) || is_short(all.fill);
    for (std::size_t i = 0; i < k_units.size(); ++i) {
        const UnitCounts& unit = all.units[i];
        uneven = uneven || is_short(unit.used);
        schedule.units.push_back({k_units[i], unit.used.sum, schedule.bundles * unit.slots});
    }
    schedule.spill = all.spill.sum;
    schedule.fill = all.fill.sum;
    return schedule;
}

// ---- Operations ----

auto all_of_op(const Op& op) {
    return std::tie(op.name, op.text, op.program, op.category, op.tf_op, op.source, op.stable_id, op.flops,
                    op.model_flops, op.bytes_accessed, op.hbm_bytes, op.is_host_op, op.is_step);
}

// Operations, each kept once.
class OpTable {
public:
    std::uint32_t add(Op op) {
        m_ops.push_back(std::move(op));
        const auto [place, is_new] = m_index.insert(static_cast<std::uint32_t>(m_ops.size() - 1));
        if (!is_new) m_ops.pop_back();
        return *place;
    }
    const Op& operator[](std::uint32_t i) const { return m_ops[i]; }
    std::vector<Op> take() { return std::move(m_ops); }

private:
    struct Hash {
        const std::vector<Op>* ops;
        std::size_t operator()(std::uint32_t i) const {
            const Op& op = (*ops)[i];
            std::size_t hash = op.is_step ? 1 : 0;
            const auto mix = [&hash](std::size_t h) { hash = (hash ^ h) * 0x9e3779b97f4a7c15u + (hash >> 29); };
            for (const std::string* s : {&op.name, &op.text, &op.program, &op.category, &op.tf_op, &op.source}) {
                mix(std::hash<std::string>()(*s));
            }
            mix(std::hash<std::optional<double>>()(op.flops));
            mix(std::hash<std::optional<double>>()(op.bytes_accessed));
            return hash;
        }
    };
    struct Equal {
        const std::vector<Op>* ops;
        bool operator()(std::uint32_t a, std::uint32_t b) const { return all_of_op((*ops)[a]) == all_of_op((*ops)[b]); }
    };
    std::vector<Op> m_ops;
    std::unordered_set<std::uint32_t, Hash, Equal> m_index{16, Hash{&m_ops}, Equal{&m_ops}};
};

std::size_t text_bytes(const Op& op) {
    return op.name.size() + op.text.size() + op.program.size() + op.category.size() + op.tf_op.size() +
           op.source.size() + op.stable_id.size();
}

// An operation while its stats are gathered; later ones win.
struct OpFacts {
    Op op;
    std::optional<std::uint64_t> program_id;
    std::string module, hlo_op, annotation, step_name;
    bool has_step_num = false;
};

// ---- The reader ----

struct LineHead {
    std::string_view bytes, name;
    std::int64_t timestamp_ns = 0;
    std::size_t events = 0;
};

struct EventParts {
    std::uint64_t id = 0;  // of its metadata
    std::int64_t offset = 0, duration = 0;
    bool is_aggregate = false;  // it stands for several occurrences, and has no place
    std::optional<std::int64_t> run_id, step_num;
};

struct StringHash {
    using is_transparent = void;
    std::size_t operator()(std::string_view s) const { return std::hash<std::string_view>()(s); }
};

// One XPlane while it is decoded. A name that occurs twice has two of these and one Plane.
struct PlaneContext {
    PlaneKind kind = PlaneKind::host;
    std::size_t plane = 0;  // in RawTrace::planes
    std::string_view bytes;
    ById<StatName> stat_names;
    ById<EventName> event_names;
    std::unordered_map<std::uint64_t, std::string_view> programs;  // by program_id
    // Operations of events with stats of their own that matter, by the id of the event's metadata and those stats.
    std::unordered_map<std::string, std::uint32_t, StringHash, std::equal_to<>> special_ops;
};

class XplaneReader {
public:
    XplaneReader(std::string_view bytes, const ReadOptions& options) : m_bytes(bytes), m_options(options) {
        m_damage.origin = bytes.data();
    }

    Result<RawTrace> read();

private:
    // True where decoding must end: behind the damage or, without `salvage`, at any.
    bool ended(const char* place) const {
        return m_damage.found() && (!m_options.salvage || m_damage.is_before(place));
    }
    bool note_replacement_characters();

    void read_plane(std::string_view bytes);
    void read_stat_names(const std::vector<std::string_view>& entries, PlaneContext& c);
    void read_event_names(const std::vector<std::string_view>& entries, PlaneContext& c);
    void read_plane_stat(std::string_view bytes, PlaneContext& c);
    void read_schedules(PlaneContext& c);
    std::vector<LineHead> read_line_heads(const std::vector<std::string_view>& lines);
    void find_programs(const LineHead& line, PlaneContext& c);
    void read_line(const LineHead& head, PlaneContext& c);
    void read_event(const Field& whole, Ps base, bool is_steps_line, PlaneContext& c, Line& line);
    void read_event_parts(std::string_view bytes, PlaneContext& c, EventParts& parts);

    Stat read_stat(std::string_view bytes, PlaneContext& c);
    std::uint32_t resolve_op(const EventParts& parts, const Field& whole, PlaneContext& c);
    std::uint32_t build_op(std::uint64_t id, const EventName* name, std::string_view event, PlaneContext& c);
    void apply_stats(std::string_view bytes, std::uint32_t number, PlaneContext& c, OpFacts& facts);
    static void apply(Meaning meaning, const Stat& stat, OpFacts& facts);
    std::int32_t number_index(std::int64_t number);
    std::size_t line_index(std::size_t plane, std::string_view name);

    std::string_view m_bytes;
    ReadOptions m_options;
    Damage m_damage;
    RawTrace m_trace;
    OpTable m_ops;
    std::size_t m_text_bytes = 0;            // of all operations that were built
    std::optional<std::int64_t> m_epoch_ns;  // the start of the first line, if it counts from 1970
    std::int64_t m_negative_times = 0;       // events with a duration below zero
    std::string m_key;                       // of PlaneContext::special_ops, while an event is decoded
    std::unordered_map<std::int64_t, std::int32_t> m_number_index;
    std::unordered_map<std::string, std::size_t> m_plane_index;
    std::vector<std::unordered_map<std::string, std::size_t>> m_line_index;  // by plane
};

Result<RawTrace> XplaneReader::read() {
    Message space(m_bytes, m_damage);
    Field field;
    while (space.next(field)) {
        if (field.wire != Wire::bytes) continue;
        if (field.number == 1) read_plane(field.bytes);
        if (field.number == 2 || field.number == 3) m_trace.hints.push_back(clean(field.bytes));
        if (field.number == 4 && m_trace.host.empty()) m_trace.host = clean(field.bytes);
        if (ended(field.bytes.data() + field.bytes.size())) break;
    }
    // The last plane of a file that was cut.
    if (m_options.salvage && field.overrun && field.is(1, Wire::bytes)) read_plane(field.bytes);
    if (m_damage.found()) {
        const bool reencoded = note_replacement_characters();
        if (!m_options.salvage) {
            return fail(ErrorKind::bad_input, std::move(m_damage.message),
                        reencoded ? "" : "pass --salvage to analyse the events before it");
        }
        m_trace.damage.push_back(std::move(m_damage.message));
    }
    if (m_negative_times > 0) {
        m_trace.hints.push_back(fmt::format("{} events have a negative duration, which counts as 0", m_negative_times));
    }
    m_trace.ops = m_ops.take();
    return std::move(m_trace);
}

// A binary file that went through a text decoder has the bytes EF BF BD in place of whatever was not UTF-8.
bool XplaneReader::note_replacement_characters() {
    constexpr std::string_view k_replacement = "\xef\xbf\xbd";
    constexpr std::size_t k_few = 8;
    std::size_t count = 0;
    for (std::size_t at = m_bytes.find(k_replacement); at != std::string_view::npos;
         at = m_bytes.find(k_replacement, at + k_replacement.size())) {
        ++count;
    }
    if (count <= k_few) return false;
    m_damage.message += fmt::format(
        "; the file looks re-encoded as UTF-8 ({} replacement characters): fetch it again in binary mode", count);
    return true;
}

void XplaneReader::read_plane(std::string_view bytes) {
    std::string_view name;
    std::vector<std::string_view> lines, event_names, stat_names, stats;
    Message message(bytes, m_damage);
    Field field;
    while (message.next(field)) {
        if (field.wire != Wire::bytes) continue;
        if (field.number == 2) name = field.bytes;
        if (field.number == 3) lines.push_back(field.bytes);
        if (field.number == 4) event_names.push_back(field.bytes);
        if (field.number == 5) stat_names.push_back(field.bytes);
        if (field.number == 6) stats.push_back(field.bytes);
    }
    if (m_damage.found() && !m_options.salvage) return;
    if (field.overrun && field.is(3, Wire::bytes)) lines.push_back(field.bytes);
    const auto [place, is_new] = m_plane_index.try_emplace(clean(name), m_trace.planes.size());
    if (is_new) {
        m_trace.planes.emplace_back().name = place->first;
        m_line_index.emplace_back();
    }
    PlaneContext c{plane_kind(name),
                   place->second,
                   bytes,
                   ById<StatName>(stat_names.size()),
                   ById<EventName>(event_names.size()),
                   {},
                   {}};
    read_stat_names(stat_names, c);
    read_event_names(event_names, c);
    for (const std::string_view stat : stats) read_plane_stat(stat, c);
    if (c.kind == PlaneKind::metadata) read_schedules(c);
    const std::vector<LineHead> heads = read_line_heads(lines);
    if (c.kind == PlaneKind::tpu) {
        for (const LineHead& line : heads) {
            if (line.name == "XLA Modules") find_programs(line, c);
        }
    }
    for (const LineHead& line : heads) {
        if (ended(line.bytes.data())) break;
        read_line(line, c);
    }
}

// {1 key, 2 value}: the parts of a map's entry.
std::pair<std::uint64_t, std::string_view> read_entry(std::string_view bytes, Damage& damage) {
    std::pair<std::uint64_t, std::string_view> entry;
    Message message(bytes, damage);
    Field field;
    while (message.next(field)) {
        if (field.is(1, Wire::varint)) entry.first = field.value;
        if (field.is(2, Wire::bytes)) entry.second = field.bytes;
    }
    return entry;
}

void XplaneReader::read_stat_names(const std::vector<std::string_view>& entries, PlaneContext& c) {
    for (const std::string_view bytes : entries) {
        if (ended(bytes.data())) return;
        const auto [id, value] = read_entry(bytes, m_damage);
        StatName stat;
        Message message(value, m_damage);
        Field field;
        while (message.next(field)) {
            if (field.is(2, Wire::bytes)) stat.name = field.bytes;
        }
        stat.meaning = meaning_of(stat.name, c.kind);
        c.stat_names.set(id, stat);
    }
}

void XplaneReader::read_event_names(const std::vector<std::string_view>& entries, PlaneContext& c) {
    for (const std::string_view bytes : entries) {
        if (ended(bytes.data())) return;
        const auto [id, value] = read_entry(bytes, m_damage);
        EventName event;
        event.id = id;
        event.bytes = value;
        Message message(value, m_damage);
        Field field;
        while (message.next(field)) {
            if (field.is(2, Wire::bytes)) event.name = field.bytes;
            if (field.is(4, Wire::bytes)) event.display_name = field.bytes;
        }
        c.event_names.set(id, event);
    }
}

Stat XplaneReader::read_stat(std::string_view bytes, PlaneContext& c) {
    Stat stat;
    const auto set = [&stat](Stat::Type type, std::string_view text) {
        stat.type = type;
        stat.text = text;
    };
    Message message(bytes, m_damage);
    Field field;
    while (message.next(field)) {
        if (field.is(1, Wire::varint)) stat.id = field.value;
        if (field.is(2, Wire::fixed64)) {
            stat.type = Stat::Type::real;
            stat.real = std::bit_cast<double>(field.value);
        }
        if (field.is(3, Wire::varint) || field.is(4, Wire::varint)) {
            stat.type = Stat::Type::integer;
            stat.integer = field.integer();
            stat.is_unsigned = field.number == 3;
        }
        if (field.is(5, Wire::bytes)) set(Stat::Type::text, field.bytes);
        if (field.is(6, Wire::bytes)) set(Stat::Type::bytes, field.bytes);
        if (field.is(7, Wire::varint)) {
            const StatName* name = c.stat_names.find(field.value);
            set(name != nullptr ? Stat::Type::text : Stat::Type::none, name != nullptr ? name->name : "");
        }
    }
    return stat;
}

void XplaneReader::read_plane_stat(std::string_view bytes, PlaneContext& c) {
    if (ended(bytes.data())) return;
    const Stat stat = read_stat(bytes, c);
    const StatName* known = c.stat_names.find(stat.id);
    if (known == nullptr) return;
    const std::string name = clean(known->name);
    Plane& plane = m_trace.planes[c.plane];
    if (const std::optional<double> number = stat.number()) plane.numbers[name] = *number;
    if (stat.type == Stat::Type::text) plane.texts[name] = clean(stat.text);
    if (c.kind == PlaneKind::environment) {
        const bool is_start = name == "profile_start_time" && stat.type == Stat::Type::integer;
        if (is_start) m_trace.profile_start_ns = stat.integer;
        if (name == "profile_options" && stat.type == Stat::Type::bytes) m_trace.profile_options = stat.text;
    }
    if (c.kind == PlaneKind::metadata && stat.type == Stat::Type::text) {
        if (name == "jax_version") m_trace.jax = clean(stat.text);
        if (name == "jaxlib_version") m_trace.jaxlib = clean(stat.text);
        if (name == "tpu_version") m_trace.libtpu = clean(stat.text);
    }
}

// "jit_f(12)::kernel.1" -> "jit_f::kernel.1"
std::string schedule_key(std::string_view name) {
    const std::size_t end = name.find(")::");
    if (end == std::string_view::npos) return clean(name);
    const auto split = split_program_id(name.substr(0, end + 1));
    return split ? clean(split->first) + clean(name.substr(end + 1)) : clean(name);
}

void XplaneReader::read_schedules(PlaneContext& c) {
    for (const EventName& event : c.event_names.items()) {
        Message message(event.bytes, m_damage);
        Field field;
        while (message.next(field)) {
            if (!field.is(5, Wire::bytes)) continue;
            const Stat stat = read_stat(field.bytes, c);
            const StatName* name = c.stat_names.find(stat.id);
            if (name == nullptr || name->name != "llo_proto" || stat.type != Stat::Type::bytes) continue;
            bool uneven = false;
            const std::string key = schedule_key(event.name);
            std::optional<Schedule> schedule = read_schedule(stat.text, uneven);
            if (!schedule) m_trace.hints.push_back("llo_proto of " + key + " cannot be read; its schedule is left out");
            if (uneven) m_trace.hints.push_back("llo_proto of " + key + ": its lists differ in length");
            if (schedule) m_trace.schedules.try_emplace(key, std::move(*schedule));
        }
    }
}

std::vector<LineHead> XplaneReader::read_line_heads(const std::vector<std::string_view>& lines) {
    std::vector<LineHead> heads;
    heads.reserve(lines.size());
    for (const std::string_view bytes : lines) {
        if (ended(bytes.data())) break;
        LineHead head{bytes, {}, 0, 0};
        std::string_view display_name;
        Message message(bytes, m_damage);
        Field field;
        while (message.next(field)) {
            if (field.is(4, Wire::bytes)) ++head.events;
            if (field.is(2, Wire::bytes)) head.name = field.bytes;
            if (field.is(3, Wire::varint)) head.timestamp_ns = field.integer();
            if (field.is(11, Wire::bytes)) display_name = field.bytes;
        }
        if (head.name.empty()) head.name = display_name;
        heads.push_back(head);
    }
    return heads;
}

void XplaneReader::find_programs(const LineHead& line, PlaneContext& c) {
    Message message(line.bytes, m_damage);
    Field field;
    while (message.next(field)) {
        if (!field.is(4, Wire::bytes)) continue;
        Message event(field.bytes, m_damage);
        Field part;
        while (event.next(part)) {
            if (!part.is(1, Wire::varint)) continue;
            const EventName* name = c.event_names.find(part.value);
            const auto split = name != nullptr ? split_program_id(name->name) : std::nullopt;
            if (split) c.programs[split->second] = split->first;
        }
    }
}

std::size_t XplaneReader::line_index(std::size_t plane, std::string_view name) {
    std::vector<Line>& lines = m_trace.planes[plane].lines;
    const auto [place, is_new] = m_line_index[plane].try_emplace(clean(name), lines.size());
    if (is_new) lines.emplace_back().name = place->first;
    return place->second;
}

void XplaneReader::read_line(const LineHead& head, PlaneContext& c) {
    Line& line = m_trace.planes[c.plane].lines[line_index(c.plane, head.name)];
    line.count += static_cast<std::int64_t>(head.events);
    // Nanoseconds since 1970 do not fit once they are picoseconds: such a file counts from its first line.
    constexpr std::int64_t k_absolute_ns = 1'000'000'000'000'000;
    if (!m_epoch_ns && head.timestamp_ns > k_absolute_ns) m_epoch_ns = head.timestamp_ns;
    const bool is_absolute = m_epoch_ns && head.timestamp_ns > k_absolute_ns;
    Ps base = 0;
    if (__builtin_mul_overflow(head.timestamp_ns - (is_absolute ? *m_epoch_ns : 0), std::int64_t{1000}, &base)) {
        m_damage.add(head.bytes.data(), fmt::format("xplane: field 3 (timestamp_ns) of the line at offset {}: {} ns do "
                                                    "not fit in 64 bits of picoseconds",
                                                    m_damage.offset(head.bytes.data()), head.timestamp_ns));
        return;
    }
    const bool keeps_all = c.kind == PlaneKind::tpu || c.kind == PlaneKind::gpu || m_options.all_events;
    // Exact for a line that occurs once; of many lines with one name, the buffer still doubles.
    const std::size_t needed = line.events.size() + head.events;
    if (keeps_all && needed > line.events.capacity()) {
        line.events.reserve(std::max(needed, 2 * line.events.capacity()));
    }
    const bool is_steps_line = head.name == "Steps";
    Message message(head.bytes, m_damage);
    Field field;
    while (message.next_inline(field)) {
        if (!field.is(4, Wire::bytes)) continue;
        if (ended(field.at)) return;
        read_event(field, base, is_steps_line, c, line);
    }
}

// Most stats of an event say nothing that is needed. They are skipped here by their id, which writers put first.
bool is_ignored(std::string_view stat, PlaneContext& c) {
    if (stat.empty() || stat[0] != 8) return false;
    std::uint64_t id = 0;
    if (read_varint(stat.data() + 1, stat.data() + stat.size(), id) == nullptr) return false;
    const StatName* name = c.stat_names.find(id);
    return name == nullptr || name->meaning == Meaning::ignored;
}

void XplaneReader::read_event_parts(std::string_view bytes, PlaneContext& c, EventParts& parts) {
    m_key.clear();
    Message message(bytes, m_damage);
    Field field;
    while (message.next_inline(field)) {
        if (field.is(4, Wire::bytes)) {
            if (is_ignored(field.bytes, c)) continue;
            const Stat stat = read_stat(field.bytes, c);
            const StatName* name = c.stat_names.find(stat.id);
            if (name == nullptr || name->meaning == Meaning::ignored || stat.type == Stat::Type::none) continue;
            if (name->meaning == Meaning::run_id || name->meaning == Meaning::step_num) {
                if (stat.type != Stat::Type::integer) continue;
                (name->meaning == Meaning::run_id ? parts.run_id : parts.step_num) = stat.integer;
                continue;
            }
            const auto length = static_cast<std::uint32_t>(field.bytes.size());
            m_key.append(reinterpret_cast<const char*>(&length), sizeof length);
            m_key.append(field.bytes);
        } else if (field.wire == Wire::varint) {
            if (field.number == 1) parts.id = field.value;
            if (field.number == 2) parts.offset = field.integer();
            if (field.number == 3) parts.duration = field.integer();
            if (field.number == 2 || field.number == 5) parts.is_aggregate = field.number == 5;
        }
    }
}

void XplaneReader::read_event(const Field& whole, Ps base, bool is_steps_line, PlaneContext& c, Line& line) {
    EventParts parts;
    const std::size_t damages = m_damage.count;
    read_event_parts(whole.bytes, c, parts);
    if (parts.is_aggregate || m_damage.count != damages) return;
    const std::uint32_t op = resolve_op(parts, whole, c);
    if (op == k_dropped || ended(whole.at)) return;
    Event event;
    event.op = op;
    if (parts.duration < 0) ++m_negative_times;
    event.duration = std::max<Ps>(parts.duration, 0);
    Ps end = 0;
    if (__builtin_add_overflow(base, parts.offset, &event.start) ||
        __builtin_add_overflow(event.start, event.duration, &end)) {
        m_damage.add(whole.at, fmt::format("xplane: field 4 (event) at offset {}: its time does not fit in 64 bits of "
                                           "picoseconds",
                                           m_damage.offset(whole.at)));
        return;
    }
    std::optional<std::int64_t> number = parts.run_id;
    if (is_steps_line) {
        number = parts.step_num ? parts.step_num : last_number(m_ops[op].name);
    } else if (m_ops[op].is_step) {
        number = parts.step_num;
    }
    if (number) event.number = number_index(*number);
    line.events.push_back(event);
}

// The operation of an event whose stats are in m_key; k_dropped: its plane's events are not kept unless they are
// operations or steps, and this one is neither.
std::uint32_t XplaneReader::resolve_op(const EventParts& parts, const Field& whole, PlaneContext& c) {
    const bool is_step = c.kind == PlaneKind::host && parts.step_num;
    EventName* name = c.event_names.find(parts.id);
    if (m_key.empty() && !is_step && name != nullptr) {
        if (name->op == k_unresolved) name->op = build_op(parts.id, name, {}, c);
        return name->op;
    }
    m_key.append(reinterpret_cast<const char*>(&parts.id), sizeof parts.id);
    m_key.push_back(is_step ? 1 : 0);
    const auto found = c.special_ops.find(std::string_view(m_key));
    if (found != c.special_ops.end()) return found->second;
    const std::uint32_t op = build_op(parts.id, name, whole.bytes, c);
    c.special_ops.emplace(m_key, op);
    return op;
}

// Decodes the stats of an event's metadata and then its own. `name` may be null: the file has no such metadata.
std::uint32_t XplaneReader::build_op(std::uint64_t id, const EventName* name, std::string_view event, PlaneContext& c) {
    OpFacts facts;
    if (name != nullptr) {
        apply_stats(name->bytes, 5, c, facts);
        facts.has_step_num = false;  // a number for all events of one name is no step's
    }
    apply_stats(event, 4, c, facts);
    if (c.kind != PlaneKind::tpu && c.kind != PlaneKind::gpu) {
        const bool is_kept = !facts.hlo_op.empty() || facts.has_step_num || m_options.all_events;
        if (!is_kept) return k_dropped;
    }
    Op& op = facts.op;
    if (name != nullptr) op.name = clean(name->display_name.empty() ? name->name : name->display_name);
    if (name != nullptr && c.kind == PlaneKind::tpu && !name->display_name.empty() && name->name != op.name) {
        op.text = clean(name->name);
    }
    if (!facts.step_name.empty()) op.name = facts.step_name;
    if (c.kind == PlaneKind::gpu) {
        if (op.name.ends_with(".kd")) op.name.resize(op.name.size() - 3);
        if (op.tf_op.empty() || op.tf_op.starts_with("XlaModule:")) op.tf_op = facts.annotation;
    } else if (c.kind != PlaneKind::tpu) {
        op.is_host_op = !facts.hlo_op.empty();
        op.is_step = !op.is_host_op && facts.has_step_num;
        if (op.is_host_op) op.name = facts.hlo_op;
    }
    if (op.name.empty()) op.name = fmt::format("unknown op {}", id);
    op.program = facts.module;
    if (facts.program_id) {
        const auto program = c.programs.find(*facts.program_id);
        if (program != c.programs.end()) op.program = clean(program->second);
    }
    // References let a small file name a long text many times; no real profile comes near this limit.
    constexpr std::size_t k_slack = 1 << 20, k_times = 16;
    m_text_bytes += text_bytes(op);
    if (m_text_bytes > k_slack + k_times * m_bytes.size()) {
        m_damage.add(
            c.bytes.data(),
            fmt::format("xplane: the plane at offset {}: the texts of its operations (field 4) take more than {} "
                        "times the size of the file",
                        m_damage.offset(c.bytes.data()), k_times));
        return k_dropped;
    }
    return m_ops.add(std::move(op));
}

// Applies the stats that are field `number` of an event or of its metadata.
void XplaneReader::apply_stats(std::string_view bytes, std::uint32_t number, PlaneContext& c, OpFacts& facts) {
    Message message(bytes, m_damage);
    Field field;
    while (message.next(field)) {
        if (!field.is(number, Wire::bytes)) continue;
        const Stat stat = read_stat(field.bytes, c);
        const StatName* name = c.stat_names.find(stat.id);
        if (name != nullptr) apply(name->meaning, stat, facts);
    }
}

// Bytes that an operation moves to and from HBM: {1: {1 operation, 2 memory space (1: HBM), 3 bytes}}. nullopt: an
// empty or a damaged list.
std::optional<double> hbm_bytes(std::string_view breakdown) {
    Damage damage;
    damage.origin = breakdown.data();
    Message message(breakdown, damage);
    Field field;
    std::optional<double> total;
    while (message.next(field)) {
        if (!field.is(1, Wire::bytes)) continue;
        std::uint64_t space = 0;
        std::int64_t bytes = 0;
        Message access(field.bytes, damage);
        Field part;
        while (access.next(part)) {
            if (part.is(2, Wire::varint)) space = part.value;
            if (part.is(3, Wire::varint)) bytes = part.integer();
        }
        total = total.value_or(0) + (space == 1 ? static_cast<double>(std::max<std::int64_t>(bytes, 0)) : 0);
    }
    return damage.found() ? std::nullopt : total;
}

void XplaneReader::apply(Meaning meaning, const Stat& stat, OpFacts& facts) {
    const auto set_text = [&stat](std::string& target) {
        if (stat.type == Stat::Type::text) target = clean(stat.text);
    };
    Op& op = facts.op;
    switch (meaning) {
        case Meaning::category: return set_text(op.category);
        case Meaning::tf_op: return set_text(op.tf_op);
        case Meaning::source: return set_text(op.source);
        case Meaning::step_name: return set_text(facts.step_name);
        case Meaning::hlo_module: return set_text(facts.module);
        case Meaning::hlo_op: return set_text(facts.hlo_op);
        case Meaning::annotation: return set_text(facts.annotation);
        case Meaning::flops: op.flops = stat.cost(); return;
        case Meaning::model_flops: op.model_flops = stat.cost(); return;
        case Meaning::bytes_accessed: op.bytes_accessed = stat.cost(); return;
        case Meaning::breakdown:
            op.hbm_bytes = stat.type == Stat::Type::bytes ? hbm_bytes(stat.text) : std::nullopt;
            return;
        case Meaning::program_id:
            if (stat.type == Stat::Type::integer) facts.program_id = static_cast<std::uint64_t>(stat.integer);
            return;
        case Meaning::stable_id:
            set_text(op.stable_id);
            if (stat.type == Stat::Type::integer) {
                op.stable_id = stat.is_unsigned ? fmt::format("{}", static_cast<std::uint64_t>(stat.integer))
                                                : fmt::format("{}", stat.integer);
            }
            return;
        case Meaning::step_num: facts.has_step_num = stat.type == Stat::Type::integer; return;
        case Meaning::run_id:
        case Meaning::ignored: return;
    }
}

std::int32_t XplaneReader::number_index(std::int64_t number) {
    const auto [place, is_new] = m_number_index.try_emplace(number, static_cast<std::int32_t>(m_trace.numbers.size()));
    if (is_new) m_trace.numbers.push_back(number);
    return place->second;
}

}  // namespace

bool skip_fields(std::string_view bytes, std::size_t& next, std::size_t most) {
    constexpr std::size_t k_longest_head = 20;
    while (next + k_longest_head <= bytes.size()) {
        const char* const end = bytes.data() + bytes.size();
        std::uint64_t tag = 0, value = 0, length = 0;
        const char* at = read_varint(bytes.data() + next, end, tag);
        if (at == nullptr || tag < 8) return false;
        switch (static_cast<Wire>(tag & 7)) {
            case Wire::varint: at = read_varint(at, end, value); break;
            case Wire::bytes: at = read_varint(at, end, length); break;
            case Wire::fixed64: length = 8; break;
            case Wire::fixed32: length = 4; break;
            default: return false;
        }
        if (at == nullptr) return false;
        const auto start = static_cast<std::size_t>(at - bytes.data());
        if (start > most || length > most - start) return false;
        next = start + static_cast<std::size_t>(length);
    }
    return true;
}

Result<RawTrace> read_xplane(std::string_view bytes, const ReadOptions& options) {
    return XplaneReader(bytes, options).read();
}

}  // namespace gdnctl::trace
