#include "core/json.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <ostream>
#include <unordered_set>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/text.h"

namespace gdnctl {

namespace {

[[noreturn]] void refuse(std::string_view what) { throw Json::exception(std::string(what)); }

constexpr std::string_view word_of(Json::Kind kind) {
    switch (kind) {
        case Json::Kind::null: return "null";
        case Json::Kind::boolean: return "boolean";
        case Json::Kind::integer:
        case Json::Kind::unsigned_integer:
        case Json::Kind::number: return "number";
        case Json::Kind::string: return "string";
        case Json::Kind::array: return "array";
        case Json::Kind::object: return "object";
        case Json::Kind::discarded: break;
    }
    return "discarded";
}

bool is_pair(const Json& item) { return item.is_array() && item.size() == 2 && item[0].is_string(); }

}  // namespace

void Json::set(std::string value) {
    m_value.string = new std::string(std::move(value));
    m_kind = Kind::string;
}

Json::Json(std::initializer_list<Json> items) {
    const bool pairs = std::all_of(items.begin(), items.end(), is_pair);
    *this = pairs ? object(items) : array(items);
}

Json Json::array(std::initializer_list<Json> items) {
    Json made;
    made.become(Kind::array);
    made.m_value.array->assign(items.begin(), items.end());
    return made;
}

Json Json::object(std::initializer_list<Json> items) {
    Json made;
    made.become(Kind::object);
    for (const Json& item : items) {
        if (!is_pair(item)) refuse("an object is made of pairs of key and value");
        made.emplace(item[0].to_string(), item[1]);
    }
    return made;
}

Json::Json(const Json& other) : m_kind(other.m_kind), m_value(other.m_value) {
    switch (m_kind) {
        case Kind::string: m_value.string = new std::string(*other.m_value.string); break;
        case Kind::array: m_value.array = new Array(*other.m_value.array); break;
        case Kind::object: m_value.object = new Object(*other.m_value.object); break;
        default: break;
    }
}

Json::Json(Json&& other) noexcept : m_kind(std::exchange(other.m_kind, Kind::null)), m_value(other.m_value) {}

Json& Json::operator=(const Json& other) {
    if (this != &other) *this = Json(other);
    return *this;
}

Json& Json::operator=(Json&& other) noexcept {
    Json taken(std::move(other));  // `other` may be a part of this value, which must not come to hold itself
    std::swap(m_kind, taken.m_kind);
    std::swap(m_value, taken.m_value);
    return *this;
}

Json::~Json() {
    switch (m_kind) {
        case Kind::string: delete m_value.string; break;
        case Kind::array: delete m_value.array; break;
        case Kind::object: delete m_value.object; break;
        default: break;
    }
}

void Json::become(Kind kind) {
    Json made;
    switch (kind) {
        case Kind::array: made.m_value.array = new Array; break;
        case Kind::object: made.m_value.object = new Object; break;
        default: break;
    }
    made.m_kind = kind;
    *this = std::move(made);
}

const Json& Json::need(Kind kind) const {
    if (m_kind != kind) refuse(fmt::format("the value must be {}, but is {}", word_of(kind), word_of(m_kind)));
    return *this;
}

bool Json::to_bool() const { return need(Kind::boolean).m_value.boolean; }

std::int64_t Json::to_int() const {
    switch (m_kind) {
        case Kind::integer: return m_value.integer;
        case Kind::unsigned_integer: return static_cast<std::int64_t>(m_value.unsigned_integer);
        case Kind::boolean: return m_value.boolean ? 1 : 0;
        default: return static_cast<std::int64_t>(need(Kind::number).m_value.number);
    }
}

std::uint64_t Json::to_unsigned() const {
    return m_kind == Kind::number ? static_cast<std::uint64_t>(m_value.number) : static_cast<std::uint64_t>(to_int());
}

double Json::to_double() const {
    switch (m_kind) {
        case Kind::integer: return static_cast<double>(m_value.integer);
        case Kind::unsigned_integer: return static_cast<double>(m_value.unsigned_integer);
        case Kind::boolean: return m_value.boolean ? 1 : 0;
        default: return need(Kind::number).m_value.number;
    }
}

const std::string& Json::to_string() const { return *need(Kind::string).m_value.string; }

const Json* Json::data() const {
    if (m_kind == Kind::array) return m_value.array->data();
    if (m_kind == Kind::object && !m_value.object->empty()) return &m_value.object->front().value;
    return nullptr;
}

std::size_t Json::stride() const { return m_kind == Kind::object ? sizeof(Member) : sizeof(Json); }

std::size_t Json::count() const { return is_structured() ? size() : 0; }

std::size_t Json::size() const {
    if (m_kind == Kind::array) return m_value.array->size();
    if (m_kind == Kind::object) return m_value.object->size();
    return is_null() ? 0 : 1;
}

const Json* Json::find_member(std::string_view key) const {
    if (m_kind != Kind::object) return nullptr;
    for (const Member& member : *m_value.object) {
        if (member.key == key) return &member.value;
    }
    return nullptr;
}

Json::const_iterator Json::find(std::string_view key) const {
    const Json* found = find_member(key);
    return found == nullptr ? end() : const_iterator(found, stride());
}

Json::iterator Json::find(std::string_view key) {
    const Json* found = find_member(key);
    return found == nullptr ? end() : iterator(const_cast<Json*>(found), stride());
}

Json& Json::operator[](std::string_view key) {
    if (is_null()) become(Kind::object);
    if (const Json* found = find_member(key)) return const_cast<Json&>(*found);
    (void)need(Kind::object);
    return m_value.object->emplace_back(Member{Json(), std::string(key)}).value;
}

const Json& Json::at(std::string_view key) const {
    const Json* found = need(Kind::object).find_member(key);
    if (found == nullptr) refuse(fmt::format("there is no key '{}'", key));
    return *found;
}

Json& Json::at(std::string_view key) { return const_cast<Json&>(std::as_const(*this).at(key)); }

const Json& Json::at(std::size_t index) const {
    const Array& all = *need(Kind::array).m_value.array;
    if (index >= all.size()) refuse(fmt::format("there is no index {}", index));
    return all[index];
}

Json& Json::at(std::size_t index) { return const_cast<Json&>(std::as_const(*this).at(index)); }

void Json::push_back(Json value) {
    if (is_null()) become(Kind::array);
    (void)need(Kind::array);
    m_value.array->push_back(std::move(value));
}

void Json::emplace(std::string_view key, Json value) {
    if (!contains(key)) (*this)[key] = std::move(value);
}

void Json::update(const Json& other) {
    for (const auto& [key, value] : other.need(Kind::object).items()) (*this)[key] = value;
}

std::size_t Json::erase(std::string_view key) {
    return std::erase_if(*need(Kind::object).m_value.object, [&](const Member& member) { return member.key == key; });
}

Json::iterator Json::erase(const_iterator at) {
    const auto index = at - std::as_const(*this).begin();
    if (m_kind == Kind::object) {
        m_value.object->erase(m_value.object->begin() + index);
    } else {
        (void)need(Kind::array);
        m_value.array->erase(m_value.array->begin() + index);
    }
    return begin() + index;
}

void Json::clear() {
    if (is_structured()) become(m_kind);
}

Json::json_pointer::json_pointer(std::string_view text) {
    if (!text.empty() && text.front() != '/') refuse("a JSON pointer begins with '/'");
    while (!text.empty()) {
        text.remove_prefix(1);
        const std::string_view step = text.substr(0, text.find('/'));
        text.remove_prefix(step.size());
        std::string plain;
        for (std::size_t i = 0; i < step.size(); ++i) {
            if (step[i] != '~') {
                plain += step[i];
                continue;
            }
            ++i;
            if (i >= step.size() || (step[i] != '0' && step[i] != '1')) refuse("'~' in a JSON pointer is ~0 or ~1");
            plain += step[i] == '0' ? '~' : '/';
        }
        steps.push_back(std::move(plain));
    }
}

const Json* Json::find_at(const json_pointer& pointer) const {
    const Json* at = this;
    for (const std::string& step : pointer.steps) {
        if (at->is_array()) {
            const auto index = text::parse_int(step);
            const bool is_index = index && *index >= 0 && std::to_string(*index) == step;
            at = is_index && std::cmp_less(*index, at->size()) ? &at->at(static_cast<std::size_t>(*index)) : nullptr;
        } else {
            at = at->find_member(step);
        }
        if (at == nullptr) return nullptr;
    }
    return at;
}

const Json& Json::at(const json_pointer& pointer) const {
    const Json* found = find_at(pointer);
    if (found == nullptr) refuse("nothing is there");
    return *found;
}

Json& Json::operator[](const json_pointer& pointer) {
    Json* at = this;
    for (const std::string& step : pointer.steps) {
        const auto index = at->is_array() ? text::parse_int(step) : std::nullopt;
        at = index ? &at->at(static_cast<std::size_t>(*index)) : &(*at)[step];
    }
    return *at;
}

bool operator==(const Json& a, const Json& b) {
    using Kind = Json::Kind;
    if (a.is_number() && b.is_number() && a.m_kind != b.m_kind) {
        return a.is_number_float() || b.is_number_float() ? a.to_double() == b.to_double() : a.to_int() == b.to_int();
    }
    if (a.m_kind != b.m_kind) return false;
    switch (a.m_kind) {
        case Kind::null: return true;
        case Kind::boolean: return a.m_value.boolean == b.m_value.boolean;
        case Kind::integer: return a.m_value.integer == b.m_value.integer;
        case Kind::unsigned_integer: return a.m_value.unsigned_integer == b.m_value.unsigned_integer;
        case Kind::number: return a.m_value.number == b.m_value.number;
        case Kind::string: return *a.m_value.string == *b.m_value.string;
        case Kind::array: return *a.m_value.array == *b.m_value.array;
        case Kind::object:
            return std::equal(a.m_value.object->begin(), a.m_value.object->end(), b.m_value.object->begin(),
                              b.m_value.object->end(), [](const Json::Member& one, const Json::Member& other) {
                                  return one.key == other.key && one.value == other.value;
                              });
        case Kind::discarded: break;
    }
    return false;
}

std::ostream& operator<<(std::ostream& out, const Json& value) { return out << value.dump(); }

// --- text ------------------------------------------------------------------------------------------------------------

// Builds a value from the parser's events. `keep` may drop values, so that long texts need not be held.
class JsonBuilder final : public nlohmann::json_sax<nlohmann::ordered_json> {
public:
    using Event = Json::parse_event_t;
    explicit JsonBuilder(const Json::Keep& keep) : m_keep(keep) {}

    bool null() override { return put(Json()); }
    bool boolean(bool value) override { return put(Json(value)); }
    bool number_integer(number_integer_t value) override { return put(Json(value)); }
    bool number_unsigned(number_unsigned_t value) override { return put(Json(value)); }
    bool number_float(number_float_t value, const string_t& /*text*/) override { return put(Json(value)); }
    bool string(string_t& value) override { return put(Json(std::move(value))); }
    bool binary(binary_t& /*value*/) override { return false; }
    bool start_object(std::size_t /*size*/) override { return open(Json::object(), Event::object_start); }
    bool start_array(std::size_t /*size*/) override { return open(Json::array(), Event::array_start); }
    bool end_object() override { return close(Event::object_end); }
    bool end_array() override { return close(Event::array_end); }
    bool key(string_t& name) override {
        Json as_value(name);
        m_open.back().wants_next = m_open.back().kept && asked(depth(), Event::key, as_value);
        m_open.back().key = std::move(name);
        return true;
    }
    bool parse_error(std::size_t position, const std::string& /*token*/,
                     const nlohmann::json::exception& /*error*/) override {
        bad_byte = position;
        return false;
    }

    Json root;
    std::size_t bad_byte = 0;  // 0: nothing is wrong
    bool too_deep = false;

private:
    struct Level {
        Json value;
        bool kept = true;
        std::string key;         // of the next value
        bool wants_next = true;  // whether the next value is kept
        std::unordered_set<std::string> seen = {};
    };

    int depth() const { return static_cast<int>(m_open.size()); }
    bool asked(int depth, Event event, Json& value) const { return !m_keep || m_keep(depth, event, value); }
    bool wanted() const { return m_open.empty() || (m_open.back().kept && m_open.back().wants_next); }

    void add(Json value) {
        if (m_open.empty()) {
            root = std::move(value);
            return;
        }
        Level& level = m_open.back();
        if (level.value.is_array()) {
            level.value.push_back(std::move(value));
        } else if (level.seen.insert(level.key).second) {
            level.value.m_value.object->push_back({std::move(value), level.key});
        } else {  // named twice: the last one counts
            level.value[level.key] = std::move(value);
        }
    }
    bool put(Json value) {
        if (!wanted()) return true;
        if (asked(depth(), Event::value, value)) {
            add(std::move(value));
        } else if (m_open.empty()) {
            root = Json();
        }
        return true;
    }
    bool open(Json value, Event event) {
        if (m_open.size() >= Json::k_deepest) {
            too_deep = true;
            return false;
        }
        Json nothing;
        const bool kept = wanted() && asked(depth(), event, nothing);
        m_open.push_back({std::move(value), kept, {}, true, {}});
        return true;
    }
    bool close(Event event) {
        Level level = std::move(m_open.back());
        m_open.pop_back();
        if (level.kept && asked(depth(), event, level.value)) add(std::move(level.value));
        return true;
    }

    const Json::Keep& m_keep;
    std::vector<Level> m_open;
};

namespace {

// nullopt: `byte` says where the text is wrong (0: it is nested too deeply).
std::optional<Json> read(std::string_view text, const Json::Keep& keep, std::size_t& byte) {
    JsonBuilder builder(keep);
    if (nlohmann::ordered_json::sax_parse(text.begin(), text.end(), &builder)) return std::move(builder.root);
    byte = builder.too_deep ? 0 : builder.bad_byte;
    return std::nullopt;
}

nlohmann::ordered_json convert(const Json& value) {
    switch (value.kind()) {
        case Json::Kind::boolean: return value.get<bool>();
        case Json::Kind::integer: return value.get<std::int64_t>();
        case Json::Kind::unsigned_integer: return value.get<std::uint64_t>();
        case Json::Kind::number: return value.get<double>();
        case Json::Kind::string: return value.get<std::string>();
        case Json::Kind::array: {
            auto all = nlohmann::ordered_json::array();
            for (const Json& item : value) all.push_back(convert(item));
            return all;
        }
        case Json::Kind::object: {
            auto all = nlohmann::ordered_json::object();
            auto& members = all.get_ref<nlohmann::ordered_json::object_t&>();
            members.reserve(value.size());
            for (const auto& [key, member] : value.items()) {
                static_cast<std::vector<nlohmann::ordered_json::object_t::value_type>&>(members).emplace_back(
                    key, convert(member));
            }
            return all;
        }
        default: return nullptr;
    }
}

}  // namespace

Json Json::parse(std::string_view text, const Keep& keep, bool throws) {
    std::size_t byte = 0;
    if (auto value = read(text, keep, byte)) return std::move(*value);
    if (throws) refuse(fmt::format("not valid JSON at byte {}", byte));
    Json bad;
    bad.become(Kind::discarded);
    return bad;
}

std::string Json::dump(int indent, char indent_char, bool ascii) const {
    return convert(*this).dump(indent, indent_char, ascii, nlohmann::ordered_json::error_handler_t::replace);
}

Json sorted(const Json& value) {
    if (value.is_array()) {
        Json all = Json::array();
        for (const Json& item : value) all.push_back(sorted(item));
        return all;
    }
    if (!value.is_object()) return value;
    std::map<std::string_view, const Json*> members;
    for (const auto& [key, member] : value.items()) members.emplace(key, &member);
    Json all = Json::object();
    for (const auto& [key, member] : members) all[key] = sorted(*member);
    return all;
}

Result<Json> parse_json(std::string_view text, std::string_view what) {
    std::size_t byte = 0;
    if (auto value = read(text, nullptr, byte)) return std::move(*value);
    if (byte == 0)
        return fail(ErrorKind::bad_input, fmt::format("{}: JSON with more than {} levels", what, Json::k_deepest));
    return fail(ErrorKind::bad_input, fmt::format("{}: not valid JSON at byte {}", what, byte));
}

namespace {

std::string escaped(char32_t c) {
    if (c < 0x10000) return fmt::format("\\u{:04x}", static_cast<std::uint32_t>(c));
    const auto rest = static_cast<std::uint32_t>(c) - 0x10000;
    return fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + (rest >> 10U), 0xDC00 + (rest & 0x3FFU));
}

}  // namespace

std::string to_text(const Json& value, int indent) {
    const std::string text = value.dump(indent);
    const bool ascii = std::all_of(text.begin(), text.end(), [](char c) { return c >= 0 && c != 0x7F; });
    return ascii ? text : text::replace_unseen(text, escaped);
}

}  // namespace gdnctl

namespace gdnctl::json {

namespace {
const Json k_null;
}  // namespace

const Json* find(const Json& value, std::string_view name) {
    if (!value.is_object()) return nullptr;
    const auto found = value.find(std::string(name));
    return found == value.end() || found->is_null() ? nullptr : &*found;
}

const Json& field(const Json& value, std::string_view name) {
    const Json* found = find(value, name);
    return found != nullptr ? *found : k_null;
}

const Json* find_at(const Json& value, std::string_view pointer) {
    const Json* at = &value;
    while (at != nullptr && !pointer.empty()) {
        pointer.remove_prefix(1);
        const std::string_view step = pointer.substr(0, pointer.find('/'));
        pointer.remove_prefix(step.size());
        if (at->is_array()) {
            const auto index = text::parse_int(step);
            at = index && *index >= 0 && std::cmp_less(*index, at->size()) ? &(*at)[static_cast<std::size_t>(*index)]
                                                                           : nullptr;
        } else {
            at = find(*at, step);
        }
    }
    return at == nullptr || at->is_null() ? nullptr : at;
}

const Json& field_at(const Json& value, std::string_view pointer) {
    const Json* found = find_at(value, pointer);
    return found != nullptr ? *found : k_null;
}

namespace {

const Json* as_object(const Json* found) { return found != nullptr && found->is_object() ? found : nullptr; }
const Json* as_array(const Json* found) { return found != nullptr && found->is_array() ? found : nullptr; }

std::optional<std::string> as_text(const Json* found) {
    return found != nullptr && found->is_string() ? std::optional(found->get<std::string>()) : std::nullopt;
}

std::vector<std::string> as_texts(const Json* found) {
    std::vector<std::string> list;
    if (as_array(found) == nullptr) return list;
    for (const Json& item : *found) {
        if (item.is_string()) list.push_back(item.get<std::string>());
    }
    return list;
}

std::optional<double> as_number(const Json* found) {
    return found != nullptr && found->is_number() ? std::optional(found->get<double>()) : std::nullopt;
}

std::optional<std::int64_t> as_integer(const Json* found) {
    return found != nullptr && found->is_number_integer() ? std::optional(found->get<std::int64_t>()) : std::nullopt;
}

}  // namespace

const Json* object(const Json& value, std::string_view name) { return as_object(find(value, name)); }
const Json* object_at(const Json& value, std::string_view pointer) { return as_object(find_at(value, pointer)); }
const Json* array(const Json& value, std::string_view name) { return as_array(find(value, name)); }
const Json* array_at(const Json& value, std::string_view pointer) { return as_array(find_at(value, pointer)); }

std::optional<std::string> maybe_text(const Json& value, std::string_view name) { return as_text(find(value, name)); }
std::string text(const Json& value, std::string_view name) { return as_text(find(value, name)).value_or(""); }
std::vector<std::string> texts(const Json& value, std::string_view name) { return as_texts(find(value, name)); }
std::optional<double> number(const Json& value, std::string_view name) { return as_number(find(value, name)); }
std::optional<std::int64_t> integer(const Json& value, std::string_view name) { return as_integer(find(value, name)); }

std::vector<double> numbers(const Json& value, std::string_view name) {
    std::vector<double> list;
    const Json* found = array(value, name);
    if (found == nullptr) return list;
    for (const Json& item : *found) {
        if (item.is_number()) list.push_back(item.get<double>());
    }
    return list;
}

std::optional<bool> boolean(const Json& value, std::string_view name) {
    const Json* found = find(value, name);
    return found != nullptr && found->is_boolean() ? std::optional(found->get<bool>()) : std::nullopt;
}

std::optional<WallTime> time_ms(const Json& value, std::string_view name) {
    const auto ms = integer(value, name);
    return ms ? std::optional(WallTime(std::chrono::milliseconds(*ms))) : std::nullopt;
}

std::string text_at(const Json& value, std::string_view pointer) {
    return as_text(find_at(value, pointer)).value_or("");
}
std::vector<std::string> texts_at(const Json& value, std::string_view pointer) {
    return as_texts(find_at(value, pointer));
}
std::optional<double> number_at(const Json& value, std::string_view pointer) {
    return as_number(find_at(value, pointer));
}
std::optional<std::int64_t> integer_at(const Json& value, std::string_view pointer) {
    return as_integer(find_at(value, pointer));
}

Json or_null(const std::optional<double>& value) { return value && std::isfinite(*value) ? Json(*value) : Json(); }
Json or_null(const std::optional<std::int64_t>& value) { return value ? Json(*value) : Json(); }
Json or_null(const std::optional<int>& value) { return value ? Json(*value) : Json(); }
Json or_null(const std::optional<std::string>& value) { return value ? Json(*value) : Json(); }
Json or_null(const std::string& value) { return value.empty() ? Json() : Json(value); }

}  // namespace gdnctl::json
