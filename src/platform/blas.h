// OpenBLAS, opened on first use. Only benchmarks call it, to compare with.
#pragma once

#include <string>

#include "core/result.h"

namespace gdnctl {

// C = A B for square row-major matrices in fp32.
class Sgemm {
public:
    // `core` is one of OpenBLAS' own names ("Haswell") and restricts it to that instruction set; empty: OpenBLAS
    // chooses. Only the first call in a process decides. Error: infrastructure, when the library is missing.
    static Result<Sgemm> open(const std::string& core, int threads);

    void multiply(int n, const float* a, const float* b, float* c) const;
    const std::string& description() const { return m_description; }  // "OpenBLAS 0.3.21 SkylakeX"

private:
    using Multiply = void (*)(int, int, int, int, int, int, float, const float*, int, const float*, int, float, float*,
                              int);
    Sgemm(Multiply function, std::string description) : m_multiply(function), m_description(std::move(description)) {}

    Multiply m_multiply;
    std::string m_description;
};

}  // namespace gdnctl
