#include "platform/yaml.h"

#include <new>
#include <sstream>

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include "core/json.h"

namespace gdnctl {

namespace {

// Aliases repeat what they name, so a small file could otherwise expand without limit.
constexpr int k_most_yaml_values = 100'000;
constexpr int k_deepest_yaml = 64;

struct YamlTooLarge {
    const char* why;
};

class YamlConverter {
public:
    Json convert(const YAML::Node& node, int depth) {
        if (depth > k_deepest_yaml) throw YamlTooLarge{"nested too deeply"};
        if (++m_values > k_most_yaml_values) throw YamlTooLarge{"too large"};
        switch (node.Type()) {
            case YAML::NodeType::Scalar: return node.Scalar();
            case YAML::NodeType::Sequence: {
                Json list = Json::array();
                for (const YAML::Node& item : node) list.push_back(convert(item, depth + 1));
                return list;
            }
            case YAML::NodeType::Map: return convert_map(node, depth);
            case YAML::NodeType::Null:
            case YAML::NodeType::Undefined: break;
        }
        return nullptr;
    }

private:
    Json convert_map(const YAML::Node& node, int depth) {
        Json map = Json::object();
        Json inherited = Json::array();
        for (const auto& entry : node) {
            const std::string key = entry.first.IsScalar() ? entry.first.Scalar() : std::string();
            if (key == "<<") {
                Json base = convert(entry.second, depth + 1);
                if (base.is_array()) {
                    for (Json& each : base) inherited.push_back(std::move(each));
                } else {
                    inherited.push_back(std::move(base));
                }
            } else {
                map[key] = convert(entry.second, depth + 1);
            }
        }
        for (const Json& base : inherited) {
            if (!base.is_object()) continue;
            for (const auto& [key, value] : base.items()) {
                if (!map.contains(key)) map[key] = value;
            }
        }
        return map;
    }

    int m_values = 0;
};

}  // namespace

Result<Json> parse_yaml(std::string_view text, std::string_view what) {
    try {
        return YamlConverter().convert(YAML::Load(std::string(text)), 0);
    } catch (const YAML::Exception& problem) {
        const int line = problem.mark.line + 1;
        const std::string where = line > 0 ? fmt::format(":{}", line) : std::string();
        return fail(ErrorKind::config, fmt::format("{}{}: not YAML: {}", what, where, problem.msg));
    } catch (const YamlTooLarge& problem) {
        return fail(ErrorKind::config, fmt::format("{}: {}", what, problem.why));
    } catch (const std::bad_alloc&) {
        throw;
    } catch (const std::exception& problem) {
        return fail(ErrorKind::config, fmt::format("{}: not YAML: {}", what, problem.what()));
    }
}

}  // namespace gdnctl
