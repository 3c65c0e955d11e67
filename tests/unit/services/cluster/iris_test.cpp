// Iris clusters: their files and tables, which one is meant, the login and the tunnel.
#include <doctest/doctest.h>

#include "core/log.h"
#include "core/redact.h"
#include "platform/toml.h"
#include "services/cluster/cluster.h"
#include "services/cluster/login.h"
#include "services/cluster/tunnel.h"
#include "support/fake_clock.h"
#include "support/fake_env.h"
#include "support/fake_http.h"
#include "support/fake_process.h"
#include "support/scratch.h"

namespace fs = std::filesystem;
using namespace gdnctl;
using namespace std::chrono_literals;
using gdnctl::test::FakeClock;
using gdnctl::test::FakeEnv;
using gdnctl::test::FakeHttp;
using gdnctl::test::FakeProcess;
using gdnctl::test::Scratch;

namespace {

constexpr const char* k_behind_iap = R"(name: marin
dashboard_url: https://iris.example.org/
auth:
  iap:
    url: https://iris-api.example.org/
    oauth_client_id: id.apps.example.org
    oauth_client_secret: a-client-secret
    programmatic_audiences: [aud.apps.example.org, other]
tpu_pools:
  large: {family: v5p, sizes: {16: {buffer: 0}, 8: {}}}
  small: {family: v5e, sizes: [4, 16]}
scale_groups:
  cpu: {resources: {cpu: 4}}
  old: {resources: {device_type: tpu, device_variant: v4-8}}
  again: {resources: {device_type: tpu, device_variant: v5p-8}}
)";

constexpr const char* k_through_gcloud = R"(name: dev
platform: {label_prefix: dev1, gcp: {project_id: proj}}
controller: {gcp: {zone: us-central1-a, port: 10001}}
defaults: {ssh: {impersonate_service_account: robot@proj.iam}}
)";

Result<ClusterFile> read_text(const Scratch& folder, std::string_view text) {
    return read_cluster_file(folder.file("x.yaml", text), "/home/me");
}

std::string message_of(const Result<ClusterFile>& file) { return file ? "none" : file.error().message; }

Config config_of(std::string_view toml) {
    Config config;
    config.overlay(*parse_toml(toml, {ConfigOrigin::Kind::project_file, "gdnctl.toml", 0}));
    return config;
}

struct Found {
    Scratch root, home;
    Config config;

    Result<ClusterFile> operator()(const std::string& name) const {
        return find_cluster({root.path(), root.path(), home.path(), &config}, name);
    }
    void tables(std::string_view toml) { config = config_of(toml); }
};

}  // namespace

TEST_CASE("iris file: address, login and offers") {
    const Scratch folder;
    const auto file = read_text(folder, k_behind_iap);
    REQUIRE(file);
    CHECK(file->kind == PlaceKind::iris);
    CHECK(file->cluster_name == "marin");
    REQUIRE(file->address);
    CHECK(file->address->url == "https://iris-api.example.org");
    CHECK(file->iris.dashboard_url == "https://iris.example.org");
    CHECK(file->iris.needs_login);
    CHECK(file->iris.client.id == "id.apps.example.org");
    CHECK(file->iris.client.secret == "a-client-secret");
    CHECK(file->iris.audiences == std::vector<std::string>{"aud.apps.example.org", "other"});
    CHECK(tpu_types(*file) == std::vector<std::string>{"v5p-16", "v5p-8", "v5litepod-4", "v5litepod-16", "v4-8"});
    CHECK(*infer_tpu(*file) == "v5p-8");
    CHECK(offers_tpu(*file, "v4-8"));
    CHECK(!offers_tpu(*file, "v6e-8"));
}

TEST_CASE("iris file: the controller behind gcloud, and the names of the client in a manifest") {
    const Scratch folder;
    const auto file = read_text(folder, k_through_gcloud);
    REQUIRE(file);
    CHECK(!file->address);
    CHECK(!file->iris.needs_login);
    CHECK(file->iris.controller == "gcp");
    CHECK(file->project == "proj");
    CHECK(file->zone == "us-central1-a");
    CHECK(file->iris.port == 10001);
    CHECK(file->iris.label_prefix == "dev1");
    CHECK(file->iris.impersonate == "robot@proj.iam");
    CHECK(read_text(folder, "controller: {local: {port: 1}}\n")->iris.controller == "local");
    CHECK(read_text(folder, "platform: {local: }\n")->cluster_name == "x");  // the file's name
    const auto manifest =
        read_text(folder, "auth: {iap: {desktop_oauth_client_id: a, desktop_oauth_client_secret: b}}");
    REQUIRE(manifest);
    CHECK(manifest->iris.client.id == "a");
    CHECK(manifest->iris.client.secret == "b");
}

TEST_CASE("iris file: faults") {
    const Scratch folder;
    CHECK(message_of(read_text(folder, "a: b\n")) ==
          (folder / "x.yaml").string() + ": neither a Ray nor an Iris cluster file");
    CHECK(read_text(folder, "auth: {iap: }\n"));
    CHECK(message_of(read_text(folder, "auth: {iap: {url: 'ftp://h'}}\n"))
              .find("auth.iap.url: not the address of an Iris") != std::string::npos);
    for (const char* odd :
         {"tpu_pools: [1]\n", "tpu_pools: {a: 3}\n", "scale_groups: {a: {resources: x}}\n",
          "tpu_pools: {a: {family: v5p, sizes: 8}}\n", "auth: {iap: {programmatic_audiences: x}}\n"}) {
        const auto file = read_text(folder, odd);
        REQUIRE_MESSAGE(file, odd);
        CHECK(tpu_types(*file).empty());
    }
}

TEST_CASE("iris file: the type that `--tpu auto` means") {
    const Scratch folder;
    const auto type = [&](const std::string& sizes) {
        const auto file = read_text(folder, "tpu_pools: {" + sizes + "}\n");
        const auto found = infer_tpu(*file);
        return found ? *found : found.error().message;
    };
    CHECK(type("a: {family: v4, sizes: [8]}, b: {family: v5p, sizes: [8]}") == "v5p-8");
    CHECK(type("a: {family: v6e, sizes: [8, 16, 4]}") == "v6e-4");
    CHECK(type("a: {family: v4, sizes: [16, 8]}") == "v4-8");
    CHECK(type("a: {family: v5p, sizes: [16]}") == "Unable to infer TPU worker type from cluster config.");
    CHECK(type("") == "Unable to infer TPU worker type from cluster config.");
}

TEST_CASE("cluster table: over a file that it names, key by key") {
    Found find;
    find.root.file("lib/iris/config/marin.yaml", k_behind_iap);
    find.tables("[clusters.m]\nconfig = \"lib/iris/config/marin.yaml\"\ntpu = \"v4-8\"\noauth_client_id = \"mine\"\n");
    const auto file = find("m");
    REQUIRE(file);
    CHECK(file->kind == PlaceKind::iris);
    CHECK(file->address->url == "https://iris-api.example.org");
    CHECK(*infer_tpu(*file) == "v4-8");
    CHECK(file->iris.client.id == "mine");
    CHECK(file->iris.client.secret == "a-client-secret");

    find.tables("[clusters.m]\nconfig = \"lib/iris/config/marin.yaml\"\nurl = \"http://127.0.0.1:9/\"\n");
    const auto moved = find("m");
    REQUIRE(moved);
    CHECK(moved->address->url == "http://127.0.0.1:9");
    CHECK(moved->address->origin == "gdnctl.toml:3");
    CHECK(moved->iris.needs_login);
}

TEST_CASE("cluster table: alone, and beside a file of the same name") {
    Found find;
    find.tables(
        "[clusters.a]\nkind = \"iris\"\nurl = \"https://iris.example.org\"\n"
        "[clusters.b]\nkind = \"iris\"\nurl = \"http://127.0.0.1:9\"\n[clusters.c]\nkind = \"ray\"\nurl = \"h:1\"\n"
        "[clusters.dev]\ntpu = \"v5p-8\"\n");
    find.home.file(".config/marin/clusters/dev.yml", k_through_gcloud);
    CHECK(find("a")->iris.needs_login);
    CHECK(find("a")->path.empty());
    CHECK(find("a")->cluster_name == "a");
    CHECK(!find("b")->iris.needs_login);
    CHECK(find("c")->kind == PlaceKind::ray);
    CHECK(find("c")->address->url == "http://h:1");
    CHECK(find("dev")->project == "proj");
    CHECK(find("dev")->tpu == "v5p-8");
}

TEST_CASE("cluster table: faults name the file and the line") {
    Found find;
    find.root.file("ray.yaml", "cluster_name: r\n");
    const auto fault = [&](const std::string& lines) {
        find.tables("[clusters.x]\n" + lines);
        const auto file = find("x");
        REQUIRE_MESSAGE(!file, lines);
        CHECK_MESSAGE(exit_code_of(file.error().kind) == ExitCode::usage, lines);
        return file.error().message;
    };
    CHECK(fault("url = \"http://h\"\nadress = \"y\"\n") == "gdnctl.toml:3: unknown key clusters.x.adress");
    CHECK(fault("kind = \"slurm\"\n") == "gdnctl.toml:2: clusters.x.kind: unknown kind 'slurm'");
    CHECK(fault("kind = \"local\"\n") == "gdnctl.toml:2: clusters.x.kind: unknown kind 'local'");
    CHECK(fault("kind = 3\n") == "gdnctl.toml:2: clusters.x.kind must be a string");
    CHECK(fault("url = \"http://h\"\n") == "gdnctl.toml:1: [clusters.x] does not say which kind of cluster it is");
    CHECK(fault("kind = \"iris\"\nurl = \"ray://h\"\n") ==
          "gdnctl.toml:3: [clusters.x] url: not the address of an Iris controller: ray://h");
    CHECK(fault("kind = \"iris\"\nconfig = \"ray.yaml\"\n") ==
          "gdnctl.toml:1: [clusters.x] says kind = \"iris\", but " + (find.root / "ray.yaml").string() +
              " is a file of kind \"ray\"");
    CHECK(fault("config = \"none.yaml\"\n") == "no such cluster file: " + (find.root / "none.yaml").string());
    CHECK(fault("tpu = \"v5p-8\"\n").find("[clusters.x] has neither `url` nor `config`") != std::string::npos);
}

TEST_CASE("cluster names: tables and files, each name once, the first place wins") {
    Found find;
    find.root.file("infra/marin-us.yaml", "cluster_name: us\n");
    find.root.file("lib/iris/config/both.yaml", "name: checkout\nplatform: {}\n");
    find.home.file(".config/marin/clusters/both.yaml", "name: home\nplatform: {}\n");
    find.root.file("lib/iris/config/us.yaml", k_behind_iap);
    find.root.file("lib/iris/config/README.md", "");
    find.tables("[clusters.t]\nkind = \"iris\"\nurl = \"http://127.0.0.1:1\"\n");
    CHECK(cluster_names({find.root.path(), {}, find.home.path(), &find.config}) ==
          std::vector<std::string>{"both", "t", "us"});
    CHECK(find("both")->cluster_name == "home");
    CHECK(find("us")->kind == PlaceKind::ray);
}

namespace {

std::string web_token(std::int64_t expiry, std::string_view more = "") {
    // base64url of claims that need no padding rules: written by hand, three bytes at a time.
    const std::string claims = R"({"exp": )" + std::to_string(expiry) + std::string(more) + "}";
    constexpr std::string_view k_digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    std::string out;
    unsigned bits = 0, held = 0;
    for (const char c : claims) {
        bits = bits << 8U | static_cast<unsigned char>(c);
        for (held += 8; held >= 6; held -= 6) out += k_digits[bits >> (held - 6) & 63U];
    }
    if (held > 0) out += k_digits[bits << (6 - held) & 63U];
    return "e30." + out + ".c2ln";
}

const std::string k_token_url = "https://oauth2.googleapis.com/token";
const std::string k_metadata_url =
    "http://metadata.google.internal/computeMetadata/v1/instance/service-accounts/default/identity?audience=";

struct LoginFixture {
    Scratch root, home;
    FakeClock clock;
    FakeHttp http;
    FakeProcess process;
    FakeEnv env;
    LoginConfig config;

    LoginFixture() {
        log::set_sink([](log::Level, std::string_view) {});
        config.credentials = home / ".config/marin/credentials/marin.json";
        config.cluster = "marin";
        config.command = "iris --cluster marin login";
        config.client = {"id.apps", "client-secret-0123"};
        config.root = root.path();
        config.process = &process;
        config.http = &http;
        config.clock = &clock;
        config.env = &env;
    }
    ~LoginFixture() { log::set_sink(nullptr); }
    LoginFixture(const LoginFixture&) = delete;
    LoginFixture& operator=(const LoginFixture&) = delete;

    void credentials(
        std::string_view text = R"({"cluster": "marin", "edge_refresh_token": "1//refresh&token+0123"})") const {
        home.file(".config/marin/credentials/marin.json", text);
    }
    Login login() const { return Login(config); }
    std::int64_t now() const { return clock.wall().time_since_epoch() / 1s; }
    FakeHttp::Expected& mint(const std::string& token, const std::string& url = k_token_url) {
        return http.expect("POST", url).reply(200, R"({"id_token": ")" + token + R"(", "access_token": "x"})");
    }
    Error error() {
        Login at = login();
        const auto token = at.token(false);
        REQUIRE(!token);
        return token.error();
    }
};

}  // namespace

TEST_CASE("login: the credentials that `iris login` left become a token, which is kept until shortly before its end") {
    LoginFixture f;
    f.credentials();
    Login login = f.login();
    CHECK(login.origin().empty());
    const std::string first = web_token(f.now() + 3600), second = web_token(f.now() + 9000);
    f.mint(first).look([](const HttpRequest& r) {
        CHECK(r.body ==
              "grant_type=refresh_token&client_id=id.apps&client_secret=client-secret-0123&"
              "refresh_token=1%2F%2Frefresh%26token%2B0123");
    });
    CHECK(*login.token(false) == first);
    CHECK(login.origin() == (f.home / ".config/marin/credentials/marin.json").string());
    f.clock.advance(3299s);
    CHECK(*login.token(false) == first);
    f.clock.advance(2s);
    f.mint(second);
    CHECK(*login.token(false) == second);
    f.mint(web_token(f.now() + 20'000));
    CHECK(*login.token(true) != second);  // refused by the server
    for (const std::string& secret :
         {first, second, std::string("1//refresh&token+0123"), std::string("client-secret-0123")}) {
        CHECK(redact("x " + secret + " y").find(secret) == std::string::npos);
    }
}

TEST_CASE("login: how long a token is used") {
    const auto use = [](const std::string& token, std::int64_t now) {
        return cluster::time_of_use(token, std::chrono::seconds(now)).count();
    };
    CHECK(use(web_token(10'000), 5000) == 4700);
    CHECK(use(web_token(5200), 5000) == 0);                       // it lives for a moment only
    CHECK(use(web_token(5200, R"(, "iat": 1600)"), 5000) == 60);  // out of a cache, or our clock is ahead
    CHECK(use(web_token(1'000'000'000'000), 5000) == 86'400);     // our clock is far behind
    for (const char* opaque : {"", "abc", "a.b", "a.b.c", "a.!!.c", "e30.e30.c"})
        CHECK_MESSAGE(use(opaque, 5000) == 3000, opaque);
}

TEST_CASE("login: a wrong clock does not make every request ask for a token") {
    LoginFixture f;
    f.credentials();
    Login login = f.login();
    f.clock.jump_wall(std::chrono::hours(48));
    f.mint(web_token(f.now() - 100'000, R"(, "iat": )" + std::to_string(f.now() - 103'600)));
    REQUIRE(login.token(false));
    f.clock.advance(50s);
    CHECK(login.token(false));
}

TEST_CASE("login: an expired one, and what else Google may answer") {
    const auto answer = [](int status, const std::string& body) {
        LoginFixture f;
        f.credentials();
        f.http.expect("POST", k_token_url).reply(status, body);
        return f.error();
    };
    const Error expired = answer(400, R"({"error": "invalid_grant", "error_description": "Token has been revoked."})");
    CHECK(expired.kind == ErrorKind::authentication);
    CHECK(expired.message == "the login to cluster marin has expired");
    CHECK(expired.hint == "iris --cluster marin login");
    const Error client = answer(401, R"({"error": "invalid_client"})");
    CHECK(client.kind == ErrorKind::authentication);
    CHECK(client.message == "cannot renew the login to cluster marin: status 401: invalid_client");
    CHECK(answer(503, "<html>").kind == ErrorKind::infrastructure);
    CHECK(answer(200, "<html>").kind == ErrorKind::infrastructure);
    CHECK(answer(200, "{}").kind == ErrorKind::authentication);
    CHECK(answer(200, R"({"id_token": "two words"})").kind == ErrorKind::authentication);
    LoginFixture f;
    f.credentials();
    f.http.expect("POST", k_token_url).fail({ErrorKind::infrastructure, "connection refused", {}, {}});
    CHECK(f.error().kind == ErrorKind::infrastructure);
}

TEST_CASE("login: the OAuth client comes from the configuration, the file, or the checkout") {
    LoginFixture f;
    f.credentials();
    f.config.client = {};
    const Error none = f.error();
    CHECK(none.kind == ErrorKind::authentication);
    CHECK(none.message ==
          "no OAuth client for cluster marin: set oauth_client_id and oauth_client_secret in [clusters.marin]");
    f.root.file("lib/rigging/src/rigging/auth.py",
                "MARIN_DESKTOP_OAUTH_CLIENT = OAuthClient(\n    'from.py',\n    \"py-secret\")\n");
    f.mint("abc").look([](const HttpRequest& r) {
        CHECK(r.body.find("client_id=from.py&client_secret=py-secret&") != std::string::npos);
    });
    Login login = f.login();
    CHECK(login.token(false));
    for (const char* other :
         {"", "X = ('a', 'b')", "MARIN_DESKTOP_OAUTH_CLIENT = 'a'", "MARIN_DESKTOP_OAUTH_CLIENT = 'a', 'b",
          "MARIN_DESKTOP_OAUTH_CLIENT = '', 'b'", "MARIN_DESKTOP_OAUTH_CLIENT = 'a b', 'c'"}) {
        CHECK_MESSAGE(!cluster::client_in_source(other), other);
    }
}

TEST_CASE("login: credentials that cannot be used") {
    LoginFixture f;
    for (const char* bad : {"", "{", "[]", R"({"cluster": "marin"})", R"({"edge_refresh_token": 3})"}) {
        f.credentials(bad);
        const Error error = f.error();
        CHECK(error.kind == ErrorKind::authentication);
        CHECK_MESSAGE(error.message.find("marin.json holds no edge_refresh_token") != std::string::npos, bad);
    }
}

TEST_CASE("login: only a confidential token endpoint is used") {
    LoginFixture f;
    f.credentials();
    f.env.values["GDNCTL_GOOGLE_TOKEN_URL"] = "http://oauth.example.org/token";
    CHECK(exit_code_of(f.error().kind) == ExitCode::usage);
    f.env.values["GDNCTL_GOOGLE_TOKEN_URL"] = "http://127.0.0.1:9/token";
    f.mint("abc", "http://127.0.0.1:9/token");
    Login login = f.login();
    CHECK(login.token(false));
}

TEST_CASE("login: without credentials a Google machine's account is asked, then gcloud") {
    LoginFixture f;
    f.config.audience = "aud/1";
    Login login = f.login();
    f.http.expect("GET", k_metadata_url + "aud%2F1&format=full")
        .reply(200, "machine.token\n", {{"metadata-flavor", "Google"}});
    CHECK(*login.token(false) == "machine.token");
    CHECK(login.origin() == "metadata server of this machine");
    f.http.expect("GET", k_metadata_url + "aud%2F1&format=full").reply(200, "<html>a hotel's page");
    f.process.expect({"gcloud", "auth", "print-identity-token", "--audiences=aud/1"}, 0, "gcloud.token\n");
    CHECK(*login.token(true) == "gcloud.token");
    CHECK(login.origin() == "gcloud auth print-identity-token");
}

TEST_CASE("login: nobody is logged in") {
    LoginFixture f;
    f.config.impersonate = "robot@proj";
    f.http.expect("GET", k_metadata_url + "id.apps&format=full")
        .fail({ErrorKind::infrastructure, "no such host", {}, {}});
    ProcessResult refused;
    refused.exit_code = 1;
    refused.err = "ERROR: (gcloud.auth.print-identity-token) Invalid account type for `--audiences`.";
    f.process.expect(
        {"gcloud", "auth", "print-identity-token", "--audiences=id.apps", "--impersonate-service-account=robot@proj"},
        refused);
    const Error error = f.error();
    CHECK(error.kind == ErrorKind::authentication);
    CHECK(error.message == "not logged in to cluster marin");
    CHECK(error.hint.starts_with("iris --cluster marin login ("));
    CHECK(error.hint.find("marin.json: not found; metadata server: none answers; gcloud: ") != std::string::npos);
    LoginFixture unknown;
    unknown.config.client = {};
    CHECK(unknown.error().message == "not logged in to cluster marin");  // nobody is asked without an audience
}

TEST_CASE("route: the login goes into its own header, to confidential addresses only") {
    LoginFixture f;
    f.credentials();
    f.mint("abc.def.ghi");
    const auto names = [](const HttpHeaders& headers) {
        std::string out;
        for (const auto& [name, value] : headers) out += name + "=" + value + ";";
        return out;
    };
    const auto login = std::make_shared<Login>(f.config);
    const auto route = make_iris_route("https://iris.example.org", login, "task-token");
    CHECK(*route->url() == "https://iris.example.org");
    CHECK(names(*route->headers(false)) == "Proxy-Authorization=Bearer abc.def.ghi;Authorization=Bearer task-token;");
    CHECK(make_iris_route("http://10.0.0.7:1", login, "task-token")->headers(false)->empty());
    CHECK(names(*make_iris_route("http://127.0.0.1:1", nullptr, "task-token")->headers(true)) ==
          "Authorization=Bearer task-token;");
}

TEST_CASE("tunnel: the controller's machine and the words of gcloud") {
    const Scratch folder;
    const auto file = read_text(folder, k_through_gcloud);
    REQUIRE(file);
    FakeProcess process;
    process.expect(
        {"gcloud", "compute", "instances", "list", "--filter", "labels.iris-dev1-controller=true AND status=RUNNING",
         "--format", "value(name,zone)", "--limit", "1", "--project=proj"},
        0, "vm-1\tus-west1-b\n");
    const auto machine = cluster::find_controller({&process, {}}, *file);
    REQUIRE(machine);
    CHECK(machine->name == "vm-1");
    CHECK(machine->zone == "us-central1-a");  // the file's
    CHECK(cluster::forward_argv(*file, *machine, 4000) ==
          std::vector<std::string>{"gcloud",
                                   "compute",
                                   "ssh",
                                   "vm-1",
                                   "--project",
                                   "proj",
                                   "--zone",
                                   "us-central1-a",
                                   "--impersonate-service-account=robot@proj.iam",
                                   "--",
                                   "-L",
                                   "127.0.0.1:4000:localhost:10001",
                                   "-N",
                                   "-o",
                                   "BatchMode=yes",
                                   "-o",
                                   "ExitOnForwardFailure=yes",
                                   "-o",
                                   "ServerAliveInterval=15",
                                   "-o",
                                   "ServerAliveCountMax=4"});
    CHECK(cluster::parse_controller("vm\thttps://x/zones/eu-west4-a\n", "c")->zone == "eu-west4-a");
    CHECK(cluster::parse_controller("", "c").error().message == "No controller found for cluster c");
    CHECK(cluster::parse_controller("--help\tz", "c").error().kind == ErrorKind::infrastructure);
    CHECK(cluster::parse_controller("vm;rm\tz", "c").error().kind == ErrorKind::infrastructure);
    CHECK(cluster::find_controller({&process, {}}, ClusterFile()).error().kind == ErrorKind::config);
}
