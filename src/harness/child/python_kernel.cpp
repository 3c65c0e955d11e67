#include "harness/child/python_kernel.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <mutex>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/redact.h"
#include "core/text.h"
#include "harness/child/entry.h"
#include "harness/files.h"
#include "harness/timing.h"
#include "oracle/tensor/formats.h"
#include "platform/clock.h"
#include "platform/env.h"
#include "platform/process.h"
#include "platform/sandbox.h"
#include "platform/signals.h"

namespace gdnctl::harness {

namespace {

using oracle::KernelFault;
using oracle::KernelFaultKind;
using oracle::TensorFile;

constexpr std::chrono::milliseconds k_python_grace{500}, k_start_limit{60000};
constexpr const char* k_exposed = "exposed";  // a file in the keeper's folder: our memory can be written from there
constexpr int k_poll_ms = 20;
constexpr std::size_t k_longest_answer = std::size_t{1} << 20U;

// Of the caller, what changes results.
bool changes_results(std::string_view name) {
    constexpr std::string_view k_prefixes[] = {
        "JAX_", "XLA_", "LIBTPU_", "TPU_", "TRITON_", "TORCH", "PALLAS_", "CUDA_", "NVIDIA_TF32_OVERRIDE"};
    return std::any_of(std::begin(k_prefixes), std::end(k_prefixes),
                       [&](std::string_view prefix) { return name.starts_with(prefix); });
}

std::string last_line(std::string_view text) {
    const auto lines = text::split(text::trim(text), '\n');
    return lines.empty() ? std::string() : std::string(text::trim(lines.back()));
}

}  // namespace

struct PythonHost::Child {
    Folder folder;
    UniqueFd asks, answers;
    std::string buffer;  // of answers, what no line ends yet
    std::stop_source stop;
    std::atomic<pid_t> pid = 0;  // of the keeper
    pid_t python = 0;            // of the process that answers
    std::atomic<bool> gone = false;
    std::thread waiter;
    std::mutex mutex;
    std::string said;  // the end of what was printed
    Result<ProcessResult> result = ProcessResult{};

    void note(std::string_view bytes) {
        constexpr std::size_t k_kept = 8192;
        const std::lock_guard lock(mutex);
        said.append(bytes);
        if (said.size() > 2 * k_kept) said.erase(0, said.size() - k_kept);
    }
    // After its pipes were closed: whether the process, and then the keeper, ends by itself.
    bool ends() const {
        for (auto left = 2 * k_python_grace; !gone && left.count() > 0; left -= std::chrono::milliseconds(k_poll_ms)) {
            std::this_thread::sleep_for(std::chrono::milliseconds(k_poll_ms));
        }
        return gone;
    }
    std::string said_last() {
        constexpr std::size_t k_most_lines = 10, k_most_bytes = 4096;
        const std::lock_guard lock(mutex);
        std::string text(text::end_within(text::trim(said), k_most_bytes));
        for (std::size_t lines = 0, at = text.size(); at-- > 0;) {
            if (text[at] == '\n' && ++lines == k_most_lines) return text.substr(at + 1);
        }
        return text;
    }
};

PythonHost::PythonHost(PythonOptions options, const Context& context)
    : m_options(std::move(options)), m_context(context) {
    for (const auto& [name, value] : kernel_environment(context)) {
        if (value && changes_results(name)) m_variables.emplace_back(name, *value);
    }
    for (const auto& entry : m_options.env) {
        std::erase_if(m_variables, [&](const auto& other) { return other.first == entry.first; });
        m_variables.emplace_back(entry.first, names_a_secret(entry.first) ? "***" : entry.second);
    }
}

PythonHost::~PythonHost() { close(); }

std::string PythonHost::network() const { return m_options.no_network ? "blocked" : "open"; }

std::string PythonHost::interpreter() const {
    if (!m_options.command.empty()) return m_options.command;
    const auto named = m_context.env.get("VIRTUAL_ENV").value_or("");
    std::error_code ignored;
    if (!named.empty()) {
        const auto path = std::filesystem::path(named) / "bin/python";
        if (std::filesystem::exists(path, ignored)) return text::shell_quote(path.string());
    }
    if (const auto found = find_upward(m_context.cwd, ".venv/bin/python")) return text::shell_quote(found->string());
    return "python3";
}

// Its name must not hide the package that it imports.
std::filesystem::path PythonHost::adapter_file(std::string_view name) const {
    return m_child->folder.path() / fmt::format("gdnctl_{}.py", name);
}

Status PythonHost::launch() {
    m_child = std::make_unique<Child>();
    Child& child = *m_child;
    GDNCTL_TRY_ASSIGN(child.folder, make_folder(m_context));
    GDNCTL_TRY(make_tensor_folder());
    const auto& folder = child.folder.path();
    GDNCTL_TRY(atomic_replace(folder / "kernel_host.py", python_host_source(), 0600));
    for (const Adapter& adapter : python_adapters()) {
        GDNCTL_TRY(atomic_replace(adapter_file(adapter.name), adapter.source, 0600));
    }
    for (const char* pipe : {"ask", "answer"}) {
        if (mkfifo((folder / pipe).c_str(), 0600) != 0) {
            return tl::unexpected(file_error(ErrorKind::local_io, "create a pipe at", folder / pipe, errno));
        }
    }
    child.asks.reset(::open((folder / "ask").c_str(), O_RDWR | O_CLOEXEC));
    child.answers.reset(::open((folder / "answer").c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
    if (!child.asks.valid() || !child.answers.valid()) {
        return tl::unexpected(file_error(ErrorKind::local_io, "open the pipes in", folder, errno));
    }
    ProcessSpec spec;
    spec.argv = {m_context.program,
                 "__kernel-host",
                 "--tensors",
                 m_tensors.path().string(),
                 m_options.no_network ? "python-offline" : "python",
                 folder.string(),
                 interpreter()};
    spec.cwd = m_context.cwd;
    spec.env = kernel_environment(m_context);
    for (const auto& [name, value] : m_options.env) spec.env[name] = value;
    spec.clean_env = true;
    spec.merge_stderr = true;
    spec.grace = 4 * k_python_grace;  // it needs its own grace to end what it keeps
    spec.death_signal = 15;
    spec.stop = child.stop.get_token();
    spec.on_start = [&child](pid_t pid) { child.pid = pid; };
    spec.on_stdout = [&child](std::string_view bytes) { child.note(bytes); };
    child.waiter = std::thread([this, &child, spec] {
        child.result = m_context.process.run(spec);
        child.gone = true;
    });
    ++m_generation;
    return {};
}

void PythonHost::close() {
    if (!m_child) return;
    m_child->stop.request_stop();
    if (m_child->waiter.joinable()) m_child->waiter.join();
    m_child.reset();
}

KernelFault PythonHost::death(std::string text, KernelFaultKind kind) {
    ++m_deaths;
    m_child->stop.request_stop();
    if (m_child->waiter.joinable()) m_child->waiter.join();
    KernelFault fault{kind, std::move(text), m_child->said_last()};
    m_child.reset();
    return fault;
}

// The next line of JSON; nullopt: a fault.
Result<std::optional<Json>> PythonHost::await(std::chrono::milliseconds limit, std::size_t memory,
                                              std::optional<KernelFault>& fault) {
    Child& child = *m_child;
    const auto deadline = m_context.clock.monotonic() + limit;
    for (;;) {
        if (const auto end = child.buffer.find('\n'); end != std::string::npos) {
            auto answer = parse_json(std::string_view(child.buffer).substr(0, end), "the answer");
            child.buffer.erase(0, end + 1);
            if (answer && answer->is_object()) return std::optional(std::move(*answer));
            fault = death("the Python process answered with something else than JSON", KernelFaultKind::crashed);
            return std::optional<Json>();
        }
        pollfd waiting{child.answers.get(), POLLIN, 0};
        poll(&waiting, 1, k_poll_ms);
        char bytes[65536];
        const ssize_t n = (waiting.revents & POLLIN) != 0 ? read(child.answers.get(), bytes, sizeof bytes) : 0;
        if (n > 0 && child.buffer.size() < k_longest_answer) {
            child.buffer.append(bytes, static_cast<std::size_t>(n));
            continue;
        }
        if (child.gone || (waiting.revents & POLLHUP) != 0 || n > 0) {
            const bool alive = n > 0 || !child.ends();
            if (alive) child.stop.request_stop();
            child.waiter.join();
            const std::string end = child.result ? describe_end(*child.result, {}) : child.result.error().text();
            fault = death(fmt::format("the Python process {}", n > 0   ? "answered with more than 1 MiB"
                                                               : alive ? "closed its pipes"
                                                                       : end),
                          KernelFaultKind::crashed);
            return std::optional<Json>();
        }
        if (m_context.stop.stop_requested()) {
            close();
            return tl::unexpected(stopped_error());
        }
        if (m_context.clock.monotonic() > deadline) {
            fault = death(no_result_after({.wall = limit}), KernelFaultKind::timed_out);
            return std::optional<Json>();
        }
        if (memory > 0 && child.python > 0 && private_memory(child.python) > memory) {
            fault = death(fmt::format("used more than {} MiB of memory", memory >> 20U), KernelFaultKind::memory_limit);
            return std::optional<Json>();
        }
    }
}

Status PythonHost::start() {
    if (m_child && !m_child->gone) return {};
    close();
    GDNCTL_TRY(launch());
    std::optional<KernelFault> fault;
    GDNCTL_TRY_ASSIGN(const auto ready, await(std::min(m_options.wall, k_start_limit), 0, fault));
    if (ready && ready->contains("ready")) {
        m_child->python = static_cast<pid_t>(json::integer((*ready)["ready"], "pid").value_or(0));
        std::error_code ignored;
        if (std::filesystem::exists(m_child->folder.path() / k_exposed, ignored)) close_own_memory();
        return {};
    }
    if (!fault) fault = death("it said something else first", KernelFaultKind::crashed);
    const std::string why = fault->output.empty() ? fault->text : last_line(fault->output);
    return fail(ErrorKind::usage, fmt::format("cannot run Python kernels with '{}': {}", interpreter(), why),
                "name a Python 3.9 or newer that has numpy: --python PATH");
}

Result<Json> PythonHost::ask(Json question, std::optional<KernelFault>& fault) {
    const int id = ++m_last_id;
    question["id"] = id;
    const std::string line = to_text(question) + "\n";
    if (const int problem = write_fully(m_child->asks.get(), line); problem != 0) {
        return fail(ErrorKind::local_io, fmt::format("cannot reach the Python process: {}", std::strerror(problem)));
    }
    for (;;) {
        GDNCTL_TRY_ASSIGN(auto answer, await(m_options.wall, m_options.memory, fault));
        if (!answer) return Json();
        if (json::integer(*answer, "id") == id) return std::move(*answer);
    }
}

Status PythonHost::make_tensor_folder() {
    std::error_code ignored;
    if (!m_tensors.path().empty() && std::filesystem::exists(m_tensors.path(), ignored)) return {};
    constexpr std::uintmax_t k_room = std::uintmax_t{1} << 30U;  // containers often have 64 MiB
    const bool roomy = std::filesystem::space("/dev/shm", ignored).available >= k_room;
    auto shared = roomy ? Folder::make("/dev/shm", "gdnctl-tensors") : make_folder(m_context);
    if (!shared) shared = make_folder(m_context);
    if (!shared) return tl::unexpected(std::move(shared).error());
    m_tensors = std::move(*shared);
    return {};
}

Result<std::filesystem::path> PythonHost::tensor_file(std::string_view name) {
    GDNCTL_TRY(make_tensor_folder());
    return m_tensors.path() / name;
}

namespace {

struct ErrorRow {
    std::string_view kind;
    KernelFaultKind fault;
    oracle::KernelFault::Counts counts = oracle::KernelFault::Counts::as_fault;
};

constexpr ErrorRow k_errors[] = {
    {"import", KernelFaultKind::no_entry_point},
    {"unsupported", KernelFaultKind::unsupported},
    {"out_of_memory", KernelFaultKind::memory_limit},
    {"compile", KernelFaultKind::build_failed},
    {"not_run", KernelFaultKind::build_failed, oracle::KernelFault::Counts::as_not_run},
    {"bad_output", KernelFaultKind::wrong_shape},
    {"wrote", KernelFaultKind::out_of_bounds},
    {"raised", KernelFaultKind::refused},
};

std::optional<KernelFault> fault_of(const Json& answer) {
    if (answer.contains("skipped")) {
        KernelFault fault{KernelFaultKind::unsupported, text::visible(json::text(answer, "skipped")), {}};
        fault.counts = oracle::KernelFault::Counts::as_skipped;
        return fault;
    }
    const Json* error = json::object(answer, "error");
    if (error == nullptr) return std::nullopt;
    const std::string kind = json::text(*error, "kind");
    const auto* row =
        std::find_if(std::begin(k_errors), std::end(k_errors) - 1, [&](const ErrorRow& r) { return r.kind == kind; });
    KernelFault fault{row->fault, text::visible(json::text(*error, "text")),
                      text::join(json::texts(*error, "trace"), "\n")};
    fault.counts = row->counts;
    return fault;
}

struct Spelling {
    std::string adapter;  // name or path
    std::optional<std::string> function;
    bool own = false;  // a file of the user's
};

Result<Spelling> read_spelling(const std::string& spelling, const Context& context) {
    const std::string rest = spelling.substr(3);
    const auto colon = rest.find(':');
    Spelling read{rest.substr(0, colon), std::nullopt, false};
    if (colon != std::string::npos) read.function = rest.substr(colon + 1);
    std::vector<std::string> names;
    for (const Adapter& adapter : python_adapters()) names.emplace_back(adapter.name);
    const std::string hint = fmt::format("known: {}; or a file of your own: py:./FILE.py", text::join(names, ", "));
    if (read.adapter.empty() || (read.function && read.function->empty())) {
        return fail(ErrorKind::usage, fmt::format("'{}' is not of the form py:ADAPTER[:FUNCTION]", spelling), hint);
    }
    read.own = read.adapter.find('/') != std::string::npos || read.adapter.ends_with(".py");
    if (!read.own) {
        if (std::find(names.begin(), names.end(), read.adapter) != names.end()) return read;
        return fail(ErrorKind::usage, fmt::format("no adapter is named '{}'", read.adapter), hint);
    }
    const auto path = (context.cwd / read.adapter).lexically_normal();
    std::error_code ignored;
    if (!std::filesystem::is_regular_file(path, ignored)) {
        return fail(ErrorKind::usage, fmt::format("no such adapter: {}", read.adapter),
                    "`gdnctl oracle adapter NAME` prints one to start from");
    }
    read.adapter = path.string();
    return read;
}

class PythonKernel : public oracle::Kernel {
public:
    PythonKernel(Spelling spelling, std::string_view mode, std::shared_ptr<PythonHost> host, const Context& context)
        : m_spelling(std::move(spelling)), m_gdn(mode == k_gdn_mode), m_host(std::move(host)), m_context(context) {}

    Result<std::uint32_t> entries() override {
        GDNCTL_TRY_ASSIGN(const auto fault, open());
        return fault ? 0U : m_entries;
    }

    oracle::KernelFacts facts() const override { return m_facts; }

    oracle::Faulted place(const oracle::Asked& asked) override {
        GDNCTL_TRY_ASSIGN(auto fault, open());
        if (fault) return fault;
        if (m_threads == 0) m_threads = asked.threads;  // another number would be compiled again
        const std::string_view pass = name_of_pass(asked.pass);
        TensorFile file = asked.inputs.file();
        file.metadata["threads"] = std::to_string(m_threads);
        if (pass != "backward") {
            std::erase_if(file.tensors, [](const auto& t) { return t.name.starts_with("d_"); });
        }
        GDNCTL_TRY_ASSIGN(const auto path, m_host->tensor_file("inputs.safetensors"));
        const auto bytes = oracle::serialize_safetensors(file);
        GDNCTL_TRY(atomic_replace(path, {reinterpret_cast<const char*>(bytes.data()), bytes.size()}, 0600));
        Json answer;
        GDNCTL_TRY_ASSIGN(
            fault,
            asked_of(
                {{"do", "place"}, {"pass", pass}, {"inputs", path.string()}, {"buffers", m_host->options().buffers}},
                &answer));
        m_times.compile += json::number(answer, "compile_seconds").value_or(0);
        return fault;
    }

    oracle::Faulted call() override {
        Json answer;
        const Stopwatch time(m_context.clock);
        GDNCTL_TRY_ASSIGN(auto fault, asked_of({{"do", "run"}}, &answer));
        // A kernel can change its own clock, but not ours: the way here and back takes little.
        constexpr double k_way = 0.02;
        const double ours = time.elapsed().clock;
        const auto theirs = json::number(answer, "seconds");
        const bool plausible = theirs && *theirs > 0 && *theirs <= ours && ours - *theirs < k_way + 0.05 * ours;
        m_times.wall = plausible ? theirs : std::optional(ours);
        m_times.device = json::number(answer, "device_seconds");
        return fault;
    }
    oracle::CallTimes times() const override { return m_times; }

    oracle::Faulted collect(TensorFile& outputs) override {
        GDNCTL_TRY_ASSIGN(auto fault, call_chained());
        if (fault) return fault;
        GDNCTL_TRY_ASSIGN(const auto path, m_host->tensor_file("outputs.safetensors"));
        Json answer;
        GDNCTL_TRY_ASSIGN(fault, asked_of({{"do", "store"}, {"outputs", path.string()}}, &answer));
        if (fault) return fault;
        std::error_code ignored;
        // A pipe in its place would never end.
        if (!std::filesystem::is_regular_file(path, ignored)) {
            return KernelFault{KernelFaultKind::incomplete, "its outputs are gone", {}};
        }
        auto read = oracle_files::read(m_context, {path.string()}, {});
        std::filesystem::remove(path, ignored);
        if (!read) return KernelFault{KernelFaultKind::incomplete, "its outputs are gone: " + read.error().text(), {}};
        outputs = std::move(*read);
        outputs.metadata.clear();
        for (const std::string& name : json::texts(answer, "without"))
            outputs.metadata[std::string(oracle::k_without) + name] = "1";
        for (const auto& [name, dtype] : json::field(answer, "narrow").items()) {
            if (dtype.is_string())
                outputs.metadata[std::string(oracle::k_cotangent_dtype) + name] = dtype.get<std::string>();
        }
        m_host->note_success();
        return std::nullopt;
    }

    std::string_view timed() const override { return "call"; }
    std::string network() const override { return m_host->network(); }
    bool ends_everything(const KernelFault& fault) const override {
        return fault.kind == KernelFaultKind::no_entry_point || m_host->has_given_up();
    }

private:
    // Imports the adapter and its function, unless the process has them.
    oracle::Faulted open() {
        if (m_import_fault) return m_import_fault;
        PythonHost& host = *m_host;
        GDNCTL_TRY(host.start());
        if (m_generation == host.generation()) return std::nullopt;
        m_generation = host.generation();
        Json question = {{"do", "open"}, {"cwd", m_context.cwd.string()}};
        question["adapter"] = m_spelling.own ? m_spelling.adapter : host.adapter_file(m_spelling.adapter).string();
        question["function"] = m_spelling.function ? Json(*m_spelling.function) : Json(nullptr);
        std::optional<KernelFault> fault;
        GDNCTL_TRY_ASSIGN(const Json answer, host.ask(question, fault));
        if (!fault) fault = fault_of(answer);
        if (fault) {
            // Whatever it does, it does not get as far as to be asked.
            fault->kind = KernelFaultKind::no_entry_point;
            fault->at_start = true;
            m_import_fault = fault;
            return fault;
        }
        m_number = json::integer(answer, "kernel").value_or(0);
        note_facts(answer);
        return std::nullopt;
    }

    // The time of the last call on a device whose framework does not say it.
    oracle::Faulted call_chained() {
        const PythonOptions& options = m_host->options();
        if (options.chained < 2 || m_times.device) return std::nullopt;
        if (!options.chained_anywhere && json::text(m_facts.environment, "platform") != "tpu") return std::nullopt;
        Json answer;
        GDNCTL_TRY_ASSIGN(auto fault, asked_of({{"do", "chain"}, {"calls", options.chained}}, &answer));
        m_times.device = json::number(answer, "device_seconds");
        m_times.no_device = text::visible(json::text(answer, "reason"));
        return fault;
    }

    void note_facts(const Json& hello) {
        m_entries = 0;
        for (const std::string& name : json::texts(hello, "passes")) {
            for (std::size_t entry = 0; entry < 4; ++entry) {
                if (name_of_pass(entry) == name) m_entries |= 1U << entry;
            }
        }
        m_facts.takes_files = true;
        m_facts.contract = json::maybe_text(hello, "contract");
        m_facts.sets.clear();
        for (const auto& [field, value] : json::field(hello, "fields").items()) {
            if (value.is_string()) m_facts.sets.push_back(field + "=" + value.get<std::string>());
        }
        m_facts.dtype = json::text(hello, "dtype");
        Json on = Json::object();
        for (const char* key : {"python", "framework", "version", "device_kind", "device_count", "platform",
                                "matmul_precision", "matmul_operands", "libraries"}) {
            on[key] = json::field(hello, key);
        }
        on["variables"] = Json::object();
        for (const auto& [name, value] : m_host->variables()) on["variables"][name] = value;
        on["network"] = m_host->network();
        m_facts.environment = std::move(on);
    }

    std::string_view name_of_pass(std::size_t entry) const {
        if (!m_gdn) return entry == 0 ? "forward" : entry == 1 ? "backward" : "";
        return entry == 1 ? "forward" : entry == 2 ? "backward" : entry == 3 ? "decode" : "";
    }

    oracle::Faulted asked_of(Json question, Json* answer = nullptr) {
        question["kernel"] = m_number;
        std::optional<KernelFault> fault;
        GDNCTL_TRY_ASSIGN(Json got, m_host->ask(std::move(question), fault));
        if (fault) return fault;
        fault = fault_of(got);
        if (answer != nullptr) *answer = std::move(got);
        return fault;
    }

    Spelling m_spelling;
    bool m_gdn;
    std::shared_ptr<PythonHost> m_host;
    const Context& m_context;
    int m_generation = 0;  // of the process that has it open
    std::int64_t m_number = 0;
    std::uint32_t m_entries = 0;
    int m_threads = 0;
    oracle::KernelFacts m_facts;
    oracle::CallTimes m_times;
    std::optional<KernelFault> m_import_fault;
};

}  // namespace

Result<std::unique_ptr<oracle::Kernel>> open_python(const std::string& spelling, std::string_view mode,
                                                    const Limits& limits, const Context& context) {
    GDNCTL_TRY_ASSIGN(Spelling read, read_spelling(spelling, context));
    if (!limits.python) return fail(ErrorKind::usage, "this command does not support py: kernels");
    return std::make_unique<PythonKernel>(std::move(read), mode, limits.python, context);
}

Result<ExitCode> keep_python(const HostOptions& options, Context& context) {
    const pid_t parent = getppid();
    const std::string& folder = options.folder;
    if (options.mode == "python-offline") block_network();
    give_up_privileges();
    if (can_write_to_parent()) GDNCTL_TRY(atomic_replace(std::filesystem::path(folder) / k_exposed, "", 0600));
    ProcessSpec spec;
    spec.argv = {"/bin/sh", "-c", fmt::format("exec {} \"$@\"", options.kernel), "sh", folder + "/kernel_host.py"};
    spec.stdin_file = folder + "/ask";
    spec.stdout_file = folder + "/answer";
    spec.on_stderr = [](std::string_view bytes) { write_fully(STDERR_FILENO, bytes); };
    spec.grace = k_python_grace;
    spec.stop = context.stop;
    GDNCTL_TRY_ASSIGN(const ProcessResult end, context.process.run(spec));
    if (getppid() != parent) {
        std::error_code ignored;
        for (const std::string& left : {folder, options.tensors}) std::filesystem::remove_all(left, ignored);
    }
    // Ends as the process did, so that one description fits both.
    if (end.end == ProcessResult::End::signalled) {
        signal(-end.exit_code, SIG_DFL);
        raise(-end.exit_code);
    }
    return static_cast<ExitCode>(end.exit_code);
}

}  // namespace gdnctl::harness
