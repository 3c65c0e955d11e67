#include "harness/child/linear_ce_entry.h"

#include <dlfcn.h>
#include <fmt/format.h>

namespace gdnctl::harness {

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

}  // namespace gdnctl::harness
