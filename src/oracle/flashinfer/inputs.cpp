#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "oracle/flashinfer/flashinfer.h"
#include "oracle/tensor/random.h"

namespace gdnctl::oracle::flashinfer {

namespace {

using Bad = tl::unexpected<Error>;

Bad bad(const Workload& w, std::string_view detail) {
    return fail(ErrorKind::bad_input, fmt::format("workload {}: {}", w.uuid, detail));
}

std::uint64_t hash_of(std::string_view text) {
    std::uint64_t h = 14695981039346656037ULL;
    for (const char c : text) h = (h ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
    return h;
}

DType dtype_of(std::string_view name) {
    if (name == "bfloat16") return DType::bf16;
    if (name == "int64") return DType::i64;
    if (name == "int32") return DType::i32;
    return DType::f32;
}

std::int64_t axis_of(const GdnDefinition& d, const Workload& w, std::string_view name) {
    for (const Axis& axis : d.definition.axes) {
        if (axis.name == name && axis.value) return *axis.value;
    }
    const auto found = w.axes.find(std::string(name));
    return found == w.axes.end() ? 0 : found->second;
}

// All of this input's values, or those of some rows of it: row i of the result is row rows[i].
Tensor random_tensor(std::uint64_t seed, const TensorSpec& spec, const Shape& shape,
                     const std::vector<std::int64_t>& rows) {
    const std::size_t count = element_count(shape).value_or(0);
    const std::size_t width = rows.empty() ? count : count / rows.size();
    const std::uint64_t stream = hash_of(spec.name);
    std::vector<double> values;
    values.reserve(count);
    for (std::size_t i = 0; i < std::max<std::size_t>(rows.size(), 1); ++i) {
        Random random(seed, stream + (rows.empty() ? 0 : static_cast<std::uint64_t>(rows[i])));
        for (std::size_t n = 0; n < width; ++n) values.push_back(random.normal());
    }
    return from_f64(values, shape, dtype_of(spec.dtype));
}

Tensor chosen_rows(const Tensor& tensor, const std::vector<std::int64_t>& rows) {
    Tensor chosen{tensor.dtype, tensor.shape, {}};
    const auto all = static_cast<std::size_t>(std::max<std::int64_t>(tensor.shape.front(), 1));
    const std::size_t width = tensor.bytes.size() / all;
    chosen.shape.front() = static_cast<std::int64_t>(rows.size());
    chosen.bytes.resize(width * rows.size());
    for (std::size_t i = 0; i < rows.size(); ++i) {
        std::copy_n(tensor.bytes.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(rows[i]) * width),
                    width, chosen.bytes.begin() + static_cast<std::ptrdiff_t>(i * width));
    }
    return chosen;
}

// One workload's inputs being gathered.
class Gatherer {
public:
    Gatherer(const GdnDefinition& definition, const Workload& workload, const std::map<std::string, Tensor>& loaded,
             std::uint64_t seed)
        : m_definition(definition), m_workload(workload), m_loaded(loaded), m_seed(seed) {}

    Result<WorkloadInputs> all() {
        GDNCTL_TRY_ASSIGN(const WorkloadSize size, workload_size(m_definition, m_workload));
        GDNCTL_TRY(read_rows(size));
        for (const TensorSpec& spec : m_definition.definition.inputs) {
            if (spec.name == "initial_state_indices" || spec.name == "intermediate_states_buffer") continue;
            GDNCTL_TRY_ASSIGN(Tensor tensor, value_of(spec));
            if (spec.name == "cu_seqlens") GDNCTL_TRY(check_offsets(tensor, size));
            m_result.file.tensors.push_back({spec.name, std::move(tensor)});
        }
        return std::move(m_result);
    }

private:
    Status read_rows(const WorkloadSize& size) {
        if (m_definition.stage != Stage::mtp) {
            for (std::int64_t i = 0; i < size.sequences; ++i) m_result.state_row.push_back(i);
            return {};
        }
        const auto found = m_loaded.find("initial_state_indices");
        if (found == m_loaded.end()) {
            return bad(m_workload, "initial_state_indices must come from a file: random indices would be meaningless");
        }
        const auto& specs = m_definition.definition.inputs;
        const auto spec = std::find_if(specs.begin(), specs.end(),
                                       [](const TensorSpec& s) { return s.name == "initial_state_indices"; });
        GDNCTL_TRY(check_tensor(*spec, found->second));
        m_result.state_row = to_i64(found->second);
        for (std::size_t i = 0; i < m_result.state_row.size(); ++i) {
            if (m_result.state_row[i] >= 0 && m_result.state_row[i] < size.states) continue;
            return bad(m_workload, fmt::format("initial_state_indices[{}] is {}, but the pool has {} states", i,
                                               m_result.state_row[i], size.states));
        }
        return {};
    }

    Status check_tensor(const TensorSpec& spec, const Tensor& tensor) const {
        const Shape expected = shape_of(m_definition, m_workload, spec);
        if (tensor.shape == expected && tensor.dtype == dtype_of(spec.dtype)) return {};
        return bad(m_workload, fmt::format("tensor '{}': expected {} {}, got {} {}", spec.name, text_of(expected),
                                           spec.dtype, text_of(tensor.shape), name_of(tensor.dtype)));
    }

    Result<Tensor> value_of(const TensorSpec& spec) {
        const InputSource* source = m_workload.find(spec.name);
        const bool is_state = spec.name == "initial_state";
        Shape shape = shape_of(m_definition, m_workload, spec);
        if (source != nullptr && source->kind == InputSource::Kind::scalar) {
            if (spec.axes) {
                return bad(m_workload, fmt::format("input '{}' is a scalar, expected {}", spec.name, text_of(shape)));
            }
            const double value = source->scalar;
            return from_f64({&value, 1}, {}, DType::f32);
        }
        if (source != nullptr && source->kind == InputSource::Kind::safetensors) {
            const auto found = m_loaded.find(spec.name);
            if (found == m_loaded.end()) return bad(m_workload, fmt::format("input '{}' was not loaded", spec.name));
            Tensor tensor = found->second;
            drop_token_axis(spec, shape, tensor);
            GDNCTL_TRY(check_tensor(spec, tensor));
            return is_state ? chosen_rows(tensor, m_result.state_row) : tensor;
        }
        if (!is_floating(dtype_of(spec.dtype))) {
            return bad(m_workload,
                       fmt::format("{} must come from a file: random values would be meaningless", spec.name));
        }
        m_result.random.push_back(spec.name);
        if (is_state) shape.front() = static_cast<std::int64_t>(m_result.state_row.size());
        return random_tensor(m_seed, spec, shape, is_state ? m_result.state_row : std::vector<std::int64_t>());
    }

    // Recorded decode workloads hold a and b without the axis of the one token.
    void drop_token_axis(const TensorSpec& spec, const Shape& shape, Tensor& tensor) {
        const bool gate = spec.name == "a" || spec.name == "b";
        if (m_definition.stage != Stage::decode || !gate || tensor.shape.size() != 2) return;
        if (tensor.shape[0] != shape[0] || tensor.shape[1] != shape[2]) return;
        m_result.warnings.push_back(fmt::format("workload {}: tensor '{}' is {}, read as {}", m_workload.uuid,
                                                spec.name, text_of(tensor.shape), text_of(shape)));
        tensor.shape = shape;
    }

    Status check_offsets(const Tensor& tensor, const WorkloadSize& size) const {
        const auto offsets = to_i64(tensor);
        if (offsets.front() != 0 || !std::is_sorted(offsets.begin(), offsets.end())) {
            return bad(m_workload, "cu_seqlens does not start at 0 and increase");
        }
        if (offsets.back() == size.dims.T) return {};
        return bad(m_workload,
                   fmt::format("cu_seqlens ends at {}, but total_seq_len is {}", offsets.back(), size.dims.T));
    }

    const GdnDefinition& m_definition;
    const Workload& m_workload;
    const std::map<std::string, Tensor>& m_loaded;
    std::uint64_t m_seed;
    WorkloadInputs m_result;
};

Status check_constraints(const GdnDefinition& d, const Workload& w) {
    const auto axis = [&](std::string_view name) { return axis_of(d, w, name); };
    if (d.stage == Stage::prefill && axis("len_cu_seqlens") != axis("num_seqs") + 1) {
        return bad(w, fmt::format("len_cu_seqlens is {}, but num_seqs + 1 is {}", axis("len_cu_seqlens"),
                                  axis("num_seqs") + 1));
    }
    if (d.stage == Stage::mtp && axis("seq_len") < 2) {
        return bad(w, fmt::format("seq_len is {}, but {} needs more than 1", axis("seq_len"), d.definition.name));
    }
    return {};
}

}  // namespace

Shape shape_of(const GdnDefinition& definition, const Workload& workload, const TensorSpec& spec) {
    Shape shape;
    if (!spec.axes) return shape;
    for (const std::string& name : *spec.axes) shape.push_back(axis_of(definition, workload, name));
    return shape;
}

Result<WorkloadSize> workload_size(const GdnDefinition& d, const Workload& w) {
    const auto& axes = d.definition.axes;
    for (const auto& [name, value] : w.axes) {
        const auto found = std::find_if(axes.begin(), axes.end(), [&](const Axis& a) { return a.name == name; });
        if (found == axes.end()) return bad(w, fmt::format("{} has no axis '{}'", d.definition.name, name));
        if (found->value && *found->value != value) {
            return bad(
                w, fmt::format("axis '{}' is {}, but must be {} in {}", name, value, *found->value, d.definition.name));
        }
    }
    for (const Axis& axis : axes) {
        if (axis.value) continue;
        const auto found = w.axes.find(axis.name);
        if (found == w.axes.end()) return bad(w, fmt::format("axis '{}' has no value", axis.name));
        if (found->second == 0) return bad(w, fmt::format("axis '{}' is 0: there is nothing to compute", axis.name));
    }
    for (const auto& [name, source] : w.inputs) {
        const auto& inputs = d.definition.inputs;
        const bool known =
            std::any_of(inputs.begin(), inputs.end(), [&](const TensorSpec& s) { return s.name == name; });
        if (!known) return bad(w, fmt::format("{} has no input '{}'", d.definition.name, name));
    }
    GDNCTL_TRY(check_constraints(d, w));
    for (const auto* specs : {&d.definition.inputs, &d.definition.outputs}) {
        for (const TensorSpec& spec : *specs) {
            const Shape shape = shape_of(d, w, spec);
            const auto count = element_count(shape);
            if (!count || *count > (std::size_t{1} << 40U)) {
                return bad(w, fmt::format("tensor '{}' {} is too large", spec.name, text_of(shape)));
            }
        }
    }
    const auto axis = [&](std::string_view name) { return axis_of(d, w, name); };
    WorkloadSize size;
    const bool prefill = d.stage == Stage::prefill;
    size.dims = {prefill ? 1 : axis("batch_size"),
                 prefill ? axis("total_seq_len") : axis("seq_len"),
                 d.key_heads,
                 d.value_heads,
                 d.head_size,
                 d.head_size};
    size.sequences = prefill ? axis("num_seqs") : axis("batch_size");
    size.states = d.stage == Stage::mtp ? axis("pool_size") : size.sequences;
    return size;
}

Result<WorkloadInputs> make_workload_inputs(const GdnDefinition& definition, const Workload& workload,
                                            const std::map<std::string, Tensor>& loaded,
                                            std::optional<std::uint64_t> seed) {
    return Gatherer(definition, workload, loaded, seed.value_or(hash_of(workload.uuid))).all();
}

}  // namespace gdnctl::oracle::flashinfer
