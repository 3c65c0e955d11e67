#include "harness/child/host.h"

#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>

#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "gdn/gdn_kernel.h"
#include "harness/child/arena.h"
#include "harness/child/linear_ce_entry.h"
#include "harness/child/solution_entry.h"
#include "platform/exec_words.h"
#include "platform/fd.h"
#include "platform/fs.h"
#include "platform/sandbox.h"
#include "platform/shared_memory.h"

namespace gdnctl::harness {

namespace {

constexpr std::size_t k_workspace = k_slots;  // index of the workspace among the mapped pieces

// --- what a signal handler may look at

struct Watched {
    std::uintptr_t begin = 0, end = 0;  // of the pages; empty: not mapped
    std::uintptr_t array = 0;
    bool writable = false;
};
std::array<Watched, k_slots + 1> g_watched;
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
        reply.slot = static_cast<Slot>(i);
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
    // `entry`: the function of a solution; empty: a kernel of gdn/gdn_kernel.h.
    Host(UniqueFd asks, UniqueFd memory, std::string kernel, std::string entry)
        : m_asks(std::move(asks)),
          m_memory(std::move(memory)),
          m_path(std::move(kernel)),
          m_solution_entry(std::move(entry)) {}

    // Until there are no more requests.
    void serve(NetworkBarrier barrier) {
        Ask ask{};
        while (read_ask(ask)) {
            Reply reply;
            if (ask == Ask::load) {
                reply = load();
                reply.number = static_cast<std::int64_t>(barrier);
            } else if (ask == Ask::map) {
                reply = map();
            } else {
                reply.answer = Answer::done;
                reply.value = is_linear_ce()              ? m_linear_ce.call()
                              : !m_solution_entry.empty() ? m_solution.call()
                              : m_order.empty()           ? m_entry(&m_call)
                                                          : call_steps();
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

    bool is_linear_ce() const { return m_solution_entry == k_linear_ce_entry; }

    Reply load() {
        void* library = dlopen(m_path.c_str(), RTLD_NOW | RTLD_LOCAL);
        if (library == nullptr) return said(Answer::refused, fmt::format("cannot be loaded: {}", dlerror()));
        Reply reply;
        reply.answer = Answer::loaded;
        if (is_linear_ce()) {
            const std::string problem = m_linear_ce.load(library);
            if (!problem.empty()) return said(Answer::refused, problem);
            reply.value = static_cast<std::int32_t>(m_linear_ce.dtypes());
            reply.entries = m_linear_ce.entries();
            return reply;
        }
        if (!m_solution_entry.empty()) {
            const std::string problem = m_solution.load(library, m_solution_entry);
            return problem.empty() ? reply : said(Answer::refused, problem);
        }
        m_kernel = static_cast<const gdn_kernel_info*>(dlsym(library, "gdn_kernel"));
        if (m_kernel == nullptr) {
            return said(Answer::refused, "exports no 'gdn_kernel' (see gdn/gdn_kernel.h)");
        }
        if (m_kernel->abi_version != GDN_ABI_VERSION || m_kernel->struct_size < sizeof(gdn_kernel_info)) {
            return said(Answer::refused,
                        fmt::format("was compiled for version {} of gdn/gdn_kernel.h, this gdnctl speaks version {}",
                                    m_kernel->abi_version, GDN_ABI_VERSION));
        }
        reply.value = static_cast<std::int32_t>(m_kernel->dtypes);
        reply.entries = (m_kernel->forward != nullptr ? 1U << GDN_FORWARD : 0U) |
                        (m_kernel->backward != nullptr ? 1U << GDN_BACKWARD : 0U) |
                        (m_kernel->decode != nullptr ? 1U << GDN_DECODE : 0U);
        return reply;
    }

    // Decoding: one token of every row a call, until one fails.
    int call_steps() const {
        gdn_call call = m_call;
        for (const std::int64_t step : m_order) {
            for (const auto tensor :
                 {&gdn_call::q, &gdn_call::k, &gdn_call::v, &gdn_call::g, &gdn_call::beta, &gdn_call::out}) {
                const gdn_tensor& first = m_call.*tensor;
                const std::int64_t bytes = first.shape[0] * first.strides[0] * (first.dtype == GDN_BF16 ? 2 : 4);
                (call.*tensor).data = static_cast<std::byte*>(first.data) + step * bytes;
            }
            if (const int status = m_entry(&call); status != GDN_OK) return status;
        }
        return GDN_OK;
    }

    gdn_tensor tensor_of(const Header& header, Slot slot, const GuardedMapping& mapping) const {
        const auto index = static_cast<std::size_t>(slot);
        const Place& p = header.places[index];
        gdn_tensor t{};
        if (p.page_bytes == 0) return t;
        t.data = mapping.piece(index) + p.begin;
        t.dtype = p.dtype;
        t.rank = p.rank;
        const bool of_tokens = slot != Slot::final_state;
        std::int64_t stride = 1;
        for (std::size_t axis = p.rank; axis-- > 0;) {
            t.shape[axis] = axis == 1 && of_tokens && header.steps > 0 ? 1 : p.shape[axis];
            t.strides[axis] = stride;
            stride *= t.shape[axis];
        }
        return t;
    }

    void describe_call(const Header& h, const GuardedMapping& mapping) {
        gdn_call c{};
        c.abi_version = GDN_ABI_VERSION;
        c.struct_size = sizeof(gdn_call);
        c.batch = h.dims[0];
        c.tokens = h.steps > 0 ? 1 : h.dims[1];
        c.key_heads = h.dims[2];
        c.value_heads = h.dims[3];
        c.key_dim = h.dims[4];
        c.value_dim = h.dims[5];
        c.sequences = h.sequences;
        c.head_map = h.head_map;
        c.l2norm = h.l2norm;
        c.l2norm_eps = h.l2norm_eps;
        c.scale = h.scale;
        c.threads = h.threads;
        c.q = tensor_of(h, Slot::q, mapping);
        c.k = tensor_of(h, Slot::k, mapping);
        c.v = tensor_of(h, Slot::v, mapping);
        c.g = tensor_of(h, Slot::g, mapping);
        c.beta = tensor_of(h, Slot::beta, mapping);
        c.initial_state = tensor_of(h, Slot::initial_state, mapping);
        c.out = tensor_of(h, Slot::out, mapping);
        c.final_state = tensor_of(h, Slot::final_state, mapping);
        if (h.in_place != 0) c.initial_state = c.final_state;
        c.d_out = tensor_of(h, Slot::d_out, mapping);
        c.d_final_state = tensor_of(h, Slot::d_final_state, mapping);
        c.dq = tensor_of(h, Slot::dq, mapping);
        c.dk = tensor_of(h, Slot::dk, mapping);
        c.dv = tensor_of(h, Slot::dv, mapping);
        c.dg = tensor_of(h, Slot::dg, mapping);
        c.dbeta = tensor_of(h, Slot::dbeta, mapping);
        c.d_initial_state = tensor_of(h, Slot::d_initial_state, mapping);
        if (h.has_cu_seqlens != 0) {
            c.cu_seqlens = static_cast<const std::int64_t*>(tensor_of(h, Slot::cu_seqlens, mapping).data);
        }
        m_call = c;
    }

    // The query sees no data: it is not timed.
    std::size_t workspace_size(std::uint32_t entry) const {
        if (m_kernel->workspace == nullptr) return 0;
        gdn_call shapes = m_call;
        for (const auto tensor :
             {&gdn_call::q, &gdn_call::k, &gdn_call::v, &gdn_call::g, &gdn_call::beta, &gdn_call::initial_state,
              &gdn_call::out, &gdn_call::final_state, &gdn_call::d_out, &gdn_call::d_final_state, &gdn_call::dq,
              &gdn_call::dk, &gdn_call::dv, &gdn_call::dg, &gdn_call::dbeta, &gdn_call::d_initial_state}) {
            (shapes.*tensor).data = nullptr;
        }
        return m_kernel->workspace(&shapes, entry);
    }

    int (*entry_of(std::uint32_t entry) const)(const gdn_call*) {
        return entry == GDN_BACKWARD ? m_kernel->backward : entry == GDN_DECODE ? m_kernel->decode : m_kernel->forward;
    }

    // Maps header and arrays. The old arrays go last, so that no new one has the address of an old one.
    Reply map() {
        Header h;
        if (pread(m_memory.get(), &h, sizeof h, 0) != static_cast<ssize_t>(sizeof h)) {
            return said(Answer::failed, "cannot read the shared memory");
        }
        const bool is_solution = !m_solution_entry.empty();
        if (!is_solution) m_entry = entry_of(h.entry);
        const bool missing = is_linear_ce() ? !m_linear_ce.has(h.entry) : !is_solution && m_entry == nullptr;
        if (missing) return said(Answer::refused, "has no such entry point");
        std::vector<GuardedPiece> pieces;
        for (std::size_t i = 0; i < k_slots; ++i) {
            const Place& p = h.places[i];
            pieces.push_back({static_cast<std::int64_t>(p.page), p.page_bytes, is_output(static_cast<Slot>(i))});
        }
        auto mapped = GuardedMapping::map(m_memory.get(), pieces);
        if (!mapped) return said(Answer::failed, mapped.error().message);
        if (is_linear_ce()) {
            m_linear_ce.describe(h, *mapped);
        } else if (is_solution) {
            m_solution.describe(h, *mapped);
        } else {
            describe_call(h, *mapped);
        }
        m_order = step_order(h.steps, h.step_seed);
        const std::size_t wanted = is_linear_ce() ? m_linear_ce.workspace_size()
                                   : is_solution  ? 0
                                                  : workspace_size(h.entry);
        const std::size_t room = (wanted + 63) / 64 * 64;
        const GuardedPiece space{-1, (room + g_page - 1) / g_page * g_page, true};
        auto workspace = GuardedMapping::map(-1, {&space, 1});
        if (!workspace) {
            return said(Answer::refused, fmt::format("asks for {} bytes of workspace, which cannot be had", wanted));
        }
        if (wanted > 0) {
            std::memset(workspace->piece(0), 0xFF, space.bytes);
            m_call.workspace = workspace->piece(0) + (space.bytes - room);
            m_call.workspace_size = wanted;
            m_linear_ce.give_workspace(m_call.workspace, wanted);
        }
        for (std::size_t i = 0; i < k_slots; ++i) {
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
    std::string m_path, m_solution_entry;
    SolutionEntry m_solution;
    LinearCeEntry m_linear_ce;
    const gdn_kernel_info* m_kernel = nullptr;
    int (*m_entry)(const gdn_call*) = nullptr;
    GuardedMapping m_mapping, m_workspace;
    gdn_call m_call{};
    std::vector<std::int64_t> m_order;  // of steps; empty: one call
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
    give_up_privileges();
    const NetworkBarrier barrier = block_network();
    watch_faults();
    const bool is_solution = options.mode == "solution";
    const std::size_t colon = is_solution ? options.kernel.find(':') : std::string::npos;
    const std::string entry = is_solution                   ? options.kernel.substr(0, colon)
                              : options.mode == "linear-ce" ? std::string(k_linear_ce_entry)
                                                            : std::string();
    const std::string path = is_solution ? options.kernel.substr(colon + 1) : options.kernel;
    Host(std::move(asks), std::move(memory), path, entry).serve(barrier);
    return ExitCode::ok;
}

// Becomes the program: `KERNEL inputs.safetensors outputs.safetensors`, by the shell.
Result<ExitCode> become_program(const HostOptions& options) {
    const std::filesystem::path folder = options.folder;
    give_up_privileges();
    GDNCTL_TRY(atomic_replace(folder / "network", name_of(block_network()), 0600));
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

Result<ExitCode> host_kernel(const HostOptions& options) {
    dup2(STDERR_FILENO, STDOUT_FILENO);  // what a kernel prints is for people
    return options.mode == "program" ? become_program(options) : serve_library(options);
}

}  // namespace gdnctl::harness
