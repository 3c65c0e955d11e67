// Tensor files on disk for the oracle commands: opened and unzipped here, parsed by oracle/.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "oracle/gdn/contract/problem.h"
#include "oracle/tensor/formats.h"
#include "oracle/tensor/tensor.h"
#include "platform/context.h"

namespace gdnctl::oracle_files {

// Reads .safetensors, .npz and .npy files (by extension, else by their first bytes) as one set of tensors; a .npy gives
// one tensor named like the file. Assumptions of the readers are logged. Errors: usage for a path that does not exist;
// bad_input for malformed files and for a tensor that two files hold.
Result<oracle::TensorFile> read(const Context& context, const std::vector<std::string>& paths,
                                const oracle::NpyOptions& options);

// Replaces `path` by a .safetensors or .npz file, as its extension says. Another extension is a usage error.
Status write(const Context& context, const std::string& path, const oracle::TensorFile& file);
Status check_writable_name(const std::string& path);

// An error when the computation needs more memory than this machine has available.
Status check_memory(const oracle::GdnDims& dims, std::size_t sequences,
                    oracle::Passes passes = oracle::Passes::forward);

// The same for `needed` bytes; nullopt: more than any machine has. `hint`: what to do about it.
Status check_memory(const std::optional<std::size_t>& needed, const char* hint);

// The machine's cores for 0 (the default of --threads), else `requested`; a usage error for other numbers.
Result<int> thread_count(std::int64_t requested);

}  // namespace gdnctl::oracle_files
