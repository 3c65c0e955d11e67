// Job logs, job details and the local backend's records: bytes that programs outside wrote, or a crash left.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/json.h"
#include "fuzz/fuzz.h"
#include "services/job/job.h"
#include "services/job/output.h"
#include "services/local/store.h"

namespace {

// The same log, whole and in pieces, tells the same.
void check_log(std::string_view text) {
    gdnctl::JobOutput whole;
    whole.feed(text);
    whole.finish();
    gdnctl::JobOutput pieces;
    for (std::size_t at = 0; at < text.size(); at += 3) pieces.feed(text.substr(at, 3));
    pieces.finish();
    require(whole.tail() == pieces.tail());
    require(whole.pytest().has_value() == pieces.pytest().has_value());
    require(whole.verdicts().counts == pieces.verdicts().counts);
    require(whole.profile().mfu == pieces.profile().mfu);
    require(whole.profile().run_url == pieces.profile().run_url);
    require(whole.profile().model == pieces.profile().model);
}

void check_details(std::string_view text) {
    const auto details = gdnctl::parse_job_details(text);
    if (!details) return;
    const std::string written = gdnctl::to_text(gdnctl::job_details_json(*details));
    const auto again = gdnctl::parse_job_details(written);
    require(again.has_value());
    require(gdnctl::to_text(gdnctl::job_details_json(*again)) == written);
    (void)gdnctl::classify(*details, text);
    (void)gdnctl::job_message::exit_code(1, text);
}

void check_records(std::string_view text) {
    if (const auto queue = gdnctl::local::parse_queue(text)) {
        for (const auto& entry : *queue) (void)gdnctl::local::may_start(*queue, entry.id, {{"CPU", 2}});
        require(gdnctl::local::parse_queue(gdnctl::local::to_json_text(*queue)).has_value());
    }
    if (const auto request = gdnctl::local::parse_request(text)) {
        require(gdnctl::local::parse_request(gdnctl::local::to_json_text(*request)).has_value());
    }
    if (const auto record = gdnctl::local::parse_supervisor(text)) {
        require(gdnctl::local::parse_supervisor(gdnctl::local::to_json_text(*record)).has_value());
    }
}

}  // namespace

FUZZ(job_output) {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    check_log(text);
    check_details(text);
    check_records(text);
    return 0;
}
