// .safetensors and .npy, from and to bytes. The caller opens files and unzips .npz archives.
//
// Tensors of unsupported dtypes are listed by name, so that a file may contain them next to the wanted ones. Every
// malformed input is a bad_input error whose message begins with `what` (the file's name, or archive and member).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "oracle/tensor/tensor.h"

namespace gdnctl::oracle {

// An error if the bytes are a Git LFS pointer instead of data. All readers below check this first.
Status check_not_lfs_pointer(std::span<const std::uint8_t> bytes, std::string_view what);

// Format: u64 little-endian header length N, N bytes of JSON, data. Offsets must cover the data without holes or
// overlaps, including unread tensors.
Result<TensorFile> parse_safetensors(std::span<const std::uint8_t> bytes, std::string_view what);
// Writes tensors in the given order; pads the header with spaces to a multiple of 8. Sorts metadata keys, so that equal
// contents give equal bytes.
std::vector<std::uint8_t> serialize_safetensors(const TensorFile& file);

struct NpyOptions {
    bool u2_as_bf16 = false;  // read `<u2` as bfloat16 bit patterns instead of uint16
};

struct NpyArray {
    Tensor tensor;              // empty if `unread_dtype` is set
    std::string unread_dtype;   // for an array that was not read: its descr, or "structured"
    bool bf16_assumed = false;  // the file says `V2` (or u2), which does not tell the type
};

// NumPy's formats 1.0 to 3.0. Converts Fortran order and big-endian data to row-major little-endian.
Result<NpyArray> parse_npy(std::span<const std::uint8_t> bytes, std::string_view what, const NpyOptions& options = {});
// Format 1.0, 64-byte aligned. bfloat16 is written as `<V2`, as NumPy writes the type of ml_dtypes.
std::vector<std::uint8_t> serialize_npy(const Tensor& tensor);

}  // namespace gdnctl::oracle
