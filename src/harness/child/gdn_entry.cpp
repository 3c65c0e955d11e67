#include "harness/child/gdn_entry.h"

#include <cstddef>
#include <numeric>

#include <dlfcn.h>
#include <fmt/format.h>

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

}  // namespace gdnctl::harness
