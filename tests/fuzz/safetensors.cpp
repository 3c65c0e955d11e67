// Any bytes: read as safetensors, written again, read again. What was accepted must survive unchanged.
#include <cstdint>
#include <cstdlib>

#include "fuzz/fuzz.h"
#include "oracle/tensor/formats.h"

FUZZ(safetensors) {
    using namespace gdnctl::oracle;
    const auto file = parse_safetensors({data, size}, "input");
    if (!file) return 0;
    for (const NamedTensor& entry : file->tensors) {
        if (element_count(entry.tensor.shape) != entry.tensor.count()) std::abort();
        if (entry.tensor.count() < 4096) (void)to_f64(entry.tensor);
    }
    const auto again = parse_safetensors(serialize_safetensors(*file), "again");
    if (!again || again->metadata != file->metadata || again->tensors.size() != file->tensors.size()) std::abort();
    for (const NamedTensor& entry : file->tensors) {
        const Tensor* tensor = again->find(entry.name);
        if (tensor == nullptr || tensor->bytes != entry.tensor.bytes || tensor->shape != entry.tensor.shape)
            std::abort();
    }
    return 0;
}
