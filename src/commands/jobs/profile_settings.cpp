#include "commands/jobs/profile_settings.h"

#include <fmt/format.h>

namespace gdnctl::commands {

const std::array<WordChoice, 5> k_ce_implementations = {{{"auto", "auto"},
                                                         {"xla", "xla"},
                                                         {"reference", "reference"},
                                                         {"pallas_tpu", "pallas_tpu"},
                                                         {"pallas_gpu", "pallas_gpu"}}};

namespace {

const std::array<WordChoice, 4> k_sizes = {{{"130m", "130m"}, {"300m", "300m"}, {"520m", "520m"}, {"1_2b", "1_2b"}}};
const std::array<WordChoice, 3> k_wandb_modes = {
    {{"online", "online"}, {"offline", "offline"}, {"disabled", "disabled"}}};
const std::array<WordChoice, 2> k_backward_modes = {{{"pallas", "pallas"}, {"xla_streaming", "xla_streaming"}}};

// Describes the settings one after the other, with a common prefix for their names.
class Describer {
public:
    Describer(cli::Args& args, const ProfileNames& names) : m_args(args), m_names(names) {}

    template <class T>
    void number(T& value, std::string_view name, std::string_view help, std::string_view usual = {}) {
        const std::string full = spelled(name);
        m_args.option(value,
                      {.names = full, .value = "N", .help = help, .group = m_names.group, .default_text = usual});
    }
    template <class Choices>
    void choice(std::string& value, const Choices& choices, std::string_view name, std::string_view word,
                std::string_view help) {
        const std::string full = spelled(name);
        m_args.option(value, choices, {.names = full, .value = word, .help = help, .group = m_names.group});
    }
    std::string spelled(std::string_view name) const { return fmt::format("{}{}", m_names.prefix, name); }

private:
    cli::Args& m_args;
    const ProfileNames& m_names;
};

}  // namespace

void describe_model(cli::Args& args, ProfileSettings& s, const ProfileNames& names) {
    Describer describer(args, names);
    describer.choice(s.size, k_sizes, "size", "SIZE", "model size");
    describer.number(s.num_steps, "num-steps", "training steps");
    describer.number(s.profile_start_step, names.first_step, "first step in the trace");
    describer.number(s.profile_num_steps, names.traced_steps, "steps in the trace");
    describer.number(s.batch_size, "batch-size", "sequences per step", "8");
    describer.number(s.chunk_size, "chunk-size", "chunk length of the kernel");
    describer.number(s.segment_size, "segment-size", "segment length of the kernel");
    describer.number(s.gdn_layers_per_block, "gdn-layers-per-block", "GDN layers per block");
    describer.number(s.gdn_block_size, "gdn-block-size", "layers per block");
    args.flag(s.all_transformer, {.names = describer.spelled("all-transformer"),
                                  .help = "control run with attention layers only",
                                  .group = names.group});
}

void describe_cross_entropy(cli::Args& args, ProfileSettings& s, const ProfileNames& names) {
    Describer describer(args, names);
    describer.choice(s.ce_implementation, k_ce_implementations, "ce-implementation", "NAME",
                     "fused cross-entropy to use");
    describer.choice(s.ce_bwd_mode, k_backward_modes, "ce-bwd-mode", "MODE", "backward pass of the cross-entropy");
}

void describe_run_name(cli::Args& args, ProfileSettings& s, const ProfileNames& names) {
    Describer describer(args, names);
    args.option(s.run_name_prefix, {.names = describer.spelled("run-name-prefix"),
                                    .value = "TEXT",
                                    .help = names.run_name_help,
                                    .group = names.group});
    describer.choice(s.wandb_mode, k_wandb_modes, "wandb-mode", "MODE", "W&B mode of the run");
}

}  // namespace gdnctl::commands
