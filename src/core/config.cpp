#include "core/config.h"

#include <fmt/format.h>

#include "core/text.h"

namespace gdnctl {

namespace {

void merge(ConfigTable& base, const ConfigTable& layer) {
    for (const auto& [key, value] : layer) {
        const auto found = base.find(key);
        auto* inner = found == base.end() ? nullptr : std::get_if<ConfigTable>(&found->second.value);
        const ConfigTable* over = value.as_table();
        if (inner != nullptr && over != nullptr) {
            merge(*inner, *over);
            found->second.origin = value.origin;
        } else {
            base.insert_or_assign(key, value);
        }
    }
}

template <class T>
Result<std::optional<T>> typed(const Config& config, std::string_view path, std::string_view type) {
    const ConfigValue* value = config.find(path);
    if (value == nullptr) return std::optional<T>();
    if (const T* found = std::get_if<T>(&value->value)) return std::optional<T>(*found);
    return fail(ErrorKind::config, fmt::format("{}: '{}' must be {}", value->origin.text(), path, type));
}

}  // namespace

std::string ConfigOrigin::text() const {
    switch (kind) {
        case Kind::builtin: return "built-in";
        case Kind::environment: return "environment " + source;
        case Kind::flag: return "option " + source;
        case Kind::user_file:
        case Kind::project_file: break;
    }
    return line > 0 ? fmt::format("{}:{}", source, line) : source;
}

const ConfigValue* Config::find(std::string_view dotted_path) const {
    const ConfigTable* table = &m_root;
    const ConfigValue* value = nullptr;
    for (const std::string_view key : text::split(dotted_path, '.')) {
        if (table == nullptr) return nullptr;
        const auto found = table->find(key);
        if (found == table->end()) return nullptr;
        value = &found->second;
        table = value->as_table();
    }
    return value;
}

Result<std::optional<std::string>> Config::string(std::string_view dotted_path) const {
    return typed<std::string>(*this, dotted_path, "a string");
}

Result<std::optional<std::int64_t>> Config::integer(std::string_view dotted_path) const {
    return typed<std::int64_t>(*this, dotted_path, "a whole number");
}

Result<std::optional<bool>> Config::boolean(std::string_view dotted_path) const {
    return typed<bool>(*this, dotted_path, "true or false");
}

void Config::overlay(const ConfigTable& layer) { merge(m_root, layer); }

}  // namespace gdnctl
