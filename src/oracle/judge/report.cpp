#include "oracle/judge/report.h"

#include <cmath>
#include <map>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/text.h"

namespace gdnctl::oracle_report {

using oracle::Verdict;
using oracle::Worst;

ExitCode exit_code_of(Verdict verdict, bool allow_suspect) {
    switch (verdict) {
        case Verdict::ok: return ExitCode::ok;
        case Verdict::suspect: return allow_suspect ? ExitCode::ok : ExitCode::check_failed;
        case Verdict::wrong: return ExitCode::check_failed;
        case Verdict::unstable_input:
        case Verdict::no_data: return ExitCode::bad_input;
    }
    return ExitCode::internal;
}

std::string wrapped(std::string_view first, const std::vector<std::string>& words) {
    std::string text(first);
    std::size_t column = first.size();
    for (std::size_t i = 0; i < words.size(); ++i) {
        const bool last = i + 1 == words.size();
        const std::string word = text::visible(words[i]);
        if (column + word.size() + 1 > 100) {
            if (text.ends_with(' ')) text.pop_back();
            text += "\n  ";
            column = 2;
        }
        text += word + (last ? "" : ", ");
        column += word.size() + 2;
    }
    return text + "\n";
}

std::string place_text(const Worst& worst) {
    std::string index;
    std::size_t axis = 0;
    for (const std::int64_t i : worst.index) {
        index += fmt::format("{}{}={}", index.empty() ? "" : ",", worst.axes[2 * axis], i);
        ++axis;
    }
    return fmt::format("{}[{}] got {:.9g}, want {:.9g}", worst.tensor, index, worst.got, worst.want);
}

std::string not_compared_text(const std::vector<oracle::NotCompared>& missing) {
    std::string text;
    std::vector<std::string> reasons;
    for (const auto& item : missing) {
        if (std::find(reasons.begin(), reasons.end(), item.reason) == reasons.end()) reasons.push_back(item.reason);
    }
    for (const std::string& reason : reasons) {
        std::vector<std::string> names;
        for (const auto& item : missing) {
            if (item.reason == reason) names.push_back(item.tensor);
        }
        text += wrapped(fmt::format("not compared ({}): ", reason), names);
    }
    return text;
}

std::vector<std::string> unread_names(const std::vector<oracle::UnreadTensor>& unread) {
    std::vector<std::string> names;
    for (const auto& item : unread) names.push_back(fmt::format("{} ({})", item.name, item.dtype));
    return names;
}

std::string left_alone_text(const std::vector<std::string>& unknown, const std::vector<oracle::UnreadTensor>& unread) {
    std::string text;
    if (!unknown.empty()) text += wrapped("unknown tensors: ", unknown);
    if (unread.empty()) return text;
    return text + wrapped("not read because of the dtype: ", unread_names(unread));
}

std::string missing_gradients_text(bool some, const std::vector<std::string>& missing) {
    if (!some) return "FORWARD ONLY: no gradient was compared\n";
    return missing.empty() ? std::string() : wrapped("GRADIENTS MISSING: ", missing);
}

Json number(double x) {
    if (std::isnan(x)) return "NaN";
    if (std::isinf(x)) return x > 0 ? "Infinity" : "-Infinity";
    return x;
}

void add_left_alone(Json& object, const std::vector<std::string>& unknown,
                    const std::vector<oracle::UnreadTensor>& unread) {
    object["unknown_tensors"] = unknown;
    object["unread_tensors"] = Json::array();
    for (const auto& item : unread) object["unread_tensors"].push_back({{"tensor", item.name}, {"dtype", item.dtype}});
}

Json worst_json(const std::optional<Worst>& worst) {
    if (!worst) return nullptr;
    return {{"tensor", worst->tensor},
            {"axes", worst->axes},
            {"index", worst->index},
            {"got", number(worst->got)},
            {"want", number(worst->want)}};
}

}  // namespace gdnctl::oracle_report
