#include "loop/gates/job_service.h"

#include <optional>

namespace gdnctl::loop {

namespace {

std::string_view suite_word(TestSelection::Suite suite) {
    return suite == TestSelection::Suite::kernels ? "kernels" : suite == TestSelection::Suite::layer ? "layer" : "both";
}

void put_words(std::vector<std::string>& words, std::string_view option, const std::string& value) {
    if (value.empty()) return;
    words.emplace_back(option);
    words.push_back(value);
}

void put_words(std::vector<std::string>& words, std::string_view option, const std::optional<std::int64_t>& value) {
    if (value) put_words(words, option, std::to_string(*value));
}

void put_settings(std::vector<std::string>& words, const JobSpec& spec) {
    const ProfileSettings& s = spec.profile;
    put_words(words, "--tpu", s.tpu);
    put_words(words, "--size", s.size);
    put_words(words, "--num-steps", s.num_steps);
    put_words(words, "--profile-start-step", s.profile_start_step);
    put_words(words, "--profile-num-steps", s.profile_num_steps);
    put_words(words, "--batch-size", s.batch_size);
    put_words(words, "--chunk-size", s.chunk_size);
    put_words(words, "--segment-size", s.segment_size);
    put_words(words, "--gdn-layers-per-block", s.gdn_layers_per_block);
    put_words(words, "--gdn-block-size", s.gdn_block_size);
    if (s.all_transformer) words.emplace_back("--all-transformer");
    put_words(words, "--ce-implementation", s.ce_implementation);
    put_words(words, "--ce-bwd-mode", s.ce_bwd_mode);
    put_words(words, "--run-name-prefix", s.run_name_prefix);
    put_words(words, "--wandb-mode", s.wandb_mode);
    if (s.dry_run) words.emplace_back("--dry-run");
    for (const std::string& item : spec.profile_env) put_words(words, "--profile-env", item);
}

}  // namespace

std::string_view to_text(JobKind kind) { return kind == JobKind::tests ? "validation tests" : "validation profile"; }

std::string to_text(const JobSite& site) {
    std::string out = site.held()            ? "held dev TPU " + site.dev_tpu + " on " + site.cluster
                      : site.cluster.empty() ? std::string("the default cluster")
                                             : site.cluster;
    if (!site.tpu.empty() && site.tpu != "auto") out += " (" + site.tpu + ")";
    return out;
}

std::vector<std::string> command_words(const JobSpec& spec) {
    const bool tests = spec.kind == JobKind::tests;
    const bool held = spec.site.held();
    std::vector<std::string> words = {held ? (tests ? "dev-tpu-test" : "dev-tpu-profile")
                                           : (tests ? "ray-test" : "ray-profile")};
    put_words(words, "--cluster", spec.site.cluster);
    put_words(words, "--tpu-name", spec.site.dev_tpu);
    if (held && spec.no_sync) words.emplace_back("--no-sync");
    if (tests && spec.has_settings) {
        put_words(words, "--tests", std::string(suite_word(spec.selection.suite)));
        put_words(words, "--pytest-args", spec.selection.pytest_args);
    }
    if (tests && !held && spec.site.tpu != "auto") put_words(words, "--tpu", spec.site.tpu);
    if (!tests && spec.has_settings) put_settings(words, spec);
    if (!tests && held) put_words(words, "--marin-prefix", spec.marin_prefix);
    if (!held) {
        words.insert(words.end(), {"--timeout", std::to_string(spec.limit_s), "--auto-stop", "--json"});
        put_words(words, "--submission-id", spec.id);
    }
    return words;
}

}  // namespace gdnctl::loop
