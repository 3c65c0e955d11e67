// gdnctl ce-infer
#include <array>
#include <optional>
#include <string>

#include <fmt/format.h>

#include "cli/args.h"
#include "commands/common.h"
#include "commands/table.h"
#include "core/json.h"
#include "core/text.h"
#include "oracle/linear_ce/blocks/block_sizes.h"
#include "platform/context.h"
#include "platform/terminal.h"

namespace gdnctl::commands::ce_infer {

struct Options {
    std::string device;
    std::optional<std::int64_t> batch, hidden, vocab;
    std::string dtype = "f32";
    std::optional<std::string> x_dtype, w_dtype;
    oracle::linear_ce::TableDate table = oracle::linear_ce::TableDate::latest;
    std::optional<std::int64_t> scoped_vmem_kib;
};

namespace {

namespace lce = oracle::linear_ce;

constexpr std::array<cli::Choice<lce::TableDate>, 2> k_tables = {{
    {"latest", lce::TableDate::latest, "marin-levanter 0.2.227"},
    {"2026-02", lce::TableDate::february, "the table of February 2026"},
}};

std::string_view name_of(lce::TableDate table) { return k_tables[static_cast<std::size_t>(table)].name; }

std::string sizes_text(const lce::BlockSizes& s) { return fmt::format("{}/{}/{}", s.b, s.h, s.v); }

Json sizes_json(const lce::BlockSizes& s) {
    return {{"b_block_size", s.b}, {"h_block_size", s.h}, {"v_block_size", s.v}};
}

Json report_json(const Options& o, const lce::Inferred& i) {
    Json report;
    report["schema"] = "gdnctl.ce-infer/1";
    report["device_kind"] = o.device;
    report["device_key"] = i.device_key ? Json(*i.device_key) : Json();
    report["table"] = name_of(o.table);
    report["shape"] = {{"batch", *o.batch}, {"hidden", *o.hidden}, {"vocab", *o.vocab}};
    report["dtype"] = i.dtype;
    report["bucket"] = i.bucket ? Json(*i.bucket) : Json();
    report["remapped"] = i.remapped;
    report["sizes"] = sizes_json(i.sizes);
    report["tuned"] = i.tuned;
    report["rejected"] = Json::array();
    for (const lce::Rejected& r : i.rejected) {
        report["rejected"].push_back({{"key", r.key.empty() ? Json() : Json(r.key)},
                                      {"bucket", r.bucket.empty() ? Json() : Json(r.bucket)},
                                      {"sizes", sizes_json(r.sizes)},
                                      {"reason", r.reason}});
    }
    report["runnable"] = i.not_runnable_because.empty();
    report["not_runnable_because"] = i.not_runnable_because;
    report["pad_columns"] = i.pad_columns;
    report["cores"] = i.cores;
    report["estimated_vmem_bytes"] = {{"forward", static_cast<std::int64_t>(i.forward_vmem_bytes)},
                                      {"backward", static_cast<std::int64_t>(i.backward_vmem_bytes)}};
    report["xla"] = {{"b_block_size", i.xla_b}, {"v_block_size", i.xla_v}, {"reference_path", i.xla_reference_path}};
    report["warnings"] = i.warnings;
    return report;
}

std::string report_text(const Options& o, const lce::Inferred& i) {
    constexpr double k_mib = 1 << 20;
    std::string text = fmt::format("device   {} ({})\n", o.device, i.device_key.value_or("no table"));
    text += fmt::format("shape    B {}, H {}, V {}; {} rows of table {}\n", *o.batch, *o.hidden, *o.vocab, i.dtype,
                        name_of(o.table));
    text += fmt::format("bucket   {}{}\n", i.bucket.value_or("none"),
                        i.remapped ? " (borrowed: no bucket has this vocabulary)" : "");
    for (const lce::Rejected& r : i.rejected) {
        text += fmt::format("rejected {} {}: {}\n", r.key.empty() ? "default sizes" : r.key + " " + r.bucket,
                            sizes_text(r.sizes), r.reason);
    }
    text += fmt::format("sizes    {} (b/h/v), {}\n", sizes_text(i.sizes), i.tuned ? "tuned" : "not tuned");
    text += i.not_runnable_because.empty() ? std::string("runnable yes\n") : std::string("runnable no\n");
    for (const std::string& why : i.not_runnable_because) text += fmt::format("  {}\n", why);
    text += fmt::format("padding  {} columns; {} core{}\n", i.pad_columns, i.cores, i.cores == 1 ? "" : "s");
    text += fmt::format("VMEM     about {:.1f} MiB forward, {:.1f} MiB backward (for ranking: real use is larger)\n",
                        i.forward_vmem_bytes / k_mib, i.backward_vmem_bytes / k_mib);
    text +=
        fmt::format("xla      b {}, v {}{}\n", i.xla_b, i.xla_v, i.xla_reference_path ? ": the reference path" : "");
    for (const std::string& warning : i.warnings) text += fmt::format("warning: {}\n", warning);
    return text;
}

}  // namespace

void describe(cli::Args& args, Options& options) {
    args.about(
        "Shows the block sizes that upstream's fused cross-entropy picks for a device and a shape: the bucket, the "
        "tuned entry, the entries that it rejects and why, whether the kernel runs with these sizes, and what the XLA "
        "path would use.");
    args.option(options.device, {.names = "--device",
                                 .value = "KIND",
                                 .help = "the device kind as JAX prints it, \"TPU v5 lite\"",
                                 .required = true});
    args.option(options.batch,
                {.names = "--batch", .value = "B", .help = "number of rows of one kernel call", .required = true});
    args.option(options.hidden, {.names = "--hidden", .value = "H", .help = "hidden size", .required = true});
    args.option(options.vocab, {.names = "--vocab", .value = "V", .help = "vocabulary size", .required = true});
    args.option(options.dtype, {.names = "--dtype", .value = "DTYPE", .help = "accumulation dtype: f32, bf16 or f16"});
    args.option(options.x_dtype,
                {.names = "--x-dtype", .value = "DTYPE", .help = "dtype of x", .default_text = "as --dtype"});
    args.option(options.w_dtype,
                {.names = "--w-dtype", .value = "DTYPE", .help = "dtype of w", .default_text = "as --dtype"});
    args.option(options.table, k_tables, {.names = "--table", .value = "TABLE", .help = "version of upstream's table"});
    args.option(options.scoped_vmem_kib,
                {.names = "--scoped-vmem-kib",
                 .value = "N",
                 .help = "act as if LIBTPU_INIT_ARGS contained xla_tpu_scoped_vmem_limit_kib=N",
                 .default_text = "not set"});
    args.example("gdnctl ce-infer --device 'TPU v5 lite' --batch 65536 --hidden 512 --vocab 128256 --dtype bf16",
                 "the sizes for a small model's loss");
    args.example("gdnctl ce-infer --device 'TPU v4' --batch 96 --hidden 64 --vocab 4096 --json",
                 "as gdnctl.ce-infer/1");
    args.exit_code(1, "the kernel does not run with these sizes");
    args.see_also("oracle compare");
}

namespace {

// JAX prints "NVIDIA H100 80GB HBM3" where people say H100, and upstream's table goes by what JAX prints.
Status check_device(const std::string& device) {
    const std::string lower = text::to_lower(device);
    const bool gpu = lower.starts_with("h100") || lower.starts_with("h200") || lower.starts_with("a100") ||
                     lower.starts_with("b200") || lower.starts_with("gb10") || lower == "gpu" || lower == "cuda";
    if (!gpu) return {};
    return fail(ErrorKind::usage, fmt::format("--device {}: not a device kind", device),
                "write it as JAX prints it, for example 'NVIDIA H100 80GB HBM3' or 'TPU v5 lite'");
}

}  // namespace

Result<ExitCode> run(const Options& o, Context& context) {
    GDNCTL_TRY(check_device(o.device));
    GDNCTL_TRY_ASSIGN(const lce::Inferred inferred,
                      lce::infer({o.device, o.batch.value_or(0), o.hidden.value_or(0), o.vocab.value_or(0), o.dtype,
                                  o.x_dtype, o.w_dtype, o.table, o.scoped_vmem_kib}));
    if (context.global.json) {
        print_json(report_json(o, inferred), context);
    } else {
        print_lines(report_text(o, inferred), context);
    }
    return inferred.not_runnable_because.empty() ? ExitCode::ok : ExitCode::check_failed;
}

}  // namespace gdnctl::commands::ce_infer

namespace gdnctl::commands {

Rows block_size_commands() {
    static constexpr cli::Command k_rows[] = {cli::make<&ce_infer::describe, &ce_infer::run>(
        "ce-infer", "Oracle", "show the block sizes of upstream's fused cross-entropy", Tier::none)};
    return k_rows;
}

}  // namespace gdnctl::commands
