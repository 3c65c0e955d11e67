// Shared by the entry points of libgdn: checks a gdn_call and converts it for the kernels of oracle/.
#pragma once

#include <initializer_list>
#include <new>
#include <span>
#include <vector>

#include "gdn/gdn.h"
#include "oracle/gdn/kernels/forward32.h"

namespace gdnctl::libgdn {

// A contiguous array; empty if `data` is NULL.
gdn_tensor array_of(const void* data, std::uint32_t dtype, std::initializer_list<std::int64_t> shape);

enum class Need { required, optional };

// All checks return GDN_OK or the error. This one requires an array of fp32 (or bf16, if `allowed`) with the shape that
// the call's sizes imply, without gaps.
int check(const gdn_tensor& t, std::initializer_list<std::int64_t> shape, Need need,
          oracle::Storage allowed = oracle::Storage::f32);
int first_of(std::initializer_list<int> results);
int check_sizes(const gdn_call& c);
int check_inputs(const gdn_call& c);
int check_forward(const gdn_call& c, Need final_state);

std::vector<oracle::GdnSequence> sequences_of(const gdn_call& c);
oracle::HeadMap head_map_of(const gdn_call& c);
// Requires a call that was checked.
oracle::Forward32 forward_of(const gdn_call& c, std::span<const oracle::GdnSequence> sequences);

inline float* floats(const gdn_tensor& t) { return static_cast<float*>(t.data); }

// fp32 or bf16, by its dtype.
template <class Result>
Result values(const gdn_tensor& t) {
    if (t.dtype == GDN_BF16) return Result(static_cast<oracle::Bf16*>(t.data));
    return Result(static_cast<float*>(t.data));
}

// Calls `run` with the caller's call, which may be NULL. Turns exceptions into statuses.
template <class Run, class Call>
int guarded(const Run& run, const Call* call) noexcept {
    if (call == nullptr) return GDN_INVALID;
    try {
        return run(*call);
    } catch (const std::bad_alloc&) {
        return GDN_NO_MEMORY;
    } catch (...) {
        return GDN_FAILED;
    }
}

}  // namespace gdnctl::libgdn
