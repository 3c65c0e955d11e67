#include "services/devtpu/ssh_config.h"

#include <filesystem>
#include <fstream>

#include <doctest/doctest.h>
#include <sys/stat.h>

#include "platform/fs.h"
#include "services/devtpu/holds.h"
#include "support/temp_dir.h"

using namespace gdnctl;
using namespace gdnctl::devtpu;
namespace fs = std::filesystem;

namespace {

SshHost host(std::string name, std::string address = "203.0.113.7") {
    return {std::move(name), std::move(address), "alice", "gdnctl-hold-1", "/state/ssh/known hosts", "", "/s"};
}

}  // namespace

TEST_CASE("the block comes first and leaves the rest as it is") {
    const std::string mine = "Host *\r\n  User bob\n\n# no end of line at the end";
    const std::string with = with_block(mine, host("gdn"));
    CHECK(with.starts_with("# BEGIN_DEV_TPU_GDN\nHost dev-tpu-gdn\n  HostName 203.0.113.7\n"));
    CHECK(with.ends_with("Match all\n# END_DEV_TPU_GDN\n" + mine));
    CHECK(with.find("UserKnownHostsFile \"/state/ssh/known hosts\"\n") != std::string::npos);
    CHECK(with_block(with, host("gdn")) == with);
    CHECK(without_block(with, "gdn") == mine);
    CHECK(with_block(with, host("gdn", "10.0.0.1")).find("203.0.113.7") == std::string::npos);
}

TEST_CASE("names that begin alike, or differ in case alone, are others") {
    const std::string both = with_block(with_block("", host("a")), host("ab"));
    CHECK(without_block(both, "a") == ssh_block(host("ab")));
    CHECK(has_alias(both, "a"));
    CHECK(!has_alias(ssh_block(host("ab")), "a"));
    const std::string cases = with_block(with_block("", host("gdn")), host("GDN"));
    CHECK(without_block(cases, "GDN") == ssh_block(host("gdn")));
}

TEST_CASE("a block without its end is the user's") {
    for (const char* torn :
         {"# BEGIN_DEV_TPU_GDN\nHost dev-tpu-gdn\n  HostName 1\nHost mine\n  User me\n",
          "# BEGIN_DEV_TPU_GDN\r\nHost x\r\n", "Host x\n# END_DEV_TPU_GDN\n  User y", "# BEGIN_DEV_TPU_GDN"}) {
        CHECK(without_block(torn, "gdn") == torn);
        const std::string with = with_block(torn, host("gdn"));
        CHECK(with_block(with, host("gdn")) == with);
        CHECK(without_block(with, "gdn") == torn);
    }
}

TEST_CASE("the file keeps its mode, its link and a first copy") {
    const test::TempDir folder;
    const fs::path real = folder.path() / "real", link = folder.path() / ".ssh" / "config";
    fs::create_directories(link.parent_path());
    REQUIRE(atomic_replace(real, "Host x\n"));
    REQUIRE(chmod(real.c_str(), 0640) == 0);
    fs::create_symlink(real, link);
    REQUIRE(write_block(link, host("gdn")));
    REQUIRE(write_block(link, host("other")));
    CHECK(fs::is_symlink(link));
    struct stat info{};
    REQUIRE(stat(real.c_str(), &info) == 0);
    CHECK((info.st_mode & 07777U) == 0640);
    CHECK(*read_file(folder.path() / ".ssh" / "config.bak") == "Host x\n");
    REQUIRE(remove_block(link, "gdn"));
    REQUIRE(remove_block(link, "other"));
    CHECK(*read_file(real) == "Host x\n");
}

TEST_CASE("a read-only file or folder is left alone, behind a link too") {
    const test::TempDir folder;
    const fs::path store = folder.path() / "store", link = folder.path() / ".ssh" / "config";
    fs::create_directories(store);
    fs::create_directories(link.parent_path());
    REQUIRE(atomic_replace(store / "config", "Host x\n"));
    fs::create_symlink(store / "config", link);
    const auto refused = [&](const fs::path& path, mode_t mode) {
        REQUIRE(chmod(path.c_str(), mode) == 0);
        const Status written = write_block(link, host("gdn"));
        REQUIRE(chmod(path.c_str(), mode | 0200U) == 0);
        CHECK(!written);
        CHECK(*read_file(link) == "Host x\n");
        CHECK(fs::is_symlink(link));
        return written ? std::string() : written.error().message;
    };
    CHECK(refused(store / "config", 0444) == (store / "config").string() + " is read-only");
    CHECK(refused(store, 0555) == store.string() + " is read-only");
    CHECK(remove_block(link, "gdn"));
    CHECK(!fs::exists(folder.path() / ".ssh" / "config.bak"));
}

TEST_CASE("only the key of the host and the user's own are offered where it has one") {
    SshHost one = host("gdn");
    CHECK(ssh_block(one).find("IdentitiesOnly") == std::string::npos);
    one.identity = "/home/a/.ssh/50% \"key\"";
    CHECK(ssh_block(one).find("  IdentityFile \"/home/a/.ssh/50%% \\\"key\\\"\"\n  IdentitiesOnly yes\n") !=
          std::string::npos);
    one.control.clear();
    CHECK(ssh_block(one).find("  ControlPath none\n") != std::string::npos);
}

TEST_CASE("names of TPUs") {
    CHECK(check_tpu_name("alice-gdn"));
    CHECK(check_tpu_name("0_a.b-C"));
    CHECK(check_tpu_name(std::string(63, 'a')));
    for (const std::string& bad :
         {std::string(), std::string(64, 'a'), std::string("a b"), std::string("a/b"), std::string("-a"),
          std::string(".a"), std::string("a\n"), std::string("a$(id)"), std::string("\xc3\xa4")}) {
        const Status checked = check_tpu_name(bad);
        REQUIRE(!checked);
        CHECK(checked.error().kind == ErrorKind::usage);
        CHECK(checked.error().message.find('\n') == std::string::npos);
    }
}

TEST_CASE("the bucket of a region") {
    CHECK(marin_prefix("us-east5-a") == "gs://marin-us-east5");
    CHECK(marin_prefix("us-east5") == "gs://marin-us-east5");
    CHECK(marin_prefix("marin-us-central1") == "gs://marin-us-central1");
    CHECK(marin_prefix("big-run").empty());
    CHECK(marin_prefix("local").empty());
}
