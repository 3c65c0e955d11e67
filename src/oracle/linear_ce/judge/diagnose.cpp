#include <algorithm>

#include "oracle/linear_ce/judge/faults.h"

namespace gdnctl::oracle::linear_ce {

namespace {

void put_stage(Report& report, std::vector<std::string> stages) {
    for (std::string& stage : stages) {
        if (std::find(report.stages.begin(), report.stages.end(), stage) == report.stages.end()) {
            report.stages.push_back(std::move(stage));
        }
    }
    report.stage = report.stages.front();
}

}  // namespace

void diagnose(const Findings& findings, Report& report) {
    Faults faults;
    if (findings.lse_wrong) {
        faults = lse_faults(findings);
    } else if (findings.loss_wrong) {
        faults = loss_faults(findings);
    } else if (findings.argmax_wrong) {
        faults = argmax_faults(findings);
    } else if (findings.gx_wrong || findings.gw_wrong) {
        faults = gradient_faults(findings);
    } else if (findings.reduced_wrong) {
        faults = reduced_faults(findings);
    } else {
        // An invariant alone: what was compared is right, so the fault lies in rows or columns that were not.
        faults.stages = {"tile", "gw", "gx"};
        if (report.compared_rows.size() < findings.problem.batch) {
            faults.hints.push_back(
                {"tile", "the compared rows and columns are right: see the others with --level exact", 1});
        }
    }
    put_stage(report, std::move(faults.stages));
    report.hints = std::move(faults.hints);
    report.place = std::move(faults.place);
}

}  // namespace gdnctl::oracle::linear_ce
