#include "oracle/linear_ce/judge/declared.h"

#include <fmt/format.h>

#include "core/text.h"
#include "oracle/linear_ce/judge/contract.h"

namespace gdnctl::oracle::linear_ce {

namespace {

bool is_precision(std::string_view field) { return field == "matmul" || field == "logits"; }

bool is_same_value(const std::string& a, const std::string& b) {
    if (a == b) return true;
    const auto x = text::parse_double(a);
    const auto y = text::parse_double(b);
    return x && y && *x == *y;
}

void turn(Tensor& w) {
    const auto rows = static_cast<std::size_t>(w.shape[0]);
    const auto columns = static_cast<std::size_t>(w.shape[1]);
    const std::vector<double> from = to_f64(w);
    std::vector<double> to(from.size());
    for (std::size_t r = 0; r < rows; ++r) {
        for (std::size_t k = 0; k < columns; ++k) to[k * rows + r] = from[r * columns + k];
    }
    w = from_f64(to, {w.shape[1], w.shape[0]}, w.dtype);
}

}  // namespace

Result<std::optional<std::string>> declare(TensorFile& inputs, std::span<const std::string> sets) {
    Overrides overrides;
    for (const std::string& set : sets) GDNCTL_TRY(set_field(set, overrides));
    GDNCTL_TRY_ASSIGN(const auto plain, resolve({{"layout", "hv"}}, {}));
    GDNCTL_TRY_ASSIGN(const auto own, resolve(inputs.metadata, {}));
    GDNCTL_TRY_ASSIGN(const auto declared, resolve(inputs.metadata, overrides));
    for (std::size_t i = 0; i < own.fields.size(); ++i) {
        const auto& [field, needed, origin] = own.fields[i];
        if (is_precision(field) || is_same_value(needed, declared.fields[i].value)) continue;
        if (!is_same_value(needed, plain.fields[i].value)) {
            return std::optional(fmt::format("{}={}", field, needed));
        }
    }
    if (own.value.layout != declared.value.layout) {
        for (NamedTensor& entry : inputs.tensors) {
            if (entry.name == "w") turn(entry.tensor);
        }
    }
    for (const auto& field : declared.fields) inputs.metadata.erase(field.name);
    for (const auto& [field, value] : declared.as_metadata()) inputs.metadata[field] = value;
    return std::optional<std::string>();
}

}  // namespace gdnctl::oracle::linear_ce
