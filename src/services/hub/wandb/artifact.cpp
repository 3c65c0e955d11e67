#include "services/hub/wandb/artifact.h"

#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>

#include "core/json.h"
#include "core/text.h"
#include "services/hub/hf/answers.h"
#include "services/hub/transfer/names.h"
#include "services/hub/wandb/wandb.h"

namespace gdnctl::wandb {

namespace {

constexpr int k_artifacts_a_page = 100;
constexpr int k_urls_a_page = 5000;
constexpr std::size_t k_md5_digits = 32;
constexpr std::size_t k_most_places = 5;
constexpr int k_deepest_config = 100;
constexpr std::string_view k_committed = "COMMITTED";

constexpr std::string_view k_run_artifacts =
    "query RunOutputArtifacts($entity: String!, $project: String!, $run: String!, $cursor: String, $perPage: Int) { "
    "project(name: $project, entityName: $entity) { run(name: $run) { "
    "artifacts: outputArtifacts(after: $cursor, first: $perPage) { totalCount pageInfo { endCursor hasNextPage } "
    "edges { node { id state versionIndex createdAt updatedAt artifactType { name } artifactSequence { name } "
    "aliases { alias } } } } } } }";
constexpr std::string_view k_artifact =
    "query ArtifactMembershipByName($entity: String!, $project: String!, $name: String!) { "
    "project(name: $project, entityName: $entity) { artifactCollectionMembership(name: $name) { id versionIndex "
    "aliases { alias } artifactCollection { name } artifact { id state versionIndex createdAt updatedAt "
    "artifactType { name } artifactSequence { name } } } } }";
constexpr std::string_view k_manifest =
    "query FetchArtifactManifest($id: ID!) { artifact(id: $id) { currentManifest { file { directUrl } } } }";
constexpr std::string_view k_file_urls =
    "query GetArtifactMembershipFileUrls($entity: String!, $project: String!, $collection: String!, $alias: String!, "
    "$cursor: String, $perPage: Int) { project(name: $project, entityName: $entity) { "
    "artifactCollection(name: $collection) { artifactMembership(aliasName: $alias) { "
    "files(after: $cursor, first: $perPage) { pageInfo { endCursor hasNextPage } edges { node { name directUrl } } } } "
    "} } }";
constexpr std::string_view k_config =
    "query Run($entity: String!, $project: String!, $run: String!) { project(name: $project, entityName: $entity) { "
    "run(name: $run) { config } } }";

Json place(const WandbPath& path) {
    Json variables;
    variables["entity"] = path.entity;
    variables["project"] = path.project;
    return variables;
}

void put_cursor(Json& variables, const std::string& cursor, int page) {
    variables["cursor"] = cursor.empty() ? Json(nullptr) : Json(cursor);
    variables["perPage"] = page;
}

std::string name_in(const Json& node, const char* field) {
    const Json* named = json::object(node, field);
    return named == nullptr ? std::string() : json::text(*named, "name");
}

Artifact artifact_of(const Json& node) {
    Artifact artifact;
    artifact.id = json::text(node, "id");
    artifact.state = json::text(node, "state");
    artifact.type = name_in(node, "artifactType");
    artifact.collection = name_in(node, "artifactSequence");
    artifact.updated = json::text(node, "updatedAt");
    if (artifact.updated.empty()) artifact.updated = json::text(node, "createdAt");
    artifact.version = json::integer(node, "versionIndex").value_or(0);
    if (const Json* aliases = json::array(node, "aliases")) {
        for (const Json& alias : *aliases) {
            if (alias.is_object()) artifact.aliases.push_back(json::text(alias, "alias"));
        }
    }
    return artifact;
}

tl::unexpected<Error> missing(const std::string& what) {
    return fail(ErrorKind::remote_missing, "W&B has no " + what + ", or this key cannot access it",
                "check entity, project and run, and that your key can access them");
}

// The nodes of a connection, and its cursor.
template <class T, class Read>
Page<T> page_of(const Json& connection, const Read& read) {
    Page<T> page;
    if (const Json* edges = json::array(connection, "edges")) {
        for (const Json& edge : *edges) {
            if (const Json* node = json::object(edge, "node")) page.items.push_back(read(*node));
        }
    }
    const Json* info = json::object(connection, "pageInfo");
    const bool more = info != nullptr && json::boolean(*info, "hasNextPage").value_or(false);
    if (more) page.next = json::text(*info, "endCursor");
    return page;
}

void collect_places(const Json& value, const std::string& at, std::vector<std::string>& places, int depth = 0) {
    if (value.is_object() && depth < k_deepest_config) {
        for (const auto& [key, inner] : value.items()) {
            // Each entry of a configuration may be wrapped in {"value": ...}.
            collect_places(inner, key == "value" ? at : at.empty() ? key : at + "." + key, places, depth + 1);
        }
        return;
    }
    if (!value.is_string() || places.size() >= k_most_places) return;
    const auto text = value.get<std::string>();
    const bool is_path = text.find('/') != std::string::npos;
    const bool about = at.ends_with("log_dir") ? !text.empty() : is_path && at.find("profiler") != std::string::npos;
    if (about) places.push_back(fmt::format("{}: {}", at, hub::shown(text)));
}

bool is_profile(const Artifact& artifact) { return artifact.type == k_profile_type && artifact.state == k_committed; }

}  // namespace

std::string Artifact::version_name() const { return fmt::format("v{}", version); }

bool Artifact::has_alias(std::string_view alias) const {
    return alias == version_name() || std::find(aliases.begin(), aliases.end(), alias) != aliases.end();
}

std::string run_artifacts_question(const WandbPath& path, const std::string& cursor) {
    Json variables = place(path);
    variables["run"] = path.run;
    put_cursor(variables, cursor, k_artifacts_a_page);
    return question(k_run_artifacts, variables);
}

std::string artifact_question(const WandbPath& path, const std::string& name_and_alias) {
    Json variables = place(path);
    variables["name"] = name_and_alias;
    return question(k_artifact, variables);
}

std::string manifest_question(const std::string& artifact_id) {
    Json variables;
    variables["id"] = artifact_id;
    return question(k_manifest, variables);
}

std::string file_urls_question(const WandbPath& path, const Artifact& artifact, const std::string& cursor) {
    Json variables = place(path);
    variables["collection"] = artifact.collection;
    variables["alias"] = artifact.version_name();
    put_cursor(variables, cursor, k_urls_a_page);
    return question(k_file_urls, variables);
}

std::string config_question(const WandbPath& path) {
    Json variables = place(path);
    variables["run"] = path.run;
    return question(k_config, variables);
}

Result<Page<Artifact>> parse_run_artifacts(std::string_view body, const WandbPath& path) {
    GDNCTL_TRY_ASSIGN(const Json data, data_in(body));
    if (json::object(data, "project") == nullptr)
        return missing(fmt::format("project {}/{}", path.entity, path.project));
    if (json::object_at(data, "/project/run") == nullptr) {
        return missing(fmt::format("run {}/{}/{}", path.entity, path.project, path.run));
    }
    const Json* artifacts = json::object_at(data, "/project/run/artifacts");
    if (artifacts == nullptr) return Page<Artifact>{};
    return page_of<Artifact>(*artifacts, artifact_of);
}

Result<Artifact> parse_artifact(std::string_view body, const std::string& name_and_alias) {
    GDNCTL_TRY_ASSIGN(const Json data, data_in(body));
    const Json* membership = json::object_at(data, "/project/artifactCollectionMembership");
    const Json* node = json::object_at(data, "/project/artifactCollectionMembership/artifact");
    if (node == nullptr) return missing(fmt::format("artifact {}", hub::shown(name_and_alias)));
    Artifact artifact = artifact_of(*node);
    const std::string collection = name_in(*membership, "artifactCollection");
    if (!collection.empty()) artifact.collection = collection;
    artifact.version = json::integer(*membership, "versionIndex").value_or(0);
    if (artifact.state == k_committed) return artifact;
    return fail(
        ErrorKind::nothing_done,
        fmt::format("the artifact {} is {}, not committed", hub::shown(name_and_alias), hub::shown(artifact.state)),
        "wait until its run has uploaded it");
}

Result<std::string> parse_manifest_url(std::string_view body) {
    GDNCTL_TRY_ASSIGN(const Json data, data_in(body));
    const Json* file = json::object_at(data, "/artifact/currentManifest/file");
    const std::string url = file == nullptr ? std::string() : json::text(*file, "directUrl");
    if (url.empty()) return missing("manifest of the artifact");
    return url;
}

Result<Page<FileUrl>> parse_file_urls(std::string_view body) {
    GDNCTL_TRY_ASSIGN(const Json data, data_in(body));
    const Json* files = json::object_at(data, "/project/artifactCollection/artifactMembership/files");
    if (files == nullptr) return Page<FileUrl>{};
    return page_of<FileUrl>(
        *files, [](const Json& node) { return FileUrl{json::text(node, "name"), json::text(node, "directUrl")}; });
}

std::vector<std::string> parse_profile_places(std::string_view body) {
    const auto data = data_in(body);
    const Json* run = data ? json::object_at(*data, "/project/run") : nullptr;
    std::vector<std::string> places;
    if (run != nullptr) collect_places(Json::parse(json::text(*run, "config"), nullptr, false), "", places);
    return places;
}

Result<Artifact> choose_artifact(const std::vector<Artifact>& artifacts, const std::optional<std::string>& alias) {
    const Artifact* best = nullptr;
    std::set<std::string> types, aliases;
    for (const Artifact& artifact : artifacts) {
        types.insert(hub::shown(artifact.type) +
                     (artifact.state == k_committed ? "" : " (" + hub::shown(artifact.state) + ")"));
        if (!is_profile(artifact)) continue;
        for (const std::string& name : artifact.aliases) aliases.insert(hub::shown(name));
        if (alias && !artifact.has_alias(*alias)) continue;
        if (best == nullptr || best->updated <= artifact.updated) best = &artifact;
    }
    if (best != nullptr) return *best;
    if (std::any_of(artifacts.begin(), artifacts.end(), is_profile)) {
        return fail(ErrorKind::remote_missing,
                    fmt::format("no profile of the run has the alias {}", hub::shown(*alias)),
                    fmt::format("available: {}", fmt::join(aliases, ", ")));
    }
    return fail(ErrorKind::nothing_done, types.empty() ? std::string("the run has no artifacts")
                                                       : fmt::format("the run has no artifact of type {}; it has: {}",
                                                                     k_profile_type, fmt::join(types, ", ")));
}

Result<Manifest> parse_manifest(std::string_view json) {
    const Json document = Json::parse(json, nullptr, false);
    const auto bad = [](std::string_view why) {
        return fail(ErrorKind::infrastructure, fmt::format("the artifact's manifest cannot be read: {}", why));
    };
    if (!document.is_object()) return bad("it is not a JSON object");
    const Json* contents = json::object(document, "contents");
    if (contents == nullptr) return bad("it has no contents");
    if (json::integer(document, "version").value_or(0) != 1) return bad("its version is not 1");
    Manifest manifest;
    manifest.region = "default";
    if (const Json* config = json::object(document, "storagePolicyConfig")) {
        manifest.second_layout = json::text(*config, "storageLayout") == "V2";
        if (const std::string region = json::text(*config, "storageRegion"); !region.empty()) manifest.region = region;
    }
    for (const auto& [path, entry] : contents->items()) {
        if (!entry.is_object()) return bad(fmt::format("the entry of {}", hub::shown(path)));
        ManifestEntry file{path, json::integer(entry, "size").value_or(0),
                           hub::hex_of_base64(json::text(entry, "digest")), json::text(entry, "birthArtifactID"),
                           json::text(entry, "ref")};
        const bool sized = entry.contains("size") && entry["size"].is_number_integer() && file.size >= 0;
        if (file.ref.empty() && (!sized || file.md5.size() != k_md5_digits)) {
            return bad(fmt::format("no size or digest of {}", hub::shown(path)));
        }
        manifest.entries.push_back(std::move(file));
    }
    return manifest;
}

std::string file_address(const std::string& base, const WandbPath& path, const Artifact& artifact,
                         const Manifest& manifest, const ManifestEntry& entry) {
    if (!manifest.second_layout)
        return fmt::format("{}/artifacts/{}/{}", base, text::percent_encode(path.entity), entry.md5);
    return fmt::format("{}/artifactsV2/{}/{}/{}/{}/{}/{}/{}", base, text::percent_encode(manifest.region),
                       text::percent_encode(path.entity), text::percent_encode(path.project),
                       text::percent_encode(artifact.collection), text::percent_encode(entry.birth_artifact), entry.md5,
                       text::percent_encode(entry.path.substr(entry.path.rfind('/') + 1)));
}

Result<WandbPath> parse_run_target(std::string_view text, const std::optional<std::string>& entity,
                                   const std::optional<std::string>& project) {
    text = text::trim(text);
    // Punctuation around addresses quoted in logs.
    while (!text.empty() && std::string_view("`.,;:)]>\"'").find(text.back()) != std::string_view::npos)
        text.remove_suffix(1);
    const auto bad = [&](std::string_view why) {
        return fail(ErrorKind::usage, fmt::format("'{}' is not the name of a W&B run: {}", hub::shown(text), why),
                    "use ENTITY/PROJECT/RUN, the run's web address, or RUN with --entity and --project");
    };
    WandbPath path;
    if (text.find("://") != std::string_view::npos) {
        const auto parsed = parse_wandb_url(text);
        if (!parsed) return bad("its address is not .../ENTITY/PROJECT/runs/RUN");
        path = *parsed;
    } else {
        const auto parts = text::split(text, '/');
        if (parts.size() == 3) {
            path = {std::string(parts[0]), std::string(parts[1]), std::string(parts[2])};
        } else if (parts.size() == 1 && !text.empty()) {
            if (!entity || !project) return bad("its entity and project are not given");
            path = {*entity, *project, std::string(text)};
        } else {
            return bad("three names are expected");
        }
    }
    if (path.entity.empty() || path.project.empty() || path.run.empty()) return bad("a name is empty");
    // It becomes the name of a folder.
    if (path.run.find_first_of("/\\") != std::string::npos || hub::why_unsafe(path.run))
        return bad("its id is not valid");
    if ((entity && *entity != path.entity) || (project && *project != path.project)) {
        return bad("--entity or --project says otherwise");
    }
    return path;
}

namespace {

constexpr int k_ok = 200;
constexpr int k_unauthorized = 401;
constexpr int k_forbidden = 403;
constexpr int k_not_found = 404;
constexpr std::size_t k_most_pages = 10'000;

// Reads all pages of a list. `ask_page`: fetches the page at a cursor.
template <class T, class AskPage>
Result<std::vector<T>> all_pages(const AskPage& ask_page) {
    std::vector<T> all;
    std::set<std::string> seen;
    std::string cursor;
    do {
        Result<Page<T>> page = ask_page(cursor);
        if (!page) return tl::unexpected(std::move(page).error());
        std::move(page->items.begin(), page->items.end(), std::back_inserter(all));
        cursor = std::move(page->next);
        if (!cursor.empty() && (!seen.insert(cursor).second || seen.size() > k_most_pages)) {
            return fail(ErrorKind::infrastructure, "W&B's list repeats itself or never ends");
        }
    } while (!cursor.empty());
    return all;
}

// The signed address works without the key. Ours requires the key, but still works when the other has expired.
hub::Wanted wanted_of(const ManifestEntry& entry, const std::string& signed_url, const std::string& address) {
    hub::Wanted file;
    file.path = file.local = entry.path;
    file.size = entry.size;
    file.digest = {hub::Digest::Kind::md5, entry.md5};
    file.etag = entry.md5;
    if (!entry.ref.empty()) {
        file.refused = Error{ErrorKind::authentication,
                             fmt::format("it is stored at {}, which the W&B key cannot access", hub::shown(entry.ref)),
                             "download it with that store's own tools, or skip it with --exclude",
                             {}};
    }
    file.first_without_token = hub::parse_url(signed_url).has_value();
    if (file.first_without_token) file.urls.push_back(signed_url);
    file.urls.push_back(address);
    return file;
}

}  // namespace

Error RunArtifacts::explain(const std::string& url, int status, const HttpHeaders& headers,
                            std::string_view body) const {
    const std::string said = hub::server_text(headers, body);
    const std::string suffix = said.empty() ? "" : ": " + said;
    const auto parsed = hub::parse_url(url);
    const bool at_home = parsed && parsed->same_origin(m_client.service().endpoint);
    if (at_home && status == k_unauthorized) {
        return {ErrorKind::authentication,
                fmt::format("W&B rejects the key of {}{}", m_access.key_source, suffix),
                "get a new one at " + m_access.authorize_page(),
                {}};
    }
    return {status == k_unauthorized || status == k_forbidden ? ErrorKind::authentication
            : status == k_not_found                           ? ErrorKind::remote_missing
                                                              : ErrorKind::infrastructure,
            fmt::format("{} answered {}{}", hub::shown(url), status, suffix),
            status == k_forbidden ? "use a key that can access the project" : "",
            {}};
}

Result<std::string> RunArtifacts::ask(const std::string& question) {
    hub::ServiceRequest asked;
    asked.method = "POST";
    asked.body = question;
    asked.headers = {{"Content-Type", "application/json"}, {"Accept", "application/json"}};
    GDNCTL_TRY_ASSIGN(auto answer, m_client.ask(m_access.url + "/graphql", asked));
    if (answer.status == k_ok) return std::move(answer.body);
    Error failure = explain(answer.url, answer.status, answer.headers, answer.body);
    if (!answer.gave_up.empty()) failure.message += fmt::format(" ({})", answer.gave_up);
    return tl::unexpected(std::move(failure));
}

Result<Artifact> RunArtifacts::of_run(const std::optional<std::string>& alias) {
    const auto artifacts = all_pages<Artifact>([&](const std::string& cursor) -> Result<Page<Artifact>> {
        GDNCTL_TRY_ASSIGN(auto body, ask(run_artifacts_question(m_path, cursor)));
        return parse_run_artifacts(body, m_path);
    });
    if (!artifacts) return tl::unexpected(artifacts.error());
    auto chosen = choose_artifact(*artifacts, alias);
    if (chosen) return std::move(*chosen);
    Error failure = chosen.error();
    if (failure.kind != ErrorKind::nothing_done) return tl::unexpected(std::move(failure));
    failure.hint = "newer versions of levanter write profiles to a bucket and log no artifact";
    if (const auto body = ask(config_question(m_path))) {
        const auto places = parse_profile_places(*body);
        if (!places.empty()) failure.message += fmt::format("; its config has {}", fmt::join(places, ", "));
    }
    return tl::unexpected(std::move(failure));
}

Result<Artifact> RunArtifacts::find(const std::optional<std::string>& name, const std::optional<std::string>& alias) {
    if (!name) return of_run(alias);
    const std::size_t colon = name->find(':');
    if (colon == 0 || name->empty() || colon == name->size() - 1 || name->find('/') != std::string::npos) {
        return fail(ErrorKind::usage, fmt::format("'{}' is not the name of an artifact", hub::shown(*name)),
                    "use --artifact NAME or NAME:ALIAS, for example run-RUN-profiler:v0");
    }
    if (colon != std::string::npos && alias) {
        return fail(ErrorKind::usage, "--artifact already names an alias", "leave out --alias");
    }
    const std::string full = name->find(':') != std::string::npos ? *name : *name + ":" + alias.value_or("latest");
    GDNCTL_TRY_ASSIGN(auto body, ask(artifact_question(m_path, full)));
    return parse_artifact(body, full);
}

Result<Manifest> RunArtifacts::manifest_of(const Artifact& artifact) {
    GDNCTL_TRY_ASSIGN(auto body, ask(manifest_question(artifact.id)));
    const auto url = parse_manifest_url(body);
    if (!url) return tl::unexpected(url.error());
    hub::ServiceRequest question;
    question.with_token = false;  // the address is signed
    GDNCTL_TRY_ASSIGN(auto answer, m_client.ask(*url, question));
    if (answer.status != k_ok) return tl::unexpected(explain(answer.url, answer.status, answer.headers, answer.body));
    return parse_manifest(answer.body);
}

Result<std::vector<FileUrl>> RunArtifacts::urls_of(const Artifact& artifact) {
    return all_pages<FileUrl>([&](const std::string& cursor) -> Result<Page<FileUrl>> {
        GDNCTL_TRY_ASSIGN(auto body, ask(file_urls_question(m_path, artifact, cursor)));
        return parse_file_urls(body);
    });
}

Result<ArtifactListing> RunArtifacts::list(const std::optional<std::string>& name,
                                           const std::optional<std::string>& alias, const hub::Selection& selection) {
    ArtifactListing listing;
    auto artifact = find(name, alias);
    if (!artifact) return tl::unexpected(std::move(artifact).error());
    listing.artifact = std::move(*artifact);
    GDNCTL_TRY_ASSIGN(const auto manifest, manifest_of(listing.artifact));
    std::map<std::string, const ManifestEntry*> entries;
    std::vector<std::string> taken;
    for (const ManifestEntry& entry : manifest.entries) {
        entries.emplace(entry.path, &entry);
        (selection.takes(entry.path) ? taken : listing.others).push_back(entry.path);
    }
    taken = selection.finish(std::move(taken));
    for (const std::string& path : taken) {
        if (const auto why = hub::why_unsafe(path)) {
            return fail(ErrorKind::local_io,
                        fmt::format("unsafe file name in the artifact: '{}': {}", hub::shown(path), *why),
                        "skip it with --exclude to download the rest");
        }
    }
    if (taken.empty()) return listing;
    GDNCTL_TRY_ASSIGN(const auto urls, urls_of(listing.artifact));
    std::map<std::string, std::string> direct;
    for (const FileUrl& file : urls) direct[file.name] = file.url;
    for (const std::string& path : taken) {
        const auto found = direct.find(path);
        const std::string signed_url = found == direct.end() ? std::string() : found->second;
        const std::string address = file_address(m_access.url, m_path, listing.artifact, manifest, *entries.at(path));
        listing.files.push_back(wanted_of(*entries.at(path), signed_url, address));
    }
    return listing;
}

}  // namespace gdnctl::wandb
