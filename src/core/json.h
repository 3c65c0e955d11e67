// JSON values, and readers of fields that others wrote.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <iosfwd>
#include <iterator>
#include <optional>
#include <ranges>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/result.h"
#include "core/time.h"

namespace gdnctl {

// A JSON value; objects keep the order of their keys, so that output has the same order each time. It is a plain class
// on top of nlohmann/json, which only core/json.cpp includes: what reads or builds values compiles three times as fast.
// Functions that name a wrong type, key or index throw Json::exception, as a bug or as "this is not our record".
class Json {
public:
    enum class Kind : std::uint8_t {
        null,
        boolean,
        integer,
        unsigned_integer,
        number,
        string,
        array,
        object,
        discarded
    };
    struct exception : std::runtime_error {
        using std::runtime_error::runtime_error;
    };
    struct Member;
    using Array = std::vector<Json>;
    using Object = std::vector<Member>;

    Json() noexcept = default;
    Json(std::nullptr_t) noexcept {}
    template <class T>
        requires std::is_arithmetic_v<T>
    Json(T value) noexcept {
        if constexpr (std::is_same_v<T, bool>) {
            set(value);
        } else if constexpr (std::is_floating_point_v<T>) {
            set(static_cast<double>(value));
        } else if constexpr (std::is_signed_v<T>) {
            set(static_cast<std::int64_t>(value));
        } else {
            set(static_cast<std::uint64_t>(value));
        }
    }
    // A template, so that a list in braces never is a string: Json({"a"}) is an array.
    template <class Text>
        requires(std::convertible_to<const Text&, std::string_view> && !std::is_same_v<std::remove_cvref_t<Text>, Json>)
    Json(Text&& value) {
        set(std::string(std::forward<Text>(value)));
    }
    // An object if every item is a pair that begins with a string, otherwise an array.
    Json(std::initializer_list<Json> items);
    // An object of a map with strings as keys, an array of any other range.
    template <std::ranges::input_range Range>
        requires(!std::convertible_to<Range, std::string_view> && !std::convertible_to<Range, std::string> &&
                 !std::is_same_v<std::remove_cvref_t<Range>, Json>)
    Json(const Range& range) {
        if constexpr (requires(std::ranges::range_value_t<Range> item) { item.second; }) {
            become(Kind::object);
            for (const auto& [key, value] : range) (*this)[key] = Json(value);
        } else {
            become(Kind::array);
            for (const auto& value : range) push_back(Json(value));
        }
    }
    Json(const Json& other);
    Json(Json&& other) noexcept;
    Json& operator=(const Json& other);
    Json& operator=(Json&& other) noexcept;
    ~Json();

    static Json array(std::initializer_list<Json> items = {});
    static Json object(std::initializer_list<Json> items = {});

    // `keep` is asked at the end of each value, with its depth, whether to keep it, and at each key and start of an
    // object or array. Without `throws`, bad text gives a discarded value. At most k_deepest levels.
    enum class parse_event_t : std::uint8_t { object_start, object_end, array_start, array_end, key, value };
    using Keep = std::function<bool(int depth, parse_event_t event, Json& value)>;
    static Json parse(std::string_view text, const Keep& keep = nullptr, bool throws = true);
    static constexpr std::size_t k_deepest = 2000;
    // Invalid UTF-8 becomes U+FFFD. `indent` < 0 prints one line.
    std::string dump(int indent = -1, char indent_char = ' ', bool ascii = false) const;

    Kind kind() const { return m_kind; }
    bool is_null() const { return m_kind == Kind::null; }
    bool is_boolean() const { return m_kind == Kind::boolean; }
    bool is_number() const { return is_number_integer() || is_number_float(); }
    bool is_number_integer() const { return m_kind == Kind::integer || m_kind == Kind::unsigned_integer; }
    bool is_number_unsigned() const { return m_kind == Kind::unsigned_integer; }
    bool is_number_float() const { return m_kind == Kind::number; }
    bool is_string() const { return m_kind == Kind::string; }
    bool is_array() const { return m_kind == Kind::array; }
    bool is_object() const { return m_kind == Kind::object; }
    bool is_structured() const { return is_array() || is_object(); }
    bool is_discarded() const { return m_kind == Kind::discarded; }

    // The value as T: bool, a number, std::string, or a vector, set or map of such.
    template <class T>
    T get() const {
        if constexpr (std::is_same_v<T, Json>) {
            return *this;
        } else if constexpr (std::is_same_v<T, bool>) {
            return to_bool();
        } else if constexpr (std::is_floating_point_v<T>) {
            return static_cast<T>(to_double());
        } else if constexpr (std::is_integral_v<T> && std::is_signed_v<T>) {
            return static_cast<T>(to_int());
        } else if constexpr (std::is_integral_v<T>) {
            return static_cast<T>(to_unsigned());
        } else if constexpr (std::is_same_v<T, std::string>) {
            return to_string();
        } else if constexpr (requires { typename T::mapped_type; }) {
            T all;
            const Json& members = need(Kind::object);
            for (auto at = members.begin(); at != members.end(); ++at) {
                all.emplace(at.key(), at->template get<typename T::mapped_type>());
            }
            return all;
        } else {
            T all;
            for (const Json& item : need(Kind::array)) all.insert(all.end(), item.get<typename T::value_type>());
            return all;
        }
    }
    template <class T>
    T get_ref() const {
        static_assert(std::is_same_v<T, const std::string&>);
        return to_string();
    }
    // The field `key` as T; `otherwise` if there is none.
    template <class T>
    T value(std::string_view key, T otherwise) const {
        const Json* found = find_member(key);
        return found == nullptr ? std::move(otherwise) : found->get<T>();
    }
    std::string value(std::string_view key, const char* otherwise) const { return value(key, std::string(otherwise)); }

    // A missing key is added, and null becomes an object, unless the value is const.
    Json& operator[](std::string_view key);
    const Json& operator[](std::string_view key) const { return at(key); }
    template <std::integral Index>
    Json& operator[](Index index) {
        return at(static_cast<std::size_t>(index));
    }
    template <std::integral Index>
    const Json& operator[](Index index) const {
        return at(static_cast<std::size_t>(index));
    }
    Json& at(std::string_view key);
    const Json& at(std::string_view key) const;
    Json& at(std::size_t index);
    const Json& at(std::size_t index) const;
    const Json& front() const { return at(std::size_t{0}); }
    Json& front() { return at(std::size_t{0}); }
    const Json& back() const { return at(size() - 1); }
    Json& back() { return at(size() - 1); }
    bool contains(std::string_view key) const { return find_member(key) != nullptr; }
    std::size_t size() const;  // 1 for what is neither null, array nor object
    bool empty() const { return size() == 0; }

    // Null becomes an array.
    void push_back(Json value);
    Json& emplace_back(Json value) {
        push_back(std::move(value));
        return back();
    }
    // Adds a member if the key is new.
    void emplace(std::string_view key, Json value);
    // Adds the members of `other`, or replaces them.
    void update(const Json& other);
    std::size_t erase(std::string_view key);
    template <std::integral Index>
    void erase(Index index) {
        erase(begin() + static_cast<std::ptrdiff_t>(index));
    }
    void clear();

    // Elements of an array, or values of an object in order; nothing for other values.
    template <bool Const>
    class Iterator {
    public:
        using value_type = Json;
        using reference = std::conditional_t<Const, const Json&, Json&>;
        using pointer = std::conditional_t<Const, const Json*, Json*>;
        using difference_type = std::ptrdiff_t;
        using iterator_category = std::random_access_iterator_tag;
        Iterator() = default;
        Iterator(pointer at, std::size_t stride) : m_at(at), m_stride(static_cast<difference_type>(stride)) {}
        operator Iterator<true>() const { return {m_at, static_cast<std::size_t>(m_stride)}; }
        reference operator*() const { return *m_at; }
        pointer operator->() const { return m_at; }
        reference value() const { return *m_at; }
        const std::string& key() const;
        Iterator& operator+=(difference_type n) {
            using Byte = std::conditional_t<Const, const char, char>;
            m_at = reinterpret_cast<pointer>(reinterpret_cast<Byte*>(m_at) + n * m_stride);
            return *this;
        }
        Iterator& operator-=(difference_type n) { return *this += -n; }
        Iterator& operator++() { return *this += 1; }
        Iterator& operator--() { return *this -= 1; }
        Iterator operator++(int) {
            Iterator before = *this;
            ++*this;
            return before;
        }
        Iterator operator--(int) {
            Iterator before = *this;
            --*this;
            return before;
        }
        friend Iterator operator+(Iterator it, difference_type n) { return it += n; }
        friend Iterator operator+(difference_type n, Iterator it) { return it += n; }
        friend Iterator operator-(Iterator it, difference_type n) { return it -= n; }
        friend difference_type operator-(const Iterator& a, const Iterator& b) {
            return a.m_stride == 0
                       ? 0
                       : (reinterpret_cast<const char*>(a.m_at) - reinterpret_cast<const char*>(b.m_at)) / a.m_stride;
        }
        reference operator[](difference_type n) const { return *(*this + n); }
        friend bool operator==(const Iterator& a, const Iterator& b) { return a.m_at == b.m_at; }
        friend auto operator<=>(const Iterator& a, const Iterator& b) { return a.m_at <=> b.m_at; }

    private:
        pointer m_at = nullptr;
        difference_type m_stride = 0;
    };
    using iterator = Iterator<false>;
    using const_iterator = Iterator<true>;
    iterator begin() { return iterator(const_cast<Json*>(data()), stride()); }
    iterator end() { return begin() + static_cast<std::ptrdiff_t>(count()); }
    std::reverse_iterator<iterator> rbegin() { return std::reverse_iterator(end()); }
    std::reverse_iterator<iterator> rend() { return std::reverse_iterator(begin()); }
    const_iterator begin() const { return const_iterator(data(), stride()); }
    const_iterator end() const { return begin() + static_cast<std::ptrdiff_t>(count()); }
    // end(): there is none.
    iterator find(std::string_view key);
    const_iterator find(std::string_view key) const;
    iterator erase(const_iterator at);

    // for (const auto& [key, value] : object.items())
    template <bool Const>
    struct Item {
        Iterator<Const> at;
        std::string index;  // of an array's element; "": the value has a key
        const std::string& key() const { return index.empty() ? at.key() : index; }
        auto& value() const { return *at; }
        template <std::size_t I>
        auto& get() const {
            if constexpr (I == 0) {
                return key();
            } else {
                return *at;
            }
        }
    };
    template <bool Const>
    class Items {
    public:
        class Walk {
        public:
            Walk(Iterator<Const> at, bool has_keys) : m_at(at), m_has_keys(has_keys) {}
            Item<Const> operator*() const { return {m_at, m_has_keys ? std::string() : std::to_string(m_index)}; }
            Walk& operator++() {
                ++m_at;
                ++m_index;
                return *this;
            }
            bool operator==(const Walk& other) const { return m_at == other.m_at; }

        private:
            Iterator<Const> m_at;
            bool m_has_keys;
            std::size_t m_index = 0;
        };
        Items(Iterator<Const> first, Iterator<Const> last, bool has_keys)
            : m_first(first), m_last(last), m_has_keys(has_keys) {}
        Walk begin() const { return Walk(m_first, m_has_keys); }
        Walk end() const { return Walk(m_last, m_has_keys); }

    private:
        Iterator<Const> m_first, m_last;
        bool m_has_keys;
    };
    // The keys of an array are "0", "1" and so on.
    Items<false> items() { return {begin(), end(), is_object()}; }
    Items<true> items() const { return {begin(), end(), is_object()}; }

    // "/a/0/b" (RFC 6901); throws if the text is none.
    struct json_pointer {
        explicit json_pointer(std::string_view text);
        std::vector<std::string> steps;
    };
    bool contains(const json_pointer& pointer) const { return find_at(pointer) != nullptr; }
    const Json& at(const json_pointer& pointer) const;
    Json& operator[](const json_pointer& pointer);  // adds the objects that are missing on the way

    // Numbers are equal by value, objects if their members are in the same order.
    friend bool operator==(const Json& a, const Json& b);
    friend std::ostream& operator<<(std::ostream& out, const Json& value);

private:
    friend class JsonBuilder;
    void set(bool value) noexcept { m_kind = Kind::boolean, m_value.boolean = value; }
    void set(std::int64_t value) noexcept { m_kind = Kind::integer, m_value.integer = value; }
    void set(std::uint64_t value) noexcept { m_kind = Kind::unsigned_integer, m_value.unsigned_integer = value; }
    void set(std::string value);
    void set(double value) noexcept { m_kind = Kind::number, m_value.number = value; }
    void become(Kind kind);
    const Json& need(Kind kind) const;
    bool to_bool() const;
    std::int64_t to_int() const;
    std::uint64_t to_unsigned() const;
    double to_double() const;
    const std::string& to_string() const;
    const Json* find_member(std::string_view key) const;
    const Json* find_at(const json_pointer& pointer) const;
    const Json* data() const;
    std::size_t stride() const;
    std::size_t count() const;

    union Value {
        bool boolean;
        std::int64_t integer;
        std::uint64_t unsigned_integer;
        double number;
        std::string* string;
        Array* array;
        Object* object;
    };
    Kind m_kind = Kind::null;
    Value m_value = {};
};

// A field of an object. The value is first, so that Json::Iterator can walk over values of both kinds.
struct Json::Member {
    Json value;
    std::string key;
};

template <bool Const>
const std::string& Json::Iterator<Const>::key() const {
    return reinterpret_cast<const Member*>(m_at)->key;
}

// The same value with the keys of all objects in order of the alphabet.
Json sorted(const Json& value);

// Parses one JSON text (UTF-8). Never throws. On failure: bad_input, naming `what` and the byte offset.
Result<Json> parse_json(std::string_view text, std::string_view what);

// Serialises for stdout and state files. Invalid UTF-8 becomes U+FFFD; this never throws. `indent` < 0 prints one line.
// Characters that text::visible() escapes are written as \uXXXX, which is the same JSON.
std::string to_text(const Json& value, int indent = -1);

}  // namespace gdnctl

namespace gdnctl::json {

// Reads fields of JSON that others wrote: a field that is missing, null or of another type is nothing.

// nullptr: missing or null, or `value` is no object.
const Json* find(const Json& value, std::string_view name);
// "/a/b": field `b` of field `a`, or an index of a list (a JSON pointer without its escapes).
const Json* find_at(const Json& value, std::string_view pointer);

const Json& field(const Json& value, std::string_view name);  // a null where `find` gives nullptr
const Json& field_at(const Json& value, std::string_view pointer);

// nullptr also for a value of another type.
const Json* object(const Json& value, std::string_view name);
const Json* object_at(const Json& value, std::string_view pointer);
const Json* array(const Json& value, std::string_view name);
const Json* array_at(const Json& value, std::string_view pointer);

std::optional<std::string> maybe_text(const Json& value, std::string_view name);
std::string text(const Json& value, std::string_view name);                // "": nothing
std::vector<std::string> texts(const Json& value, std::string_view name);  // the strings of a list
std::optional<double> number(const Json& value, std::string_view name);
std::vector<double> numbers(const Json& value, std::string_view name);  // the numbers of a list
std::optional<std::int64_t> integer(const Json& value, std::string_view name);
std::optional<bool> boolean(const Json& value, std::string_view name);
std::optional<WallTime> time_ms(const Json& value, std::string_view name);  // from milliseconds since 1970

std::string text_at(const Json& value, std::string_view pointer);
std::vector<std::string> texts_at(const Json& value, std::string_view pointer);
std::optional<double> number_at(const Json& value, std::string_view pointer);
std::optional<std::int64_t> integer_at(const Json& value, std::string_view pointer);

// For writing: null where there is nothing, the number is not finite, or the text is empty.
Json or_null(const std::optional<double>& value);
Json or_null(const std::optional<std::int64_t>& value);
Json or_null(const std::optional<int>& value);
Json or_null(const std::optional<std::string>& value);
Json or_null(const std::string& value);

}  // namespace gdnctl::json

template <bool Const>
struct std::tuple_size<gdnctl::Json::Item<Const>> : std::integral_constant<std::size_t, 2> {};
template <std::size_t I, bool Const>
struct std::tuple_element<I, gdnctl::Json::Item<Const>> {
    using type = decltype(std::declval<const gdnctl::Json::Item<Const>&>().template get<I>());
};
