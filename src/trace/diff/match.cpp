#include "trace/diff/match.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <unordered_map>

#include <fmt/format.h>

#include "trace/model/names.h"

namespace gdnctl::trace {

namespace {

using Indices = std::vector<std::size_t>;

struct Side {
    const Profile& profile;
    std::vector<std::size_t> texts;  // of each op: number of its anonymised text; 0: it has none
};

struct Group {
    Indices before, after;
};

enum class KeyOf : std::uint8_t { stable_id, exact, text, text_file, text_alone, source, source_file };

// "gated_deltanet.py:118" -> "gated_deltanet.py": an edit above a line moves it.
std::string_view file_of(std::string_view source) {
    const std::size_t colon = source.rfind(':');
    return colon == std::string_view::npos ? source : source.substr(0, colon);
}

// What two operations must have in common at a level; empty: this one cannot be matched there.
std::string key_of(KeyOf what, const OpSum& op, std::size_t text) {
    const auto joined = [](const auto&... parts) { return (... + (std::string(parts) + '\n')); };
    const std::string number = std::to_string(text);
    switch (what) {
        case KeyOf::stable_id: return op.stable_id;
        case KeyOf::exact: return text == 0 ? "" : joined(op.name, number, op.tf_op, op.source);
        case KeyOf::text: return text == 0 ? "" : joined(number, op.tf_op, op.source);
        case KeyOf::text_file: return text == 0 ? "" : joined(number, op.tf_op, file_of(op.source));
        case KeyOf::text_alone: return text == 0 ? "" : number;
        case KeyOf::source: return joined(op.category, op.tf_op, op.source, output_shape(op.text), base_name(op.name));
        case KeyOf::source_file:
            return joined(op.category, op.tf_op, file_of(op.source), output_shape(op.text), base_name(op.name));
    }
    return {};
}

struct Pass {
    KeyOf key;
    bool in_order;  // n and n operations with equal keys pair in program order; otherwise the key must be unique
    const char* level;
    std::int64_t MatchLevels::* count;
    bool same_program = false;  // only where both programs consist of the same texts
};
constexpr std::array k_passes = {
    Pass{KeyOf::stable_id, false, "stable_op_id", &MatchLevels::stable_op_id},
    Pass{KeyOf::exact, false, "exact", &MatchLevels::exact},
    Pass{KeyOf::text, false, "text", &MatchLevels::text},
    Pass{KeyOf::text, true, "text_order", &MatchLevels::text_order},
    Pass{KeyOf::text_file, false, "text", &MatchLevels::text},
    Pass{KeyOf::text_file, true, "text_order", &MatchLevels::text_order},
    Pass{KeyOf::text_alone, false, "text", &MatchLevels::text, true},
    Pass{KeyOf::text_alone, true, "text_order", &MatchLevels::text_order, true},
    Pass{KeyOf::source, false, "source", &MatchLevels::source},
    Pass{KeyOf::source, true, "source_order", &MatchLevels::source_order},
    Pass{KeyOf::source_file, false, "source", &MatchLevels::source},
    Pass{KeyOf::source_file, true, "source_order", &MatchLevels::source_order},
};

class Matcher {
public:
    Matcher(const Profile& before, const Profile& after) : m_before{before, {}}, m_after{after, {}} {
        std::unordered_map<std::string, std::size_t> numbers;
        for (Side* side : {&m_before, &m_after}) {
            for (const OpSum& op : side->profile.ops) {
                side->texts.push_back(
                    op.text.empty() ? 0 : numbers.try_emplace(anonymise(op.text), numbers.size() + 1).first->second);
            }
        }
    }

    Matching run() {
        std::map<std::string_view, Group> programs;
        for (const std::size_t i : in_program_order(m_before.profile)) {
            programs[m_before.profile.ops[i].program].before.push_back(i);
        }
        for (const std::size_t i : in_program_order(m_after.profile)) {
            programs[m_after.profile.ops[i].program].after.push_back(i);
        }
        m_result.same_texts = !programs.empty();
        bool moved = false;
        for (auto& [name, program] : programs) {
            const bool same = have_same_texts(program);
            m_result.same_texts = m_result.same_texts && same;
            if (lacks_text(m_before, program.before) || lacks_text(m_after, program.after)) {
                match_names(program);
            } else {
                const std::int64_t alone = match_texts(program, same);
                moved = moved || alone > 0;
            }
        }
        m_result.moved_names = m_result.same_texts && moved;
        return std::move(m_result);
    }

private:
    static Indices in_program_order(const Profile& profile) {
        Indices order(profile.ops.size());
        for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
        std::stable_sort(order.begin(), order.end(),
                         [&](std::size_t a, std::size_t b) { return profile.ops[a].order < profile.ops[b].order; });
        return order;
    }

    bool have_same_texts(const Group& program) const {
        Indices before;
        Indices after;
        for (const std::size_t i : program.before) before.push_back(m_before.texts[i]);
        for (const std::size_t i : program.after) after.push_back(m_after.texts[i]);
        std::sort(before.begin(), before.end());
        std::sort(after.begin(), after.end());
        return before == after && before.front() != 0;
    }

    static bool lacks_text(const Side& side, const Indices& ops) {
        return !ops.empty() && std::all_of(ops.begin(), ops.end(), [&](std::size_t i) { return side.texts[i] == 0; });
    }

    std::map<std::string, Group> groups(KeyOf key, const Group& program) const {
        std::map<std::string, Group> found;
        for (const std::size_t i : program.before) {
            found[key_of(key, m_before.profile.ops[i], m_before.texts[i])].before.push_back(i);
        }
        for (const std::size_t i : program.after) {
            found[key_of(key, m_after.profile.ops[i], m_after.texts[i])].after.push_back(i);
        }
        found.erase("");
        return found;
    }

    void add(std::string kind, std::string label, std::string level, Indices before, Indices after) {
        for (const std::size_t i : before) m_done_before[i] = true;
        for (const std::size_t i : after) m_done_after[i] = true;
        m_result.matches.push_back(
            {std::move(label), std::move(kind), std::move(level), std::move(before), std::move(after)});
    }

    // Removes what add() has taken.
    void drop_done(Group& program) {
        std::erase_if(program.before, [&](std::size_t i) { return m_done_before[i]; });
        std::erase_if(program.after, [&](std::size_t i) { return m_done_after[i]; });
    }

    // The number of pairs that it makes.
    std::int64_t match_pass(const Pass& pass, Group& program) {
        std::int64_t pairs = 0;
        for (const auto& [key, group] : groups(pass.key, program)) {
            const std::size_t n = group.before.size();
            if (n != group.after.size() || (n != 1 && !pass.in_order)) continue;
            for (std::size_t i = 0; i < n; ++i) {
                const std::string& a = m_before.profile.ops[group.before[i]].name;
                const std::string& b = m_after.profile.ops[group.after[i]].name;
                add("matched", a == b ? a : a + " -> " + b, pass.level, {group.before[i]}, {group.after[i]});
                ++pairs;
            }
        }
        m_result.levels.*pass.count += pairs;
        drop_done(program);
        return pairs;
    }

    // Returns how many operations had the same text, but another tf_op or source.
    std::int64_t match_texts(Group& program, bool same_program) {
        std::int64_t alone = 0;
        for (const Pass& pass : k_passes) {
            if (pass.same_program && !same_program) continue;
            const std::int64_t pairs = match_pass(pass, program);
            if (pass.key == KeyOf::text_alone || pass.key == KeyOf::text_file) alone += pairs;
        }
        for (const KeyOf key : {KeyOf::source, KeyOf::source_file}) {
            for (const auto& [text, group] : groups(key, program)) {
                if (group.before.empty() || group.after.empty()) continue;
                const std::string name = base_name(m_before.profile.ops[group.before.front()].name);
                add("group", fmt::format("{} ({} -> {})", name, group.before.size(), group.after.size()), "group",
                    group.before, group.after);
                ++m_result.levels.group;
            }
            drop_done(program);
        }
        for (const std::size_t i : program.before) add_lone("removed", m_before.profile.ops[i].name, {i}, {});
        for (const std::size_t i : program.after) add_lone("added", m_after.profile.ops[i].name, {}, {i});
        return alone;
    }

    // Without HLO text an equal name may be another operation, so only sums over canonical names are compared.
    void match_names(const Group& program) {
        std::map<std::string, Group> names;
        const std::string& kind = m_before.profile.kind;
        for (const std::size_t i : program.before) {
            names[canonical_name(m_before.profile.ops[i].name, kind)].before.push_back(i);
        }
        for (const std::size_t i : program.after) {
            names[canonical_name(m_after.profile.ops[i].name, kind)].after.push_back(i);
        }
        for (auto& [name, group] : names) {
            if (group.before.empty() || group.after.empty()) {
                add_lone(group.after.empty() ? "removed" : "added", name, group.before, group.after);
            } else {
                add("group", name, "group", group.before, group.after);
                ++m_result.levels.group;
            }
        }
    }

    void add_lone(const char* kind, const std::string& name, Indices before, Indices after) {
        ++(before.empty() ? m_result.levels.added : m_result.levels.removed);
        add(kind, name, "", std::move(before), std::move(after));
    }

    Side m_before, m_after;
    std::vector<bool> m_done_before = std::vector<bool>(m_before.profile.ops.size());
    std::vector<bool> m_done_after = std::vector<bool>(m_after.profile.ops.size());
    Matching m_result;
};

}  // namespace

Matching match_ops(const Profile& before, const Profile& after) { return Matcher(before, after).run(); }

}  // namespace gdnctl::trace
