#include "harness/gdn/reference.h"

#include <fmt/format.h>

#include "core/text.h"
#include "harness/files.h"

namespace gdnctl::harness {

Result<oracle::GdnDims> parse_shape(const std::string& text) {
    const auto parts = text::split(text, ',');
    std::vector<std::int64_t> numbers;
    for (const std::string_view part : parts) {
        const auto number = text::parse_int(part);
        if (number && *number >= (numbers.size() == 3 ? 0 : 1) && *number < (std::int64_t{1} << 30U))
            numbers.push_back(*number);
    }
    if (numbers.size() != 6 || parts.size() != 6) {
        return fail(ErrorKind::usage,
                    fmt::format("--shape {}: expected B,Hk,Hv,T,dk,dv, as in 1,4,8,4096,128,128", text));
    }
    return oracle::GdnDims{numbers[0], numbers[3], numbers[1], numbers[2], numbers[4], numbers[5]};
}

Result<oracle::GdnReference> make_reference(const oracle::TensorFile& inputs, const ContractChoice& choice, int threads,
                                            oracle::Passes passes) {
    GDNCTL_TRY_ASSIGN(auto contract, oracle::resolve_contract(choice.contract, inputs.metadata, choice.sets));
    GDNCTL_TRY_ASSIGN(auto problem, oracle::read_problem(inputs, contract));
    GDNCTL_TRY(oracle_files::check_memory(problem.dims, problem.sequences.size(), passes));
    return oracle::make_reference(std::move(problem), std::move(contract), threads);
}

}  // namespace gdnctl::harness
