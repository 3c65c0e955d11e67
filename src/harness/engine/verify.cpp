#include "harness/engine/verify.h"

#include <algorithm>
#include <map>
#include <memory>

#include <fmt/format.h>

#include "core/glob.h"
#include "core/json.h"
#include "core/log.h"
#include "core/text.h"
#include "harness/child/library.h"
#include "harness/files.h"
#include "oracle/judge/report.h"
#include "platform/fs.h"
#include "platform/progress.h"
#include "platform/signals.h"

namespace gdnctl::harness {

namespace {

using oracle::KernelFault;
using oracle::KernelFaultKind;
using oracle::KernelRun;
using oracle::TensorFile;
using oracle::Verdict;

// Judges one run. What cannot be compared is the kernel's fault.
Tried judged(Reading& by, KernelRun run, const Judging& how) {
    Tried tried;
    tried.fault = std::move(run.fault);
    if (tried.fault) return tried;
    tried.outputs = std::move(run.outputs);
    auto judgement = by.judge(tried.outputs, how);
    if (!judgement) {
        tried.fault = KernelFault{KernelFaultKind::wrong_shape, judgement.error().text(), {}};
        return tried;
    }
    tried.judgement = std::move(*judgement);
    tried.fault = tried.judgement.fault;
    if (!tried.fault && tried.judgement.verdict == Verdict::no_data) {
        tried.fault = KernelFault{KernelFaultKind::incomplete, tried.judgement.reason, {}};
    }
    return tried;
}

Result<KernelRun> ask(Kernel& kernel, Problem& problem, const Question& what, int threads) {
    GDNCTL_TRY_ASSIGN(Inputs* const inputs, problem.inputs_of(what, threads));
    return run_once(kernel, {*inputs, what.entry, threads});
}

// Whether a later call is as good as the first one; else what is wrong becomes the fault of `first`.
bool agrees(Tried& first, Tried later, std::string_view when) {
    if (!later.fault && later.judgement.verdict == first.judgement.verdict) return true;
    const bool own = later.fault && later.fault->kind != KernelFaultKind::non_finite &&
                     later.fault->kind != KernelFaultKind::incomplete;
    first.fault = own ? *later.fault
                      : KernelFault{KernelFaultKind::unsteady,
                                    fmt::format("right in the first call, but {}: {}", when,
                                                later.fault ? later.fault->text : later.judgement.reason),
                                    {}};
    first.outputs = std::move(later.outputs);
    return false;
}

}  // namespace

Result<Tried> try_kernel(Kernel& kernel, Problem& problem, const Judging& how, std::uint64_t seed) {
    GDNCTL_TRY_ASSIGN(KernelRun run, ask(kernel, problem, how.ask, how.threads));
    Tried first = judged(problem, std::move(run), how);
    const bool right =
        !first.fault && (first.judgement.verdict == Verdict::ok || first.judgement.verdict == Verdict::suspect);
    if (!right || !kernel.worth_repeating()) return first;
    GDNCTL_TRY_ASSIGN(auto other, problem.disguised(seed));
    if (other) {
        GDNCTL_TRY_ASSIGN(run, ask(kernel, *other->problem, how.ask, 1));
        if (other->undo) other->undo(run.outputs);
        const bool same = other->undo && !run.fault && same_bytes(run.outputs, first.outputs);
        Reading& by = other->undo ? problem : *other->problem;
        if (!same &&
            !agrees(first, judged(by, std::move(run), how), "wrong for inputs with other signs, on one thread")) {
            if (!other->undo) first.inputs = std::move(other);
            return first;
        }
    }
    GDNCTL_TRY_ASSIGN(run, ask(kernel, problem, how.ask, how.threads));
    if (!run.fault && same_bytes(run.outputs, first.outputs)) return first;
    first.bit_equal = false;
    agrees(first, judged(problem, std::move(run), how), "wrong when it was given the same inputs again");
    return first;
}

namespace {

std::string plural(std::size_t n, std::string_view noun) { return fmt::format("{} {}{}", n, noun, n == 1 ? "" : "s"); }

std::string line_of(const Item& item, std::string_view unit) {
    std::string line = fmt::format("{:<6} {:<40} {:<14} ", item.kind, item.name, item.verdict_name());
    if (!item.fault) {
        const bool as_expected = !item.failed() && item.judgement.verdict != Verdict::ok;
        line += as_expected ? "as expected" : fmt::format("{:.2g} x {}", item.judgement.error, unit);
    }
    if (!item.bit_equal) line += ", not bit-identical between calls";
    return std::string(text::trim(line)) + "\n";
}

std::string indented(std::string_view lines) {
    std::string text;
    if (text::trim(lines).empty()) return text;
    for (const auto line : text::split(text::trim(lines), '\n')) text += fmt::format("       {}\n", line);
    return text;
}

// Everything about one item.
std::string whole_text(const Item& item, std::string_view unit) {
    std::string text = line_of(item, unit);
    if (item.fault) return text + indented(item.fault->text) + quoted_output(*item.fault);
    const Judgement& j = item.judgement;
    if (!j.missing_gradients.empty()) text += indented("GRADIENTS MISSING: " + text::join(j.missing_gradients, ", "));
    text += indented(j.reason);
    if (j.worst && !j.worst->index.empty()) text += indented("worst: " + oracle_report::place_text(*j.worst));
    return text + indented(j.diagnosis);
}

Json item_json(const Item& item, const std::vector<Item>& all) {
    const Judgement& j = item.judgement;
    Json object = {{"kind", item.kind},
                   {"name", item.name},
                   {"verdict", item.verdict_name()},
                   {"expected_verdict", oracle::name_of(item.expected)},
                   {"error_over_budget", oracle_report::number(j.error)},
                   {"reason", j.reason},
                   {"worst", oracle_report::worst_json(j.worst)},
                   {"fault", fault_json(item.fault)},
                   {"bit_equal", item.bit_equal},
                   {"forward_only", !item.gradients},
                   {"missing_gradients", j.missing_gradients},
                   {"stage", j.stage.empty() ? Json(nullptr) : Json(j.stage)}};
    if (j.fields) j.fields(object);
    object["same_fault_as"] = item.like ? Json(all[*item.like].name) : Json(nullptr);
    return object;
}

// The items of one set, by kind and verdict: "crossed: 96 OK", "crossed backward: 90 OK, 6 WRONG".
class SetSummary {
public:
    void add(const Item& item) {
        const bool plain = item.kind == "case" || item.set == item.kind || item.set == item.kind + "s";
        auto& counts = found(m_kinds, plain ? item.set : item.set + " " + item.kind);
        const bool as_expected = !item.failed() && item.judgement.verdict != Verdict::ok;
        ++found(counts, fmt::format("{}{}", item.verdict_name(), as_expected ? " as expected" : ""));
        if (!item.bit_equal) ++m_unequal;
    }

    std::string take_text() {
        std::string text;
        for (const auto& [label, counts] : m_kinds) {
            std::vector<std::string> parts;
            for (const auto& [verdict, count] : counts) {
                parts.insert(verdict == "OK" ? parts.begin() : parts.end(), fmt::format("{} {}", count, verdict));
            }
            text += fmt::format("{}: {}\n", label, text::join(parts, ", "));
        }
        if (m_unequal > 0) {
            text += fmt::format("       {} not bit-identical between calls\n", plural(m_unequal, "result"));
        }
        m_kinds.clear();
        m_unequal = 0;
        return text;
    }

private:
    template <class Value>
    using Ordered = std::vector<std::pair<std::string, Value>>;

    template <class Value>
    static Value& found(Ordered<Value>& all, const std::string& name) {
        const auto at = std::find_if(all.begin(), all.end(), [&](const auto& entry) { return entry.first == name; });
        return at != all.end() ? at->second : all.emplace_back(name, Value()).second;
    }

    Ordered<Ordered<int>> m_kinds;
    std::size_t m_unequal = 0;
};

// Failures that are shown as one: what is said about them is the same.
struct FailureGroup {
    std::string key;
    std::vector<std::size_t> items;  // in the order of judging
    std::size_t shown = 0;           // the smallest of those that were analysed
};

std::string group_key(const Item& item, const std::vector<Item>& all) {
    if (item.follows) return "follows";
    if (item.fault) {
        std::string text = item.fault->text;
        std::erase_if(text, [](char c) { return (c >= '0' && c <= '9') || c == '.' || c == '-'; });
        return fmt::format("{} {}", item.verdict_name(), text);
    }
    if (item.kind == "relation") return "relation " + item.name;
    const Judgement& j = item.like ? all[*item.like].judgement : item.judgement;
    return fmt::format("{} {} {} {}", item.verdict_name(), j.worst ? j.worst->tensor : j.wrong, j.stage, j.hint);
}

std::vector<FailureGroup> groups_of(const std::vector<Item>& items) {
    std::vector<FailureGroup> groups;
    for (std::size_t i = 0; i < items.size(); ++i) {
        if (!items[i].failed()) continue;
        const std::string key = group_key(items[i], items);
        const auto at = std::find_if(groups.begin(), groups.end(), [&](const auto& group) { return group.key == key; });
        FailureGroup& group = at != groups.end() ? *at : groups.emplace_back(FailureGroup{key, {}, i});
        group.items.push_back(i);
        const auto rank = [&](std::size_t one) { return std::pair(items[one].like.has_value(), items[one].size); };
        if (rank(i) < rank(group.shown)) group.shown = i;
    }
    std::stable_partition(groups.begin(), groups.end(), [](const FailureGroup& g) { return g.key != "follows"; });
    return groups;
}

std::string group_text(const FailureGroup& group, const std::vector<Item>& items, std::string_view unit) {
    const Item& shown = items[group.shown];
    std::string text = whole_text(shown, unit);
    if (shown.follows) text += indented("follows: the forward of this case is wrong, too");
    std::vector<std::string> others;
    for (const std::size_t i : group.items) {
        if (i == group.shown) continue;
        const Item& item = items[i];
        others.push_back(item.kind == shown.kind ? item.name : item.kind + " " + item.name);
    }
    if (others.empty()) return text;
    return text + indented(fmt::format("and {}: {}", plural(others.size(), "other"), text::join(others, ", ")));
}

constexpr std::string_view k_device_set = "device";

bool is_glob(std::string_view pattern) { return pattern.find_first_of("*?[") != std::string_view::npos; }

// Recorded inputs and outputs of real implementations.
struct RecordedVector {
    std::string name;
    std::filesystem::path inputs;
    std::vector<std::filesystem::path> outputs;
};

// NAME.inputs.safetensors with all NAME.*.outputs.safetensors beside it, in the order of their names. Errors: the
// folder cannot be read, or holds none.
Result<std::vector<RecordedVector>> find_vectors(const std::filesystem::path& folder) {
    constexpr std::string_view k_inputs = ".inputs.safetensors";
    constexpr std::string_view k_outputs = ".outputs.safetensors";
    std::error_code error;
    std::vector<std::string> files;
    for (std::filesystem::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
        files.push_back(it->path().filename().string());
    }
    if (error)
        return fail(ErrorKind::usage, fmt::format("cannot read the folder {}: {}", folder.string(), error.message()));
    std::sort(files.begin(), files.end());
    std::vector<RecordedVector> vectors;
    for (const std::string& file : files) {
        if (!file.ends_with(k_inputs)) continue;
        RecordedVector vector{file.substr(0, file.size() - k_inputs.size()), folder / file, {}};
        for (const std::string& other : files) {
            if (other.starts_with(vector.name + ".") && other.ends_with(k_outputs))
                vector.outputs.push_back(folder / other);
        }
        if (!vector.outputs.empty()) vectors.push_back(std::move(vector));
    }
    if (vectors.empty()) {
        return fail(ErrorKind::bad_input,
                    fmt::format("{} has no NAME.inputs.safetensors with NAME.*.outputs.safetensors", folder.string()));
    }
    return vectors;
}

std::size_t bytes_of(const TensorFile& file) {
    std::size_t bytes = 0;
    for (const oracle::NamedTensor& t : file.tensors) bytes += t.tensor.bytes.size();
    return bytes;
}

// Writes the files of failures that `oracle compare` takes.
class FailureFolder {
public:
    FailureFolder(const Operator& op, const VerifyRequest& request, const Context& context)
        : m_operator(op),
          m_request(request),
          m_context(context),
          m_folder(context.cwd / request.save_failures.value_or("")) {}

    // So that a folder that cannot be written is known before anything is run.
    Status open() const {
        if (!m_request.save_failures) return {};
        std::error_code error;
        std::filesystem::create_directories(m_folder, error);
        if (!error) return atomic_replace(m_folder / ".gdnctl", "") ? remove_trial() : cannot_write("");
        return cannot_write(": " + error.message());
    }

    Status save(Item& item, const TensorFile& inputs, const TensorFile& outputs) {
        constexpr int k_most = 20;
        if (!m_request.save_failures || m_saved == k_most) return {};
        ++m_saved;
        item.saved_as = item.name;
        if (item.kind != "case" && item.kind != "vector") item.saved_as += "-" + item.kind;
        std::replace_if(item.saved_as.begin(), item.saved_as.end(), [](char c) { return c == ' ' || c == '/'; }, '_');
        GDNCTL_TRY(oracle_files::write(m_context, path(item, ".inputs.safetensors"), inputs));
        if (!outputs.tensors.empty()) {
            return oracle_files::write(m_context, path(item, ".outputs.safetensors"), outputs);
        }
        // Those of an earlier run are not of these inputs.
        std::error_code ignored;
        std::filesystem::remove(path(item, ".outputs.safetensors"), ignored);
        return {};
    }

    // Once everything is known about them.
    Status describe(const std::vector<Item>& items) const {
        for (const Item& item : items) {
            if (item.saved_as.empty()) continue;
            Json object = {
                {"schema", "gdnctl.oracle-failure/1"}, {"op", m_operator.name()}, {"kernel", m_request.kernel}};
            object.update(item_json(item, items));
            GDNCTL_TRY(atomic_replace(path(item, ".json"), to_text(object, 2) + "\n"));
        }
        return {};
    }

private:
    std::string path(const Item& item, std::string_view end) const {
        return (m_folder / (item.saved_as + std::string(end))).string();
    }
    Status cannot_write(const std::string& why) const {
        return fail(ErrorKind::local_io,
                    fmt::format("--save-failures: cannot write to {}{}", m_request.save_failures->string(), why));
    }
    Status remove_trial() const {
        std::error_code ignored;
        std::filesystem::remove(m_folder / ".gdnctl", ignored);
        return {};
    }

    const Operator& m_operator;
    const VerifyRequest& m_request;
    const Context& m_context;
    std::filesystem::path m_folder;
    int m_saved = 0;
};

class Verifier {
public:
    Verifier(const Operator& op, const VerifyRequest& request, Context& context,
             const std::function<void(const std::string&)>& said)
        : m_operator(op),
          m_request(request),
          m_context(context),
          m_said(said),
          m_options(request.options),
          m_folder(op, request, context),
          m_progress(context.terminal, context.clock,
                     {.label = request.kernel, .quiet = context.global.quiet, .after = std::chrono::seconds(2)}) {}

    Result<Verified> run() {
        const CaseList cases = m_operator.cases();
        m_device = m_request.device_cases && std::any_of(cases.rows.begin(), cases.rows.end(),
                                                         [](const CaseRow& c) { return c.set == k_device_set; });
        GDNCTL_TRY_ASSIGN(m_kernel, m_operator.open(m_request.kernel, {m_request.limits}, m_context));
        std::vector<RecordedVector> vectors;
        if (m_request.vectors) {
            GDNCTL_TRY_ASSIGN(vectors, find_vectors(*m_request.vectors));
        }
        GDNCTL_TRY(check_names(cases, vectors));
        GDNCTL_TRY(m_folder.open());
        if (m_request.metamorphic) {
            GDNCTL_TRY(run_relations());
        } else {
            GDNCTL_TRY(run_cases(cases, vectors));
        }
        GDNCTL_TRY(analyse());
        m_progress.finish();
        for (const FailureGroup& group : groups_of(m_done.items)) {
            m_said(group_text(group, m_done.items, unit_of(m_done.items[group.shown])));
        }
        GDNCTL_TRY(m_folder.describe(m_done.items));
        return std::move(m_done);
    }

private:
    // Failures that look alike, one of which is analysed for all: to judge a kernel is cheap, to find its mistake is
    // not.
    struct Alike {
        std::string look;
        std::vector<std::size_t> items;
        std::size_t analysed = 0;  // the smallest
        std::shared_ptr<PreparedCase> made;
        Question ask;
        TensorFile outputs;
    };

    std::string_view unit_of(const Item& item) const {
        return item.kind == "relation" ? "tolerance" : m_operator.error_unit();
    }

    Judging judging(const Question& what, bool explain = false) const {
        return {true, m_options.threads, [this] { return m_context.stop.stop_requested(); }, 1, explain, what};
    }

    Status check_stop() const {
        if (!m_context.stop.stop_requested()) return {};
        return fail(stopped_error().kind, "stopped before everything was judged");
    }

    // A kernel that hangs or does not load is not tried again on all other cases.
    bool given_up() const {
        if (m_done.items.empty()) return false;
        const Item& last = m_done.items.back();
        return (last.fault && m_kernel->ends_everything(*last.fault)) || (m_failed && m_request.fail_fast);
    }

    bool wanted(const std::string& name, const std::string& set) const {
        if (m_request.cases.empty()) {
            return m_device == (set == k_device_set) && (set != "slow" || m_request.slow);
        }
        return std::any_of(m_request.cases.begin(), m_request.cases.end(), [&](const std::string& pattern) {
            if (pattern == name || pattern == set) return true;
            return is_glob(pattern) && glob_matches(pattern, name) && (set != "slow" || m_request.slow);
        });
    }

    Status check_names(const CaseList& cases, const std::vector<RecordedVector>& vectors) const {
        std::vector<std::string> known;  // names, then sets
        for (const auto& vector : vectors) known.push_back(vector.name);
        for (const CaseRow& c : cases.rows) {
            if (!m_request.metamorphic) known.push_back(c.name);
        }
        if (m_request.metamorphic) {
            for (const RelationRow& relation : m_operator.relations()) known.push_back(relation.name);
        }
        const std::size_t names = known.size();
        for (const CaseRow& c : cases.rows) {
            if (!m_request.metamorphic && known.back() != c.set) known.push_back(c.set);
        }
        for (const std::string& pattern : m_request.cases) {
            const auto matches = [&](const std::string& name) {
                return is_glob(pattern) && glob_matches(pattern, name);
            };
            if (std::find(known.begin(), known.end(), pattern) != known.end() ||
                std::any_of(known.begin(), known.begin() + static_cast<std::ptrdiff_t>(names), matches)) {
                continue;
            }
            const auto near = is_glob(pattern) ? std::nullopt : text::nearest(pattern, known);
            return fail(ErrorKind::usage,
                        fmt::format("{} '{}'", is_glob(pattern) ? "no case matches" : "unknown case", pattern),
                        near ? fmt::format("did you mean '{}'?", *near)
                             : fmt::format("`gdnctl oracle cases {}` lists them", m_operator.name()));
        }
        return {};
    }

    Status run_cases(const CaseList& cases, const std::vector<RecordedVector>& vectors) {
        log::info("judging {} on the generated cases{}", m_request.kernel,
                  vectors.empty() ? "" : fmt::format(" and {} recorded inputs", vectors.size()));
        GDNCTL_TRY_ASSIGN(m_options.entries, m_operator.entries(*m_kernel));
        take_facts();
        m_progress.count("cases", static_cast<std::uint64_t>(
                                      std::count_if(cases.rows.begin(), cases.rows.end(),
                                                    [&](const CaseRow& c) { return wanted(c.name, c.set); })));
        for (const CaseRow& c : cases.rows) {
            if (c.set != m_set) end_set(c.set);
            if (!wanted(c.name, c.set)) continue;
            GDNCTL_TRY(check_stop());
            if (given_up()) {
                ++m_done.not_run;
                continue;
            }
            m_progress.update(m_judged++);
            auto done = run_case(c.name);
            if (!done) return tl::unexpected(std::move(done).error().within("case " + c.name));
        }
        end_set("vectors");
        note_network();
        for (const RecordedVector& vector : vectors) {
            if (!wanted(vector.name, "vectors")) continue;
            GDNCTL_TRY(check_stop());
            GDNCTL_TRY(judge_vector(vector));
        }
        end_set("");
        return {};
    }

    // What the kernel says about itself counts where the command says nothing.
    void take_facts() {
        oracle::KernelFacts facts = m_kernel->facts();
        m_options.program = facts.takes_files;
        m_options.stated_chunk = facts.chunk;
        if (!m_options.contract) {
            const auto field_of = [](const std::string& set) { return set.substr(0, set.find('=')); };
            std::erase_if(facts.sets, [&](const std::string& set) {
                return std::any_of(m_options.sets.begin(), m_options.sets.end(),
                                   [&](const std::string& own) { return field_of(own) == field_of(set); });
            });
            m_options.contract = std::move(facts.contract);
            m_options.sets.insert(m_options.sets.begin(), facts.sets.begin(), facts.sets.end());
        }
        constexpr std::pair<std::string_view, oracle::DType> k_dtypes[] = {
            {"f32", oracle::DType::f32}, {"bf16", oracle::DType::bf16}, {"f16", oracle::DType::f16}};
        for (const auto& [name, dtype] : k_dtypes) {
            if (facts.dtype != name || m_options.dtype_name != "case") continue;
            m_options.dtype = dtype;
            m_options.dtype_name = name;
        }
        m_done.dtype_name = m_options.dtype_name;
        m_done.environment = std::move(facts.environment);
    }

    void end_set(std::string next) {
        Progress::step_aside();
        m_said(m_summary.take_text());
        m_set = std::move(next);
    }

    void note_network() {
        m_done.network = m_kernel->network();
        if (m_done.network == "none") log::warning("cannot block the kernel's network access on this system");
    }

    Status run_case(const std::string& name) {
        GDNCTL_TRY_ASSIGN(auto prepared, m_operator.prepare(name, m_options));
        const auto made = std::make_shared<PreparedCase>(std::move(prepared));
        if (!made->problem) {
            if (!made->left_out.empty()) m_done.skipped.push_back({name, made->left_out});
            return {};
        }
        const std::size_t first = m_done.items.size();
        std::string_view counted;
        for (const Question& what : made->asks) {
            if (m_done.items.size() > first && given_up()) return {};
            if ((m_options.entries & (1U << what.entry)) != 0) {
                const std::size_t skipped = m_done.skipped.size();
                GDNCTL_TRY(run_ask(name, made, what, first));
                if (m_done.skipped.size() > skipped) return {};
                continue;
            }
            // A program gives gradients along with its outputs; one that fails may have them.
            const bool along = m_done.items.size() > first && m_options.program &&
                               (m_done.items.back().gradients || m_done.items.back().fault);
            if (!along && counted != what.kind) count_no_entry(what.kind);
            counted = what.kind;
        }
        return {};
    }

    void count_no_entry(std::string_view kind) {
        auto& all = m_done.no_entry;
        const auto at = std::find_if(all.begin(), all.end(), [&](const auto& entry) { return entry.first == kind; });
        ++(at != all.end() ? *at : all.emplace_back(kind, 0)).second;
    }

    // `first`: the first item of this case.
    Status run_ask(const std::string& name, const std::shared_ptr<PreparedCase>& made, const Question& what,
                   std::size_t first) {
        GDNCTL_TRY_ASSIGN(Tried tried, try_kernel(*m_kernel, *made->problem, judging(what), made->seed));
        GDNCTL_TRY(check_stop());
        const bool unstable =
            tried.judgement.verdict == Verdict::unstable_input && made->expected == Verdict::ok && !tried.fault;
        if (unstable && m_options.declares()) {
            m_done.skipped.push_back({name, "cannot be judged as declared: " + tried.judgement.reason});
            return {};
        }
        if (tried.fault && tried.fault->counts == KernelFault::Counts::as_skipped) {
            m_done.skipped.push_back({name, tried.fault->text, true});
            return {};
        }
        if (tried.fault && tried.fault->counts == KernelFault::Counts::as_not_run) {
            ++m_done.not_run;
            return {};
        }
        m_done.without.merge(oracle::not_returned(tried.outputs));
        Item item;
        item.kind = what.kind;
        item.name = name + std::string(what.suffix);
        item.expected = made->expected;
        item.gradients = tried.judgement.gradients_compared();
        item.judgement = std::move(tried.judgement);
        item.fault = std::move(tried.fault);
        item.bit_equal = tried.bit_equal;
        item.follows = what.kind == "backward" && m_done.items.size() > first && m_done.items[first].failed();
        const bool other = tried.inputs.has_value();
        if (item.failed()) {
            Problem& asked = other ? *tried.inputs->problem : *made->problem;
            GDNCTL_TRY_ASSIGN(const Inputs* const inputs, asked.inputs_of(what, m_options.threads));
            item.size = bytes_of(*made->inputs);
            GDNCTL_TRY(m_folder.save(item, inputs->file(), tried.outputs));
        }
        if (!other) keep(item, made, what, std::move(tried.outputs));
        add(std::move(item));
        return {};
    }

    // What others computed from recorded inputs; the kernel is not asked.
    Status judge_vector(const RecordedVector& vector) {
        GDNCTL_TRY_ASSIGN(TensorFile inputs, oracle_files::read(m_context, {vector.inputs.string()}, {}));
        const auto op = inputs.metadata.find("op");
        if (op != inputs.metadata.end() && op->second != m_operator.name()) {
            log::info("{} is for {}: skipped", vector.inputs.filename().string(), op->second);
            return {};
        }
        auto prepared = m_operator.recorded(std::move(inputs), m_options);
        if (!prepared) return tl::unexpected(std::move(prepared).error().within(vector.inputs.string()));
        const auto made = std::make_shared<PreparedCase>(std::move(*prepared));
        const Question what{.kind = "vector", .recorded = true};
        for (const auto& path : vector.outputs) {
            if (m_failed && m_request.fail_fast) {
                ++m_done.not_run;
                continue;
            }
            GDNCTL_TRY_ASSIGN(TensorFile outputs, oracle_files::read(m_context, {path.string()}, {}));
            auto judgement = made->problem->judge(outputs, judging(what));
            if (!judgement) return tl::unexpected(std::move(judgement).error().within(path.string()));
            GDNCTL_TRY(check_stop());
            Item item;
            item.kind = "vector";
            item.name = path.filename().string();
            item.gradients = judgement->gradients_compared();
            item.judgement = std::move(*judgement);
            item.size = bytes_of(*made->inputs);
            if (item.failed()) {
                const std::string name = item.name;
                item.name = path.stem().stem().string();
                GDNCTL_TRY(m_folder.save(item, *made->inputs, outputs));
                item.name = name;
            }
            keep(item, made, what, std::move(outputs));
            add(std::move(item));
        }
        return {};
    }

    Status run_relations() {
        GDNCTL_TRY(m_operator.check_relations_apply(m_options));
        log::info("checking relations between results of {}", m_request.kernel);
        end_set("relations");
        for (const RelationRow& relation : m_operator.relations()) {
            if (!wanted(relation.name, m_set)) continue;
            GDNCTL_TRY(check_stop());
            if (given_up()) {
                ++m_done.not_run;
                continue;
            }
            auto judgement = m_operator.check_relation(relation, *m_kernel, m_options);
            if (!judgement) return tl::unexpected(std::move(judgement).error().within("relation " + relation.name));
            if (!*judgement) {
                log::info("{} has no gradients: skipping {}", m_request.kernel, relation.name);
                continue;
            }
            Item item;
            item.kind = "relation";
            item.name = relation.name;
            item.judgement = std::move(**judgement);
            item.gradients = item.judgement.gradients_compared();
            item.fault = item.judgement.fault;
            add(std::move(item));
        }
        note_network();
        end_set("");
        return {};
    }

    void add(Item item) {
        item.set = m_set;
        m_failed = m_failed || item.failed();
        if (m_request.verbose) Progress::step_aside();
        if (m_request.verbose) m_said(line_of(item, unit_of(item)));
        m_summary.add(item);
        m_done.items.push_back(std::move(item));
    }

    // Of a failure, what its analysis will need.
    void keep(const Item& item, const std::shared_ptr<PreparedCase>& made, const Question& what, TensorFile outputs) {
        if (!item.failed() || outputs.tensors.empty()) return;
        const std::string look = fmt::format("{} {} {}", item.kind, item.verdict_name(), item.judgement.wrong);
        const std::size_t index = m_done.items.size();
        const auto at = std::find_if(m_alike.begin(), m_alike.end(), [&](const Alike& a) { return a.look == look; });
        Alike& alike = at != m_alike.end() ? *at : m_alike.emplace_back(Alike{look, {}, index, nullptr, {}, {}});
        alike.items.push_back(index);
        if (alike.made && item.size >= m_done.items[alike.analysed].size) return;
        alike.analysed = index;
        alike.made = made;
        alike.ask = what;
        alike.outputs = std::move(outputs);
    }

    // Looks for the mistake in one item of each look.
    Status analyse() {
        for (const Alike& alike : m_alike) {
            GDNCTL_TRY(check_stop());
            Item& analysed = m_done.items[alike.analysed];
            GDNCTL_TRY_ASSIGN(Judgement found, alike.made->problem->judge(alike.outputs, judging(alike.ask, true)));
            GDNCTL_TRY(check_stop());
            if (analysed.fault) {
                analysed.judgement.stage = std::move(found.stage);
            } else {
                analysed.judgement = std::move(found);
            }
            for (const std::size_t i : alike.items) {
                if (i == alike.analysed) continue;
                m_done.items[i].like = alike.analysed;
                m_done.items[i].judgement.stage = analysed.judgement.stage;
            }
        }
        return {};
    }

    const Operator& m_operator;
    const VerifyRequest& m_request;
    Context& m_context;
    const std::function<void(const std::string&)>& m_said;
    CaseOptions m_options;
    FailureFolder m_folder;
    std::unique_ptr<Kernel> m_kernel;
    std::string m_set;
    SetSummary m_summary;
    bool m_device = false;  // only the cases for compiled kernels
    bool m_failed = false;
    std::vector<Alike> m_alike;
    Verified m_done;
    std::uint64_t m_judged = 0;  // cases
    Progress m_progress;
};

// "68 cases, 60 backward, 30 decode, 2 vectors"
std::string counted_text(const VerifyRequest& request, const Verified& done) {
    if (request.metamorphic) return plural(done.count_of("relation"), "relation");
    std::string text = plural(done.count_of("case"), "case");
    for (const std::string_view kind : {"backward", "decode"}) {
        if (const auto n = done.count_of(kind); n > 0) text += fmt::format(", {} {}", n, kind);
    }
    const std::size_t vectors = done.count_of("vector");
    return vectors == 0 ? text : text + ", " + plural(vectors, "vector");
}

std::string skipped_text(const Verified& done) {
    std::vector<std::string> parts;
    for (const auto& [kind, count] : done.no_entry) {
        parts.push_back(
            fmt::format("{} ({})", kind == "case" ? "forward" : kind, plural(static_cast<std::size_t>(count), "case")));
    }
    std::string text;
    if (!parts.empty()) text = fmt::format("skipped, not in the kernel: {}\n", text::join(parts, ", "));
    for (const bool by_kernel : {false, true}) {
        std::vector<std::pair<std::string, int>> reasons;
        std::size_t all = 0;
        for (const SkippedCase& c : done.skipped) {
            if (c.by_kernel != by_kernel) continue;
            const auto at =
                std::find_if(reasons.begin(), reasons.end(), [&](const auto& r) { return r.first == c.reason; });
            ++(at != reasons.end() ? *at : reasons.emplace_back(c.reason, 0)).second;
            ++all;
        }
        if (all == 0) continue;
        text += fmt::format("skipped, not {}: {}\n", by_kernel ? "supported by the kernel" : "as declared",
                            plural(all, "case"));
        for (const auto& [reason, count] : reasons) text += fmt::format("       {:>4}  {}\n", count, reason);
    }
    return text;
}

Json skipped_json(const Operator& op, const Verified& done) {
    Json object = Json::object();
    for (const std::string_view kind : op.kinds()) {
        if (op.kinds().size() <= 2 || kind == "vector" || kind == "relation") continue;
        const auto at = std::find_if(done.no_entry.begin(), done.no_entry.end(),
                                     [&](const auto& entry) { return entry.first == kind; });
        object[std::string(kind == "case" ? "forward" : kind)] = at == done.no_entry.end() ? 0 : at->second;
    }
    if (done.skipped.empty() && !object.empty()) return object;
    object["contract"] = Json::array();
    const auto by_kernel = [](const SkippedCase& c) { return c.by_kernel; };
    if (std::any_of(done.skipped.begin(), done.skipped.end(), by_kernel)) object["unsupported"] = Json::array();
    for (const SkippedCase& c : done.skipped) {
        object[c.by_kernel ? "unsupported" : "contract"].push_back({{"name", c.name}, {"reason", c.reason}});
    }
    return object;
}

// "on: jax 0.10.2, TPU v5p (4), matmul precision default (bf16 operands)", and the variables that change results.
std::string environment_text(const Json& on) {
    if (!on.is_object()) return {};
    const auto count = json::integer(on, "device_count").value_or(1);
    std::string text = fmt::format("on: {} {}, {}{}, matmul precision {} ({} operands)\n", json::text(on, "framework"),
                                   json::text(on, "version"), json::text(on, "device_kind"),
                                   count > 1 ? fmt::format(" ({})", count) : "", json::text(on, "matmul_precision"),
                                   json::text(on, "matmul_operands"));
    for (const auto& [name, value] : json::field(on, "variables").items()) {
        if (value.is_string()) text += fmt::format("    {}={}\n", name, value.get<std::string>());
    }
    return text;
}

// What to try where products may be less exact than declared.
std::string precision_hint(const Verified& done) {
    const std::string operands = json::text(done.environment, "matmul_operands");
    if (operands.empty() || operands == "f32" || done.failed() == 0) return {};
    return fmt::format(
        "hint: matmul precision is {} ({} default on {}); declare it with --set matmul={}, or set {}\n", operands,
        json::text(done.environment, "framework"), json::text(done.environment, "device_kind"), operands,
        json::text(done.environment, "framework") == "jax" ? "JAX_DEFAULT_MATMUL_PRECISION=highest"
                                                           : "torch.backends.cuda.matmul.allow_tf32 = False");
}

Json groups_json(const Verified& done) {
    Json groups = Json::array();
    for (const FailureGroup& group : groups_of(done.items)) {
        const Item& shown = done.items[group.shown];
        const Judgement& j = shown.judgement;
        Json cases = Json::array();
        for (const std::size_t i : group.items) cases.push_back(done.items[i].name);
        groups.push_back({{"verdict", shown.verdict_name()},
                          {"tensor", json::or_null(j.worst ? j.worst->tensor : std::string())},
                          {"stage", json::or_null(j.stage)},
                          {"hint", json::or_null(shown.fault ? shown.fault->text : j.hint)},
                          {"kind", shown.kind},
                          {"case", shown.name},
                          {"cases", std::move(cases)},
                          {"error_x_budget", oracle_report::number(j.error)}});
    }
    return groups;
}

}  // namespace

const KernelFault* Verified::fault() const {
    const KernelFault* gravest = nullptr;
    for (const Item& item : items) {
        if (item.fault && (gravest == nullptr || gravest->kind < item.fault->kind)) gravest = &*item.fault;
    }
    return gravest;
}

Verdict Verified::verdict() const {
    constexpr Verdict k_by_weight[] = {Verdict::ok, Verdict::suspect, Verdict::no_data, Verdict::unstable_input,
                                       Verdict::wrong};
    const auto weight = [&](Verdict v) { return std::find(std::begin(k_by_weight), std::end(k_by_weight), v); };
    Verdict gravest = items.empty() ? Verdict::no_data : Verdict::ok;
    for (const Item& item : items) {
        if (!item.failed() || item.fault) continue;
        // A finite, plausible answer where none can be told is no proof of anything.
        const Verdict verdict = item.judgement.verdict == Verdict::ok ? Verdict::no_data : item.judgement.verdict;
        if (weight(verdict) > weight(gravest)) gravest = verdict;
    }
    return gravest;
}

std::string_view Verified::verdict_name() const {
    const KernelFault* worst = fault();
    return worst != nullptr ? oracle::name_of(worst->kind) : oracle::name_of(verdict());
}

bool Verified::forward_only() const {
    return std::none_of(items.begin(), items.end(), [](const Item& item) { return item.gradients; });
}

std::size_t Verified::failed() const {
    return static_cast<std::size_t>(
        std::count_if(items.begin(), items.end(), [](const Item& item) { return item.failed(); }));
}

std::size_t Verified::count_of(std::string_view kind) const {
    return static_cast<std::size_t>(
        std::count_if(items.begin(), items.end(), [&](const Item& item) { return item.kind == kind; }));
}

Result<Verified> verify_cases(const Operator& op, const VerifyRequest& request, Context& context,
                              const std::function<void(const std::string&)>& said) {
    return Verifier(op, request, context, said).run();
}

std::string ending_text(const VerifyRequest& request, const Verified& done, const std::string& notes) {
    std::string text;
    const auto saved =
        std::count_if(done.items.begin(), done.items.end(), [](const Item& item) { return !item.saved_as.empty(); });
    if (saved > 0) {
        text += fmt::format("saved {} of {} to {}\n", saved, plural(done.failed(), "failure"),
                            request.save_failures->string());
    }
    if (!done.network.empty()) {
        text += fmt::format("network{}: {}\n", done.network == "open" || done.network == "blocked" ? "" : " blocked by",
                            done.network);
    }
    text += skipped_text(done);
    if (request.options.seed && !request.hidden_seed) text += fmt::format("inputs: --seed {}\n", *request.options.seed);
    text += notes;
    for (const std::string& name : done.without) text += fmt::format("{} was not returned: not judged\n", name);
    text += precision_hint(done);
    if (done.forward_only() && !done.items.empty()) {
        const bool decode_only = done.count_of("case") == 0 && done.count_of("decode") > 0;
        text += fmt::format("{} ONLY: no gradient was compared\n", decode_only ? "DECODE" : "FORWARD");
    }
    return text +
           fmt::format("verdict: {} ({}{}{})\n", done.verdict_name(), counted_text(request, done),
                       done.failed() == 0 ? "" : fmt::format("; {} failed", done.failed()),
                       done.not_run == 0 ? "" : fmt::format(", {} not run", done.not_run)) +
           environment_text(done.environment);
}

Json json_of(const Operator& op, const VerifyRequest& request, const Verified& done, const Json& notes) {
    Json report = {{"schema", "gdnctl.oracle-verify/1"}, {"op", op.name()}, {"kernel", request.kernel}};
    report["dtype"] = done.dtype_name.empty() ? request.options.dtype_name : done.dtype_name;
    report["seed"] = request.options.seed && !request.hidden_seed ? Json(*request.options.seed) : Json(nullptr);
    report.update(notes);
    report["verdict"] = done.verdict_name();
    report["forward_only"] = done.forward_only();
    for (const std::string_view kind : op.kinds()) {
        const bool noun = kind == "case" || kind == "vector" || kind == "relation";
        report[fmt::format("{}{}", kind, noun ? "s" : "")] = done.count_of(kind);
    }
    report["failed"] = done.failed();
    report["not_run"] = done.not_run;
    report["skipped"] = skipped_json(op, done);
    report["network_barrier"] = done.network.empty() ? Json(nullptr) : Json(done.network);
    report["environment"] = done.environment;
    if (!done.without.empty()) report["not_returned"] = done.without;
    report["groups"] = groups_json(done);
    report["items"] = Json::array();
    for (const Item& item : done.items) report["items"].push_back(item_json(item, done.items));
    return report;
}

}  // namespace gdnctl::harness
