// gdnctl doctor.
#include <algorithm>
#include <array>
#include <chrono>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <unistd.h>

#include "cli/args.h"
#include "cli/config.h"
#include "cli/version.h"
#include "commands/common.h"
#include "commands/table.h"
#include "core/json.h"
#include "core/log.h"
#include "core/redact.h"
#include "core/text.h"
#include "core/version.h"
#include "jobs/job_destination.h"
#include "jobs/target_job.h"
#include "loop/perf/gates.h"
#include "platform/context.h"
#include "platform/env.h"
#include "platform/fs.h"
#include "platform/late_library.h"
#include "platform/process.h"
#include "platform/signals.h"
#include "platform/terminal.h"
#include "services/agent/codex.h"
#include "services/hub/hf/access.h"
#include "services/hub/wandb/wandb.h"
#include "target/target.h"

namespace gdnctl::commands::doctor {

namespace {

struct Check {
    enum class Need { required, optional, information };
    std::string name;
    Need need = Need::optional;
    bool ok = false;
    std::string detail;   // version, path, or what is wrong
    std::string purpose;  // what it is for
    std::string fix;      // the command that fixes it; empty if it is ok
};

namespace fs = std::filesystem;
using Need = Check::Need;

std::string apt_install(std::string_view package) {
    return fmt::format("{}apt-get install -y {}", geteuid() == 0 ? "" : "sudo ", package);
}

struct Program {
    std::string_view name;
    std::string_view version_option;  // empty: do not ask for its version
    Need need;
    std::string_view purpose;
    std::string_view package;  // empty: see `fix`
    std::string_view fix;
};

constexpr std::string_view k_gcloud_install = "see https://cloud.google.com/sdk/docs/install";

constexpr std::array k_programs = {
    Program{"git", "--version", Need::required, "history of the running log and of the sources", "git", {}},
    Program{"cc", "--version", Need::optional, "kernels given as C source", "gcc libc6-dev", {}},
    Program{"ssh", "-V", Need::optional, "clusters behind a head node, dev TPUs", "openssh-client", {}},
    Program{"rsync", "--version", Need::optional, "dev TPUs", "rsync", {}},
    Program{"gcloud", {}, Need::optional, "clusters behind a head node, dev TPUs", {}, k_gcloud_install},
    Program{"zstd", "--version", Need::optional, "outputs of jobs on Iris", "zstd", {}},
    Program{"codex", "--version", Need::optional, "codex-loop", {}, k_codex_install},
};
constexpr Program k_uv = {"uv",
                          "--version",
                          Need::optional,
                          "jobs of the target marin on this machine",
                          {},
                          "curl -LsSf https://astral.sh/uv/install.sh | sh"};

std::optional<fs::path> find_program(const Env& env, std::string_view name) {
    const std::string path = env.get("PATH").value_or("/usr/local/bin:/usr/bin:/bin");
    for (const std::string_view folder : text::split(path, ':')) {
        const fs::path candidate = fs::path(folder.empty() ? "." : folder) / name;
        std::error_code ignored;
        if (fs::is_regular_file(candidate, ignored) && access(candidate.c_str(), X_OK) == 0) return candidate;
    }
    return std::nullopt;
}

// The first line of the program's version output. Error: it fails, or takes too long.
Result<std::string> version_line(Context& context, const fs::path& program, std::string_view option) {
    ProcessSpec spec;
    spec.argv = {program.string(), std::string(option)};
    spec.merge_stderr = true;
    spec.wall_limit = std::chrono::seconds(5);
    spec.stop = context.stop;
    GDNCTL_TRY_ASSIGN(const ProcessResult result, context.process.run(spec));
    if (!result.ok()) {
        return fail(ErrorKind::infrastructure,
                    fmt::format("{} {} {}", program.string(), option, describe_end(result, spec)));
    }
    return std::string(text::trim(std::string_view(result.out).substr(0, result.out.find('\n'))));
}

// `path`: where it was found; nullopt: it is missing, as `lack` says.
Check check_program(Context& context, const Program& program, const std::optional<fs::path>& path,
                    std::string lack = "not found in PATH") {
    Check check{std::string(program.name), program.need, false, std::move(lack), std::string(program.purpose), {}};
    const std::string install = program.package.empty() ? std::string(program.fix) : apt_install(program.package);
    if (!path) {
        check.fix = install;
        return check;
    }
    check.detail = path->string();
    if (!program.version_option.empty()) {
        const auto line = version_line(context, *path, program.version_option);
        if (!line) {
            check.detail = line.error().message;
            check.fix = install;
            return check;
        }
        if (!line->empty()) check.detail = fmt::format("{} ({})", *line, check.detail);
    }
    check.ok = true;
    return check;
}

// Looks where a job looks: a login shell sets its own PATH.
Check check_uv(Context& context) {
    ProcessSpec spec;
    spec.argv = {"bash", "-lc", std::string(find_uv()) + "printf '\\n%s\\n' \"$(command -v uv)\""};
    for (const std::string_view name : active_python_variables()) spec.env[std::string(name)] = std::nullopt;
    spec.wall_limit = std::chrono::seconds(5);
    spec.stop = context.stop;
    std::string said;
    if (const auto result = context.process.run(spec); result && result->ok()) said = text::trim(result->out);
    const fs::path path = said.substr(said.rfind('\n') + 1);  // what the profile printed comes before it
    const bool found = path.is_absolute();
    return check_program(context, k_uv, found ? std::optional(path) : std::nullopt,
                         "not in the PATH of a login shell (bash -l), nor in ~/.local/bin");
}

// The program alone gives no access to a cluster. Only a token shows that the login works; it is not kept.
Check check_google_login(Context& context) {
    Check check{"Google login", Need::optional, false, {}, "clusters behind a head node, dev TPUs", {}};
    const auto gcloud = find_program(context.env, "gcloud");
    if (!gcloud) {
        check.detail = "not checked: gcloud is not installed";
        check.fix = fmt::format("{}, then: gcloud auth login", k_gcloud_install);
        return check;
    }
    check.fix = "gcloud auth login";
    ProcessSpec spec;
    spec.argv = {gcloud->string(), "auth", "print-access-token", "--quiet"};
    spec.wall_limit = std::chrono::seconds(15);
    spec.stop = context.stop;
    const auto result = context.process.run(spec);
    if (!result || result->end == ProcessResult::End::wall_limit) {
        check.detail = result ? "gcloud returned no token within 15 s" : result.error().message;
        check.fix = "try: gcloud auth print-access-token";
    } else if (!result->ok()) {
        const std::string_view said = text::trim(result->err);
        check.detail = said.empty() ? "gcloud returns no token" : std::string(said.substr(0, said.find('\n')));
    } else if (text::trim(result->out).empty()) {
        check.detail = "gcloud returns no token";
    } else {
        check.ok = true;
        check.detail = "gcloud returns a token";
        check.fix.clear();
    }
    return check;
}

// libcurl lists everything it was built with: its own version and that of the TLS library are enough.
std::string first_two_words(std::string_view line) {
    const std::size_t first = line.find(' ');
    return std::string(line.substr(0, first == std::string_view::npos ? first : line.find(' ', first + 1)));
}

// The library's own version. The types are those of its header; a version function does not change its signature.
std::string library_version(const cli::OptionalLibrary& library, const fs::path& path, Status& opened) {
    const LateLibrary late{library.name.data(), library.soname.data(), library.package.data()};
    const auto open = [&](const char* symbol, void* slot) {
        const LateSymbol wanted{symbol, slot};
        opened = open_late_library(late, {&wanted, 1});
        return opened.has_value();
    };
    if (library.name == "libcurl") {
        const char* (*curl_version)() = nullptr;
        if (open("curl_version", &curl_version)) return first_two_words(curl_version());
    } else if (library.name == "libgit2") {
        int (*git_version)(int*, int*, int*) = nullptr;
        int major = 0, minor = 0, patch = 0;
        if (open("git_libgit2_version", &git_version)) {
            git_version(&major, &minor, &patch);
            return fmt::format("{}.{}.{}", major, minor, patch);
        }
    } else if (library.name == "libcrypto") {
        const char* (*openssl_version)(int) = nullptr;
        if (open("OpenSSL_version", &openssl_version)) return openssl_version(0);
    } else {
        // It has no version function; the name of the real file contains the version.
        void (*inflate)() = nullptr;
        std::error_code ignored;
        if (open("isal_inflate", &inflate)) return fs::canonical(path, ignored).filename().string();
    }
    return {};
}

Check check_library(Context& context, const cli::OptionalLibrary& library) {
    Check check{std::string(library.name), Need::optional, false, {}, std::string(library.purpose), {}};
    const auto path = cli::find_library(context.env, library.soname);
    Status opened;
    const std::string version = library_version(library, path.value_or(fs::path()), opened);
    if (opened) {
        check.ok = true;
        check.detail = fmt::format("{} ({})", version, path ? path->string() : std::string(library.soname));
    } else {
        check.detail = path ? opened.error().message : fmt::format("{} not found", library.soname);
        check.fix = apt_install(library.package);
    }
    return check;
}

Check check_certificates(const Env& env) {
    Check check{"ca-certificates", Need::optional, false, {}, "https", {}};
    std::vector<std::string> places = {"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt"};
    for (const char* name : {"SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE"}) {
        if (const std::string own = env.get(name).value_or(""); !own.empty()) places.insert(places.begin(), own);
    }
    for (const std::string& place : places) {
        if (access(place.c_str(), R_OK) != 0) continue;
        check.ok = true;
        check.detail = place;
        return check;
    }
    check.detail = "no certificate bundle found";
    check.fix = apt_install("ca-certificates");
    return check;
}

// Creates nothing: checks the nearest existing folder.
Check check_state(const Context& context) {
    Check check{"state directory", Need::required, false, context.state_dir.string(), "jobs and caches", {}};
    std::error_code ignored;
    fs::path nearest = context.state_dir;
    while (!fs::exists(nearest, ignored) && nearest.has_relative_path()) nearest = nearest.parent_path();
    check.ok = fs::is_directory(nearest, ignored) && access(nearest.c_str(), W_OK | X_OK) == 0;
    if (check.ok) return check;
    check.detail += fmt::format(": {} cannot be written to", nearest.string());
    check.fix = "export GDNCTL_STATE_DIR=/a/folder/of/yours";
    return check;
}

// Checks the file that commands without --cluster read, without contacting the cluster.
Check check_cluster(Context& context) {
    Check check{"cluster file", Need::optional, false, {}, "jobs and dev TPUs on a cluster", {}};
    const auto place = choose_destination({}, context);
    if (!place) {
        check.detail = place.error().text();
        check.fix = place.error().hint.empty() ? "gdnctl cluster list" : place.error().hint;
    } else if (place->file && !place->file->path.empty()) {
        const auto tpu = infer_tpu(*place->file);
        check.ok = true;
        check.detail = fmt::format("{} ({}{})", place->file->path.string(), place->cluster, tpu ? ", " + *tpu : "");
    } else if (place->address) {
        check.ok = true;
        check.detail = fmt::format("not needed: {} ({})", place->address->url, place->origin);
    } else {
        check.detail = "none; jobs run on this machine";
        check.fix = "run gdnctl in a Marin checkout, or name one with --cluster-config FILE";
    }
    return check;
}

// Looks whether somebody has logged in; nullopt: the cluster that commands without --cluster use needs no such login.
std::optional<Check> check_iris_login(Context& context) {
    const auto place = choose_destination({}, context);
    const auto login = place ? needed_login(*place, context) : std::nullopt;
    if (!login) return std::nullopt;
    Check check{"Iris login",           Need::optional, false, "not logged in to cluster " + login->cluster,
                "jobs on this cluster", login->command};
    std::error_code ignored;
    if (!fs::is_regular_file(login->file, ignored)) return check;
    check.ok = true;
    check.detail = login->file.string() + " (`gdnctl cluster check` shows whether it is valid)";
    check.fix.clear();
    return check;
}

void add_target(const Context& context, std::vector<Check>& checks) {
    Check check{"target", Need::required, false, {}, "what jobs test and measure", {}};
    const auto selected = select_target(context.config, project_root(context));
    const Status usable = selected ? check_target_is_named(*selected, true, context) : Status();
    const Error* problem = !selected ? &selected.error() : !usable ? &usable.error() : nullptr;
    check.ok = problem == nullptr;
    if (selected) check.need = Need::optional;  // other commands need none
    check.detail = check.ok ? selected->name : problem->text();
    if (!check.ok) check.fix = problem->hint.empty() ? "gdnctl config show" : problem->hint;
    checks.push_back(std::move(check));
}

void add_config(Context& context, std::vector<Check>& checks) {
    Check config{"configuration", Need::required, true, {}, "settings", {}};
    const auto loaded = cli::load_config(context.env, {context.cwd, context.global.config_file, context.global.target});
    if (!loaded) {
        config.ok = false;
        config.detail = loaded.error().text();
        config.fix = loaded.error().hint.empty() ? "correct this line" : loaded.error().hint;
        checks.push_back(std::move(config));
        return;
    }
    std::vector<std::string> files;
    for (const fs::path& file : loaded->files) files.push_back(file.string());
    config.detail = files.empty() ? "no file; built-in defaults" : text::join(files, ", ");
    if (const Status checked = check_configured_targets(loaded->config, &loop::check_gates); !checked) {
        config.ok = false;
        config.detail = checked.error().text();
        config.fix = checked.error().hint.empty() ? "correct this line" : checked.error().hint;
    } else if (!loaded->warnings.empty()) {
        config.detail = loaded->warnings.front();
    }
    checks.push_back(std::move(config));
    Context configured{context.env,  context.clock, context.terminal,  loaded->config,  context.process, context.http,
                       context.stop, context.cwd,   context.state_dir, context.program, context.global};
    add_target(configured, checks);
    checks.push_back(check_cluster(configured));
    if (auto login = check_iris_login(configured)) checks.push_back(std::move(*login));
}

Check check_repository(const Context& context) {
    Check check{"repository", Need::optional, false, "not inside one", "history of the running log", {}};
    if (const auto root = find_repository_root(context.cwd)) {
        check.ok = true;
        check.detail = root->string();
    } else {
        check.fix = "git init, or cd into a checkout";
    }
    return check;
}

// Only whether it is set may be shown.
// Shows where a credential was found, never its value: "set" for a variable, else a file.
Check check_credential(std::string_view name, const Result<std::string>& source, std::string_view purpose,
                       std::string_view fix) {
    Check check{std::string(name), Need::optional, source && !source->empty(), {}, std::string(purpose), {}};
    if (!source) {
        check.detail = source.error().message;
    } else if (source->empty()) {
        check.detail = "not set";
    } else {
        check.detail = source->find(name) != std::string::npos ? "set" : "in " + *source;
    }
    if (!check.ok) check.fix = fix;
    return check;
}

Check check_hf_token(const Env& env) {
    const auto source = hub::find_hf_token(env, {}).map([](const hub::HfToken& token) { return token.source; });
    return check_credential("HF_TOKEN", source, "private repositories of the Hugging Face Hub",
                            "export HF_TOKEN=..., from https://huggingface.co/settings/tokens");
}

Check check_wandb_key(const Env& env) {
    const auto access = find_wandb(env);
    Result<std::string> source = access.map([](const WandbAccess& one) { return one.key_source; });
    const std::string fix = access ? "" : access.error().hint;
    if (!source && source.error().message.starts_with("no key for W&B at ")) source = std::string();
    Check check = check_credential("WANDB_API_KEY", source, "runs of Weights & Biases", fix);
    const auto server = private_wandb_server(env);
    if (access && server && !server->empty()) check.detail += ", for " + access->url;
    return check;
}

Check check_cpu() {
    Check check{"cpu", Need::information, true, {}, "speed of the oracle's kernels", {}};
    std::vector<std::string> names;
#if defined(__x86_64__)
    names.emplace_back("x86-64");
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) names.emplace_back("AVX2+FMA");
    if (__builtin_cpu_supports("avx512f")) names.emplace_back("AVX-512");
#elif defined(__aarch64__)
    names.emplace_back("aarch64");
#endif
    check.detail = fmt::format("{}, {} cores", text::join(names, ", "), sysconf(_SC_NPROCESSORS_ONLN));
    return check;
}

// In display order. Opens the optional libraries and runs `PROGRAM --version` for the programs found.
std::vector<Check> all_checks(Context& context) {
    std::vector<Check> checks = {check_state(context)};
    add_config(context, checks);
    checks.push_back(check_repository(context));
    for (const Program& program : k_programs) {
        checks.push_back(check_program(context, program, find_program(context.env, program.name)));
    }
    checks.push_back(check_uv(context));
    checks.push_back(check_google_login(context));
    for (const auto& library : cli::optional_libraries()) checks.push_back(check_library(context, library));
    checks.push_back(check_certificates(context.env));
    checks.push_back(check_hf_token(context.env));
    checks.push_back(check_wandb_key(context.env));
    checks.push_back(check_cpu());
    return checks;
}

}  // namespace

}  // namespace gdnctl::commands::doctor

// gdnctl doctor
namespace gdnctl::commands::doctor {

struct Options {};

namespace {

using Need = Check::Need;

std::string_view status_word(const Check& check) {
    if (check.ok) return "ok";
    return check.need == Need::required ? "missing" : "absent";
}

std::string_view need_word(Need need) {
    switch (need) {
        case Need::required: return "required";
        case Need::optional: return "optional";
        case Need::information: return "information";
    }
    return {};
}

std::string colored(std::string_view word, const Check& check, bool color) {
    const std::string padded = fmt::format("{:<8}", word);
    if (!color) return padded;
    const std::string_view code = check.ok ? "32" : check.need == Need::required ? "31" : "33";
    return fmt::format("\x1b[{}m{}\x1b[0m", code, padded);
}

void print_text(const std::vector<Check>& checks, Context& context) {
    for (const Check& check : checks) {
        std::string line = fmt::format("{}{:<17}{}\n", colored(status_word(check), check, context.terminal.color_out()),
                                       check.name, redact(check.detail));
        if (!check.ok) {
            line += fmt::format("{:25}{}, for: {}\n", "", need_word(check.need), check.purpose);
            line += fmt::format("{:25}to fix it: {}\n", "", check.fix);
        }
        print_lines(line, context, 25);
    }
}

Json to_json(const std::vector<Check>& checks, bool ok) {
    Json report = {
        {"schema", "gdnctl.doctor/1"}, {"version", gdnctl::version()}, {"ok", ok}, {"checks", Json::array()}};
    for (const Check& check : checks) {
        Json entry = {{"name", check.name},
                      {"status", status_word(check)},
                      {"need", need_word(check.need)},
                      {"detail", redact(check.detail)},
                      {"purpose", check.purpose}};
        if (!check.ok) entry["fix"] = check.fix;
        report["checks"].push_back(std::move(entry));
    }
    return report;
}

}  // namespace

void describe(cli::Args& args, Options& /*options*/) {
    args.about(
        "Checks your setup: programs, libraries, folders, configuration and keys. Each missing item shows what it is "
        "for and how to install it. Keys are never shown, only whether they are set.");
    args.about("Only required items affect the exit code. A missing optional item limits what you can do.");
    args.example("gdnctl doctor");
    args.example("gdnctl doctor --json", "the same as gdnctl.doctor/1");
    args.exit_code(0, "everything required is present");
    args.exit_code(1, "something required is missing");
    args.see_also({"config show", "docs/configuration.md"});
}

Result<ExitCode> run(const Options& /*options*/, Context& context) {
    const std::vector<Check> checks = all_checks(context);
    if (context.stop.stop_requested()) return tl::unexpected(stopped_error());
    const bool ok = std::all_of(checks.begin(), checks.end(),
                                [](const Check& check) { return check.ok || check.need != Need::required; });
    if (context.global.json) {
        print_json(to_json(checks, ok), context);
    } else {
        print_text(checks, context);
        if (!ok) log::warning("something required is missing");
    }
    return ok ? ExitCode::ok : ExitCode::check_failed;
}

}  // namespace gdnctl::commands::doctor

namespace gdnctl::commands {

Rows doctor_commands() {
    static constexpr cli::Command k_rows[] = {
        cli::make<&doctor::describe, &doctor::run>(
            "doctor", "Setup", "check your setup and show how to install what is missing", Tier::process)
            .without_config()};
    return k_rows;
}

}  // namespace gdnctl::commands
