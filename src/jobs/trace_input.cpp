#include "jobs/trace_input.h"

#include <algorithm>
#include <cerrno>
#include <map>
#include <set>
#include <system_error>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/text.h"
#include "platform/compression.h"
#include "platform/fs.h"
#include "platform/hash.h"
#include "platform/signals.h"
#include "trace/readers/readers.h"

namespace gdnctl {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t k_most_xplane_bytes = std::size_t{2} << 30;  // protobuf's own limit
constexpr std::size_t k_surely_read = std::size_t{16} << 20;       // so much the reader itself says best what is wrong

struct RawFile {
    trace::RawTrace raw;
    trace::InputFile file;
};

// Reads one file in pieces: hashes them, inflates them, and hands them to the reader that the content asks for.
class TraceFile {
public:
    TraceFile(const fs::path& path, const trace::ReadOptions& options) : m_path(path), m_options(options) {}

    Result<RawFile> read(ErrorKind missing);

private:
    Status feed(std::string_view bytes);
    Status text(std::string_view bytes);
    Error end_of_gzip(const Error& error) const;
    Status finish_gzip(const Status& fed);
    Result<trace::RawTrace> finish();

    const fs::path& m_path;
    const trace::ReadOptions& m_options;
    std::unique_ptr<Inflater> m_inflater;
    std::unique_ptr<trace::ChromeReader> m_json;
    std::string m_xplane;
    std::size_t m_next_field = 0;  // its offset in m_xplane
    std::string m_damage;
    trace::Format m_outer = trace::Format::unknown, m_inner = trace::Format::unknown;
    Status m_inner_status;
};

// The decompressed bytes.
Status TraceFile::text(std::string_view bytes) {
    if (m_inner == trace::Format::unknown) {
        m_xplane += bytes;  // until there is enough to tell
        constexpr std::size_t k_enough = 4096;
        m_inner = trace::detect_format(m_xplane);
        if (m_inner == trace::Format::json) {
            m_json = std::make_unique<trace::ChromeReader>(m_options);
            return m_json->feed(std::exchange(m_xplane, {}));
        }
        if (m_inner == trace::Format::xplane || m_xplane.size() < k_enough) return {};
        return fail(ErrorKind::bad_input, "this is no trace: neither JSON nor an xplane");
    }
    if (m_json) return m_json->feed(bytes);
    m_xplane += bytes;
    if (m_xplane.size() > k_most_xplane_bytes) return fail(ErrorKind::bad_input, "the xplane is too large");
    // A small gzip file can inflate to gigabytes: a first look at the fields ends that early.
    if (m_inflater && m_xplane.size() > k_surely_read &&
        !trace::skip_fields(m_xplane, m_next_field, k_most_xplane_bytes)) {
        return fail(ErrorKind::bad_input,
                    fmt::format("xplane: the field at offset {} is damaged or ends beyond 2 GiB", m_next_field),
                    "pass --salvage to analyse the events before it");
    }
    return {};
}

Error TraceFile::end_of_gzip(const Error& error) const {
    const bool cut =
        error.message.find("truncated") != std::string::npos || error.message.find("cut") != std::string::npos;
    const std::string what = cut ? fmt::format("unexpected end after {} bytes", m_inflater->produced())
                                 : fmt::format("damaged after {} bytes ({})", m_inflater->produced(), error.message);
    return {ErrorKind::bad_input, fmt::format("gzip: {}; use --salvage to analyse the first part", what), {}, {}};
}

Status TraceFile::feed(std::string_view bytes) {
    if (m_outer == trace::Format::unknown) {
        m_outer = trace::detect_format(bytes);
        if (m_outer == trace::Format::gzip) {
            m_inflater = std::make_unique<Inflater>(DeflateFormat::gzip, [this](std::string_view out) {
                m_inner_status = text(out);
                return m_inner_status.has_value();
            });
        }
    }
    if (!m_inflater) return text(bytes);
    if (!m_damage.empty()) return {};
    return finish_gzip(m_inflater->feed(bytes));
}

// The error of the reader, or of gzip itself, which --salvage turns into a note.
Status TraceFile::finish_gzip(const Status& fed) {
    if (fed && m_inner_status) return {};
    Error error = m_inner_status ? end_of_gzip(fed.error()) : m_inner_status.error();
    if (!m_options.salvage || m_inner == trace::Format::unknown) return tl::unexpected(std::move(error));
    m_damage = error.message;
    return {};
}

Result<trace::RawTrace> TraceFile::finish() {
    if (m_inflater && m_damage.empty()) GDNCTL_TRY(finish_gzip(m_inflater->finish()));
    if (m_inner == trace::Format::unknown) {
        return fail(ErrorKind::bad_input,
                    m_xplane.empty() ? "the file is empty" : "this is no trace: neither JSON nor an xplane");
    }
    auto raw = m_json ? m_json->finish() : trace::read_xplane(m_xplane, m_options);
    if (raw && !m_damage.empty()) raw->damage.push_back(m_damage);
    return raw;
}

Result<RawFile> TraceFile::read(ErrorKind missing) {
    const UniqueFd fd(::open(m_path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY));
    if (!fd.valid() && received_signal()) return tl::unexpected(stopped_error());
    if (!fd.valid())
        return tl::unexpected(file_error(errno == ENOENT ? missing : ErrorKind::local_io, "read", m_path, errno));
    GDNCTL_TRY_ASSIGN(Hasher hasher, Hasher::create(HashKind::sha256));
    std::vector<char> buffer(std::size_t{256} << 10);
    RawFile out;
    for (;;) {
        if (received_signal()) return tl::unexpected(stopped_error());
        const ssize_t got = ::read(fd.get(), buffer.data(), buffer.size());
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return tl::unexpected(file_error(ErrorKind::local_io, "read", m_path, errno));
        if (got == 0) break;
        const std::string_view bytes(buffer.data(), static_cast<std::size_t>(got));
        out.file.bytes += got;
        GDNCTL_TRY(hasher.update(bytes));
        if (Status fed = feed(bytes); !fed) return tl::unexpected(std::move(fed).error().within(m_path.string()));
    }
    auto raw = finish();
    if (!raw) return tl::unexpected(std::move(raw).error().within(m_path.string()));
    out.raw = std::move(*raw);
    out.file.path = m_path.string();
    GDNCTL_TRY_ASSIGN(out.file.sha256, hasher.hex());
    constexpr std::string_view k_kinds[] = {"xplane", "chrome-json", "kineto-json"};
    out.file.kind = k_kinds[static_cast<std::size_t>(out.raw.kind)];
    return out;
}

bool is_cache(std::string_view name) { return name.ends_with(".op_stats_v2.pb") || name.ends_with(".hlo_proto.pb"); }

bool is_xplane_name(std::string_view name) { return name.ends_with(".xplane.pb") || name.ends_with(".xplane.pb.gz"); }

bool is_json_name(std::string_view name) {
    return name.ends_with("trace.json") || name.ends_with("trace.json.gz") || name == "profile.json";
}

// "host0" of "host0.xplane.pb"; empty: the name says nothing.
std::string host_of(const std::string& name) {
    for (const std::string_view end : {".xplane.pb", ".xplane.pb.gz", ".trace.json", ".trace.json.gz"}) {
        if (name.ends_with(end) && name.size() > end.size()) return name.substr(0, name.size() - end.size());
    }
    return {};
}

using Skipped = std::vector<std::pair<std::string, std::string>>;

struct Session {
    fs::path folder;
    std::vector<fs::path> xplanes, jsons;
};

// The folders below `root` that hold traces, by path.
Result<std::vector<Session>> sessions_in(const fs::path& root, Skipped& skipped) {
    // The walk skips folders that it may not read, but not this one.
    if (::access(root.c_str(), R_OK | X_OK) != 0) {
        return tl::unexpected(file_error(ErrorKind::local_io, "list", root, errno));
    }
    std::map<fs::path, Session> found;
    std::error_code error;
    const fs::directory_iterator is_readable(root, error);  // what cannot be read below it is passed over
    if (error) return tl::unexpected(file_error(ErrorKind::local_io, "list", root, error.value()));
    fs::recursive_directory_iterator walk(root, fs::directory_options::skip_permission_denied, error), end;
    constexpr int k_deepest = 12;
    for (; !error && walk != end; walk.increment(error)) {
        if (walk.depth() >= k_deepest) walk.disable_recursion_pending();
        std::error_code ignored;
        if (!walk->is_regular_file(ignored)) continue;
        const fs::path& path = walk->path();
        const std::string name = path.filename().string();
        if (is_cache(name)) {
            skipped.emplace_back(path.string(), "a cache of xprof");
            continue;
        }
        Session& session = found[path.parent_path()];
        session.folder = path.parent_path();
        if (is_xplane_name(name)) session.xplanes.push_back(path);
        if (is_json_name(name)) session.jsons.push_back(path);
    }
    if (error) return tl::unexpected(file_error(ErrorKind::local_io, "list", root, error.value()));
    std::vector<Session> sessions;
    for (auto& [folder, session] : found) {
        std::sort(session.xplanes.begin(), session.xplanes.end());
        std::sort(session.jsons.begin(), session.jsons.end());
        if (!session.xplanes.empty() || !session.jsons.empty()) sessions.push_back(std::move(session));
    }
    return sessions;
}

// When the session's profile began; nullopt: it does not say.
std::optional<std::int64_t> start_of(const Session& session) {
    if (session.xplanes.empty()) return std::nullopt;
    trace::ReadOptions options;
    options.salvage = true;
    auto file = TraceFile(session.xplanes.front(), options).read(ErrorKind::bad_input);
    return file ? file->raw.profile_start_ns : std::nullopt;
}

// By the time at which the profile began, where both sessions say it, otherwise by name; never by the files' dates.
Session newest(std::vector<Session> sessions, Skipped& skipped) {
    std::size_t best = 0;
    std::vector<std::optional<std::int64_t>> starts(sessions.size());
    for (std::size_t i = 0; sessions.size() > 1 && i < sessions.size(); ++i) starts[i] = start_of(sessions[i]);
    for (std::size_t i = 1; i < sessions.size(); ++i) {
        const bool both = starts[i] && starts[best] && *starts[i] != *starts[best];
        const bool later = both ? *starts[i] > *starts[best]
                                : sessions[i].folder.filename().string() > sessions[best].folder.filename().string();
        if (later) best = i;
    }
    for (std::size_t i = 0; i < sessions.size(); ++i) {
        if (i == best) continue;
        for (const auto* list : {&sessions[i].xplanes, &sessions[i].jsons}) {
            for (const fs::path& path : *list) skipped.emplace_back(path.string(), "of an older session");
        }
    }
    return sessions[best];
}

// The files of a session to read: xplanes, else JSON, of which a host's own is preferred to Perfetto's copy.
std::vector<fs::path> files_of(const Session& session, Skipped& skipped) {
    if (!session.xplanes.empty()) {
        for (const fs::path& path : session.jsons)
            skipped.emplace_back(path.string(), "JSON of a session that has an xplane");
        return session.xplanes;
    }
    const auto is_copy = [](const fs::path& path) {
        const std::string name = path.filename().string();
        return name.starts_with("perfetto_trace.json") || name == "profile.json";
    };
    const bool has_own = !std::all_of(session.jsons.begin(), session.jsons.end(), is_copy);
    std::vector<fs::path> files;
    for (const fs::path& path : session.jsons) {
        if (has_own ? !is_copy(path) : files.empty()) {
            files.push_back(path);
        } else {
            skipped.emplace_back(path.string(), "a copy of another file");
        }
    }
    return files;
}

struct Chosen {
    std::vector<fs::path> files;
    std::string session;
};

Result<Chosen> files_at(const fs::path& path, ErrorKind missing, Skipped& skipped) {
    std::error_code error;
    const fs::file_status status = fs::status(path, error);
    if (status.type() == fs::file_type::not_found) {
        return fail(missing, fmt::format("{} does not exist", path.string()));
    }
    if (!fs::is_directory(status)) {
        // Open streams, such as /dev/stdin, are read; opening a named pipe would wait for somebody to write.
        const std::string name = path.string();
        const bool stream = name == "/dev/stdin" || name.starts_with("/dev/fd/") || name.starts_with("/proc/");
        if (!fs::is_regular_file(status) && !stream && !error) {
            return fail(ErrorKind::bad_input, name + " is neither a file nor a folder",
                        "pipe a trace into gdnctl and name it /dev/stdin");
        }
        const bool in_session = path.parent_path().parent_path().filename() == "profile";
        return Chosen{{path}, in_session ? path.parent_path().filename().string() : std::string()};
    }
    GDNCTL_TRY_ASSIGN(std::vector<Session> sessions, sessions_in(path, skipped));
    if (sessions.empty()) {
        return fail(ErrorKind::bad_input, fmt::format("{} contains no trace", path.string()),
                    "traces are called *.xplane.pb, *.trace.json.gz or perfetto_trace.json.gz; a file of another name "
                    "can be given itself");
    }
    const Session session = newest(std::move(sessions), skipped);
    return Chosen{files_of(session, skipped), session.folder.filename().string()};
}

std::vector<trace::PlaneCount> counts_of(const trace::RawTrace& raw, const std::string& host) {
    std::vector<trace::PlaneCount> planes;
    for (const trace::Plane& plane : raw.planes) {
        trace::PlaneCount count{host + plane.name, {}};
        for (const trace::Line& line : plane.lines) count.lines.emplace_back(line.name, line.count);
        planes.push_back(std::move(count));
    }
    return planes;
}

fs::path baseline_path(const fs::path& state_dir, const std::string& name) {
    return state_dir / "trace-baselines" / (name + ".json");
}

Status check_baseline_name(const std::string& name) {
    const auto allowed = [](char c) {
        return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_' || c == '.';
    };
    if (!name.empty() && name.front() != '.' && name.size() <= 100 && std::all_of(name.begin(), name.end(), allowed))
        return {};
    return fail(ErrorKind::usage, fmt::format("'{}' is not a name of a baseline", name),
                "use letters, digits, '-', '_' and '.'");
}

}  // namespace

Result<trace::Source> load_trace(const fs::path& path, const TraceLoading& how) {
    trace::Source source;
    GDNCTL_TRY_ASSIGN(const Chosen chosen, files_at(path, how.missing, source.skipped));
    trace::ReadOptions options;
    options.salvage = how.salvage;
    std::vector<trace::RawTrace> raws;
    for (const fs::path& file : chosen.files) {
        GDNCTL_TRY_ASSIGN(RawFile one, TraceFile(file, options).read(how.missing));
        one.file.session = chosen.session;
        one.file.host = one.raw.host.empty() ? host_of(file.filename().string()) : one.raw.host;
        const std::string host = one.file.host.empty() || chosen.files.size() == 1 ? "" : one.file.host + " ";
        one.raw.host = one.file.host;
        for (trace::PlaneCount& plane : counts_of(one.raw, host)) source.planes.push_back(std::move(plane));
        source.files.push_back(std::move(one.file));
        raws.push_back(std::move(one.raw));
    }
    auto model = trace::build_model(std::move(raws), how.model);
    if (received_signal()) return tl::unexpected(stopped_error());
    if (model) {
        source.model = std::move(*model);
        source.profile = trace::profile_of(*source.model, source.files.front());
    } else if (model.error().kind == ErrorKind::bad_input) {
        source.no_model = std::move(model).error();
    } else {
        return tl::unexpected(std::move(model).error());
    }
    return source;
}

Result<trace::RawTrace> load_raw_trace(const fs::path& path, bool salvage) {
    Skipped skipped;
    GDNCTL_TRY_ASSIGN(const Chosen chosen, files_at(path, ErrorKind::usage, skipped));
    if (chosen.files.size() > 1) {
        return fail(ErrorKind::usage, fmt::format("{} holds traces of {} hosts", path.string(), chosen.files.size()),
                    "name the file of one host");
    }
    trace::ReadOptions options;
    options.all_events = true;
    options.salvage = salvage;
    GDNCTL_TRY_ASSIGN(RawFile file, TraceFile(chosen.files.front(), options).read(ErrorKind::usage));
    return std::move(file.raw);
}

Result<trace::Source> load_baseline(const fs::path& state_dir, const std::string& name) {
    GDNCTL_TRY(check_baseline_name(name));
    const fs::path path = baseline_path(state_dir, name);
    GDNCTL_TRY_ASSIGN(const std::optional<std::string> text, read_file_if_exists(path));
    if (!text) {
        return fail(ErrorKind::usage, fmt::format("there is no baseline '{}'", name),
                    "store one with: gdnctl trace report INPUT --save-baseline " + name);
    }
    GDNCTL_TRY_ASSIGN(const Json json, parse_json(*text, path.string()));
    auto profile = trace::profile_from_json(json);
    if (!profile) return tl::unexpected(std::move(profile).error().within(path.string()));
    trace::Source source;
    source.files.push_back(
        {path.string(), profile->sha256, static_cast<std::int64_t>(text->size()), "baseline", "", ""});
    source.profile = std::move(*profile);
    return source;
}

Status save_baseline(const fs::path& state_dir, const std::string& name, const trace::Profile& profile) {
    GDNCTL_TRY(check_baseline_name(name));
    const fs::path path = baseline_path(state_dir, name);
    GDNCTL_TRY(make_private_directory(path.parent_path()));
    return atomic_replace(path, to_text(trace::to_json(profile), 1) + "\n");
}

}  // namespace gdnctl
