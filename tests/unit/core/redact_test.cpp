#include "core/redact.h"

#include <vector>

#include <doctest/doctest.h>

#include "core/log.h"

using gdnctl::find_secret_shapes;
using gdnctl::redact;
using gdnctl::register_secret;

namespace {

// Put together at run time, so that this file holds nothing that a secret scanner would flag.
std::string hugging_face_token() { return std::string("hf") + "_" + std::string(34, 'A'); }
std::string forty_hex() { return std::string(40, 'c'); }

std::vector<std::string>& lines() {
    static std::vector<std::string> written;
    return written;
}

}  // namespace

TEST_CASE("redact: tokens of known shape keep at most four characters") {
    CHECK(redact("key " + hugging_face_token() + " end") == "key hf_A*** end");
    for (const std::string& secret :
         {"ghp" + std::string("_") + std::string(36, 'x'), "github" + std::string("_pat_") + std::string(30, 'x'),
          "sk" + std::string("-") + std::string(40, 'x'), "AKIA" + std::string(16, 'Q'),
          "ya29" + std::string(".") + std::string(40, 'x')}) {
        CAPTURE(secret);
        const std::string safe = redact("a " + secret + " b");
        CHECK(safe.find(secret.substr(0, 5)) == std::string::npos);
        CHECK(safe.starts_with("a "));
        CHECK(safe.ends_with("*** b"));
    }
}

TEST_CASE("redact: the value after a secret's name goes, the name stays") {
    CHECK(redact("WANDB_API_KEY=" + forty_hex()) == "WANDB_API_KEY=cccc***");
    CHECK(redact("WANDB_API_KEY: \"" + forty_hex() + "\"") == "WANDB_API_KEY: \"cccc***\"");
    CHECK(redact("Authorization: Bearer abcdefg1") == "Authorization: Bearer ***");
    CHECK(redact("Bearer " + std::string(20, 'q')) == "Bearer qqqq***");
    CHECK(redact("HF_TOKEN=$HF_TOKEN") == "HF_TOKEN=$HF_TOKEN");
    CHECK(redact("set HF_TOKEN and WANDB_API_KEY first") == "set HF_TOKEN and WANDB_API_KEY first");
}

TEST_CASE("redact: names of variables that hold secrets") {
    for (const char* name : {"HF_TOKEN", "wandb_api_key", "MyPassWd", "AWS_SECRET_ACCESS_KEY", "GOOGLE_credentials",
                             "X_AUTH", "TOKENIZERS_PARALLELISM"}) {
        CHECK(names_a_secret(name));
    }
    for (const char* name : {"", "PATH", "XLA_FLAGS", "PASS", "TOKE"}) CHECK_FALSE(names_a_secret(name));
}

TEST_CASE("redact: URLs lose user information and signatures") {
    CHECK(redact("https://user:pw@host/x") == "https://***@host/x");
    CHECK(redact("https://h/x?X-Amz-Signature=0123456789abcdef0123&y=1") == "https://h/x?X-Amz-Signature=0123***&y=1");
    CHECK(redact("https://host/path@2") == "https://host/path@2");
}

TEST_CASE("redact: a private key goes whole, even when its end is missing") {
    const std::string begin = std::string("-----BEGIN RSA PRIVATE") + " KEY-----";
    const std::string pem = begin + "\nMIIB\n-----END RSA PRIVATE" + " KEY-----";
    CHECK(redact("x " + pem + " y") == "x ----*** y");
    CHECK(redact(begin + "\nMIIB") == "----***");
    CHECK(redact("-----BEGIN CERTIFICATE-----") == "-----BEGIN CERTIFICATE-----");
}

TEST_CASE("redact: ordinary words are left alone") {
    for (const char* text :
         {"task-list", "a sk-short", "hf_hub_download", "AKIAshort", "half_precision",
          "sha256:", "use a Bearer authentication header", "bearer credentials in header", "Bearer: required."}) {
        CAPTURE(text);
        CHECK(redact(text) == text);
    }
    CHECK(find_secret_shapes(std::string(40, 'h')).empty());
}

TEST_CASE("redact: registered secrets of any shape, the longest first") {
    register_secret("plain-secret-value");
    register_secret("plain-secret-value-and-more");
    register_secret("short");
    CHECK(redact("<plain-secret-value-and-more>") == "<plai***>");
    CHECK(redact("<plain-secret-value>") == "<plai***>");
    CHECK(redact("short") == "short");
}

TEST_CASE("log: every line is prefixed and redacted before it reaches the sink") {
    lines().clear();
    gdnctl::log::set_sink([](gdnctl::log::Level, std::string_view line) { lines().emplace_back(line); });
    gdnctl::log::configure({.level = gdnctl::log::Level::info, .color = false});
    gdnctl::log::info("one {}\ntwo {}", 1, hugging_face_token());
    gdnctl::log::debug("not shown");
    gdnctl::log::set_sink(nullptr);
    CHECK(lines() == std::vector<std::string>{"[gdnctl] one 1", "[gdnctl] two hf_A***"});
}
