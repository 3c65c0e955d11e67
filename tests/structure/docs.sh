# The documents lead somewhere.

# dead_links ROOT: every relative link of README.md, CONTRIBUTING.md, docs/ and examples/ whose file does not exist.
dead_links() {
    local page target
    (cd "$1" && for page in *.md docs/*.md docs/reference/*.md examples/*/*.md tests/*.md; do
        [ -e "$page" ] || continue
        grep -oE '\]\([^)#[:space:]]+' "$page" | sed 's/^](//' | grep -vE '^[a-z]+:' | sort -u | while read -r target; do
            [ -e "$(dirname "$page")/$target" ] || echo "$page: $target"
        done
    done) || true
}

test_every_relative_link_leads_to_a_file() {
    dead_links "$REPO" >dead
    [ ! -s dead ] || fail "dead links: $(cat dead)"
}
test_a_dead_link_would_be_found() {
    mkdir -p tree/docs/reference
    echo '[a](b.md) [c](../README.md) [w](https://example.org)' >tree/docs/a.md
    echo '[a](docs/a.md)' >tree/README.md
    echo '[a](../a.md)' >tree/docs/reference/c.md
    dead_links "$PWD/tree" >dead
    [ "$(cat dead)" = 'docs/a.md: b.md' ] || fail "found: $(cat dead)"
}
test_readme_has_the_two_commands() {
    grep -qF './dev run' "$REPO/README.md" && grep -qF './dev test' "$REPO/README.md" || fail "README.md lacks one of them"
}
