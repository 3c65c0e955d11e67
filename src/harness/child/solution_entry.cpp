#include "harness/child/solution_entry.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include "gdn/gdn_kernel.h"

namespace gdnctl::harness {

namespace {

DLDataType type_of(std::uint32_t dtype) {
    switch (dtype) {
        case GDN_BF16: return {kDLBfloat, 16, 1};
        case k_int32: return {kDLInt, 32, 1};
        case k_int64: return {kDLInt, 64, 1};
        default: return {kDLFloat, 32, 1};
    }
}

}  // namespace

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

}  // namespace gdnctl::harness
