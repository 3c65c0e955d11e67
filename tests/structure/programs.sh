# A script calls only what `./dev` installs or Debian's minimal base has; see programs.py.
check() { python3 "$REPO/tests/structure/programs.py" "$1"; }

test_every_program_that_is_called_is_installed() { expect 0 check "$REPO"; }

# A tree whose scripts call nothing that is missing.
tree() {
  rm -rf tree
  mkdir -p tree/.ci tree/tests/{cli,bench,unit,structure}
  printf 'packages_of() {\n    case $1 in\n        test) echo "git jq" ;;\n        *) echo git ;;\n    esac\n}\ngit --version\n' >tree/dev
  echo 'git --version' >tree/.ci/run
  printf '# the list\nbase: cat sh timeout xargs env find\ngit: git\njq: jq\n' >tree/tests/structure/programs.txt
}
test_a_planted_program_is_found() {
  local line
  tree
  printf 'mine() { cat; }\n# bc\nmine "bc" # bc\ncat <<"END"\nbc\nEND\n[ -z x ] || command -v nproc && nproc\nfor bc in 1; do :; done\n' >tree/tests/cli/a.sh
  printf 'case $1 in bc) : ;; esac\nx=bc y=(bc) cat <bc >bc\n((bc = 1)); [[ bc > 1 ]]; echo $((bc + 1)) ${bc:-bc}\n' >>tree/tests/cli/a.sh
  expect 0 check tree
  while read -r line; do
    tree
    printf '%s\n' "$line" >tree/tests/cli/a.sh
    expect 1 check tree
    out_has 'tests/cli/a.sh: calls bc, which no package in tests/structure/programs.txt brings'
  done <<'LINES'
cat | bc
n=$(bc <<<1)
[ "$(cat | bc)" = 1 ]
if ! bc; then :; fi
X=1 bc
timeout 5 bc
env -u X Y=1 bc
find . -exec bc {} +
case $1 in a | b) bc ;; esac
sh -c 'cat | bc'
trap 'bc' EXIT
(bc)
f() { bc; }
echo "${x:-`bc`}" $(($(bc) + 1))
cat <(bc)
x=(a $(bc))
LINES
  tree && printf 'cat <<END\n$(bc)\nEND\n' >tree/tests/cli/a.sh && expect 1 check tree
  for file in dev .ci/run tests/bench/a.sh; do
    tree && echo bc >>"tree/$file" && expect 1 check tree
    out_has "$file: calls bc"
  done
  tree && echo 'subprocess.run(["bc", "-l"])' >tree/tests/unit/a.py && expect 1 check tree
  tree && echo 'spec.argv = {"bc", "-l"};' >tree/tests/unit/a.cpp && expect 1 check tree
}
test_a_program_that_only_other_scripts_have_installed_is_found() {
  tree && echo jq >tree/tests/cli/a.sh && expect 0 check tree
  echo jq >tree/tests/bench/a.sh
  expect 1 check tree
  out_has 'tests/bench/a.sh: calls jq of jq, which `./dev deps bench` does not install'
}
