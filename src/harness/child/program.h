// cmd:COMMAND: a program that the shell runs in the working directory as COMMAND INPUTS.safetensors
// OUTPUTS.safetensors.
#pragma once

#include <optional>
#include <string>

#include "harness/child/process.h"
#include "oracle/judge/kernel_fault.h"
#include "platform/context.h"

namespace gdnctl::harness {

// A usage error when the spelling names no command.
Status check_program(const std::string& spelling);

// Runs one after the other, each in a separate process.
class ProgramRun {
public:
    // `context` must outlive it.
    ProgramRun(std::string spelling, const Limits& limits, const Context& context)
        : m_spelling(std::move(spelling)), m_limits(limits), m_context(context) {}

    // Writes the inputs file of the next run into a separate folder.
    Status prepare(oracle::TensorFile inputs, int threads);
    // Runs the program from its start to its end.
    Faulted call();
    // Reads what that run wrote; the folder goes.
    Faulted collect(oracle::TensorFile& outputs);

    // What blocked the last run's network access.
    const std::string& network() const { return m_network; }

private:
    Result<ProcessResult> run_program(std::optional<oracle::KernelFault>& fault) const;

    std::string m_spelling;
    Limits m_limits;
    const Context& m_context;
    Folder m_folder;
    std::string m_network;
    std::string m_said;  // the end of what the last run printed
};

}  // namespace gdnctl::harness
