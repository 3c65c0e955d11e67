// Sizes from the HLO text of an instruction.
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "core/text.h"
#include "trace/model/model.h"

namespace gdnctl::trace {

namespace {

// Bits of an element: "bf16" -> 16. 0: no element type.
std::int64_t bits_of(std::string_view type) {
    constexpr std::array<std::pair<std::string_view, int>, 8> k_others = {
        {{"pred", 8}, {"bf16", 16}, {"c64", 64}, {"c128", 128}, {"f8e4m3fn", 8}, {"f8e5m2", 8}, {"s4", 4}, {"u4", 4}}};
    for (const auto& [name, bits] : k_others) {
        if (type == name) return bits;
    }
    if (type.starts_with("f8") || type.starts_with("f4")) return type[1] == '8' ? 8 : 4;
    if (type.empty() || std::string_view("suf").find(type[0]) == std::string_view::npos) return 0;
    const auto bits = text::parse_int(type.substr(1));
    return bits && *bits > 0 && *bits <= 128 ? *bits : 0;
}

// Where the bracket at `open` closes; npos: nowhere.
std::size_t closing(std::string_view text, std::size_t open) {
    std::size_t depth = 0;
    for (std::size_t i = open; i < text.size(); ++i) {
        const char c = text[i];
        if (c == '(' || c == '[' || c == '{') ++depth;
        if (c == ')' || c == ']' || c == '}') --depth;
        if (depth == 0) return i;
    }
    return std::string_view::npos;
}

std::vector<std::string_view> split_outside_brackets(std::string_view text) {
    std::vector<std::string_view> parts;
    std::size_t depth = 0, start = 0;
    for (std::size_t i = 0; i <= text.size(); ++i) {
        if (i == text.size() || (text[i] == ',' && depth == 0)) {
            if (i > start) parts.push_back(text.substr(start, i - start));
            start = i + 1;
        } else if (text[i] == '(' || text[i] == '[' || text[i] == '{') {
            ++depth;
        } else if ((text[i] == ')' || text[i] == ']' || text[i] == '}') && depth > 0) {
            --depth;
        }
    }
    return parts;
}

// Bytes of one shape that lie in HBM: "f32[2048,1024]{1,0:T(8,128)} %x.1". nullopt: not a shape of an array.
std::optional<std::int64_t> hbm_bytes(std::string_view shape) {
    if (const std::size_t comment = shape.find("*/"); comment != std::string_view::npos)
        shape.remove_prefix(comment + 2);
    shape = text::trim(shape);
    const std::size_t open = shape.find('[');
    const std::size_t close = shape.find(']');
    if (open == std::string_view::npos || close == std::string_view::npos || close < open) return std::nullopt;
    std::int64_t bits = bits_of(shape.substr(0, open));
    if (bits == 0) return std::nullopt;
    for (std::string_view dimension : text::split(shape.substr(open + 1, close - open - 1), ',')) {
        dimension = text::trim(dimension);
        if (dimension.starts_with("<=")) dimension.remove_prefix(2);
        if (dimension.empty()) continue;
        const auto size = text::parse_int(dimension);
        if (!size || *size < 0 || __builtin_mul_overflow(bits, *size, &bits)) return std::nullopt;
    }
    std::string_view layout = shape.substr(close + 1);
    if (layout.starts_with('{')) {
        const std::size_t end = closing(layout, 0);
        layout = layout.substr(0, end);
        const std::size_t space = layout.find("S(");
        if (space != std::string_view::npos && layout.substr(space + 2, 1) != "0") return 0;
    }
    return (bits + 7) / 8;
}

// The shapes of a result or operand list: one shape, or a tuple in brackets.
std::vector<std::string_view> shapes_of(std::string_view list) {
    list = text::trim(list);
    if (!list.starts_with('(')) return {list};
    const std::size_t close = closing(list, 0);
    if (close == std::string_view::npos) return {};
    return split_outside_brackets(list.substr(1, close - 1));
}

// The operands that share memory with a result: "output_to_operand_aliasing={{1}: (0, {}), {}: (2, {})}".
std::vector<std::int64_t> aliased_operands(std::string_view text) {
    std::vector<std::int64_t> operands;
    constexpr std::string_view k_key = "output_to_operand_aliasing=";
    const std::size_t at = text.find(k_key);
    if (at == std::string_view::npos) return operands;
    text.remove_prefix(at + k_key.size());
    text = text.substr(0, closing(text, 0));
    for (std::size_t open = text.find('('); open != std::string_view::npos; open = text.find('(', open + 1)) {
        const std::size_t end = text.find_first_of(",)", open);
        if (end == std::string_view::npos) break;
        const auto operand = text::parse_int(text::trim(text.substr(open + 1, end - open - 1)));
        if (operand) operands.push_back(*operand);
    }
    return operands;
}

}  // namespace

std::optional<std::int64_t> io_bytes(std::string_view text) {
    const std::size_t equals = text.find(" = ");
    if (equals == std::string_view::npos) return std::nullopt;
    std::string_view rest = text::trim(text.substr(equals + 3));
    // The result ends before the blank in front of the opcode; a tuple may contain blanks.
    std::size_t end = rest.starts_with('(') ? closing(rest, 0) : rest.find('[');
    if (end == std::string_view::npos) return std::nullopt;
    end = rest.find(' ', end);
    if (end == std::string_view::npos) return std::nullopt;
    const std::size_t open = rest.find('(', end);
    const std::size_t close = open == std::string_view::npos ? open : closing(rest, open);
    if (close == std::string_view::npos) return std::nullopt;
    std::int64_t sum = 0;
    bool any = false;
    const auto add = [&](std::string_view shape) {
        const auto bytes = hbm_bytes(shape);
        any = any || bytes;
        sum += bytes.value_or(0);
    };
    for (const std::string_view shape : shapes_of(rest.substr(0, end))) add(shape);
    const std::vector<std::int64_t> aliased = aliased_operands(rest.substr(close));
    const auto operands = split_outside_brackets(rest.substr(open + 1, close - open - 1));
    for (std::size_t i = 0; i < operands.size(); ++i) {
        bool counted = false;
        for (const std::int64_t one : aliased) counted = counted || one == static_cast<std::int64_t>(i);
        if (counted) continue;
        for (const std::string_view shape : shapes_of(operands[i])) add(shape);
    }
    return any ? std::optional(sum) : std::nullopt;
}

}  // namespace gdnctl::trace
