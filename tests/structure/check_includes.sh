#!/usr/bin/env bash
# check_includes.sh ROOT: every #include under ROOT/src and ROOT/include against the arrows between folders and the one
# place of each third-party header (docs/architecture.md). Prints one line per violation; 1 when there are any.
set -euo pipefail
cd "$1"
grep -rnE '^[ \t]*#[ \t]*include[ \t]*["<]' src include | awk '
function folder_of(path,   parts, n) {
    if (path ~ /^include\/gdn\//) return "gdn"
    sub(/^include\/gdnctl\//, "", path); sub(/^src\//, "", path)
    n = split(path, parts, "/")
    if (n == 1) return path == "main.cpp" ? "main" : "?" path
    if (parts[1] == "services" && n > 2) return parts[1] "/" parts[2]
    return parts[1]  # headers directly under services/ are interfaces between its folders and the commands
}
function bad(text) { print where ": " text; found = 1 }
function may(from, to) {
    if (from == to) return 1
    if (from ~ /^services\// && to == "services") return 1  # the interface headers, not a neighbour
    return index(" " arrows[from] " ", " " to " ") > 0
}
BEGIN {
    lower = "platform core"
    arrows["main"] = "cli commands"
    arrows["commands"] = "cli loop services services/cluster services/codex services/git services/hub services/job_contract services/jobs services/ray services/runlog oracle " lower
    arrows["loop"] = "services services/cluster services/codex services/git services/hub services/job_contract services/jobs services/ray services/runlog oracle " lower
    arrows["cli"] = lower
    arrows["services"] = lower
    arrows["services/cluster"] = arrows["services/codex"] = arrows["services/git"] = arrows["services/hub"] = arrows["services/job_contract"] = arrows["services/jobs"] = arrows["services/ray"] = arrows["services/runlog"] = lower
    arrows["oracle"] = "core"
    arrows["libgdn"] = "oracle core"
    arrows["platform"] = "core"
    arrows["core"] = ""
    arrows["gdn"] = ""  # the installed C headers

    # Headers that lie beside their source and are for other folders too.
    beside = "^(platform/http_(pool|policy)\\.h$|services/hub/)"

    # One place for each third-party header: the first pattern that matches decides.
    place("^CLI/", "^src/cli/args_cli11\\.cpp$", "src/cli/args_cli11.cpp")
    place("^toml\\+\\+/", "^src/cli/config_toml\\.cpp$", "src/cli/config_toml.cpp")
    place("^(curl/|zlib\\.h$|isa-l|igzip_lib|openssl/)", "^src/platform/", "src/platform")
    place("^git2", "^src/services/git/", "src/services/git")
    place("^yaml-cpp/", "^src/services/cluster/yaml\\.cpp$", "src/services/cluster/yaml.cpp")
    place("^spdlog/", "^src/core/log\\.cpp$", "src/core/log.cpp")
    place("^fmt/.*-inl\\.h$", "^src/core/fmt\\.cpp$", "src/core/fmt.cpp")
    place("^re2/", "\\.cpp$", "one .cpp file")
    place("^nlohmann/json_fwd\\.hpp$", "^include/gdnctl/core/json\\.h$", "gdnctl/core/json.h")
    place("^nlohmann/json\\.hpp$", "\\.cpp$", ".cpp files")
    place("^gdn/", "^include/gdn/", "include/gdn")
    place("^(fmt|tl)/", ".", "anywhere")
    place("^(sys|linux|netinet|arpa|net)/", ".", "anywhere")
}
function place(pattern, allowed, name) { patterns[++places] = pattern; allow[places] = allowed; names[places] = name }
{
    split($0, at, ":"); file = at[1]; where = at[1] ":" at[2]
    line = $0; sub(/^[^:]*:[^:]*:/, "", line)
    quoted = line ~ /#[ \t]*include[ \t]*"/
    header = line; sub(/^[^"<]*["<]/, "", header); sub(/[">].*/, "", header)
    from = folder_of(file)
    if (!(from in arrows)) { bad("the folder " from " has no row in the arrows"); next }
    if (quoted) {
        if (header ~ /^gdn\//) {
            if (from !~ /^(libgdn|commands)$/) bad("the installed C headers belong to libgdn and commands")
        } else if (header ~ /^gdnctl\//) {
            to = folder_of("include/" header)
            if (!may(from, to)) bad(from " may not include " header)
        } else if (file ~ /^include\//) {
            bad("a shared header may not include the private header " header)
        } else {
            if (header !~ /\//) bad("a private header is named from src/, not as " header)
            else if (header ~ beside) { if (!may(from, folder_of("src/" header))) bad(from " may not include " header) }
            else if (folder_of("src/" header) != from) bad(header " is private to its folder")
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
END { exit found }'
