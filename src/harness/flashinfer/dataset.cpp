#include "harness/flashinfer/dataset.h"

#include <algorithm>
#include <cerrno>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/log.h"
#include "core/text.h"
#include "oracle/flashinfer/flashinfer.h"
#include "oracle/tensor/formats.h"
#include "platform/fs.h"

namespace gdnctl::harness::flashinfer {

namespace {

using oracle::flashinfer::InputSource;
using oracle::flashinfer::Solution;
using oracle::flashinfer::Trace;
using oracle::flashinfer::Workload;

constexpr std::size_t k_max_text = std::size_t{256} << 20U;
constexpr std::size_t k_max_blob = std::size_t{64} << 30U;

// Files below `folder` with this extension, in order; none when there is no such folder.
Result<std::vector<std::filesystem::path>> files_below(const std::filesystem::path& folder,
                                                       std::string_view extension) {
    std::vector<std::filesystem::path> files;
    std::error_code error;
    if (!std::filesystem::exists(folder, error)) return files;
    using Walk = std::filesystem::recursive_directory_iterator;
    for (Walk it(folder, error), end; !error && it != end; it.increment(error)) {
        if (it->path().extension() == extension && it->is_regular_file(error)) files.push_back(it->path());
    }
    if (error) {
        return fail(ErrorKind::local_io, fmt::format("cannot read {}: {}", folder.string(), error.message()));
    }
    std::sort(files.begin(), files.end());
    return files;
}

Result<std::string> read_text(const std::filesystem::path& path) {
    return read_file(path, {k_max_text, ErrorKind::bad_input});
}

// Whether the text can be about this name at all: others' files are not our concern.
bool mentions(std::string_view text, const std::string& name) {
    return text.find("\"" + name + "\"") != std::string_view::npos;
}

}  // namespace

Result<Dataset> Dataset::open(const Context& context, const std::string& root) {
    const std::filesystem::path path = context.cwd / root;
    std::error_code error;
    if (std::filesystem::is_directory(path, error)) return Dataset(path.lexically_normal());
    return fail(ErrorKind::usage, fmt::format("the dataset {} is not a folder", path.string()),
                "name the folder with definitions, workloads and solutions");
}

std::string Dataset::shown(const std::filesystem::path& path) const { return path.lexically_relative(m_root).string(); }

Status Dataset::check_definition(const oracle::flashinfer::GdnDefinition& definition) const {
    GDNCTL_TRY_ASSIGN(const auto files, files_below(m_root / "definitions", ".json"));
    for (const auto& file : files) {
        if (file.stem() != definition.definition.name) continue;
        GDNCTL_TRY_ASSIGN(const std::string text, read_text(file));
        GDNCTL_TRY_ASSIGN(const auto read, oracle::flashinfer::parse_definition(text, shown(file)));
        GDNCTL_TRY(oracle::flashinfer::check_definition(read, definition, shown(file)));
    }
    return {};
}

Result<std::vector<Trace>> Dataset::workloads(const std::string& definition) const {
    std::vector<Trace> found;
    GDNCTL_TRY_ASSIGN(const auto files, files_below(m_root / "workloads", ".jsonl"));
    for (const auto& file : files) {
        GDNCTL_TRY_ASSIGN(const std::string text, read_text(file));
        const bool ours = file.stem() == definition;
        std::size_t number = 0;
        for (const std::string_view line : text::split(text, '\n')) {
            ++number;
            if (text::trim(line).empty() || (!ours && !mentions(line, definition))) continue;
            GDNCTL_TRY_ASSIGN(auto trace,
                              oracle::flashinfer::parse_trace(line, fmt::format("{}:{}", shown(file), number)));
            if (trace.definition != definition) continue;
            if (trace.solution || trace.evaluation) {
                return fail(ErrorKind::bad_input,
                            fmt::format("{}:{}: is a trace, not a workload", shown(file), number));
            }
            found.push_back(std::move(trace));
        }
    }
    return found;
}

Result<std::vector<Solution>> Dataset::solutions(const std::string& definition) const {
    std::vector<Solution> found;
    GDNCTL_TRY_ASSIGN(const auto files, files_below(m_root / "solutions", ".json"));
    for (const auto& file : files) {
        GDNCTL_TRY_ASSIGN(const std::string text, read_text(file));
        if (!mentions(text, definition)) {
            if (!mentions(text, "definition")) log::warning("{} is not a solution: skipped", shown(file));
            continue;
        }
        GDNCTL_TRY_ASSIGN(auto solution, oracle::flashinfer::parse_solution(text, shown(file)));
        if (solution.definition != definition) continue;
        const bool twice =
            std::any_of(found.begin(), found.end(), [&](const auto& s) { return s.name == solution.name; });
        if (twice) {
            return fail(ErrorKind::bad_input,
                        fmt::format("{}: another solution is also called '{}'", shown(file), solution.name));
        }
        found.push_back(std::move(solution));
    }
    return found;
}

Result<std::filesystem::path> Dataset::file_of(const Workload& workload, const std::string& input,
                                               const InputSource& source) const {
    const std::string where = fmt::format("workload {}: input '{}'", workload.uuid, input);
    auto path = join_inside(m_root, source.path);
    if (!path) return fail(ErrorKind::bad_input, fmt::format("{}: {}", where, path.error().message));
    std::error_code error;
    if (std::filesystem::is_regular_file(*path, error)) return *path;
    return fail(ErrorKind::bad_input,
                fmt::format("{}: {} does not exist below {}", where, source.path, m_root.string()),
                "get the blobs of a dataset with git lfs pull");
}

Status Dataset::check_files(const Workload& workload) const {
    for (const auto& [input, source] : workload.inputs) {
        if (source.kind == InputSource::Kind::safetensors) GDNCTL_TRY(file_of(workload, input, source));
    }
    return {};
}

Result<std::map<std::string, oracle::Tensor>> Dataset::tensors(const Workload& workload) const {
    std::map<std::string, oracle::Tensor> tensors;
    std::map<std::filesystem::path, oracle::TensorFile> files;
    for (const auto& [input, source] : workload.inputs) {
        if (source.kind != InputSource::Kind::safetensors) continue;
        GDNCTL_TRY_ASSIGN(const auto path, file_of(workload, input, source));
        if (!files.contains(path)) {
            GDNCTL_TRY_ASSIGN(const std::string bytes, read_file(path, {k_max_blob, ErrorKind::bad_input}));
            GDNCTL_TRY_ASSIGN(files[path],
                              oracle::parse_safetensors(
                                  {reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()}, source.path));
        }
        const oracle::Tensor* tensor = files[path].find(source.tensor_key);
        if (tensor == nullptr) {
            const bool there = files[path].any_name([&](std::string_view name) { return name == source.tensor_key; });
            return fail(
                ErrorKind::bad_input,
                fmt::format("workload {}: {} {} '{}'", workload.uuid, source.path,
                            there ? "has an unreadable dtype for tensor" : "contains no tensor", source.tensor_key));
        }
        tensors[input] = *tensor;
    }
    return tensors;
}

namespace {

constexpr std::size_t k_max_traces = std::size_t{1} << 30U;

Status cannot(const std::filesystem::path& path, int problem) {
    return tl::unexpected(file_error(ErrorKind::local_io, "append to", path, problem));
}

// Whether the file ends in the middle of a line.
bool ends_unfinished(int fd, off_t size) {
    char last = '\n';
    return size > 0 && pread(fd, &last, 1, size - 1) == 1 && last != '\n';
}

}  // namespace

Status append_trace(const std::filesystem::path& path, std::string_view line) {
    std::error_code error;
    std::filesystem::create_directories(path.parent_path(), error);
    if (error) return cannot(path, error.value());
    const UniqueFd fd(open(path.c_str(), O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY, 0666));
    if (!fd.valid()) return cannot(path, errno);
    int locked = 0;
    do {
        locked = flock(fd.get(), LOCK_EX);
    } while (locked != 0 && errno == EINTR);
    struct stat before{};
    if (locked != 0 || fstat(fd.get(), &before) != 0) return cannot(path, errno);
    std::string record = ends_unfinished(fd.get(), before.st_size) ? "\n" : "";
    record += line;
    record += '\n';
    int problem = write_fully(fd.get(), record);
    if (problem == 0 && fsync(fd.get()) != 0) problem = errno;
    if (problem == 0) return {};
    // No one else has written meanwhile: remove the half line.
    [[maybe_unused]] const int restored = ftruncate(fd.get(), before.st_size);
    return cannot(path, problem);
}

Result<std::set<std::pair<std::string, std::string>>> recorded_traces(const std::filesystem::path& path) {
    std::set<std::pair<std::string, std::string>> recorded;
    GDNCTL_TRY_ASSIGN(const auto text, read_file_if_exists(path, k_max_traces));
    if (!text) return recorded;
    std::size_t number = 0;
    for (const std::string_view line : text::split(*text, '\n')) {
        ++number;
        if (text::trim(line).empty()) continue;
        const auto trace = oracle::flashinfer::parse_trace(line, fmt::format("{}:{}", path.string(), number));
        if (!trace) {
            log::warning("{}: skipped", trace.error().message);
        } else if (trace->solution) {
            recorded.emplace(*trace->solution, trace->workload.uuid);
        }
    }
    return recorded;
}

}  // namespace gdnctl::harness::flashinfer
