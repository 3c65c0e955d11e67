#include "harness/files.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <thread>

#include <fmt/format.h>

#include "core/log.h"
#include "core/text.h"
#include "platform/fs.h"
#include "platform/zip.h"

namespace gdnctl::oracle_files {

namespace {

// Larger than any dump that fits a machine of today; a limit all the same.
constexpr std::size_t k_max_file = std::size_t{64} << 30U;

enum class Format { safetensors, npz, npy };

Format format_of(const std::filesystem::path& path, std::string_view bytes) {
    const std::string extension = text::to_lower(path.extension().string());
    if (extension == ".safetensors") return Format::safetensors;
    if (extension == ".npz") return Format::npz;
    if (extension == ".npy") return Format::npy;
    if (bytes.starts_with("PK")) return Format::npz;
    if (bytes.starts_with("\x93NUMPY")) return Format::npy;
    return Format::safetensors;
}

std::span<const std::uint8_t> as_bytes(std::string_view text) {
    return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

// uint16 holds bfloat16 in tensors of values; in those of sizes it holds numbers.
oracle::NpyOptions options_for(std::string_view name, oracle::NpyOptions options) {
    options.u2_as_bf16 = options.u2_as_bf16 && name != "lengths" && name != "offsets" && name != "cu_seqlens";
    return options;
}

void add_array(oracle::TensorFile& file, std::string name, oracle::NpyArray array) {
    if (!array.unread_dtype.empty()) {
        file.unread.push_back({std::move(name), std::move(array.unread_dtype)});
        return;
    }
    if (array.bf16_assumed)
        file.notes.push_back(fmt::format("reading {} as bfloat16 (NumPy files do not store that type)", name));
    file.tensors.push_back({std::move(name), std::move(array.tensor)});
}

std::string_view as_text(std::span<const std::uint8_t> bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// One stored NAME.npy per tensor, as numpy.savez writes them. The format has no place for metadata, which is dropped.
Result<std::string> npz_of(const oracle::TensorFile& file) {
    constexpr const char* k_hint = "write .safetensors instead";
    constexpr std::size_t k_most = 65535;
    StoredZip archive;
    for (const oracle::NamedTensor& entry : file.tensors) {
        const std::string name = entry.name + ".npy";
        if (name.size() > k_most || file.tensors.size() > k_most) {
            return fail(ErrorKind::bad_input, "a .npz file holds up to 65535 tensors, with names as long", k_hint);
        }
        if (!archive.add(name, as_text(oracle::serialize_npy(entry.tensor)))) {
            return fail(ErrorKind::bad_input, "a .npz file is written up to 4 GiB only", k_hint);
        }
    }
    return archive.finish();
}

// torch.save writes a pickle, which is a program.
tl::unexpected<Error> torch_file(const std::string& path) {
    const std::string stem = std::filesystem::path(path).stem().string();
    return fail(ErrorKind::bad_input, fmt::format("{} is a PyTorch file (a pickle), which gdnctl does not read", path),
                fmt::format("convert it: `python3 -c \"import torch; from safetensors.torch import save_file; "
                            "save_file(torch.load('{}'), '{}.safetensors')\"`",
                            path, stem));
}

bool is_torch_file(const std::filesystem::path& path) {
    const std::string extension = text::to_lower(path.extension().string());
    return extension == ".pt" || extension == ".pth" || extension == ".ckpt" || extension == ".pkl" ||
           extension == ".bin";
}

Result<oracle::TensorFile> parse_npz(std::string_view bytes, const std::string& what,
                                     const oracle::NpyOptions& options) {
    GDNCTL_TRY(oracle::check_not_lfs_pointer(as_bytes(bytes), what));
    GDNCTL_TRY_ASSIGN(const ZipReader archive, ZipReader::over(bytes, what));
    oracle::TensorFile file;
    for (const ZipMember& member : archive.members()) {
        constexpr std::string_view k_suffix = ".npy";
        if (member.name.ends_with("/data.pkl")) return torch_file(what);
        if (!std::string_view(member.name).ends_with(k_suffix)) {
            return fail(ErrorKind::bad_input, fmt::format("{}: member '{}' is not a .npy array", what, member.name));
        }
        GDNCTL_TRY_ASSIGN(const std::string content, archive.read(member, k_max_file));
        const std::string name = member.name.substr(0, member.name.size() - k_suffix.size());
        GDNCTL_TRY_ASSIGN(auto array, oracle::parse_npy(as_bytes(content), fmt::format("{}: {}", what, member.name),
                                                        options_for(name, options)));
        add_array(file, name, std::move(array));
    }
    return file;
}

// Bytes that can be had now; nullopt: this system does not say.
std::optional<std::size_t> available_memory() {
    const auto meminfo = read_file_if_exists("/proc/meminfo");
    if (!meminfo || !*meminfo) return std::nullopt;
    for (const std::string_view line : text::split(**meminfo, '\n')) {
        constexpr std::string_view k_key = "MemAvailable:";
        if (!line.starts_with(k_key)) continue;
        const std::string_view value = text::trim(line.substr(k_key.size()));
        const auto kib = text::parse_int(value.substr(0, value.find(' ')));
        if (kib) return static_cast<std::size_t>(*kib) * 1024;
    }
    return std::nullopt;
}

// What a file may hold: its tensors are copied out of it. A pipe does not say how long it is, and its buffer grows by
// doubling.
std::size_t size_limit(std::filesystem::file_type type) {
    const std::size_t available = available_memory().value_or(k_max_file);
    return std::min(k_max_file, available / (type == std::filesystem::file_type::regular ? 2 : 4));
}

Result<oracle::TensorFile> read_one(const Context& context, const std::string& path,
                                    const oracle::NpyOptions& options) {
    std::error_code ignored;
    const auto type = std::filesystem::status(context.cwd / path, ignored).type();
    if (type == std::filesystem::file_type::character || type == std::filesystem::file_type::block) {
        // Some have no end, and none holds tensors.
        return fail(ErrorKind::bad_input, fmt::format("{} is a device, not a file of tensors", path));
    }
    auto content = read_file(context.cwd / path, {size_limit(type), ErrorKind::usage});
    if (!content) {
        // A missing file is a usage error; a file that cannot be read is bad input.
        Error error = std::move(content).error();
        if (std::filesystem::exists(context.cwd / path, ignored)) error.kind = ErrorKind::bad_input;
        return tl::unexpected(std::move(error));
    }
    const std::string& bytes = *content;
    if (is_torch_file(path)) return torch_file(path);
    switch (format_of(path, bytes)) {
        case Format::npz: return parse_npz(bytes, path, options);
        case Format::npy: {
            const std::string name = std::filesystem::path(path).stem().string();
            GDNCTL_TRY_ASSIGN(auto array, oracle::parse_npy(as_bytes(bytes), path, options_for(name, options)));
            oracle::TensorFile file;
            add_array(file, name, std::move(array));
            return file;
        }
        case Format::safetensors: break;
    }
    return oracle::parse_safetensors(as_bytes(bytes), path);
}

}  // namespace

Result<oracle::TensorFile> read(const Context& context, const std::vector<std::string>& paths,
                                const oracle::NpyOptions& options) {
    oracle::TensorFile all;
    for (const std::string& path : paths) {
        GDNCTL_TRY_ASSIGN(oracle::TensorFile file, read_one(context, path, options));
        for (const std::string& note : file.notes) log::info("{}: {}", path, note);
        const auto add = [&](auto& entries, auto& to) -> Status {
            for (auto& entry : entries) {
                if (all.any_name([&](std::string_view name) { return name == entry.name; })) {
                    return fail(ErrorKind::bad_input,
                                fmt::format("{}: tensor '{}' is also in another file", path, entry.name));
                }
                to.push_back(std::move(entry));
            }
            return {};
        };
        GDNCTL_TRY(add(file.tensors, all.tensors));
        GDNCTL_TRY(add(file.unread, all.unread));
        all.metadata.merge(file.metadata);
    }
    return all;
}

Status check_writable_name(const std::string& path) {
    const std::string extension = text::to_lower(std::filesystem::path(path).extension().string());
    if (extension == ".safetensors" || extension == ".npz") return {};
    return fail(ErrorKind::usage, fmt::format("cannot write {}: the extension must be .safetensors or .npz", path));
}

Status write(const Context& context, const std::string& path, const oracle::TensorFile& file) {
    GDNCTL_TRY(check_writable_name(path));
    if (text::to_lower(std::filesystem::path(path).extension().string()) == ".npz") {
        GDNCTL_TRY_ASSIGN(const std::string bytes, npz_of(file));
        return atomic_replace(context.cwd / path, bytes);
    }
    return atomic_replace(context.cwd / path, as_text(oracle::serialize_safetensors(file)));
}

Status check_memory(const oracle::GdnDims& dims, std::size_t sequences, oracle::Passes passes) {
    return check_memory(oracle::memory_estimate(dims, static_cast<std::int64_t>(sequences), passes),
                        "use fewer tokens, heads or batch rows");
}

Status check_memory(const std::optional<std::size_t>& needed, const char* hint) {
    const auto available = available_memory();
    if (!available || (needed && *needed <= *available)) return {};
    constexpr double k_gib = 1 << 30;
    return fail(ErrorKind::bad_input,
                needed ? fmt::format("this shape needs about {:.1f} GiB of memory, {:.1f} GiB are available",
                                     static_cast<double>(*needed) / k_gib, static_cast<double>(*available) / k_gib)
                       : std::string("this shape needs more memory than any machine has"),
                hint);
}

Result<int> thread_count(std::int64_t requested) {
    if (requested < 0 || requested > 1024) {
        return fail(ErrorKind::usage, fmt::format("--threads {}: expected 1 to 1024, or 0 for all cores", requested));
    }
    if (requested > 0) return static_cast<int>(requested);
    return static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
}

}  // namespace gdnctl::oracle_files
