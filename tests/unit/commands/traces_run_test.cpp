// What the commands that download traces refuse, and what they do without a network.
#include "command_world.h"

namespace gdnctl::commands {
namespace {

using test::CommandWorld;

}  // namespace

TEST_CASE("downloads: what is refused before anything is asked or written") {
    CommandWorld world;
    const std::vector<CommandWorld::Case> cases = {
        {k_hf_download_trace_row, {}, 2, ""},
        {k_hf_download_trace_row, {"a/b/c/d/e/f://"}, 2, ""},
        {k_hf_download_trace_row, {"me/traces", "--jobs", "0"}, 2, "--jobs 0: expected 1 to 64"},
        {k_hf_download_trace_row, {"me/traces", "--retries", "-1"}, 2, "--retries -1: expected 0 to 1000"},
        {k_hf_download_trace_row, {"me/traces", "--stall-timeout", "0"}, 2, "expected a number of seconds above 0"},
        {k_hf_download_trace_row, {"me/traces", "--max-bytes", "-1"}, 2, "--max-bytes: expected 0 or more"},
        {k_hf_download_trace_row, {"me/traces", "--token-file", "none"}, 2, "none"},
        {k_wandb_download_trace_row, {}, 2, ""},
        {k_wandb_download_trace_row, {"no-run"}, 2, "no-run"},
        {k_wandb_download_trace_row, {"me/p/r", "--jobs", "65"}, 2, "--jobs 65: expected 1 to 64"},
    };
    for (const auto& one : cases) world.check(one);
    CHECK(world.http.asked.empty());
    CHECK(test::list_names(world.context.cwd).empty());
}

TEST_CASE("hf-download-trace --offline: nothing was downloaded before") {
    CommandWorld world;
    const int code = world.run(k_hf_download_trace_row, {"me/traces", "--offline", "--json"});
    CHECK(code == 4);
    CHECK(world.json()["error"]["kind"] == "network");
    CHECK(world.said.find("hint: give the commit, 40 digits, as --revision") != std::string::npos);
    CHECK(world.http.asked.empty());
}

}  // namespace gdnctl::commands
