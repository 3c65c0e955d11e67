// Any bytes: read as .npy, written again, read again. What was accepted must survive unchanged.
#include <cstdint>
#include <cstdlib>

#include "fuzz/fuzz.h"
#include "oracle/tensor/formats.h"

FUZZ(npy) {
    using namespace gdnctl::oracle;
    const auto array = parse_npy({data, size}, "input", {true});
    if (!array || !array->unread_dtype.empty()) return 0;
    if (element_count(array->tensor.shape) != array->tensor.count()) std::abort();
    const auto again = parse_npy(serialize_npy(array->tensor), "again");
    if (!again || again->tensor.bytes != array->tensor.bytes || again->tensor.shape != array->tensor.shape ||
        again->tensor.dtype != array->tensor.dtype) {
        std::abort();
    }
    return 0;
}
