# Usage errors: exit 2, one style, a suggestion, and nothing done.

test_misspelt_global_option_with_a_value_is_named() {
  expect 2 "$GDNCTL" --colr never lint-log
  err_has "unknown option '--colr'"
  err_has 'did you mean `--color`?'
  expect 2 "$GDNCTL" --color never lint-lg
  err_has "unknown command 'lint-lg'"
}

test_no_command_shows_the_overview_on_stderr_and_exits_2() {
  expect 2 "$GDNCTL"
  out_empty
  err_has 'gdnctl COMMAND [OPTIONS]'
  err_has 'config show'
}

test_a_group_alone_lists_its_members_and_exits_2() {
  expect 2 "$GDNCTL" config
  out_empty
  err_has 'config init'
}

test_unknown_command_is_suggested() {
  expect 2 "$GDNCTL" docter
  out_empty
  err_has "[gdnctl] error: unknown command 'docter'"
  err_has '[gdnctl] hint: did you mean `gdnctl doctor`?'
}

test_typo_of_every_command_suggests_it() {
  local name typo
  command_names >names || fail "no list of commands"
  [ -s names ] || fail "the list of commands is empty"
  while read -r name; do
    typo=${name:0:1}${name:2}
    # shellcheck disable=SC2086
    expect 2 "$GDNCTL" $typo
    # Another command may be as near (ray-logs, ray-list): then that one is no worse an answer.
    grep -qE 'did you mean `gdnctl |has: ' "$WORK/err" || fail "no suggestion for: $typo"
  done <names
}

test_unknown_option_of_every_command_is_an_error() {
  local name
  command_names >names || fail "no list of commands"
  while read -r name; do
    # shellcheck disable=SC2086
    expect 2 "$GDNCTL" $name --qiuet
    err_has "[gdnctl] error: unknown option '--qiuet'"
    err_has '[gdnctl] hint: did you mean `--quiet`?'
    out_empty
  done <names
}

test_usage_error_without_suggestion_points_to_the_help_page() {
  expect 2 "$GDNCTL" completion
  err_has 'error: the argument SHELL is missing'
  expect 2 "$GDNCTL" config show surplus
  err_has "error: unexpected argument 'surplus'"
  err_has 'hint: `gdnctl config show --help` shows the options'
}

test_usage_errors_come_before_any_side_effect() {
  expect 2 "$GDNCTL" config init --forse
  [ ! -e gdnctl.toml ] || fail "a file was written"
  expect 2 "$GDNCTL" config init --color sometimes
  [ ! -e gdnctl.toml ] || fail "a file was written"
}

test_value_outside_a_closed_set() {
  expect 2 "$GDNCTL" completion fihs
  err_has "error: invalid value 'fihs' for SHELL: not one of bash, zsh, fish"
  err_has 'hint: did you mean `fish`?'
}

test_a_missing_argument_of_a_closed_set_names_the_set() {
  expect 2 "$GDNCTL" oracle cases
  err_has 'the argument OP is missing'
  err_has 'gdn, linear-ce'
}

test_the_word_at_hand_finds_the_command() {
  while read -r typed meant; do
    # shellcheck disable=SC2086
    expect 2 "$GDNCTL" ${typed//_/ }
    out_empty
    err_has "gdnctl ${meant//_/ }\`"
  done <<'WORDS'
test ray-test
lint lint-log
status loop-status
list ray-list
version --version
verify oracle_verify
log_check lint-log
dev-tpu dev-tpu-allocate
ray_tset ray-test
WORDS
  expect 0 "$GDNCTL" -V
  out_has gdnctl
}

test_spaces_may_stand_for_hyphens() {
  expect 0 "$GDNCTL" ray test --help
  out_has 'gdnctl ray-test'
  expect 0 "$GDNCTL" dev tpu allocate --help
  out_has 'gdnctl dev-tpu-allocate'
  expect 0 "$GDNCTL" loop status --help
  out_has '  gdnctl loop status [OPTIONS]'
  expect 0 "$GDNCTL" log lint --help
  out_has '  gdnctl log lint [OPTIONS]'
  expect 0 "$GDNCTL" help lint
  out_has 'gdnctl lint-log'
  expect 0 "$GDNCTL" help dev tpu list
  out_has 'gdnctl dev-tpu-list'
}

test_errors_of_first_tries() {
  expect 2 "$GDNCTL" ce-infer --device H100
  err_has '--batch, --hidden and --vocab are required'
  expect 2 "$GDNCTL" ce-infer --device H100 --batch 64 --hidden 64 --vocab 4096
  err_has "--device H100: not a device kind"
  err_has "'NVIDIA H100 80GB HBM3'"
  expect 2 "$GDNCTL" oracle verify gdn --kernel src:absent.c
  err_has 'absent.c does not exist'
  err_has 'hint: paths are relative to the working directory: src:FILE.c'
  expect 2 "$GDNCTL" codex-loop --iterations 'make it faster'
  err_has "invalid value 'make it faster' for --iterations: not a whole number"
  err_has 'hint: --iterations N: number of iterations'
  expect 2 "$GDNCTL" oracle compare gdn-layer in.npz out.npz --heatmap
  err_has 'error: gdn-layer does not support --heatmap'
  err_lacks --html
  expect 2 "$GDNCTL" oracle bench gdn --batch 3
  err_has 'error: gdn does not support --batch'
  echo pickled >dump.pt
  expect 9 "$GDNCTL" oracle compare gdn dump.pt dump.pt
  err_has 'dump.pt is a PyTorch file (a pickle), which gdnctl does not read'
  err_has "save_file(torch.load('dump.pt'), 'dump.safetensors')"
}

test_the_operator_may_be_left_out_where_one_fits() {
  cp "$FIXTURES"/oracle/gdn_bf16.inputs.safetensors "$FIXTURES"/oracle/gdn_bf16.hf_chunk.outputs.safetensors .
  expect 0 "$GDNCTL" oracle compare gdn_bf16.inputs.safetensors gdn_bf16.hf_chunk.outputs.safetensors
  out_has 'verdict: OK'
  expect 0 "$GDNCTL" oracle verify --kernel builtin:chunk --case golden
  expect 0 "$GDNCTL" oracle verify --kernel "src:$REPO/examples/cpu-ce/kernel.c" --case small_logits
  out_has 'verdict: OK'
  expect 2 "$GDNCTL" oracle verify --kernel builtin:fused
  err_has '--kernel builtin:fused does not say which is meant'
  err_has 'OP: gdn or linear-ce'
  expect 2 "$GDNCTL" oracle compare gnd in.npz out.npz
  err_has 'did you mean `gdn`?'
  expect 2 "$GDNCTL" oracle compare in.npz
  err_has 'the argument OUT is missing'
  expect 2 "$GDNCTL" oracle compare gdn in.npz out.npz --inputs in.npz
  err_has 'IN and OUT cannot be combined with --inputs and --outputs'
}

test_names_of_transformers_are_read() {
  command -v python3 >/dev/null || skip 'python3 is not installed'
  expect 0 "$GDNCTL" oracle run gdn --shape 1,2,4,64,16,16 --contract hf --set head_map=interleaved --out in.npz
  # The members of a .npz are named for the tensors.
  python3 - <<'P' || fail 'cannot rename'
import zipfile
names = {"out.npy": "core_attn_out.npy", "final_state.npy": "last_recurrent_state.npy"}
with zipfile.ZipFile("in.npz") as file, zipfile.ZipFile("out.npz", "w") as renamed:
    for old, new in names.items():
        renamed.writestr(new, file.read(old))
P
  expect 0 "$GDNCTL" oracle compare gdn in.npz out.npz --contract hf
  out_has last_recurrent_state
  out_has 'verdict: OK'
}

test_a_name_with_hyphens_finds_the_one_with_blanks() {
  expect 2 "$GDNCTL" evolve-log
  err_has 'did you mean `gdnctl evolve log`?'
  expect 2 "$GDNCTL" oracle-verify gdn
  err_has 'did you mean `gdnctl oracle verify`?'
}

test_words_for_commands_of_other_programs_are_understood() {
  local word meant
  while IFS='|' read -r word meant; do
    expect 2 "$GDNCTL" $word
    err_has "did you mean \`gdnctl $meant\`"
  done <<'WORDS'
clean|loop-clean
prune|loop-clean
html|loop-report
dashboard|loop-status
correctness|oracle verify
shell|dev-tpu-connect
target|config show
start|codex-loop
commit|log stamp
export|trace export
tset|ray-test
tpu list|dev-tpu-list
evolve list|evolve log
evolve report|loop-report
evolve status|loop-status
log list|log summary
oracle test|oracle verify
trace compare|trace diff
WORDS
  expect 0 "$GDNCTL" help verify
  out_has 'gdnctl oracle verify'
}

test_a_missing_file_is_named_without_a_hint_about_options() {
  expect 2 "$GDNCTL" oracle compare in.npz out.npz
  err_has 'in.npz: No such file or directory'
  err_lacks 'shows the options'
  expect 2 "$GDNCTL" oracle verify gdn --kernel src:kernel.c
  err_lacks 'shows the options'
}

test_a_kernel_without_its_kind_is_suggested_with_it() {
  expect 2 "$GDNCTL" oracle verify gdn --kernel kernel.c
  err_has 'did you mean `src:kernel.c`?'
  expect 2 "$GDNCTL" oracle verify gdn --kernel my_gdn.py
  err_has 'did you mean `py:./my_gdn.py`?'
  expect 2 "$GDNCTL" oracle verify linear-ce --kernel ./libce.so
  err_has 'did you mean `lib:./libce.so`?'
}
