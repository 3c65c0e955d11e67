#include "services/devtpu/terms.h"

#include <doctest/doctest.h>

using namespace gdnctl;
using namespace gdnctl::devtpu;
using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::seconds;

namespace {

constexpr Terms k_terms{10, 20, 100};
const Clock::Monotonic k_start{seconds(1000)};
const WallTime k_wall{seconds(1'700'000'000)};

}  // namespace

TEST_CASE("a lease that nobody renews ends with its grace") {
    LeaseWatch watch(k_terms, k_start);
    watch.see(k_wall, k_wall, k_start);  // the holder's own file is no renewal
    CHECK(!watch.over(k_start + seconds(19)));
    CHECK(watch.over(k_start + seconds(20)) == HoldEnd::lease);
}

TEST_CASE("a renewal is a changed time of the lease file, and counts from then on") {
    LeaseWatch watch(k_terms, k_start);
    watch.see(k_wall, k_wall, k_start);
    watch.see(k_wall + seconds(15), k_wall + seconds(16), k_start + seconds(16));
    CHECK(!watch.over(k_start + seconds(24)));
    CHECK(watch.over(k_start + seconds(25)) == HoldEnd::lease);
    watch.see(k_wall + seconds(24), k_wall + seconds(24), k_start + seconds(24));
    CHECK(!watch.over(k_start + seconds(33)));
    watch.see(std::nullopt, k_wall + seconds(33), k_start + seconds(33));  // cannot be read: nothing changes
    CHECK(watch.over(k_start + seconds(34)) == HoldEnd::lease);
}

TEST_CASE("a clock that is set neither ends a hold nor keeps it") {
    LeaseWatch watch(k_terms, k_start);
    watch.see(k_wall, k_wall, k_start);
    watch.see(k_wall + seconds(1), k_wall + seconds(1), k_start + seconds(1));
    SUBCASE("forward: the old time of the file is as old as it was") {
        watch.see(k_wall + seconds(1), k_wall + hours(5), k_start + seconds(2));
        CHECK(!watch.over(k_start + seconds(10)));
    }
    SUBCASE("backward: times ahead by minutes count as now") {
        watch.see(k_wall + seconds(5), k_wall - seconds(200), k_start + seconds(5));
        CHECK(!watch.over(k_start + seconds(14)));
        CHECK(watch.over(k_start + seconds(15)) == HoldEnd::lease);
    }
    SUBCASE("a time further ahead is no renewal") {
        watch.see(k_wall + hours(1), k_wall + seconds(5), k_start + seconds(5));
        CHECK(watch.over(k_start + seconds(11)) == HoldEnd::lease);
    }
}

TEST_CASE("the cap ends a hold however often it is renewed") {
    LeaseWatch watch(k_terms, k_start);
    watch.see(k_wall, k_wall, k_start);
    watch.see(k_wall + seconds(99), k_wall + seconds(99), k_start + seconds(99));
    CHECK(!watch.over(k_start + seconds(99)));
    CHECK(watch.over(k_start + seconds(100)) == HoldEnd::max_hold);
}

TEST_CASE("terms travel in a job's metadata") {
    std::map<std::string, std::string> metadata;
    put_terms(metadata, {1, 2, 3});
    CHECK(terms_of(metadata).lease_s == 1);
    CHECK(terms_of(metadata).grace_s == 2);
    CHECK(terms_of(metadata).max_hold_s == 3);
    CHECK(terms_of({{"lease_s", "soon"}, {"grace_s", "-1"}}).lease_s == Terms().lease_s);
    CHECK(terms_of({{"lease_s", "soon"}, {"grace_s", "-1"}}).grace_s == Terms().grace_s);
}

TEST_CASE("heartbeats come four times a lease, and every 30 s at least") {
    CHECK(heartbeat_interval({600, 1, 1}) == seconds(30));
    CHECK(heartbeat_interval({60, 1, 1}) == seconds(15));
    CHECK(heartbeat_interval({1, 1, 1}) == milliseconds(250));
}

TEST_CASE("when a lease ends: after its last renewal, the grace before the first, never after the cap") {
    CHECK(lease_end(k_terms, k_wall, std::nullopt) == k_wall + seconds(20));
    CHECK(lease_end(k_terms, k_wall, k_wall + seconds(7)) == k_wall + seconds(17));
    CHECK(lease_end(k_terms, k_wall, k_wall + seconds(97)) == k_wall + seconds(100));
}

TEST_CASE("terms are checked") {
    CHECK(check_terms({1, 1, 1}));
    CHECK(!check_terms({0, 1, 1}));
    CHECK(!check_terms({1, -1, 1}));
    CHECK(!check_terms({1, 1, 1'000'000'000}));
}
