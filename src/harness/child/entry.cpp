#include "harness/child/entry.h"

#include "harness/child/gdn_entry.h"
#include "harness/child/linear_ce_entry.h"
#include "harness/child/solution_entry.h"

namespace gdnctl::harness {

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
