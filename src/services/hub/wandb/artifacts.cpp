#include "services/hub/wandb/artifacts.h"

#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>

#include "services/hub/hf/answers.h"
#include "services/hub/transfer/safe_path.h"
#include "services/hub/wandb/query.h"

namespace gdnctl::wandb {

namespace {

using hub::Failure;
using hub::Outcome;

constexpr int k_ok = 200;
constexpr int k_unauthorized = 401;
constexpr int k_forbidden = 403;
constexpr int k_not_found = 404;
constexpr std::size_t k_most_pages = 10'000;

// Reads all pages of a list. `ask_page`: fetches the page at a cursor.
template <class T, class AskPage>
Outcome<std::vector<T>> all_pages(const AskPage& ask_page) {
    std::vector<T> all;
    std::set<std::string> seen;
    std::string cursor;
    do {
        Outcome<Page<T>> page = ask_page(cursor);
        if (!page) return tl::unexpected(std::move(page).error());
        std::move(page->items.begin(), page->items.end(), std::back_inserter(all));
        cursor = std::move(page->next);
        if (!cursor.empty() && (!seen.insert(cursor).second || seen.size() > k_most_pages)) {
            return tl::unexpected(
                Failure{ErrorKind::infrastructure, "W&B's list repeats itself or never ends", {}, 0, {}});
        }
    } while (!cursor.empty());
    return all;
}

template <class T>
Outcome<T> outcome_of(Result<T> result) {
    if (result) return std::move(*result);
    return tl::unexpected(hub::failure_of(result.error()));
}

// The signed address works without the key. Ours requires the key, but still works when the other has expired.
hub::Wanted wanted_of(const ManifestEntry& entry, const std::string& signed_url, const std::string& address) {
    hub::Wanted file;
    file.path = file.local = entry.path;
    file.size = entry.size;
    file.digest = {hub::Digest::Kind::md5, entry.md5};
    file.etag = entry.md5;
    if (!entry.ref.empty()) {
        file.refused =
            Failure{ErrorKind::authentication,
                    fmt::format("it is stored at {}, which the W&B key cannot access", hub::shown(entry.ref)),
                    "download it with that store's own tools, or skip it with --exclude",
                    0,
                    {}};
    }
    file.first_without_token = hub::parse_url(signed_url).has_value();
    if (file.first_without_token) file.urls.push_back(signed_url);
    file.urls.push_back(address);
    return file;
}

}  // namespace

Failure RunArtifacts::explain(const std::string& url, int status, const HttpHeaders& headers,
                              std::string_view body) const {
    Failure failure;
    const std::string said = hub::server_text(headers, body);
    const std::string suffix = said.empty() ? "" : ": " + said;
    failure.http_status = status;
    failure.request_id = hub::request_id_of(headers);
    const auto parsed = hub::parse_url(url);
    const bool at_home = parsed && parsed->same_origin(m_wire.realm().endpoint);
    if (at_home && status == k_unauthorized) {
        failure.kind = ErrorKind::authentication;
        failure.message = fmt::format("W&B rejects the key of {}{}", m_access.key_source, suffix);
        failure.hint = "get a new one at " + m_access.authorize_page();
        return failure;
    }
    failure.kind = status == k_unauthorized || status == k_forbidden ? ErrorKind::authentication
                   : status == k_not_found                           ? ErrorKind::remote_missing
                                                                     : ErrorKind::infrastructure;
    failure.message = fmt::format("{} answered {}{}", hub::shown(url), status, suffix);
    if (status == k_forbidden) failure.hint = "use a key that can access the project";
    return failure;
}

Outcome<std::string> RunArtifacts::ask(const std::string& question) {
    hub::Question asked;
    asked.method = "POST";
    asked.body = question;
    asked.headers = {{"Content-Type", "application/json"}, {"Accept", "application/json"}};
    auto answer = m_wire.ask(m_access.url + "/graphql", asked);
    if (!answer) return tl::unexpected(std::move(answer).error());
    if (answer->status == k_ok) return std::move(answer->body);
    Failure failure = explain(answer->url, answer->status, answer->headers, answer->body);
    if (!answer->gave_up.empty()) failure.message += fmt::format(" ({})", answer->gave_up);
    return tl::unexpected(std::move(failure));
}

Outcome<Artifact> RunArtifacts::of_run(const std::optional<std::string>& alias) {
    const auto artifacts = all_pages<Artifact>([&](const std::string& cursor) -> Outcome<Page<Artifact>> {
        auto body = ask(run_artifacts_question(m_path, cursor));
        if (!body) return tl::unexpected(std::move(body).error());
        return outcome_of(parse_run_artifacts(*body, m_path));
    });
    if (!artifacts) return tl::unexpected(artifacts.error());
    auto chosen = choose_artifact(*artifacts, alias);
    if (chosen) return std::move(*chosen);
    Failure failure = hub::failure_of(chosen.error());
    if (failure.kind != ErrorKind::nothing_done) return tl::unexpected(std::move(failure));
    failure.hint = "newer versions of levanter write profiles to a bucket and log no artifact";
    if (const auto body = ask(config_question(m_path))) {
        const auto places = parse_profile_places(*body);
        if (!places.empty()) failure.message += fmt::format("; its config has {}", fmt::join(places, ", "));
    }
    return tl::unexpected(std::move(failure));
}

Outcome<Artifact> RunArtifacts::find(const std::optional<std::string>& name, const std::optional<std::string>& alias) {
    if (!name) return of_run(alias);
    const std::size_t colon = name->find(':');
    if (colon == 0 || name->empty() || colon == name->size() - 1 || name->find('/') != std::string::npos) {
        return tl::unexpected(Failure{ErrorKind::usage,
                                      fmt::format("'{}' is not the name of an artifact", hub::shown(*name)),
                                      "use --artifact NAME or NAME:ALIAS, for example run-RUN-profiler:v0",
                                      0,
                                      {}});
    }
    if (colon != std::string::npos && alias) {
        return tl::unexpected(
            Failure{ErrorKind::usage, "--artifact already names an alias", "leave out --alias", 0, {}});
    }
    const std::string full = name->find(':') != std::string::npos ? *name : *name + ":" + alias.value_or("latest");
    auto body = ask(artifact_question(m_path, full));
    if (!body) return tl::unexpected(std::move(body).error());
    return outcome_of(parse_artifact(*body, full));
}

Outcome<Manifest> RunArtifacts::manifest_of(const Artifact& artifact) {
    auto body = ask(manifest_question(artifact.id));
    if (!body) return tl::unexpected(std::move(body).error());
    const auto url = parse_manifest_url(*body);
    if (!url) return tl::unexpected(hub::failure_of(url.error()));
    hub::Question question;
    question.with_token = false;  // the address is signed
    auto answer = m_wire.ask(*url, question);
    if (!answer) return tl::unexpected(std::move(answer).error());
    if (answer->status != k_ok)
        return tl::unexpected(explain(answer->url, answer->status, answer->headers, answer->body));
    return outcome_of(parse_manifest(answer->body));
}

Outcome<std::vector<FileUrl>> RunArtifacts::urls_of(const Artifact& artifact) {
    return all_pages<FileUrl>([&](const std::string& cursor) -> Outcome<Page<FileUrl>> {
        auto body = ask(file_urls_question(m_path, artifact, cursor));
        if (!body) return tl::unexpected(std::move(body).error());
        return outcome_of(parse_file_urls(*body));
    });
}

Outcome<ArtifactListing> RunArtifacts::list(const std::optional<std::string>& name,
                                            const std::optional<std::string>& alias, const hub::Selection& selection) {
    ArtifactListing listing;
    auto artifact = find(name, alias);
    if (!artifact) return tl::unexpected(std::move(artifact).error());
    listing.artifact = std::move(*artifact);
    const auto manifest = manifest_of(listing.artifact);
    if (!manifest) return tl::unexpected(manifest.error());
    std::map<std::string, const ManifestEntry*> entries;
    std::vector<std::string> taken;
    for (const ManifestEntry& entry : manifest->entries) {
        entries.emplace(entry.path, &entry);
        (selection.takes(entry.path) ? taken : listing.others).push_back(entry.path);
    }
    taken = selection.finish(std::move(taken));
    for (const std::string& path : taken) {
        if (const auto why = hub::why_unsafe(path)) {
            return tl::unexpected(
                Failure{ErrorKind::local_io,
                        fmt::format("unsafe file name in the artifact: '{}': {}", hub::shown(path), *why),
                        "skip it with --exclude to download the rest",
                        0,
                        {}});
        }
    }
    if (taken.empty()) return listing;
    const auto urls = urls_of(listing.artifact);
    if (!urls) return tl::unexpected(urls.error());
    std::map<std::string, std::string> direct;
    for (const FileUrl& file : *urls) direct[file.name] = file.url;
    for (const std::string& path : taken) {
        const auto found = direct.find(path);
        const std::string signed_url = found == direct.end() ? std::string() : found->second;
        const std::string address = file_address(m_access.url, m_path, listing.artifact, *manifest, *entries.at(path));
        listing.files.push_back(wanted_of(*entries.at(path), signed_url, address));
    }
    return listing;
}

}  // namespace gdnctl::wandb
