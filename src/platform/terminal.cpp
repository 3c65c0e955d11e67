#include "platform/terminal.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "core/text.h"

namespace gdnctl {

namespace {

constexpr std::size_t k_buffer_size = std::size_t{64} << 10;
constexpr int k_default_columns = 100;
constexpr int k_least_columns = 40;

// 0 or the errno of the write that failed.
int write_all(int fd, std::string_view bytes) {
    while (!bytes.empty()) {
        const ssize_t n = write(fd, bytes.data(), bytes.size());
        if (n >= 0) {
            bytes.remove_prefix(static_cast<std::size_t>(n));
        } else if (errno == EAGAIN) {  // another process made the pipe non-blocking
            pollfd ready{fd, POLLOUT, 0};
            poll(&ready, 1, -1);
        } else if (errno != EINTR) {
            return errno;
        }
    }
    return 0;
}

// Opens a closed standard stream as /dev/null in the wrong direction, so that reads and writes fail as before.
void reserve_standard_streams() {
    for (const int fd : {0, 1, 2}) {
        if (fcntl(fd, F_GETFD) >= 0 || errno != EBADF) continue;
        // open() returns the lowest free number, which is `fd`: the lower ones are already taken.
        [[maybe_unused]] const int taken = open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY);
    }
}

std::optional<int> width_of(int fd) {
    winsize size{};
    if (ioctl(fd, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return std::nullopt;
    return size.ws_col;
}

// The bytes at the end of `s` that may begin a UTF-8 character.
std::size_t unfinished_character(std::string_view s) {
    for (std::size_t back = 1; back <= std::min<std::size_t>(3, s.size()); ++back) {
        const auto byte = static_cast<unsigned char>(s[s.size() - back]);
        if (byte < 0x80U) return 0;
        if (byte < 0xC0U) continue;
        return back < (byte >= 0xF0U ? 4U : byte >= 0xE0U ? 3U : 2U) ? back : 0;
    }
    return 0;
}

// What a terminal gets of a stream. A sequence may be split between two calls.
class SanitizedStream {
public:
    std::string take(std::string_view bytes) {
        const std::string all = std::exchange(m_held, {}) + std::string(bytes);
        std::string out;
        std::string_view rest = all;
        while (!rest.empty()) {
            const std::size_t at = std::min(rest.find_first_of("\x1b\r"), rest.size());
            const std::size_t held = at == rest.size() ? unfinished_character(rest) : 0;
            out += text::visible(rest.substr(0, at - held));
            rest.remove_prefix(at - held);
            if (held > 0 || !take_control(rest, out)) break;
        }
        m_held = rest;
        return out;
    }
    std::string finish() { return text::visible(std::exchange(m_held, {})); }

private:
    // False: the control sequence at the start of `rest` is incomplete.
    static bool take_control(std::string_view& rest, std::string& out) {
        constexpr std::size_t k_longest_colour = 32;
        if (rest.empty()) return true;
        if (rest.front() == '\r') {
            if (rest.size() == 1) return false;
            if (rest[1] != '\n') out += '\n';
            rest.remove_prefix(1);
            return true;
        }
        const std::size_t end = rest.size() == 1 ? 1 : rest[1] == '[' ? rest.find_first_not_of("0123456789;", 2) : 0;
        if (end == std::string_view::npos || end == 1) {
            if (rest.size() < k_longest_colour) return false;
        } else if (end > 0 && rest[end] == 'm') {
            out += rest.substr(0, end + 1);
            rest.remove_prefix(end + 1);
            return true;
        }
        out += text::visible(rest.substr(0, 1));
        rest.remove_prefix(1);
        return true;
    }

    std::string m_held;  // an incomplete sequence or character
};

class SystemTerminal final : public Terminal {
public:
    SystemTerminal(ColorMode mode, const Env& env, int out_fd, int err_fd)
        : m_mode(mode),
          m_env(env),
          m_out_fd(out_fd),
          m_err_fd(err_fd),
          m_out_tty(isatty(out_fd) == 1),
          m_err_tty(isatty(err_fd) == 1) {}

    ~SystemTerminal() override {
        m_buffer += m_screened_out.finish();
        drain();
        write_all(m_err_fd, m_screened_err.finish());
    }
    SystemTerminal(const SystemTerminal&) = delete;
    SystemTerminal& operator=(const SystemTerminal&) = delete;

    void out(std::string_view bytes) override {
        if (m_out_errno != 0) return;
        if (m_out_tty) {
            m_buffer += m_screened_out.take(bytes);
        } else {
            m_buffer += bytes;
        }
        if (m_buffer.size() >= k_buffer_size || (m_out_tty && bytes.find('\n') != std::string_view::npos)) drain();
    }

    void err(std::string_view bytes) override {
        if (m_out_tty) drain();  // keeps the two streams in order on a terminal
        if (m_err_tty) {
            write_all(m_err_fd, m_screened_err.take(wrapped(bytes)));
        } else {
            write_all(m_err_fd, bytes);
        }
    }

    void move_out(std::string_view sequence) override { m_buffer += sequence; }
    void move_err(std::string_view sequence) override { write_all(m_err_fd, sequence); }

    Status flush() override {
        drain();
        if (m_out_errno == 0 || m_out_errno == EPIPE || m_reported) return {};
        m_reported = true;
        return fail(ErrorKind::local_io, std::string("cannot write to standard output: ") + std::strerror(m_out_errno),
                    m_out_errno == ENOSPC ? "free space on the output's disk, or write elsewhere" : "");
    }

    bool out_closed() const override { return m_out_errno == EPIPE; }
    bool out_is_tty() const override { return m_out_tty; }
    bool err_is_tty() const override { return m_err_tty; }

    int columns() const override {
        int columns = 0;
        const std::string wanted = m_env.get("COLUMNS").value_or("");
        const auto [end, problem] = std::from_chars(wanted.data(), wanted.data() + wanted.size(), columns);
        if (problem != std::errc() || end != wanted.data() + wanted.size() || columns <= 0) {
            auto width = width_of(m_out_fd);
            if (!width) width = width_of(m_err_fd);
            columns = width.value_or(k_default_columns);
        }
        return std::max(columns, k_least_columns);
    }

    bool color_out() const override { return color(m_out_tty); }
    bool color_err() const override { return color(m_err_tty); }

private:
    // Our own whole lines, as the log's; what a job or an agent prints stays as it is.
    std::string wrapped(std::string_view bytes) const {
        std::string out;
        while (!bytes.empty()) {
            const std::size_t end = bytes.find('\n');
            const bool ours = end != std::string_view::npos && bytes.starts_with("[gdnctl] ");
            const std::string_view line = bytes.substr(0, end);
            out += ours ? text::folded_message(line, columns()) : std::string(line);
            if (end == std::string_view::npos) break;
            out += '\n';
            bytes.remove_prefix(end + 1);
        }
        return out;
    }

    void drain() {
        if (m_buffer.empty() || m_out_errno != 0) return;
        m_out_errno = write_all(m_out_fd, m_buffer);
        m_buffer.clear();
    }

    bool color(bool tty) const {
        if (m_mode != ColorMode::automatic) return m_mode == ColorMode::always;
        if (!tty || !m_env.get("NO_COLOR").value_or("").empty()) return false;
        const std::string term = m_env.get("TERM").value_or("");
        return !term.empty() && term != "dumb";
    }

    ColorMode m_mode;
    const Env& m_env;
    int m_out_fd, m_err_fd;
    bool m_out_tty, m_err_tty;
    std::string m_buffer;
    SanitizedStream m_screened_out, m_screened_err;
    int m_out_errno = 0;  // of the first failed write; nothing is written after it
    bool m_reported = false;
};

}  // namespace

std::unique_ptr<Terminal> make_terminal(ColorMode mode, const Env& env, int out_fd, int err_fd) {
    reserve_standard_streams();
    std::signal(SIGPIPE, SIG_IGN);
    std::signal(SIGXFSZ, SIG_IGN);
    return std::make_unique<SystemTerminal>(mode, env, out_fd, err_fd);
}

Terminal& system_terminal(ColorMode mode) {
    static const std::unique_ptr<Terminal> terminal = make_terminal(mode);
    return *terminal;
}

}  // namespace gdnctl
