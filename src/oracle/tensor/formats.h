// .safetensors and .npy, from bytes and to bytes. Opening files and unzipping .npz archives is the caller's.
//
// Tensors of dtypes that cannot be read are listed by name, so that files may hold them beside those that are wanted.
// Every malformed input is a bad_input error whose message begins with `what` (the file's name, or archive and member).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "oracle/tensor/tensor.h"

namespace gdnctl::oracle {

// An error when the bytes are a Git LFS pointer instead of data, which every reader below checks first.
Status check_not_lfs_pointer(std::span<const std::uint8_t> bytes, std::string_view what);

// Format: u64 little-endian header length N, N bytes of JSON, data. Offsets must cover the data without hole or
// overlap, those of unread tensors too.
Result<TensorFile> parse_safetensors(std::span<const std::uint8_t> bytes, std::string_view what);
// Tensors are laid out in the given order, the header is padded with spaces to a multiple of 8. Metadata keys are
// sorted, so that equal contents give equal bytes.
std::vector<std::uint8_t> serialize_safetensors(const TensorFile& file);

struct NpyOptions {
    bool u2_as_bf16 = false;  // read `<u2` as bfloat16 bit patterns instead of uint16
};

struct NpyArray {
    Tensor tensor;              // empty if `unread_dtype` is not
    std::string unread_dtype;   // of an array that is left alone: its descr, or "structured"
    bool bf16_assumed = false;  // the file says `V2` (or u2), which has lost the type
};

// NumPy's format 1.0 to 3.0. Fortran order and big-endian data are turned into row-major little-endian.
Result<NpyArray> parse_npy(std::span<const std::uint8_t> bytes, std::string_view what, const NpyOptions& options = {});
// Format 1.0, 64-byte aligned. bfloat16 is written as `<V2`, as NumPy writes ml_dtypes' type.
std::vector<std::uint8_t> serialize_npy(const Tensor& tensor);

// A ZIP archive with one stored NAME.npy for each tensor (what numpy.savez writes), with CRC-32 and fixed dates.
// Fails when it would pass 4 GiB. Metadata does not fit the format and is left out.
Result<std::vector<std::uint8_t>> serialize_npz(const TensorFile& file);

}  // namespace gdnctl::oracle
