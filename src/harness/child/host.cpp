#include "harness/child/host.h"

#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>

#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "harness/child/arena.h"
#include "harness/child/entry.h"
#include "harness/child/python_kernel.h"
#include "platform/fs.h"
#include "platform/process.h"
#include "platform/sandbox.h"

namespace gdnctl::harness {

namespace {

constexpr std::size_t k_workspace = k_most_arrays;  // index of the workspace among what is watched

// --- what a signal handler may look at

struct Watched {
    std::uintptr_t begin = 0, end = 0;  // of the pages; empty: not mapped
    std::uintptr_t array = 0;
    bool writable = false;
};
std::array<Watched, k_most_arrays + 1> g_watched;
std::uintptr_t g_page = 4096;
int g_answers = -1;

void send(const Reply& reply) { [[maybe_unused]] const ssize_t n = write(g_answers, &reply, sizeof reply); }

bool was_write([[maybe_unused]] const void* context) {
#if defined(__x86_64__)
    constexpr unsigned k_write_bit = 2;
    return (static_cast<const ucontext_t*>(context)->uc_mcontext.gregs[REG_ERR] & k_write_bit) != 0;
#else
    return false;
#endif
}

// Says what was touched; the signal then comes again and ends the process.
void on_fault(int signal, siginfo_t* info, void* context) {
    const auto address = reinterpret_cast<std::uintptr_t>(info->si_addr);
    Reply reply;
    reply.answer = Answer::fault;
    reply.value = signal;
    reply.wrote = was_write(context) ? 1 : 0;
    for (std::size_t i = 0; i < g_watched.size(); ++i) {
        const Watched& w = g_watched[i];
        constexpr std::uintptr_t k_guard = GuardedMapping::k_guard;
        if (w.begin == w.end || address < w.begin - k_guard || address >= w.end + k_guard) continue;
        reply.array = static_cast<std::uint32_t>(i);
        reply.number = static_cast<std::int64_t>(address) - static_cast<std::int64_t>(w.array);
        reply.touch = i == k_workspace    ? Touch::workspace
                      : address < w.begin ? Touch::before
                      : address >= w.end  ? Touch::behind
                                          : Touch::input;
        break;
    }
    send(reply);
    struct sigaction plain{};
    plain.sa_handler = SIG_DFL;
    sigaction(signal, &plain, nullptr);
}

void watch_faults() {
    static std::array<char, 65536> stack;
    const stack_t other{stack.data(), 0, stack.size()};
    sigaltstack(&other, nullptr);
    struct sigaction action{};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigaction(SIGSEGV, &action, nullptr);
    sigaction(SIGBUS, &action, nullptr);
}

// --- the kernel

class Host {
public:
    Host(UniqueFd asks, UniqueFd memory, std::string library, std::unique_ptr<Entry> entry)
        : m_asks(std::move(asks)), m_memory(std::move(memory)), m_path(std::move(library)), m_entry(std::move(entry)) {}

    // Until there are no more requests.
    void serve() {
        Ask ask{};
        while (read_ask(ask)) {
            Reply reply;
            if (ask == Ask::enter) {
                reply.answer = Answer::entered;
                reply.number = static_cast<std::int64_t>(block_network());
                give_up_privileges();
                reply.value = can_write_to_parent() ? 1 : 0;
            } else if (ask == Ask::load) {
                reply = load();
            } else if (ask == Ask::map) {
                reply = map();
            } else {
                reply.answer = Answer::done;
                reply.value = m_entry->call();
            }
            send(reply);
        }
    }

private:
    bool read_ask(Ask& ask) const {
        ssize_t n = 0;
        do {
            n = read(m_asks.get(), &ask, sizeof ask);
        } while (n < 0 && errno == EINTR);
        return n == static_cast<ssize_t>(sizeof ask);
    }

    static Reply said(Answer answer, std::string_view text) {
        Reply reply;
        reply.answer = answer;
        std::memcpy(reply.text.data(), text.data(), std::min(text.size(), reply.text.size() - 1));
        return reply;
    }

    Reply load() {
        void* library = dlopen(m_path.c_str(), RTLD_NOW | RTLD_LOCAL);
        if (library == nullptr) return said(Answer::refused, fmt::format("cannot be loaded: {}", dlerror()));
        const std::string problem = m_entry->load(library);
        if (!problem.empty()) return said(Answer::refused, problem);
        Reply reply;
        reply.answer = Answer::loaded;
        reply.value = static_cast<std::int32_t>(m_entry->dtypes());
        reply.entries = m_entry->entries();
        reply.number = m_entry->chunk();
        return reply;
    }

    // Maps header and arrays. The old arrays go last, so that no new one has the address of an old one.
    Reply map() {
        Header h;
        if (pread(m_memory.get(), &h, sizeof h, 0) != static_cast<ssize_t>(sizeof h)) {
            return said(Answer::failed, "cannot read the shared memory");
        }
        if (!m_entry->has(h.entry)) return said(Answer::refused, "has no such entry point");
        std::vector<GuardedPiece> pieces;
        for (std::size_t i = 0; i < h.arrays; ++i) {
            const Place& p = h.places[i];
            pieces.push_back({static_cast<std::int64_t>(p.page), p.page_bytes, is_output(p.role)});
        }
        auto mapped = GuardedMapping::map(m_memory.get(), pieces);
        if (!mapped) return said(Answer::failed, mapped.error().message);
        m_entry->describe(h, *mapped);
        const std::size_t wanted = m_entry->workspace_size();
        const std::size_t room = (wanted + 63) / 64 * 64;
        const GuardedPiece space{-1, (room + g_page - 1) / g_page * g_page, true};
        auto workspace = GuardedMapping::map(-1, {&space, 1});
        if (!workspace) {
            return said(Answer::refused,
                        fmt::format("requests {} bytes of workspace, which are not available", wanted));
        }
        if (wanted > 0) {
            std::memset(workspace->piece(0), 0xFF, space.bytes);
            m_entry->give_workspace(workspace->piece(0) + (space.bytes - room), wanted);
        }
        g_watched = {};
        for (std::size_t i = 0; i < h.arrays; ++i) {
            const auto begin = reinterpret_cast<std::uintptr_t>(mapped->piece(i));
            g_watched[i] = {begin, begin + pieces[i].bytes, begin + h.places[i].begin, pieces[i].writable};
        }
        const auto begin = reinterpret_cast<std::uintptr_t>(workspace->piece(0));
        g_watched[k_workspace] = {begin, begin + space.bytes, begin + (space.bytes - room), true};
        m_mapping = std::move(*mapped);
        m_workspace = std::move(*workspace);
        Reply reply;
        reply.answer = Answer::mapped;
        reply.number = static_cast<std::int64_t>(wanted);
        return reply;
    }

    UniqueFd m_asks, m_memory;
    std::string m_path;
    std::unique_ptr<Entry> m_entry;
    GuardedMapping m_mapping, m_workspace;
};

Result<UniqueFd> open_in(const std::filesystem::path& folder, std::string_view name, int flags) {
    const auto path = folder / name;
    UniqueFd fd(open(path.c_str(), flags | O_CLOEXEC));
    if (!fd.valid()) return tl::unexpected(file_error(ErrorKind::local_io, "open", path, errno));
    return fd;
}

Result<ExitCode> serve_library(const HostOptions& options) {
    g_page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
    GDNCTL_TRY_ASSIGN(UniqueFd answers, open_in(options.folder, "answer", O_WRONLY));
    GDNCTL_TRY_ASSIGN(UniqueFd asks, open_in(options.folder, "ask", O_RDONLY));
    GDNCTL_TRY_ASSIGN(UniqueFd memory, open_in(options.folder, "memory", O_RDWR));
    g_answers = answers.get();
    watch_faults();
    std::string path;
    auto entry = make_entry(options.mode, options.kernel, path);
    Host(std::move(asks), std::move(memory), path, std::move(entry)).serve();
    return ExitCode::ok;
}

// Becomes the program: `KERNEL inputs.safetensors outputs.safetensors`, by the shell.
Result<ExitCode> become_program(const HostOptions& options) {
    const std::filesystem::path folder = options.folder;
    GDNCTL_TRY(atomic_replace(folder / "network", name_of(block_network()), 0600));
    give_up_privileges();
    // We are started again once that is mended.
    if (can_write_to_parent()) return atomic_replace(folder / "exposed", "", 0600).map([] { return ExitCode::ok; });
    std::vector<std::string> words = {"/bin/sh",
                                      "-c",
                                      options.kernel + " \"$@\"",
                                      "sh",
                                      (folder / "inputs.safetensors").string(),
                                      (folder / "outputs.safetensors").string()};
    const auto argv = exec_words(words);
    execv(argv.front(), argv.data());
    return fail(ErrorKind::local_io, fmt::format("cannot run /bin/sh: {}", std::strerror(errno)));
}

}  // namespace

Result<ExitCode> host_kernel(const HostOptions& options, Context& context) {
    dup2(STDERR_FILENO, STDOUT_FILENO);  // what a kernel prints is for people
    if (options.mode.starts_with("python")) return keep_python(options, context);
    return options.mode == "program" ? become_program(options) : serve_library(options);
}

}  // namespace gdnctl::harness
