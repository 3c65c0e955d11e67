# Completion scripts: the bash one is really sourced and called; the others are read by their shells.

# offers WORD...: completes the last word in bash and prints the candidates, one a line.
offers() {
  PATH=$(dirname "$GDNCTL"):$PATH GDNCTL_SCRIPT=$WORK/gdnctl.bash bash --norc -c '
    . "$GDNCTL_SCRIPT"
    COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMP_LINE="$*" COMP_POINT=${#COMP_LINE}
    _gdnctl
    printf "%s\n" "${COMPREPLY[@]}"' bash "$@"
}
has_offer() { grep -qxF -- "$1" "$WORK/offers" || { cat "$WORK/offers" >&2; fail "not offered: $1"; }; }
lacks_offer() { ! grep -qxF -- "$1" "$WORK/offers" || fail "offered: $1"; }
prepare() { "$GDNCTL" completion bash >"$WORK/gdnctl.bash" || fail "no script"; }

test_bash_commands_and_groups() {
  prepare
  offers gdnctl '' >"$WORK/offers"
  for word in doctor completion config help; do has_offer $word; done
  lacks_offer __complete
  offers gdnctl conf >"$WORK/offers"
  has_offer config
  lacks_offer doctor
  offers gdnctl config '' >"$WORK/offers"
  has_offer show
  has_offer init
  offers gdnctl help config sh >"$WORK/offers"
  has_offer show
}

test_bash_options_of_the_command_and_global_ones() {
  prepare
  offers gdnctl config init --f >"$WORK/offers"
  has_offer --force
  offers gdnctl config init -- >"$WORK/offers"
  has_offer --json
  offers gdnctl config show -- >"$WORK/offers"
  lacks_offer --force
  offers gdnctl -C /tmp --json config init --f >"$WORK/offers"
  has_offer --force
}

test_bash_values() {
  prepare
  offers gdnctl --color '' >"$WORK/offers"
  for word in auto always never; do has_offer $word; done
  offers gdnctl --color = al >"$WORK/offers"
  has_offer always
  offers gdnctl --color = >"$WORK/offers"
  has_offer never
  offers gdnctl completion z >"$WORK/offers"
  has_offer zsh
  lacks_offer bash
  printf '[targets.mine]\ntest = ["true"]\n' >gdnctl.toml
  offers gdnctl config show --target '' >"$WORK/offers"
  has_offer cpu-gdn
  has_offer mine
}

test_bash_closed_sets_that_the_command_checks() {
  prepare
  for command in compare run; do
    offers gdnctl oracle $command gdn --contract '' >"$WORK/offers"
    has_offer hf
    has_offer marin
  done
  offers gdnctl oracle run gdn --case g >"$WORK/offers"
  has_offer g1
  offers gdnctl oracle verify gdn --case g >"$WORK/offers"
  has_offer g1
  offers gdnctl oracle verify linear-ce --case small >"$WORK/offers"
  has_offer small_logits
  offers gdnctl oracle bench linear-ce --kernel '' >"$WORK/offers"
  has_offer builtin:fused
  offers gdnctl oracle verify gdn --kernel '' >"$WORK/offers"
  for word in builtin:chunk builtin:recurrent64 src: lib: cmd: py:; do has_offer "$word"; done
  offers gdnctl oracle bench gdn --kernel '' >"$WORK/offers"
  has_offer builtin:fused
  has_offer src:
  has_offer cmd:
  offers gdnctl log append --outcome te >"$WORK/offers"
  has_offer test-fail
  offers gdnctl lint-log --rule L00 >"$WORK/offers"
  has_offer L001=off
}

test_kernels_with_their_files() {
  prepare
  mkdir -p kernels/deep
  touch kernels/mine.c kernels/mine.so kernels/mine.py kernels/notes.txt
  expect 0 "$GDNCTL" __complete -- oracle verify gdn --kernel src:ker
  [ "$(cat "$WORK/out")" = src:kernels/ ] || fail "not the folder alone: $(cat "$WORK/out")"
  expect 0 "$GDNCTL" __complete -- oracle verify gdn --kernel src:kernels/
  [ "$(cat "$WORK/out")" = "$(printf 'src:kernels/deep/\nsrc:kernels/mine.c')" ] || fail "wrong files: $(cat "$WORK/out")"
  expect 0 "$GDNCTL" __complete -- oracle verify gdn --kernel=lib:kernels/m
  [ "$(cat "$WORK/out")" = --kernel=lib:kernels/mine.so ] || fail "wrong file: $(cat "$WORK/out")"
  expect 0 "$GDNCTL" __complete -- oracle bench gdn --peer py:
  for word in py:kernels/ py:levanter; do out_has "$word"; done
  offers gdnctl oracle verify gdn --kernel src : kernels/m >"$WORK/offers"
  [ "$(cat "$WORK/offers")" = kernels/mine.c ] || fail "bash: $(cat "$WORK/offers")"
}

test_cases_with_their_sets_fields_with_their_values_and_presets() {
  prepare
  offers gdnctl oracle verify gdn --case cro >"$WORK/offers"
  has_offer crossed
  offers gdnctl oracle verify linear-ce --case '' >"$WORK/offers"
  has_offer small_logits
  offers gdnctl oracle verify gdn --set head >"$WORK/offers"
  has_offer head_map=tiled
  offers gdnctl oracle verify gdn --set matmul = b >"$WORK/offers"
  has_offer bf16
  offers gdnctl oracle compare gdn --set ch >"$WORK/offers"
  has_offer chunk=
  offers gdnctl codex-loop --directive-preset '' >"$WORK/offers"
  has_offer triangular-inversion
  offers gdnctl lint-log --explain L40 >"$WORK/offers"
  has_offer L405
}

test_words_that_mean_a_command_are_replaced_by_it() {
  prepare
  offers gdnctl lint >"$WORK/offers"
  [ "$(cat "$WORK/offers")" = lint-log ] || fail "not lint-log alone: $(cat "$WORK/offers")"
  offers gdnctl status >"$WORK/offers"
  [ "$(cat "$WORK/offers")" = loop-status ] || fail "not loop-status alone: $(cat "$WORK/offers")"
  offers gdnctl ray '' >"$WORK/offers"
  has_offer test
  offers gdnctl ray test --clus >"$WORK/offers"
  has_offer --cluster
  offers gdnctl dev tpu allocate --tpu >"$WORK/offers"
  has_offer --tpu-name
  offers gdnctl loop '' >"$WORK/offers"
  for word in run status explain report; do has_offer $word; done
}

# Bash breaks words at : and = and replaces only what follows.
test_bash_values_with_the_breaks_of_bash() {
  prepare
  offers gdnctl oracle verify gdn --kernel builtin : ch >"$WORK/offers"
  [ "$(cat "$WORK/offers")" = chunk ] || fail "not chunk alone: $(cat "$WORK/offers")"
  offers gdnctl oracle verify gdn --kernel = builtin : >"$WORK/offers"
  has_offer chunk
  offers gdnctl lint-log --rule L001 = w >"$WORK/offers"
  [ "$(cat "$WORK/offers")" = warning ] || fail "not warning alone: $(cat "$WORK/offers")"
  offers gdnctl lint-log --rule = L001 = >"$WORK/offers"
  has_offer off
  # What follows is completed as if the value were one word.
  offers gdnctl oracle verify gdn --kernel builtin : chunk --allow >"$WORK/offers"
  has_offer --allow-suspect
  offers gdnctl --config a : b oracle ver >"$WORK/offers"
  has_offer verify
}

test_types_of_repositories_and_paths_of_downloads() {
  prepare
  offers gdnctl hf-download-trace --repo-type '' >"$WORK/offers"
  for word in dataset model space; do has_offer $word; done
  offers gdnctl hf-download-trace --path-prefix '' >"$WORK/offers"
  lacks_offer run1
  mkdir -p .profiles/hf/run1/plugins .profiles/hf/.cache/huggingface
  touch .profiles/hf/run1/plugins/a.trace.json.gz .profiles/hf/.gdnctl-manifest.json .profiles/hf/.cache/huggingface/CACHEDIR.TAG
  offers gdnctl hf-download-trace --path-prefix run >"$WORK/offers"
  for word in run1 run1/plugins run1/plugins/a.trace.json.gz; do has_offer $word; done
  offers gdnctl hf-download-trace --path-prefix '' >"$WORK/offers"
  ! grep -q CACHEDIR "$WORK/offers" || fail 'a record is offered'
  mkdir other && touch other/here.trace.json
  for equals in '' =; do
    offers gdnctl hf-download-trace --output-dir $equals other --path-prefix '' >"$WORK/offers"
    has_offer here.trace.json
    lacks_offer run1
  done
  offers gdnctl wandb-download-trace --output-dir none --path-prefix '' >"$WORK/offers"
  lacks_offer run1
  offers gdnctl hf-download-trace --output-dir .pro >"$WORK/offers"
  has_offer .profiles
}

test_iterations_of_the_log() {
  prepare
  expect 0 "$GDNCTL" __complete -- log show ''
  out_empty
  printf 'target = "mine"\n[targets.mine]\ntest = ["true"]\nlog = "log.md"\n' >gdnctl.toml
  expect 0 "$GDNCTL" __complete -- log show ''
  out_empty
  expect 0 "$GDNCTL" log init
  expect 0 "$GDNCTL" log append --title First --change one --commit 'none (nothing)' --outcome rejected
  expect 0 "$GDNCTL" __complete -- log show ''
  [ "$(cat "$WORK/out")" = "$(printf '0\nlast')" ] || fail "wrong iterations: $(cat "$WORK/out")"
  offers gdnctl log show '' >"$WORK/offers"
  has_offer 0
  has_offer last
}

test_bash_files_and_folders() {
  prepare
  mkdir folder
  touch file.toml
  offers gdnctl --config fi >"$WORK/offers"
  has_offer file.toml
  offers gdnctl -C fo >"$WORK/offers"
  has_offer folder
}

test_bash_offers_nothing_after_the_double_dash() {
  prepare
  offers gdnctl config init -- '' >"$WORK/offers"
  lacks_offer --force
  lacks_offer show
}

test_local_job_ids() {
  mkdir -p "$XDG_STATE_HOME/gdnctl/local/jobs/job-b" "$XDG_STATE_HOME/gdnctl/local/jobs/job-a" \
    "$XDG_STATE_HOME/gdnctl/local/jobs/gdnctl-profile-20261129t053026-e5c7-20261129T053044-b6646df3"
  touch -d '2026-01-01' "$XDG_STATE_HOME/gdnctl/local/jobs/job-b"
  : >"$XDG_STATE_HOME/gdnctl/local/jobs/no-job"
  expect 0 "$GDNCTL" __complete -- ray-wait ''
  [ "$(cat "$WORK/out")" = "$(printf 'job-a\njob-b\nlast')" ] || fail "wrong ids: $(cat "$WORK/out")"
}

test_ids_of_submitted_jobs_come_newest_first() {
  prepare
  mkdir -p "$XDG_STATE_HOME/gdnctl"
  for id in old-job middle-job new-job gdnctl-test-20261129t053026-e5c7-20261129T053044-b6646df3; do
    printf '{"time":"2026-03-10T12:00:00Z","submission_id":"%s","backend":"ray","cluster":"big","address":"a"}\n' $id
  done >"$XDG_STATE_HOME/gdnctl/jobs.jsonl"
  offers gdnctl ray-logs '' >"$WORK/offers"
  [ "$(cat "$WORK/offers")" = "$(printf 'new-job\nmiddle-job\nold-job\nlast')" ] || fail "wrong ids: $(cat "$WORK/offers")"
}

test_values_without_any_state() {
  expect 0 "$GDNCTL" __complete -- ray-wait ''
  out_empty
  expect 0 "$GDNCTL" __complete -- ray-test --cluster ''
  out_has local
}

test_broken_configuration_says_nothing_into_the_command_line() {
  prepare
  echo '[' >gdnctl.toml
  offers gdnctl --target '' >"$WORK/offers" 2>"$WORK/err"
  [ ! -s "$WORK/err" ] || fail "stderr is not empty"
  offers gdnctl config '' >"$WORK/offers"
  has_offer show
}

test_zsh_script_is_read_by_zsh() {
  command -v zsh >/dev/null || skip 'zsh is not installed'
  "$GDNCTL" completion zsh >_gdnctl
  expect 0 zsh -n _gdnctl
  expect 0 zsh -f -c 'autoload -Uz compinit && compinit -u -d "$WORK/dump" && source ./_gdnctl && (( $+functions[_gdnctl] ))'
  [ ! -s "$WORK/err" ] || fail "zsh complains"
}

# Calls the script in zsh, in whose place of a terminal stands what the script hands to _describe, one a line.
in_zsh() { # WORD...: after gdnctl
  "$GDNCTL" completion zsh >"$WORK/_gdnctl"
  PATH=$(dirname "$GDNCTL"):$PATH expect 0 zsh -f -c '
    compdef() { : }
    _call_program() { shift; eval "$*" }
    _describe() { print -rl -- "${(@P)3}" }
    _files() { print -rl -- "files $*" }
    compset() { : }
    source "$WORK/_gdnctl"
    words=(gdnctl "$@") CURRENT=$(($# + 1))
    _gdnctl; true' zsh "$@"
}
in_fish() { # LINE: what is typed
  "$GDNCTL" completion fish >"$WORK/gdnctl.fish"
  PATH=$(dirname "$GDNCTL"):$PATH expect 0 fish --no-config -c "source $WORK/gdnctl.fish; complete -C '$1'"
}

test_zsh_script_completes() {
  command -v zsh >/dev/null || skip 'zsh is not installed'
  in_zsh config ''
  out_has 'show:print each setting'
  in_zsh --color a
  out_has 'always'
  in_zsh oracle verify gdn --kernel builtin:ch
  out_has 'builtin\:chunk:'
  mkdir kernels && touch kernels/mine.c
  in_zsh oracle verify gdn --kernel src:kernels/m
  out_has 'src\:kernels/mine.c:'
  in_zsh oracle verify gdn --set head_map=t
  out_has 'head_map=tiled:'
  in_zsh lint
  out_has 'lint-log:'
  in_zsh loop-report --html=p
  out_has 'files'
  in_zsh config init -- ''
  out_empty
}

test_fish_script_is_read_by_fish_and_completes() {
  command -v fish >/dev/null || skip 'fish is not installed'
  "$GDNCTL" completion fish >gdnctl.fish
  expect 0 fish --no-execute gdnctl.fish
  mkdir kernels other && touch kernels/mine.c other/here.trace.json
  offered() { # LINE WORD
    in_fish "$1"
    grep -q "^$2" "$WORK/out" || fail "$2 is not offered"
  }
  offered 'gdnctl config ' show
  offered 'gdnctl --color a' always
  offered 'gdnctl config init --fo' --force
  offered 'gdnctl oracle verify gdn --kernel builtin:ch' builtin:chunk
  offered 'gdnctl lint-log --rule L001=w' L001=warning
  offered 'gdnctl oracle verify gdn --kernel src:kernels/m' src:kernels/mine.c
  offered 'gdnctl oracle verify gdn --set head_map=t' head_map=tiled
  offered 'gdnctl lint' lint-log
  offered 'gdnctl hf-download-trace --output-dir other --path-prefix he' here.trace.json
}

# in_every_shell WORDS VALUE...: all values, and no others, complete the last of the words, after gdnctl.
in_every_shell() {
  local words=$1 shell
  shift
  printf '%s\n' "$@" | sed '/^$/d' | sort >"$WORK/want"
  prepare
  # shellcheck disable=SC2086
  offers gdnctl $words '' >"$WORK/offers.bash"
  # shellcheck disable=SC2086
  ! command -v zsh >/dev/null || { in_zsh $words ''; sed 's/:.*//' "$WORK/out" >"$WORK/offers.zsh"; }
  ! command -v fish >/dev/null || { in_fish "gdnctl $words "; cut -f 1 "$WORK/out" >"$WORK/offers.fish"; }
  for shell in "$WORK"/offers.*; do
    sed '/^-/d; /^$/d' "$shell" | sort | cmp -s - "$WORK/want" || fail "${shell##*.}: gdnctl $words: $(tr '\n' ' ' <"$shell")"
  done
}

test_iterations_of_a_loop_in_every_shell() {
  . "$REPO/tests/support/loop_repo.sh"
  repo && agent "$works"
  loop 0 --iterations 2
  in_every_shell loop-explain 1 2 last
  loop 0 --iterations 1 --log-dir elsewhere
  in_every_shell 'loop-explain --log-dir elsewhere' 1 last
  in_every_shell 'loop explain --log-dir none'
}

test_attempts_and_runs_of_evolve_in_every_shell() {
  git init -q .
  for run in 20260101t000000z-aaaa 20260102t000000z-bbbb; do
    expect 0 "$GDNCTL" codex-loop --mode evolve --dry-run --max-attempts 3 --seed 3 --log-dir .gdnctl/evolve/$run
  done
  for command in show diff replay promote; do in_every_shell "evolve $command" 1 2 3 best last; done
  in_every_shell 'evolve diff 1' 1 2 3 best last
  in_every_shell loop-explain\ --log-dir\ .gdnctl/evolve/$run 1 2 3 best last
  in_every_shell 'evolve log --run' 20260101t000000z-aaaa 20260102t000000z-bbbb last
  in_every_shell 'codex-loop --mode evolve --from' 20260101t000000z-aaaa 20260102t000000z-bbbb last
}

test_every_option_of_every_command_is_offered() {
  local name
  command_names >names || fail "no list of commands"
  while read -r name; do
    # shellcheck disable=SC2086
    "$GDNCTL" $name --help | sed '/^Examples:/,/^$/d' | grep -oE '^ +(-[a-zA-Z], )?--[a-z0-9-]+' | grep -oE '\-\-[a-z0-9-]+' | sort -u >options
    [ -s options ] || fail "no options found for $name"
    # shellcheck disable=SC2086
    "$GDNCTL" __complete -- $name -- | cut -f 1 | sort -u | comm -13 - options >lacking
    [ ! -s lacking ] || fail "$name lacks $(tr '\n' ' ' <lacking)"
  done <names
}
