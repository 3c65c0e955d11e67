#include "harness/child/entry.h"

#include <array>
#include <cstddef>
#include <numeric>
#include <string>

#include <dlfcn.h>
#include <fmt/format.h>

#include "gdn/gdn_kernel.h"
#include "gdn/linear_ce_kernel.h"
#include "harness/child/solution_abi.h"

namespace gdnctl::harness {

namespace {

using oracle::KernelPass;
using namespace oracle::gdn_call_numbers;

// What the oracle knows of the interface without its header.
static_assert(entry_of(KernelPass::forward) == GDN_FORWARD && entry_of(KernelPass::backward) == GDN_BACKWARD &&
              entry_of(KernelPass::decode) == GDN_DECODE && oracle::k_bf16_taken == 1U << GDN_BF16 &&
              static_cast<int>(true) == GDN_HEADS_TILED);

constexpr gdn_tensor gdn_call::* k_tensors[] = {&gdn_call::q,     &gdn_call::k,
                                                &gdn_call::v,     &gdn_call::g,
                                                &gdn_call::beta,  &gdn_call::initial_state,
                                                &gdn_call::out,   &gdn_call::final_state,
                                                &gdn_call::dq,    &gdn_call::dk,
                                                &gdn_call::dv,    &gdn_call::dg,
                                                &gdn_call::dbeta, &gdn_call::d_initial_state,
                                                &gdn_call::d_out, &gdn_call::d_final_state};
constexpr std::string_view k_names[] = {"q",  "k",  "v",  "g",  "beta",  "initial_state",   "out",   "final_state",
                                        "dq", "dk", "dv", "dg", "dbeta", "d_initial_state", "d_out", "d_final_state"};

constexpr std::int64_t k_longest_chunk = 4096;  // as the contract's field has it

}  // namespace

std::vector<std::int64_t> step_order(std::int64_t steps, std::uint64_t seed) {
    std::vector<std::int64_t> order(static_cast<std::size_t>(steps));
    std::iota(order.begin(), order.end(), 0);
    for (std::size_t i = order.size(); i > 1; --i) {
        seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
        std::swap(order[i - 1], order[static_cast<std::size_t>((seed >> 33U) % i)]);
    }
    return order;
}

std::string GdnEntry::load(void* library) {
    m_kernel = static_cast<const gdn_kernel_info*>(dlsym(library, "gdn_kernel"));
    if (m_kernel == nullptr) return "exports no 'gdn_kernel' (see gdn/gdn_kernel.h)";
    constexpr std::size_t k_first_size = offsetof(gdn_kernel_info, chunk);  // of kernels built before it had a chunk
    if (m_kernel->abi_version == GDN_ABI_VERSION && m_kernel->struct_size >= k_first_size) {
        if (chunk() <= k_longest_chunk) return {};
        return fmt::format("states chunks of {} tokens; expected 1 to {}, or 0 for unknown", chunk(), k_longest_chunk);
    }
    return fmt::format("was compiled for version {} of gdn/gdn_kernel.h, but this gdnctl supports version {}",
                       m_kernel->abi_version, GDN_ABI_VERSION);
}

std::int64_t GdnEntry::chunk() const {
    return m_kernel->struct_size >= sizeof(gdn_kernel_info) ? static_cast<std::int64_t>(m_kernel->chunk) : 0;
}

std::uint32_t GdnEntry::entries() const {
    return (m_kernel->forward != nullptr ? 1U << GDN_FORWARD : 0U) |
           (m_kernel->backward != nullptr ? 1U << GDN_BACKWARD : 0U) |
           (m_kernel->decode != nullptr ? 1U << GDN_DECODE : 0U);
}

void GdnEntry::describe(const Header& h, const GuardedMapping& mapping) {
    const bool steps = h.integers[k_steps] > 0;
    gdn_call c{};
    c.abi_version = GDN_ABI_VERSION;
    c.struct_size = sizeof(gdn_call);
    c.batch = h.integers[k_batch];
    c.tokens = steps ? 1 : h.integers[k_tokens];
    c.key_heads = h.integers[k_key_heads];
    c.value_heads = h.integers[k_value_heads];
    c.key_dim = h.integers[k_key_dim];
    c.value_dim = h.integers[k_value_dim];
    c.sequences = h.integers[k_sequences];
    c.head_map = static_cast<std::uint32_t>(h.integers[k_head_map]);
    c.l2norm = static_cast<std::uint32_t>(h.integers[k_l2norm]);
    c.l2norm_eps = h.reals[k_l2norm_eps];
    c.scale = h.reals[k_scale];
    c.threads = h.threads;
    for (std::size_t i = 0; i < std::size(k_names); ++i) {
        gdn_tensor& t = c.*k_tensors[i];
        t = tensor_of(h, mapping, k_names[i]);
        if (!steps || t.rank < 2 || k_names[i] == "final_state") continue;
        t.shape[1] = 1;  // a token
        for (std::size_t axis = t.rank - 1; axis-- > 0;) t.strides[axis] = t.strides[axis + 1] * t.shape[axis + 1];
    }
    const std::size_t state = h.find("final_state");
    if (state != k_most_arrays && h.places[state].role == Role::in_place) c.initial_state = c.final_state;
    c.cu_seqlens = static_cast<const std::int64_t*>(tensor_of(h, mapping, "cu_seqlens").data);
    m_call = c;
    m_entry = h.entry;
    m_function = m_entry == GDN_BACKWARD ? m_kernel->backward
                 : m_entry == GDN_DECODE ? m_kernel->decode
                                         : m_kernel->forward;
    m_order = step_order(h.integers[k_steps], static_cast<std::uint64_t>(h.integers[k_step_seed]));
}

std::size_t GdnEntry::workspace_size() const {
    if (m_kernel->workspace == nullptr) return 0;
    gdn_call shapes = m_call;
    for (const auto tensor : k_tensors) (shapes.*tensor).data = nullptr;
    return m_kernel->workspace(&shapes, m_entry);
}

void GdnEntry::give_workspace(void* memory, std::size_t bytes) {
    m_call.workspace = memory;
    m_call.workspace_size = bytes;
}

// Decoding: one token of every row a call, until one fails.
int GdnEntry::call_steps() const {
    gdn_call call = m_call;
    for (const std::int64_t step : m_order) {
        for (const auto tensor :
             {&gdn_call::q, &gdn_call::k, &gdn_call::v, &gdn_call::g, &gdn_call::beta, &gdn_call::out}) {
            const gdn_tensor& first = m_call.*tensor;
            const std::int64_t bytes = first.shape[0] * first.strides[0] * (first.dtype == GDN_BF16 ? 2 : 4);
            (call.*tensor).data = static_cast<std::byte*>(first.data) + step * bytes;
        }
        if (const int status = m_function(&call); status != GDN_OK) return status;
    }
    return GDN_OK;
}

namespace {

// A kernel of gdn/linear_ce_kernel.h in the child: its object, and the call that the shared memory holds.

// Of Call::integers and Call::reals.
enum LinearCeInteger : std::size_t { k_rows, k_hidden, k_vocab, k_layout };
enum LinearCeReal : std::size_t { k_soft_cap, k_logsumexp_weight };

class LinearCeEntry : public Entry {
public:
    std::string load(void* library) override;
    std::uint32_t dtypes() const override { return m_kernel->dtypes; }
    std::uint32_t entries() const override;
    void describe(const Header& header, const GuardedMapping& mapping) override;
    std::size_t workspace_size() const override;
    void give_workspace(void* memory, std::size_t bytes) override;
    int call() override;

private:
    const linear_ce_kernel_info* m_kernel = nullptr;
    linear_ce_call m_call{};
    std::uint32_t m_entry = LINEAR_CE_FORWARD;
};

std::string LinearCeEntry::load(void* library) {
    m_kernel = static_cast<const linear_ce_kernel_info*>(dlsym(library, "linear_ce_kernel"));
    if (m_kernel == nullptr) {
        return "exports no 'linear_ce_kernel' (see gdn/linear_ce_kernel.h)";
    }
    if (m_kernel->abi_version == LINEAR_CE_ABI_VERSION && m_kernel->struct_size >= sizeof(linear_ce_kernel_info))
        return {};
    return fmt::format("was compiled for version {} of gdn/linear_ce_kernel.h, but this gdnctl supports version {}",
                       m_kernel->abi_version, LINEAR_CE_ABI_VERSION);
}

std::uint32_t LinearCeEntry::entries() const {
    return (m_kernel->forward != nullptr ? 1U << LINEAR_CE_FORWARD : 0U) |
           (m_kernel->gradients != nullptr ? 1U << LINEAR_CE_GRADIENTS : 0U);
}

void LinearCeEntry::describe(const Header& h, const GuardedMapping& mapping) {
    const auto tensor = [&](std::string_view name) { return tensor_of(h, mapping, name); };
    linear_ce_call c{};
    c.abi_version = LINEAR_CE_ABI_VERSION;
    c.struct_size = sizeof(linear_ce_call);
    c.batch = h.integers[k_rows];
    c.hidden = h.integers[k_hidden];
    c.vocab = h.integers[k_vocab];
    c.layout = static_cast<std::uint32_t>(h.integers[k_layout]);
    c.threads = h.threads;
    c.soft_cap = h.reals[k_soft_cap];
    c.logsumexp_weight = h.reals[k_logsumexp_weight];
    c.x = tensor("x");
    c.w = tensor("w");
    c.labels = static_cast<const std::int64_t*>(tensor("labels").data);
    c.d_loss = tensor("d_loss");
    c.d_lse = tensor("d_lse");
    c.loss = tensor("loss");
    c.lse = tensor("lse");
    c.argmax = static_cast<std::int64_t*>(tensor("argmax").data);
    c.gx = tensor("gx");
    c.gw = tensor("gw");
    m_call = c;
    m_entry = h.entry;
}

std::size_t LinearCeEntry::workspace_size() const {
    if (m_kernel->workspace == nullptr) return 0;
    linear_ce_call shapes = m_call;
    for (const auto tensor : {&linear_ce_call::x, &linear_ce_call::w, &linear_ce_call::d_loss, &linear_ce_call::d_lse,
                              &linear_ce_call::loss, &linear_ce_call::lse, &linear_ce_call::gx, &linear_ce_call::gw}) {
        (shapes.*tensor).data = nullptr;
    }
    shapes.labels = nullptr;
    shapes.argmax = nullptr;
    return m_kernel->workspace(&shapes, m_entry);
}

void LinearCeEntry::give_workspace(void* memory, std::size_t bytes) {
    m_call.workspace = memory;
    m_call.workspace_size = bytes;
}

int LinearCeEntry::call() {
    return m_entry == LINEAR_CE_GRADIENTS ? m_kernel->gradients(&m_call) : m_kernel->forward(&m_call);
}

// A solution by FlashInfer-Bench's convention in the child: its function, and the arguments that the shared memory
// holds.

class SolutionEntry : public Entry {
public:
    // `name` as the library exports it.
    explicit SolutionEntry(std::string name) : m_name(std::move(name)) {}

    std::string load(void* library) override;
    bool has(std::uint32_t /*entry*/) const override { return true; }
    void describe(const Header& header, const GuardedMapping& mapping) override;
    int call() override;

private:
    std::string m_name;
    TVMFFISafeCallType m_function = nullptr;
    std::int32_t m_count = 0;
    std::array<DLTensor, k_most_arrays> m_tensors = {};
    std::array<std::array<std::int64_t, 5>, k_most_arrays> m_shapes = {}, m_strides = {};
    std::array<TVMFFIAny, k_most_arrays> m_values = {};
};

DLDataType type_of(std::uint32_t dtype) {
    switch (dtype) {
        case GDN_BF16: return {kDLBfloat, 16, 1};
        case k_int32: return {kDLInt, 32, 1};
        case k_int64: return {kDLInt, 64, 1};
        default: return {kDLFloat, 32, 1};
    }
}

std::string SolutionEntry::load(void* library) {
    m_function = reinterpret_cast<TVMFFISafeCallType>(dlsym(library, m_name.c_str()));
    if (m_function != nullptr) return {};
    return fmt::format("exports no '{}', the function that its entry point names", m_name);
}

void SolutionEntry::describe(const Header& header, const GuardedMapping& mapping) {
    m_count = static_cast<std::int32_t>(header.arrays);
    for (std::size_t i = 0; i < header.arrays; ++i) {
        TVMFFIAny& value = m_values[i];
        const Place& p = header.places[i];
        value = {};
        if (p.role == Role::number) {
            value.type_index = kTVMFFIFloat;
            value.v_float64 = header.reals[0];
        }
        if (p.page_bytes == 0) continue;
        std::int64_t stride = 1;
        m_shapes[i] = p.shape;
        for (std::size_t axis = p.rank; axis-- > 0;) {
            m_strides[i][axis] = stride;
            stride *= p.shape[axis];
        }
        DLTensor& t = m_tensors[i];
        t = {};
        t.data = mapping.piece(i) + p.begin;
        t.device = {kDLCPU, 0};
        t.ndim = static_cast<std::int32_t>(p.rank);
        t.dtype = type_of(p.dtype);
        t.shape = m_shapes[i].data();
        t.strides = m_strides[i].data();
        value.type_index = kTVMFFIDLTensorPtr;
        value.v_ptr = &t;
    }
}

int SolutionEntry::call() {
    TVMFFIAny result = {};
    return m_function(nullptr, m_values.data(), m_count, &result);
}

}  // namespace

std::unique_ptr<Entry> make_entry(std::string_view mode, const std::string& kernel, std::string& path) {
    path = kernel;
    if (mode == k_linear_ce_mode) return std::make_unique<LinearCeEntry>();
    if (mode != k_solution_mode) return std::make_unique<GdnEntry>();
    const std::size_t colon = kernel.find(':');
    path = kernel.substr(colon + 1);
    return std::make_unique<SolutionEntry>(kernel.substr(0, colon));
}

gdn_tensor tensor_of(const Header& header, const GuardedMapping& mapping, std::string_view name) {
    gdn_tensor t{};
    const std::size_t index = header.find(name);
    if (index == k_most_arrays) return t;
    const Place& p = header.places[index];
    t.data = mapping.piece(index) + p.begin;
    t.dtype = p.dtype;
    t.rank = p.rank;
    std::int64_t stride = 1;
    for (std::size_t axis = p.rank; axis-- > 0;) {
        t.shape[axis] = p.shape[axis];
        t.strides[axis] = stride;
        stride *= p.shape[axis];
    }
    return t;
}

}  // namespace gdnctl::harness
