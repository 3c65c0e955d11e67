#include "harness/timing/gdn_sweep.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/json.h"
#include "core/log.h"
#include "harness/timing/gdn_bench.h"

namespace gdnctl::harness {

namespace {

// B, Hk, Hv, T, dk, dv: one thing changed at a time, then the smallest, the odd and the many.
constexpr const char* k_shapes[] = {
    "1,4,8,4096,128,128",  "1,4,8,512,128,128",  "1,4,8,1024,128,128", "1,4,8,4095,128,128",
    "1,4,8,32768,128,128", "1,4,8,4096,64,64",   "1,4,8,4096,256,256", "1,1,2,4096,128,128",
    "1,1,2,512,64,64",     "1,8,8,2048,128,128", "8,4,8,512,128,128",  "4,8,16,1023,64,64",
};

// Of sgemm (decoding: of what the processor takes at least) at the first shape; elsewhere 15 % less is allowed.
struct Promise {
    std::string_view kernel;
    double fraction;
};
constexpr Promise k_promises[] = {
    {"builtin:fused", 1.0}, {"builtin:chunk", 0.8}, {"builtin:backward", 0.75}, {"builtin:decode", 0.75}};
constexpr double k_allowance = 0.85;

struct Cell {
    std::string shape;
    int threads = 1;
    BenchEntry entry;

    std::optional<double> fraction() const {
        if (!entry.verified) return std::nullopt;
        return entry.pass == oracle::Pass::decode ? std::max(entry.of_floor, entry.of_arithmetic)
                                                  : entry.timing.of_sgemm;
    }
    // nullopt: nothing was promised.
    std::optional<double> promised() const {
        for (const Promise& p : k_promises) {
            if (p.kernel == entry.name) return p.fraction * k_allowance;
        }
        return std::nullopt;
    }
    bool missed() const { return fraction() && promised() && *fraction() < *promised(); }
};

std::string text_of(const std::vector<Cell>& cells, std::size_t kernels) {
    std::string out = fmt::format("{:<22}{:>8}", "B,Hk,Hv,T,dk,dv", "threads");
    for (std::size_t i = 0; i < kernels; ++i) out += fmt::format("{:>23}", cells[i].entry.name);
    out += "\n";
    for (std::size_t i = 0; i < cells.size(); ++i) {
        const Cell& cell = cells[i];
        if (i % kernels == 0) out += fmt::format("{:<22}{:>8}", cell.shape, cell.threads);
        const auto fraction = cell.fraction();
        const std::string figure = !cell.entry.verified ? "wrong" : !fraction ? "-" : fmt::format("{:.2f}", *fraction);
        out += fmt::format("{:>11.2f} ms{:>7}{:>2}", cell.entry.timing.seconds.median * 1e3, figure,
                           cell.missed() ? "*" : "");
        if (i % kernels == kernels - 1) out = out.substr(0, out.find_last_not_of(' ') + 1) + "\n";
    }
    const auto missed = std::count_if(cells.begin(), cells.end(), [](const Cell& c) { return c.missed(); });
    out +=
        "figures are fractions of sgemm, medians over rounds (decoding: of moving the states once, or of\n"
        "  three multiply-adds per element where those take longer)\n";
    out += fmt::format("{} of {} cells are more than 15 % below the target (*)\n", missed, cells.size());
    return out;
}

Json json_of(const GdnBenchRequest& request, const std::vector<Cell>& cells) {
    Json list = Json::array();
    for (const Cell& c : cells) {
        const auto fraction = c.fraction();
        const auto promised = c.promised();
        list.push_back({{"shape", c.shape},
                        {"threads", c.threads},
                        {"kernel", c.entry.name},
                        {"verified", c.entry.verified},
                        {"median_ms", c.entry.verified ? Json(c.entry.timing.seconds.median * 1e3) : Json(nullptr)},
                        {"fraction", fraction ? Json(*fraction) : Json(nullptr)},
                        {"least_fraction", promised ? Json(*promised) : Json(nullptr)},
                        {"missed", c.missed()}});
    }
    return {{"schema", "gdnctl.oracle-bench-sweep/1"},
            {"op", request.op},
            {"isa", oracle::name_of(request.isa)},
            {"cells", list}};
}

}  // namespace

Result<SweepDone> sweep_gdn(const GdnBenchRequest& request, std::vector<std::string> shapes, Context& context) {
    std::vector<Cell> cells;
    ExitCode code = ExitCode::ok;
    std::size_t kernels = 0;
    if (shapes.empty()) shapes.assign(std::begin(k_shapes), std::end(k_shapes));
    for (const std::string& shape : shapes) {
        for (const int count : std::set<int>{1, request.threads}) {
            GdnBenchRequest one = request;
            one.shape = shape;
            one.threads = count;
            GDNCTL_TRY_ASSIGN(one.dims, parse_shape(shape));
            log::info("shape {}, {} thread{}", shape, count, count == 1 ? "" : "s");
            GdnBench bench(one, context);
            GDNCTL_TRY(bench.run());
            if (!bench.measured())
                return SweepDone{bench.text(), to_text(bench.json(), 2) + "\n", ExitCode::nothing_done};
            if (code == ExitCode::ok) code = bench.exit_code();
            kernels = bench.entries().size();
            for (const BenchEntry& entry : bench.entries()) cells.push_back({shape, count, entry});
        }
    }
    return SweepDone{text_of(cells, kernels), to_text(json_of(request, cells), 2) + "\n", code};
}

}  // namespace gdnctl::harness
