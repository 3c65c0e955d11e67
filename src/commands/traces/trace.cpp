// gdnctl trace: what profiler traces say. The views are a table of the trace room; here are their options and printing.
#include <array>
#include <cerrno>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "cli/args.h"
#include "commands/common.h"
#include "commands/table.h"
#include "core/text.h"
#include "core/tone.h"
#include "core/version.h"
#include "harness/gdn/read.h"
#include "jobs/trace_input.h"
#include "oracle/gdn/bench/bench.h"
#include "platform/fs.h"
#include "platform/hash.h"
#include "platform/signals.h"
#include "platform/terminal.h"
#include "trace/report/blocks.h"
#include "trace/report/export.h"
#include "trace/views/view.h"

namespace gdnctl::commands::trace_command {

struct Options {
    std::string input, second;  // `second`: of diff, AFTER
    std::string device, devices = "all", module;
    std::optional<double> peak;
    std::int64_t skip_first = 0, top = 25;
    bool salvage = false;
    // hotspots
    std::string_view by = "op";
    bool total = false;
    // steps
    std::string_view need;
    // kernels
    std::string name, op;
    std::optional<double> flops;
    // diff, report
    std::string noise, min_effect = "1%", against;
    double alpha = 0.05;
    bool allow_same = false, allow_mismatch = false, exit_zero = false;
    // check
    std::string expect, baseline;
    // report
    bool digest = false;
    std::string rules, save_baseline, metric;
    // export
    bool perfetto = false;
    std::string output;
};

namespace {

constexpr std::string_view k_baseline = "baseline:";

Error usage(std::string message, std::string hint = {}) {
    return {ErrorKind::usage, std::move(message), std::move(hint), {}};
}

Result<std::vector<std::int64_t>> devices_of(const std::string& words) {
    std::vector<std::int64_t> numbers;
    if (words == "all") return numbers;
    for (const std::string_view word : text::split(words, ',')) {
        const auto number = text::parse_int(text::trim(word));
        if (!number || *number < 0) {
            return tl::unexpected(usage(fmt::format("--devices {}: expected numbers such as 0,2, or all", words)));
        }
        numbers.push_back(*number);
    }
    return numbers;
}

// "1%" or "0.01".
Result<double> fraction_of(const std::string& word) {
    const bool percent = word.ends_with('%');
    const auto value =
        text::parse_double(text::trim(std::string_view(word).substr(0, word.size() - (percent ? 1 : 0))));
    const double fraction = value.value_or(-1) / (percent ? 100 : 1);
    if (!value || fraction < 0 || fraction >= 1) {
        return tl::unexpected(usage(fmt::format("--min-effect {}: expected a share such as 1%", word)));
    }
    return fraction;
}

// True FLOPs of a call, by the algebra of `oracle bench`.
Result<double> flops_of(const std::string& op) {
    const std::size_t colon = op.find(':');
    const std::string name = op.substr(0, colon), shape = colon == std::string::npos ? "" : op.substr(colon + 1);
    if (name == "gdn") {
        const auto dims = harness::parse_shape(shape);
        if (!dims) {
            return tl::unexpected(
                usage(fmt::format("--op {}: expected gdn:B,Hk,Hv,T,dk,dv, as in gdn:1,4,8,4096,128,128", op)));
        }
        return oracle::nominal_forward_flop(*dims);
    }
    if (name == "linear-ce") {
        double flop = 2;
        const auto sizes = text::split(shape, ',');
        for (const std::string_view size : sizes) {
            const auto value = text::parse_int(text::trim(size));
            if (!value || *value <= 0 || sizes.size() != 3) {
                return tl::unexpected(usage(fmt::format("--op {}: expected linear-ce:BATCH,HIDDEN,VOCAB", op)));
            }
            flop *= static_cast<double>(*value);
        }
        return flop;
    }
    return tl::unexpected(usage(fmt::format("--op {}: unknown operator '{}'", op, name),
                                "use gdn:B,Hk,Hv,T,dk,dv or linear-ce:BATCH,HIDDEN,VOCAB"));
}

Result<TraceLoading> loading_of(const Options& options) {
    TraceLoading how;
    how.model.device = options.device;
    how.model.peak_tflops = options.peak;
    how.model.module = options.module;
    how.model.skip_first = options.skip_first;
    how.salvage = options.salvage;
    if (options.peak && !(*options.peak > 0)) return tl::unexpected(usage("--peak: expected TFLOP/s above 0"));
    if (options.skip_first < 0) return tl::unexpected(usage("--skip-first: expected 0 or more"));
    GDNCTL_TRY_ASSIGN(how.model.devices, devices_of(options.devices));
    return how;
}

Result<trace::Source> load(const std::string& input, const TraceLoading& how, const Context& context) {
    if (input.empty()) return tl::unexpected(usage("the name of an input is empty"));
    if (input.starts_with(k_baseline)) return load_baseline(context.state_dir, input.substr(k_baseline.size()));
    return load_trace(context.cwd / input, how);
}

Error needs_trace(std::string_view command) {
    return usage(fmt::format("trace {} needs a trace: a baseline keeps sums only", command));
}

Result<Json> json_at(const std::string& path, const Context& context) {
    GDNCTL_TRY_ASSIGN(const std::string text, read_file(context.cwd / path));
    return parse_json(text, path);
}

Result<trace::Asked> asked_of(const Options& options, const Context& context) {
    trace::Asked asked;
    asked.by = std::string(options.by);
    asked.total = options.total;
    if (options.top < -1) return tl::unexpected(usage("--top: expected a number of rows, or -1 for all"));
    asked.top = options.top;
    asked.need_overlap = !options.need.empty();
    asked.name = options.name;
    asked.flops = options.flops;
    if (options.flops && !(*options.flops > 0)) return tl::unexpected(usage("--flops: expected a number above 0"));
    if (options.flops && !options.op.empty()) return tl::unexpected(usage("give either --flops or --op"));
    if (!options.op.empty()) {
        GDNCTL_TRY_ASSIGN(asked.flops, flops_of(options.op));
    }
    GDNCTL_TRY_ASSIGN(asked.diff.min_effect, fraction_of(options.min_effect));
    if (!(options.alpha > 0) || options.alpha >= 1)
        return tl::unexpected(usage("--alpha: expected a number between 0 and 1"));
    asked.diff.alpha = options.alpha;
    asked.diff.allow_same = options.allow_same;
    asked.diff.allow_mismatch = options.allow_mismatch;
    asked.exit_zero = options.exit_zero;
    asked.metric = options.metric;
    if (!options.expect.empty()) {
        GDNCTL_TRY_ASSIGN(const Json rules, json_at(options.expect, context));
        GDNCTL_TRY_ASSIGN(asked.rules, trace::rules_of(rules));
    }
    if (!options.rules.empty()) {
        GDNCTL_TRY_ASSIGN(asked.budget_rules, json_at(options.rules, context));
        if (asked.budget_rules.is_null()) asked.budget_rules = Json::object();  // null stands for the built-in rules
    }
    return asked;
}

void say(Context& context, std::string_view text) { context.terminal.err(fmt::format("[gdnctl] {}\n", text)); }

Status print(const trace::View& view, std::vector<trace::Source>& sources, const trace::Answer& answer,
             const Options& options, Context& context) {
    for (const trace::Warning& warning : answer.warnings) say(context, warning.message);
    for (const trace::Source& source : sources) {
        if (!source.model) continue;
        for (const std::string& warning : source.model->warnings) say(context, warning);
        for (const auto* list : {&source.model->event_cap, &source.model->stream, &source.model->hw_buffer}) {
            for (const std::string& evidence : *list) say(context, "the trace is not whole: " + evidence);
        }
    }
    if (context.global.json) {
        std::vector<trace::Warning> warnings = answer.warnings;
        for (const std::string& one :
             sources.back().model ? sources.back().model->warnings : std::vector<std::string>()) {
            warnings.push_back({"trace", one});
        }
        Json json = trace::common_json(view.name(), version(), sources, warnings);
        json.update(answer.json);
        print_json(json, context);
    } else if (view.name() != "report") {
        // Whoever reads a file or a pipe can scroll; names are not cut there.
        constexpr int k_uncut = 400;
        const int width = context.terminal.out_is_tty() ? context.terminal.columns() : k_uncut;
        const std::string text = trace::as_text(answer.blocks, width);
        const bool judges = view.name() == "check" || view.name() == "diff";
        context.terminal.out(toned_rows(text, judges && context.terminal.color_out()));
    } else if (options.digest || context.global.agent) {
        context.terminal.out(answer.digest);
    } else {
        GDNCTL_TRY_ASSIGN(const std::string hash, hash_hex(HashKind::sha256, answer.markdown));
        context.terminal.out(answer.markdown + fmt::format("<!-- gdnctl.trace/1 sha256:{} -->\n", hash));
    }
    return {};
}

// The A/A floor: the shift between the first trace of a comparison and a second one of the same program. Without steps
// on both sides there is none.
Status set_floor(trace::Asked& asked, const Options& options, const TraceLoading& how,
                 const std::vector<trace::Source>& sources, const Context& context) {
    if (options.noise.empty()) return {};
    GDNCTL_TRY_ASSIGN(const trace::Source noise, load(options.noise, how, context));
    if (!noise.model && noise.no_model) return tl::unexpected(*noise.no_model);
    for (const trace::Source& one : sources) {
        auto comparable = trace::check_comparable(one.profile, noise.profile, asked.diff);
        if (!comparable) return tl::unexpected(std::move(comparable).error().within("--noise"));
    }
    const std::vector<trace::Ps>& steps = sources.front().profile.steps;
    if (steps.empty() || noise.profile.steps.empty()) return {};
    asked.diff.noise_floor_ps = std::abs(trace::shift_of(steps, noise.profile.steps).shift_ps);
    return {};
}

Result<ExitCode> show(const trace::View& view, const Options& options, Context& context) {
    const bool two = view.compares;
    GDNCTL_TRY_ASSIGN(const TraceLoading how, loading_of(options));
    GDNCTL_TRY_ASSIGN(trace::Asked asked, asked_of(options, context));
    std::vector<trace::Source> sources;
    sources.reserve(2);
    const std::string& before = two ? options.input : view.name() == "check" ? options.baseline : options.against;
    if (!before.empty()) {
        GDNCTL_TRY_ASSIGN(trace::Source source, load(before, how, context));
        sources.push_back(std::move(source));
        asked.against = sources.data();
    }
    GDNCTL_TRY_ASSIGN(trace::Source last, load(two ? options.second : options.input, how, context));
    sources.push_back(std::move(last));
    for (const trace::Source& source : sources) {
        if (view.name() != "info" && source.no_model) return tl::unexpected(*source.no_model);
    }
    const trace::Source& source = sources.back();
    if (view.needs_model && !source.model) return tl::unexpected(needs_trace(view.name()));
    GDNCTL_TRY(set_floor(asked, options, how, sources, context));
    GDNCTL_TRY_ASSIGN(const trace::Answer answer, view.build(source, asked));
    if (!options.save_baseline.empty()) {
        trace::Profile kept = source.profile;
        kept.floor_ps = asked.diff.noise_floor_ps;
        GDNCTL_TRY(save_baseline(context.state_dir, options.save_baseline, kept));
        say(context, fmt::format("baseline saved; use it as baseline:{}", options.save_baseline));
    }
    GDNCTL_TRY(print(view, sources, answer, options, context));
    return answer.exit;
}

// Writes the new file completely or not at all.
Result<std::int64_t> write_export(trace::RawTrace& raw, const std::filesystem::path& path) {
    const std::filesystem::path draft = path.string() + fmt::format(".{}.part", ::getpid());
    UniqueFd fd(::open(draft.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (!fd.valid()) return tl::unexpected(file_error(ErrorKind::local_io, "write", path, errno));
    int failed = 0;
    const std::int64_t events = trace::export_chrome(raw, [&](std::string_view text) {
        failed = write_fully(fd.get(), text);
        return failed == 0 && !received_signal();
    });
    if (received_signal()) {
        ::unlink(draft.c_str());
        return tl::unexpected(stopped_error());
    }
    if (failed == 0 && ::fsync(fd.get()) != 0) failed = errno;
    // Never over a file that appeared meanwhile. NFS knows only the first way, file systems without hard links the
    // second.
    if (failed == 0 && ::link(draft.c_str(), path.c_str()) != 0 &&
        ::renameat2(AT_FDCWD, draft.c_str(), AT_FDCWD, path.c_str(), RENAME_NOREPLACE) != 0) {
        failed = errno;
    }
    ::unlink(draft.c_str());
    if (failed != 0) return tl::unexpected(file_error(ErrorKind::local_io, "write", path, failed));
    return events;
}

Result<ExitCode> export_trace(const Options& options, Context& context) {
    const std::filesystem::path input = context.cwd / options.input, output = context.cwd / options.output;
    std::error_code error;
    if (std::filesystem::equivalent(input, output, error)) {
        return tl::unexpected(usage("--output names the input", "choose another file"));
    }
    if (std::filesystem::exists(output, error)) {
        return fail(ErrorKind::local_io, fmt::format("{} exists", output.string()),
                    "choose another file, or remove it");
    }
    GDNCTL_TRY_ASSIGN(const TraceLoading how, loading_of(options));
    GDNCTL_TRY_ASSIGN(trace::Source source, load(options.input, how, context));
    if (source.no_model) return tl::unexpected(*source.no_model);
    if (!source.model) return tl::unexpected(needs_trace("export"));
    GDNCTL_TRY_ASSIGN(trace::RawTrace raw, load_raw_trace(input, options.salvage));
    GDNCTL_TRY_ASSIGN(const std::int64_t events, write_export(raw, output));
    if (context.global.json) {
        Json json = trace::common_json("export", version(), {&source, 1}, {});
        json["export"] = {{"path", output.string()}, {"events", events}};
        print_json(json, context);
    } else {
        context.terminal.out(fmt::format("{} events in {}\n", events, output.string()));
    }
    return ExitCode::ok;
}

void describe_diff(cli::Args& args, Options& o) {
    constexpr std::string_view k_group = "Comparison";
    args.option(o.noise, "--noise A2",
                "second trace of the program before: the A/A floor, three times which a change must exceed",
                {.group = k_group, .complete = cli::Complete::file});
    args.option(o.min_effect, "--min-effect SHARE", "smallest change of the step that counts", {.group = k_group});
    args.option(o.alpha, "--alpha P", "largest p of a change that counts", {.group = k_group});
    args.flag(o.allow_same, "--allow-same", "compare a trace with itself", {.group = k_group});
    args.flag(o.allow_mismatch, "--allow-mismatch", "compare different devices or programs", {.group = k_group});
    args.flag(o.exit_zero, "--exit-zero", "exit with 0 also after a regression", {.group = k_group});
}

constexpr std::array<cli::Choice<std::string_view>, 6> k_by = {{{"op", "op"},
                                                                {"category", "category"},
                                                                {"class", "class"},
                                                                {"source", "source"},
                                                                {"tf_op", "tf_op"},
                                                                {"program", "program"}}};
constexpr std::array<cli::Choice<std::string_view>, 1> k_need = {{{"overlap", "overlap"}}};

void describe_own(std::string_view name, cli::Args& args, Options& o) {
    if (name == "hotspots") {
        args.option(o.by, k_by, "--by KEY", "what a row is");
        args.flag(o.total, "--total", "rank by total time, which includes nested operations, in place of self time");
    }
    if (name == "steps") args.option(o.need, k_need, "--need WHAT", "fail if the trace cannot tell this");
    if (name == "kernels") {
        args.option(o.name, "--name RE", "operations that match this, in place of custom calls");
        args.option(o.flops, "--flops N", "true FLOPs of one call");
        args.option(o.op, "--op OP:SHAPE", "true FLOPs of gdn:B,Hk,Hv,T,dk,dv or linear-ce:BATCH,HIDDEN,VOCAB");
    }
    if (name == "diff") describe_diff(args, o);
    if (name == "check") {
        args.option(o.expect, "--expect FILE", "rules: {\"rules\":[{\"metric\":\"step.median_ms\",\"max\":121.0}]}",
                    {.complete = cli::Complete::file, .required = true});
        args.option(o.baseline, "--baseline INPUT", "trace or baseline that max_regression_pct compares with",
                    {.complete = cli::Complete::file});
    }
    if (name == "report") {
        args.option(o.against, "--against INPUT", "trace or baseline to compare with",
                    {.complete = cli::Complete::file});
        args.flag(o.digest, "--digest", "print at most 8,000 bytes of Markdown, for agents");
        args.option(o.rules, "--rules FILE", "rules of the budgets",
                    {.default_text = "those of Marin's hybrid model", .complete = cli::Complete::file});
        args.option(o.save_baseline, "--save-baseline NAME", "store the sums of this trace for later comparisons");
        args.option(o.metric, "--metric M", "also report trace:step (ms) or trace:kernel:GLOB (us)");
        describe_diff(args, o);
    }
    if (name == "export") {
        args.flag(o.perfetto, "--perfetto", "write Chrome JSON that Perfetto's viewer loads (the only format)");
        args.option(o.output, {.names = "--output",
                               .value = "FILE",
                               .help = "file to write; it must not exist",
                               .complete = cli::Complete::file,
                               .required = true});
    }
}

constexpr std::string_view k_inputs = "trace file, profiler folder (its newest session), or baseline:NAME";

void describe_common(std::string_view name, bool compares, cli::Args& args, Options& o) {
    args.positional(o.input,
                    {.name = compares ? "BEFORE" : "INPUT", .help = k_inputs, .complete = cli::Complete::file});
    if (compares) {
        args.positional(o.second,
                        {.name = "AFTER", .help = "the same, to compare with it", .complete = cli::Complete::file});
    }
    describe_own(name, args, o);
    constexpr std::string_view k_group = "Trace";
    args.option(o.device, "--device GEN",
                "TPU generation (v4, v5e, v5p, v6e, tpu7x), or cpu: XLA operations of the host",
                {.group = k_group, .default_text = "as the trace says"});
    args.option(o.peak, "--peak TFLOPS", "peak of one chip, in TFLOP/s",
                {.group = k_group, .default_text = "as the trace says"});
    args.option(o.devices, "--devices LIST", "devices by number, such as 0,2", {.group = k_group});
    args.option(o.module, "--module RE", "only operations of these programs; steps are their runs", {.group = k_group});
    args.option(o.skip_first, "--skip-first N", "do not count the first N steps", {.group = k_group});
    args.option(o.top, "--top N", "rows to show (-1: all)", {.group = k_group});
    args.flag(o.salvage, "--salvage", "use what can be read before the damage", {.group = k_group});
    args.exit_code(9, "the trace is damaged, has no device events, or cannot tell what was asked");
    args.see_also({"docs/traces.md"});
}

template <std::size_t I>
void describe(cli::Args& args, Options& options) {
    constexpr const trace::View& k_view = trace::k_views[I];
    args.about(k_view.about);
    describe_common(k_view.name(), k_view.compares, args, options);
    if (k_view.name() == "diff" || k_view.name() == "report") args.exit_code(1, "the step got slower");
    if (k_view.name() == "check") args.exit_code(1, "a limit is exceeded");
    args.example(k_view.example, k_view.example_text);
}

template <std::size_t I>
Result<ExitCode> run(const Options& options, Context& context) {
    return show(trace::k_views[I], options, context);
}

void describe_export(cli::Args& args, Options& options) {
    args.about("Writes a trace as JSON for Perfetto's viewer (ui.perfetto.dev), with the asynchronous copies.");
    describe_common("export", false, args, options);
    args.example("gdnctl trace export --perfetto --output trace.json host0.xplane.pb");
}

template <std::size_t... I>
constexpr auto rows_of(std::index_sequence<I...>) {
    return std::array<cli::Command, sizeof...(I) + 1>{
        cli::make<&describe<I>, &run<I>>(trace::k_views[I].command, "Traces", trace::k_views[I].summary, Tier::none)
            .without_config()
            .prints_report()...,
        cli::make<&describe_export, &export_trace>("trace export", "Traces", "write a trace for Perfetto's viewer",
                                                   Tier::none)
            .without_config()};
}

}  // namespace

}  // namespace gdnctl::commands::trace_command

namespace gdnctl::commands {

Rows trace_commands() {
    static constexpr auto k_rows = trace_command::rows_of(std::make_index_sequence<std::size(trace::k_views)>());
    return k_rows;
}

}  // namespace gdnctl::commands
