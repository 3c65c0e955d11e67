// A FlashInfer-Bench dataset on disk: ROOT/definitions, workloads, solutions, traces and blobs.
#pragma once

#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/result.h"
#include "oracle/flashinfer/flashinfer.h"
#include "oracle/tensor/tensor.h"
#include "platform/context.h"

namespace gdnctl::harness::flashinfer {

class Dataset {
public:
    // Usage error: `root` is no folder.
    static Result<Dataset> open(const Context& context, const std::string& root);

    const std::filesystem::path& root() const { return m_root; }

    // Every file of this name below definitions/ must agree with what we know. Errors: bad_input.
    Status check_definition(const oracle::flashinfer::GdnDefinition& definition) const;
    // Workloads of this definition below workloads/, in the order of files and lines. Errors: bad_input, with file and
    // line.
    Result<std::vector<oracle::flashinfer::Trace>> workloads(const std::string& definition) const;
    // Solutions of this definition below solutions/, in the order of their files, whatever they are written in.
    Result<std::vector<oracle::flashinfer::Solution>> solutions(const std::string& definition) const;

    // bad_input if an input's file is missing or outside the root.
    Status check_files(const oracle::flashinfer::Workload& workload) const;
    // The tensors of the workload's safetensors files, by input name.
    Result<std::map<std::string, oracle::Tensor>> tensors(const oracle::flashinfer::Workload& workload) const;

private:
    explicit Dataset(std::filesystem::path root) : m_root(std::move(root)) {}
    Result<std::filesystem::path> file_of(const oracle::flashinfer::Workload& workload, const std::string& input,
                                          const oracle::flashinfer::InputSource& source) const;
    std::string shown(const std::filesystem::path& path) const;

    std::filesystem::path m_root;
};

// Trace files: JSON lines that several programs may append to, and that outlive all of them.

// Appends one line, whole and on the disk, or nothing: writers take turns, a line that another left unfinished is
// closed and stays as it is. Creates the file and its folders. Error: local_io.
Status append_trace(const std::filesystem::path& path, std::string_view line);

// Solution and uuid of every whole trace in the file; a file that does not exist has none. Lines that are no traces are
// logged and left out. Error: local_io.
Result<std::set<std::pair<std::string, std::string>>> recorded_traces(const std::filesystem::path& path);

}  // namespace gdnctl::harness::flashinfer
