// Plans of sweeps, as people write them.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "fuzz/fuzz.h"
#include "platform/toml.h"
#include "sweep/plan.h"

FUZZ(sweep_plan) {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    gdnctl::ConfigOrigin origin;
    origin.source = "fuzz.toml";
    const auto table = gdnctl::parse_toml(text, origin);
    if (!table) return 0;
    const auto plan = gdnctl::sweep::parse_plan(*table, "fuzz.toml");
    if (!plan) {
        require(!plan.error().message.empty());
        return 0;
    }
    const auto configurations = gdnctl::sweep::configurations_of(*plan, "r", {});
    require(configurations.has_value() && !configurations->empty());
    for (const auto& c : *configurations) {
        require(!gdnctl::sweep::command_of(*plan, c, "o", "i").empty());
        if (c.sizes) require(gdnctl::sweep::estimated_vmem_bytes(*plan, *c.sizes) > 0);
    }
    return 0;
}
