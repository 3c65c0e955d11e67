// What the tensors of a linear cross-entropy mean. Two files with equal bytes can mean different things, so every
// verdict states the contract it was reached under, and where each field comes from.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "oracle/judge/verdict.h"
#include "oracle/linear_ce/kernels/passes.h"
#include "oracle/tensor/tensor.h"

namespace gdnctl::oracle::linear_ce {

enum class Reduction { mean, sum, none };  // none: gradients are of the sum, and there is no `reduced`
// Operands are rounded before each product: to bf16 as a TPU does by default, to the 10 mantissa bits of tf32 as JAX
// and PyTorch do on NVIDIA devices.
enum class Matmul { exact, tf32, bf16 };
enum class Logits { f32, bf16 };  // bf16: rounded before the cap and the softmax

struct Contract {
    Layout layout = Layout::hv;
    double soft_cap = 0;          // 0: none
    double logsumexp_weight = 0;  // lambda of the penalty lambda lse^2
    Reduction reduction = Reduction::mean;
    Matmul matmul = Matmul::exact;
    Logits logits = Logits::f32;
    std::optional<std::int64_t> ignore_index;
};

using Field = ContractField;

struct ResolvedContract {
    Contract value;
    std::vector<Field> fields;  // every field, in a fixed order

    std::map<std::string, std::string> as_metadata() const;
};

// What the command line says instead of the file.
struct Overrides {
    std::optional<std::string> layout, reduction, matmul, logits;
    std::optional<double> soft_cap, logsumexp_weight;
    std::optional<std::int64_t> ignore_index;
    std::map<std::string, std::string> sets;  // field: value, of --set; these win
};

// Fields that --set can change: "layout", "soft_cap", ...
std::vector<std::string> contract_field_names();

// "FIELD=VALUE", as --set takes it. usage: an unknown field or value.
Status set_field(std::string_view set, Overrides& to);

// Metadata of the inputs file, then `overrides`. bad_input: no layout anywhere, a soft cap that is not positive, a
// value that a field does not know, metadata of another operator.
Result<ResolvedContract> resolve(const std::map<std::string, std::string>& metadata, const Overrides& overrides);

std::string_view name_of(Layout layout);  // "hv"
std::string_view name_of(Reduction reduction);
std::string_view name_of(Matmul matmul);
std::string_view name_of(Logits logits);

// What a kernel is declared to compute, and what that makes of a case's inputs.

// Changes the metadata of inputs, and the layout of w, to what is declared ("field=value"). Fields of precision apply
// to all inputs. All others are fixed: inputs that need another value are left as they are, and the value that they
// need is returned ("layout=vh"); else nothing is. Usage errors: an unknown field or value.
Result<std::optional<std::string>> declare(TensorFile& inputs, std::span<const std::string> sets);

}  // namespace gdnctl::oracle::linear_ce
