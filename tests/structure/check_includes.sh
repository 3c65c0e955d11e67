#!/usr/bin/env bash
# check_includes.sh ROOT: every #include under ROOT/src and ROOT/include against the arrows between rooms
# (ROOT/cmake/arrows.txt) and the one place of each third-party header (docs/architecture.md); and that no folders include
# each other in a circle. Prints one line per violation; 1 when there are any.
set -euo pipefail
cd "$1"
{ cat cmake/arrows.txt; grep -rnE '^[ \t]*#[ \t]*include[ \t]*["<]' src include; } | awk '
function room_of(path,   parts, n) {
    if (path ~ /^include\//) return "include"
    sub(/^src\//, "", path)
    n = split(path, parts, "/")
    if (n == 1) return path == "main.cpp" ? "main" : "?" path
    if (n > 2 && (parts[1] "/" parts[2]) in arrows) return parts[1] "/" parts[2]
    return parts[1]
}
function bad(text) { print where ": " text; found = 1 }
# Marks in reach[from, x] all rooms x that lie below `from`.
function descend(from, at,   heads, i, n, room) {
    n = split(arrows[at], heads, " ")
    for (i = 1; i <= n; i++) for (room in arrows) {
        if (room != heads[i] && !(heads[i] ~ /\/\*$/ && index(room, substr(heads[i], 1, length(heads[i]) - 1)) == 1)) continue
        if ((from, room) in reach) continue
        reach[from, room] = 1
        descend(from, room)
    }
}
function circles(   room) {
    for (room in arrows) { descend(room, room); if ((room, room) in reach) { where = "cmake/arrows.txt"; bad("a circle through " room) } }
    drawn = 1
}
function folder_of(path) { sub(/^src\//, "", path); sub(/\/?[^\/]*$/, "", path); return path }
# Prints the first circle that leads from `at` back to `start`, and forgets what leads nowhere.
function follow(start, at, path,   i, n, next_one, heads) {
    n = split(includes[at], heads, " ")
    for (i = 1; i <= n; i++) {
        next_one = heads[i]
        if (next_one == start) { where = "src"; bad("folders in a circle:" path " " start); return 1 }
        if (next_one in visited) continue
        visited[next_one] = 1
        if (follow(start, next_one, path " " next_one)) return 1
    }
    return 0
}
function circles_of_folders(   folder, reported) {
    for (folder in includes) {
        split("", visited)
        if (follow(folder, folder, " " folder)) return
    }
}
BEGIN {
    # One place for each third-party header: the first pattern that matches decides.
    place("^CLI/", "^src/cli/args_cli11\\.cpp$", "src/cli/args_cli11.cpp")
    place("^toml\\+\\+/", "^src/platform/toml\\.cpp$", "src/platform/toml.cpp")
    place("^(curl/|zlib\\.h$|isa-l|igzip_lib|openssl/)", "^src/platform/", "src/platform")
    place("^git2", "^src/services/git/", "src/services/git")
    place("^yaml-cpp/", "^src/platform/yaml\\.cpp$", "src/platform/yaml.cpp")
    place("^spdlog/", "^src/core/log\\.cpp$", "src/core/log.cpp")
    place("^fmt/.*-inl\\.h$", "^src/core/fmt\\.cpp$", "src/core/fmt.cpp")
    place("^re2/", "\\.cpp$", "one .cpp file")
    place("^nlohmann/", "^src/core/json\\.cpp$", "src/core/json.cpp")
    place("^gdn/", "^include/gdn/", "include/gdn")
    place("^(fmt|tl)/", ".", "anywhere")
    place("^(sys|linux|netinet|arpa|net)/", ".", "anywhere")
}
function place(pattern, allowed, name) { patterns[++places] = pattern; allow[places] = allowed; names[places] = name }
/^#/ { next }
/ *->/ && !/:/ { room = $1; sub(/^[^>]*> */, ""); arrows[room] = $0; next }
{
    if (!drawn) circles()
    split($0, at, ":"); file = at[1]; where = at[1] ":" at[2]
    line = $0; sub(/^[^:]*:[^:]*:/, "", line)
    quoted = line ~ /#[ \t]*include[ \t]*"/
    header = line; sub(/^[^"<]*["<]/, "", header); sub(/[">].*/, "", header)
    from = room_of(file)
    if (from == "include" && quoted) {
        if (header !~ /^gdn\//) bad("an installed header may not include " header)
        next
    }
    if (from != "include" && !(from in arrows)) { bad("the room " from " has no line in cmake/arrows.txt"); next }
    if (quoted) {
        if (header ~ /^gdn\//) {
            if (from !~ /^(libgdn|commands|harness)$/) bad("the installed C headers belong to libgdn and the harness")
        } else if (header !~ /\//) bad("a header is named from src/, not as " header)
        else {
            to = room_of("src/" header)
            if (from != to && !((from, to) in reach)) bad(from " may not include " header)
            else {
                a = folder_of(file); b = folder_of("src/" header)
                if (a != b && !((a, b) in edge)) { edge[a, b] = 1; includes[a] = includes[a] " " b }
            }
        }
        next
    }
    for (i = 1; i <= places; i++) if (header ~ patterns[i]) {
        if (file !~ allow[i]) bad("<" header "> belongs to " names[i])
        if (header ~ /^re2\//) { if (re2 != "" && re2 != file) bad("<" header "> is already in " re2); re2 = file }
        next
    }
    if (header ~ /\// || header !~ /^[a-z0-9_]+(\.h)?$/) bad("<" header "> has no row among the third-party headers")
}
END { circles_of_folders(); exit found }'
