#include "services/devtpu/holds.h"

#include <doctest/doctest.h>

#include "services/devtpu/holder.h"
#include "services/devtpu/holder_script.h"
#include "support/temp_dir.h"

using namespace gdnctl;
using namespace gdnctl::devtpu;

namespace {

HoldRecord record(std::string name, std::string id, std::int64_t created = 1) {
    HoldRecord r;
    r.tpu_name = std::move(name);
    r.cluster = "us-central1";
    r.submission_id = std::move(id);
    r.user = "alice";
    r.state = "ready";
    r.host.hostname = "h";
    r.terms = {1, 2, 3};
    r.created = WallTime(std::chrono::seconds(created));
    r.ssh_ok = false;
    return r;
}

}  // namespace

TEST_CASE("holds come back as they were kept") {
    HoldRecord one = record("a", "id-1");
    one.renewed = WallTime(std::chrono::seconds(9));
    const auto back = parse_holds(holds_text({one, record("b", "id-2")}));
    REQUIRE(back.size() == 2);
    CHECK(back[0].host == one.host);
    CHECK(back[0].terms.max_hold_s == 3);
    CHECK(back[0].renewed == one.renewed);
    CHECK(back[0].ssh_ok == false);
    CHECK(!back[1].renewed);
    CHECK(!back[1].setup_ok);
    for (const char* damaged : {"", "{", "[]", "{\"holds\":3}", "{\"holds\":[1,{}]}"})
        CHECK(parse_holds(damaged).empty());
}

TEST_CASE("the newest hold of a name and a cluster is found") {
    const test::TempDir folder;
    const HoldStore store(folder.path() / "state");
    CHECK(!*store.find("a", {}, {}));
    REQUIRE(store.put(record("a", "id-1", 5)));
    REQUIRE(store.put(record("a", "id-2", 7)));
    REQUIRE(store.put(record("b", "id-3", 9)));
    CHECK((*store.find("a", {}, {}))->submission_id == "id-2");
    CHECK(!*store.find("a", "local", {}));
    CHECK(!*store.find("a", {}, "http://elsewhere"));
    REQUIRE(store.renewed("id-2", WallTime(std::chrono::seconds(8))));
    CHECK((*store.find("a", "us-central1", {}))->renewed == WallTime(std::chrono::seconds(8)));
    REQUIRE(store.forget("id-2"));
    REQUIRE(store.forget("id-2"));
    CHECK((*store.find("a", {}, {}))->submission_id == "id-1");
}

TEST_CASE("a cluster's holder is one argument of python3, with its settings in the environment") {
    HolderRequest request;
    request.submission_id = "gdnctl-hold-x";
    request.tpu_name = "a";
    request.terms = {5, 6, 7};
    request.resources = {{"TPU", 4}};
    const JobRequest job = holder_job(request);
    CHECK(job.entrypoint.starts_with("exec python3 -c \"import base64;exec(base64.b64decode('"));
    CHECK(job.entrypoint.size() < (std::size_t{128} << 10));
    CHECK(job.entrypoint.find('$') == std::string::npos);
    CHECK(job.metadata.at("kind") == "hold");
    CHECK(job.metadata.at("lease_s") == "5");
    CHECK(job.beside.empty());
    CHECK(heartbeat_job("gdnctl-hold-x", "hb", "").beside == "gdnctl-hold-x");
    CHECK(heartbeat_job("gdnctl-hold-x", "hb", "").resources.empty());
}
