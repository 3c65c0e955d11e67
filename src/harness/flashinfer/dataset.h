// A FlashInfer-Bench dataset on disk: ROOT/definitions, workloads, solutions, traces and blobs.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

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

}  // namespace gdnctl::harness::flashinfer
