#include "services/hub/hf/hub.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "core/log.h"
#include "core/text.h"
#include "platform/fs.h"
#include "services/hub/hf/answers.h"
#include "services/hub/transfer/names.h"
#include "services/hub/transfer/out_folder.h"

namespace gdnctl::hub {

namespace {

namespace fs = std::filesystem;

std::string repo_folder(RepoType type, std::string_view id) {
    std::string name = fmt::format("{}--{}", plural_of(type), id);
    if (const std::size_t slash = name.find('/'); slash != std::string::npos) name.replace(slash, 1, "--");
    return name;
}

}  // namespace

HubCache::HubCache(const fs::path& cache, RepoType type, std::string_view id)
    : m_folder(cache / repo_folder(type, id)) {}

fs::path HubCache::blob(std::string_view etag) const { return m_folder / "blobs" / etag; }

std::optional<std::string> HubCache::commit_of(std::string_view revision) const {
    if (why_unsafe(revision)) return std::nullopt;
    const auto text = read_file_if_exists(m_folder / "refs" / revision, 1U << 10U);
    if (!text || !*text) return std::nullopt;
    std::string commit(text::trim(**text));
    return is_hex(commit, k_sha1_digits) ? std::optional(commit) : std::nullopt;
}

std::optional<std::vector<TreeFile>> HubCache::tree(std::string_view commit) const {
    const auto text = read_file_if_exists(m_folder / "trees" / fmt::format("{}.json", commit));
    if (!text || !*text) return std::nullopt;
    return parse_tree_file(**text);
}

std::optional<std::vector<TreeFile>> HubCache::snapshot(std::string_view commit) const {
    std::vector<TreeFile> files;
    const fs::path root = m_folder / "snapshots" / commit;
    std::error_code error;
    for (auto it = fs::recursive_directory_iterator(root, error); !error && it != fs::recursive_directory_iterator();
         it.increment(error)) {
        std::error_code ignored;
        const fs::path target = fs::read_symlink(it->path(), ignored);
        const auto size = fs::file_size(it->path(), ignored);
        const std::string etag = target.filename().string();
        if (ignored || target.empty()) continue;
        TreeFile file;
        file.path = it->path().lexically_relative(root).generic_string();
        file.size = static_cast<std::int64_t>(size);
        if (is_hex(etag, k_sha256_digits)) {
            file.lfs_sha256 = etag;
            file.lfs_size = file.size;
        } else if (is_hex(etag, k_sha1_digits)) {
            file.blob_id = etag;
        } else {
            continue;
        }
        files.push_back(std::move(file));
    }
    return files.empty() ? std::nullopt : std::optional(std::move(files));
}

namespace {

constexpr std::size_t k_most_others = 5000;
constexpr std::size_t k_most_kept = 50'000;  // entries of a full listing; larger ones are not recorded
constexpr std::size_t k_most_pages = 10'000;
constexpr std::size_t k_longest_tree = std::size_t{16} << 20;
constexpr std::int64_t k_largest_file = 50'000'000'000;  // limit over plain HTTP
constexpr int k_ok = 200;

bool is_html(const ServiceAnswer& answer) { return text::trim(answer.body).starts_with('<'); }

// A server may send one header line per link. If one were missed, the listing would look complete.
std::string all_links(const HttpHeaders& headers) {
    std::string links;
    for (const auto& [name, value] : headers) {
        if (name == "link") links += (links.empty() ? "" : ", ") + value;
    }
    return links;
}

std::string unquoted(std::string_view etag) {
    if (etag.starts_with("W/")) etag.remove_prefix(2);
    if (etag.size() >= 2 && etag.front() == '"' && etag.back() == '"') etag = etag.substr(1, etag.size() - 2);
    return std::string(etag);
}

}  // namespace

std::vector<std::string> hub_hosts() { return {"huggingface.co", "hf.co", "hub-ci.huggingface.co"}; }

HfRepo::HfRepo(RepoTarget target, const HfPlaces& places, std::string token_source, RetryingClient* client,
               OutFolder& folder)
    : m_target(std::move(target)),
      m_places(places),
      m_token_source(std::move(token_source)),
      m_client(client),
      m_folder(folder) {}

std::string HfRepo::api(std::string_view rest) const {
    return fmt::format("{}/api/{}/{}/{}", m_places.endpoint, plural_of(m_target.type), m_target.id, rest);
}

std::string HfRepo::resolve_url(std::string_view path) const {
    const std::string type = m_target.type == RepoType::model ? "" : fmt::format("{}/", plural_of(m_target.type));
    return fmt::format("{}/{}{}/resolve/{}/{}", m_places.endpoint, type, m_target.id, m_commit,
                       text::percent_encode(path, "/"));
}

Asked HfRepo::asked(const std::string& url) const {
    return {m_target.type, m_target.id, m_target.revision.value_or("main"), url, m_token_source, m_places.endpoint};
}

Error HfRepo::explain(const std::string& url, int status, const HttpHeaders& headers, std::string_view body) const {
    return explain_answer(asked(url), status, headers, body);
}

Error HfRepo::failed(const ServiceAnswer& answer) const {
    Error failure = explain(answer.url, answer.status, answer.headers, answer.body);
    if (!answer.gave_up.empty()) failure.message += fmt::format(" ({})", answer.gave_up);
    return failure;
}

// "topic; message": each topic is shown once.
void HfRepo::pass_on_warning(const HttpHeaders& headers) {
    const auto warning = find_header(headers, "x-hf-warning");
    if (!warning) return;
    const std::size_t cut = warning->find(';');
    const std::string topic(text::trim(cut == std::string::npos ? "" : warning->substr(0, cut)));
    const std::string message(text::trim(cut == std::string::npos ? *warning : warning->substr(cut + 1)));
    if (!message.empty() && m_topics.insert(topic).second) log::warning("the Hub says: {}", shown(message));
}

void HfRepo::remember(std::string id, std::string commit, std::vector<TreeFile> files) {
    m_target.id = std::move(id);
    m_earlier_commit = std::move(commit);
    m_earlier_files = std::move(files);
}

Result<std::string> HfRepo::revision_offline() const {
    const std::string revision = m_target.revision.value_or("main");
    if (!m_earlier_commit.empty()) return m_earlier_commit;
    if (auto commit = HubCache(m_places.cache, m_target.type, m_target.id).commit_of(revision)) return *commit;
    return fail(
        ErrorKind::infrastructure,
        fmt::format("offline, and this machine does not know the commit of '{}' in '{}'", shown(revision), m_target.id),
        "pass the full commit id (40 digits) as --revision");
}

Result<std::string> HfRepo::resolve_revision() {
    const std::string revision = m_target.revision.value_or("main");
    if (is_hex(revision, k_sha1_digits)) return revision;
    if (m_client == nullptr) return revision_offline();
    GDNCTL_TRY_ASSIGN(auto answer, m_client->ask(api("revision/" + text::percent_encode(revision))));
    pass_on_warning(answer.headers);
    if (answer.status != k_ok) return tl::unexpected(failed(answer));
    auto parsed = parse_revision(answer.body);
    if (!parsed) return tl::unexpected(no_hub(asked(answer.url), parsed.error().message));
    if (!parsed->id.empty() && parsed->id != m_target.id && check_repo_id(parsed->id)) {
        log::info("'{}' is now named '{}'", m_target.id, parsed->id);
        m_target.id = parsed->id;
    }
    return parsed->commit;
}

void HfRepo::sort_out(HfListing& listing, const Selection& selection, std::vector<TreeFile> files, bool keep_all) {
    for (TreeFile& file : files) {
        const bool exact = m_target.is_file && file.path == selection.prefix();
        if (keep_all && m_all_known) m_all.emplace(file.path, file);
        if (m_all.size() > k_most_kept) {
            m_all_known = false;
            m_all.clear();
        }
        if (exact || selection.takes(file.path)) {
            listing.files.push_back(std::move(file));
        } else {
            if (why_unsafe(file.path)) ++m_unsafe;
            if (listing.others.size() < k_most_others) listing.others.push_back(std::move(file.path));
        }
    }
}

// Where a listing continues. A mirror may pass on links to the Hub itself; any other address would get the token.
Result<std::string> HfRepo::page_after(const std::string& link) const {
    const ServiceEndpoint& service = m_client->service();
    const auto absolute = link.starts_with('/') && !link.starts_with("//") ? parse_url(service.endpoint.origin() + link)
                                                                           : parse_url(link);
    const auto next = absolute ? next_step(service, first_step(service, service.endpoint), absolute->text())
                               : Result<RedirectStep>(tl::unexpected(Error{}));
    if (next && next->url.same_origin(service.endpoint)) return next->url.text();
    return fail(ErrorKind::infrastructure,
                fmt::format("the listing continues at {}, which is not {}", shown(link), service.endpoint.origin()));
}

Status HfRepo::read_pages(HfListing& listing, const Selection& selection, std::string_view prefix, bool& missing) {
    std::string url = api(fmt::format("tree/{}{}?recursive=true&expand=false", m_commit,
                                      prefix.empty() ? "" : "/" + text::percent_encode(prefix)));
    std::set<std::string> seen;
    while (!url.empty()) {
        const auto circle = [&] { return fail(ErrorKind::infrastructure, "the listing repeats itself or never ends"); };
        if (!seen.insert(url).second || seen.size() > k_most_pages) return circle();
        GDNCTL_TRY_ASSIGN(auto answer, m_client->ask(url));
        pass_on_warning(answer.headers);
        if (!prefix.empty() && find_header(answer.headers, "x-error-code") == "EntryNotFound") {
            missing = true;
            return {};
        }
        if (answer.status != k_ok) return tl::unexpected(failed(answer));
        if (is_html(answer)) return tl::unexpected(no_hub(asked(url), "it returned a web page"));
        auto files = parse_tree_page(answer.body);
        if (!files) {
            Error failure = files.error();
            failure.kind = ErrorKind::infrastructure;
            failure.message += fmt::format(" (from {})", shown(answer.url));
            return tl::unexpected(std::move(failure));
        }
        sort_out(listing, selection, std::move(*files), prefix.empty());
        url.clear();
        if (const auto link = next_link(all_links(answer.headers))) {
            GDNCTL_TRY_ASSIGN(auto next, page_after(*link));
            url = std::move(next);
        }
    }
    return {};
}

// Uses an earlier full listing of the same commit.
bool HfRepo::take_known_tree(HfListing& listing, const Selection& selection) {
    const HubCache cache(m_places.cache, m_target.type, m_target.id);
    const auto text = m_folder.read(tree_path(m_commit), k_longest_tree);
    auto files = text && *text ? parse_tree_file(**text) : std::nullopt;
    if (!files && m_client == nullptr) files = cache.tree(m_commit);
    if (!files && m_commit == m_earlier_commit && !m_earlier_files.empty()) files = m_earlier_files;
    if (!files && m_client == nullptr) files = cache.snapshot(m_commit);
    if (!files) return false;
    sort_out(listing, selection, std::move(*files), false);
    return true;
}

Status HfRepo::finish(HfListing& listing, const Selection& selection) {
    std::map<std::string, TreeFile> by_path;
    std::vector<std::string> paths;
    for (TreeFile& file : listing.files) {
        paths.push_back(file.path);
        by_path.emplace(file.path, std::move(file));
    }
    listing.files.clear();
    for (const std::string& path : selection.finish(std::move(paths))) {
        if (const auto why = why_unsafe(path)) {
            return fail(ErrorKind::local_io,
                        fmt::format("unsafe file name in the repository: '{}': {}", shown(path), *why),
                        "skip it with --exclude to download the rest");
        }
        listing.files.push_back(by_path.at(path));
    }
    if (m_unsafe > 0)
        log::warning("ignoring {} file{} with unsafe names, none of them selected", m_unsafe, m_unsafe == 1 ? "" : "s");
    return {};
}

Result<HfListing> HfRepo::list(const Selection& selection) {
    auto commit = resolve_revision();
    if (!commit) return tl::unexpected(std::move(commit).error());
    m_commit = std::move(*commit);
    HfListing listing;
    listing.commit = m_commit;
    const bool known = take_known_tree(listing, selection);
    if (!known && m_client == nullptr) {
        return fail(ErrorKind::infrastructure,
                    fmt::format("offline, and no listing of '{}' at {} is on this machine", m_target.id, m_commit),
                    "run the same command once online");
    }
    if (!known) {
        bool missing = false;
        const std::string& prefix = selection.prefix();
        auto read = read_pages(listing, selection, prefix, missing);
        if (!read) return tl::unexpected(std::move(read).error());
        const bool nothing = listing.files.empty() && listing.others.empty();
        bool whole = prefix.empty();
        // The prefix may be a file's name; also, suggestions need names.
        if (!prefix.empty() && (missing || nothing)) {
            read = read_pages(listing, selection, "", missing);
            if (!read) return tl::unexpected(std::move(read).error());
            whole = true;
        }
        if (whole && m_all_known) listing.tree_record = tree_file_text(m_all).value_or("");
    }
    listing.id = m_target.id;
    GDNCTL_TRY(finish(listing, selection));
    return listing;
}

std::vector<Wanted> HfRepo::wanted(const HfListing& listing) const {
    const HubCache cache(m_places.cache, m_target.type, m_target.id);
    std::vector<Wanted> wanted;
    for (const TreeFile& file : listing.files) {
        Wanted one;
        one.path = one.local = file.path;
        one.size = file.size;
        one.digest = file.digest();
        one.etag = file.etag();
        one.urls = {resolve_url(file.path)};
        one.blob = cache.blob(file.etag());
        if (file.size > k_largest_file) {
            one.refused = Error{ErrorKind::infrastructure,
                                "larger than 50 GB: the Hub serves such files over Xet only",
                                "use the official client for it",
                                {}};
        }
        wanted.push_back(std::move(one));
    }
    return wanted;
}

Status HfRepo::check_head(const TreeFile& file) {
    ServiceRequest question;
    question.method = "HEAD";
    question.stay = true;
    auto answer = m_client->ask(resolve_url(file.path), question);
    if (!answer) return tl::unexpected(std::move(answer).error());
    const bool elsewhere = answer->status / 100 == 3;
    if (answer->status != k_ok && !elsewhere) return tl::unexpected(failed(*answer));
    const auto header = [&](const char* linked, const char* plain) {
        const auto value = find_header(answer->headers, linked);
        return value ? value : elsewhere ? std::nullopt : find_header(answer->headers, plain);
    };
    if (!find_header(answer->headers, "x-repo-commit")) {
        return tl::unexpected(no_hub(asked(answer->url), "the answer does not name a commit"));
    }
    const auto etag = header("x-linked-etag", "etag");
    const auto size = text::parse_int(header("x-linked-size", "content-length").value_or(""));
    const bool other_etag = etag && unquoted(*etag) != file.etag();
    if (!other_etag && (!size || *size == file.size)) return {};
    return fail(ErrorKind::conflict,
                fmt::format("{}: listed as {} with {} bytes, but HEAD says {} with {}", shown(file.path), file.etag(),
                            file.size, shown(unquoted(etag.value_or("no etag"))),
                            size ? fmt::format("{} bytes", *size) : "no size"));
}

}  // namespace gdnctl::hub
