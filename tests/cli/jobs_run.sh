# Submitting jobs to the local backend and following them to their end.

setup() {
  printf 'target = "t"\n[targets.t]\ntest = ["sh", "-c", %s]\n' "$1" >gdnctl.toml
}
jobs_left() { pgrep -f "$1" >/dev/null; }
job_id() { sed -n 's/.*Job submitted with ID: *\([^ ]*\).*/\1/p' "$WORK/err" | tail -1; }
status_of() { "$GDNCTL" ray-list --cluster local --json 2>/dev/null | grep -o "\"submission_id\":\"$1\",\"status\":\"[A-Z]*\"" | sed 's/.*:"\(.*\)"/\1/'; }
wait_status() { # ID STATUS
  for _ in $(seq 600); do [ "$(status_of "$1")" = "$2" ] && return; sleep 0.05; done
  fail "job $1 never became $2: $(status_of "$1")"
}

test_succeeds_and_prints_its_log() {
  setup '"echo to-out; echo to-err >&2"'
  expect 0 "$GDNCTL" ray-test --cluster local
  printf 'to-out\nto-err\n' | cmp - "$WORK/out" || fail "the log is not exactly what the job wrote"
  err_has '[gdnctl] Job submitted with ID: gdnctl-test-'
  err_has '[gdnctl] Job URL: file://'
  err_has 'status=SUCCEEDED Job finished successfully.'
  err_lacks 'no cluster at hand'
  grep -Eq '^\[[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}\] gdnctl-test-[A-Za-z0-9_-]+ status=' "$WORK/err" ||
    fail "no status line"
  grep -Eq '^\{.*"kind":"test".*\}$' "$XDG_STATE_HOME/gdnctl/jobs.jsonl" || fail "not in jobs.jsonl"
}

test_git_variables_of_the_caller_lead_nowhere() {
  git init -q other && git -C other commit -q --allow-empty -m elsewhere
  git init -q here && cd here || exit
  setup '"true"'
  git add -A && git commit -qm here
  GIT_DIR=$PWD/../other/.git GIT_WORK_TREE=$PWD/../other expect 0 "$GDNCTL" ray-test --cluster local --submission-id g
  grep -q "\"git_sha\": *\"$(git rev-parse HEAD)\"" "$XDG_STATE_HOME"/gdnctl/local/jobs/g/job.json ||
    fail "the sha of another repository: $(cat "$XDG_STATE_HOME"/gdnctl/local/jobs/g/job.json)"
  setup '"env"'
  GIT_DIR=$PWD/../other/.git GIT_WORK_TREE=$PWD/../other GIT_INDEX_FILE=$PWD/../other/i GIT_PREFIX=sub/ \
    expect 0 "$GDNCTL" ray-test --cluster local
  out_has PATH=
  grep -E '^GIT_(DIR|WORK_TREE|INDEX_FILE|PREFIX)=' "$WORK/out" && fail 'the job gets them'
  true
}

test_a_token_in_the_log_is_not_kept_in_the_record() {
  echo hf_abcdefghijklmnopqrstuvwx >token
  setup "\"cat $PWD/token; exit 3\""
  expect 1 "$GDNCTL" ray-test --cluster local --submission-id leak
  out_has hf_abcdefghijklmnopqrstuvwx
  ! grep -rq abcdefghijklmnopqrstuvwx "$XDG_STATE_HOME"/gdnctl/local/jobs/leak/job.json || fail 'in the state file'
  err_lacks abcdefghijklmnopqrstuvwx
  expect 1 "$GDNCTL" ray-wait --cluster local leak
  err_lacks abcdefghijklmnopqrstuvwx
}

test_default_backend_says_so() {
  setup '"true"'
  expect 0 "$GDNCTL" ray-test
  err_has '[gdnctl] no cluster at hand: using the local backend (this host, no TPU)'
}

test_failure_is_exit_1() {
  setup '"echo broken; exit 7"'
  expect 1 "$GDNCTL" ray-test --cluster local
  err_has 'JOB_ENTRYPOINT_COMMAND_ERROR, exit code 7'
}

test_json_is_one_object_and_the_log_goes_to_stderr() {
  setup '"echo in-the-log; echo verdict: WRONG; exit 1"'
  expect 1 "$GDNCTL" ray-test --cluster local --json
  [ "$(wc -l <"$WORK/out")" = 1 ] || fail "not one line"
  out_has '{"schema":"gdnctl.ray-test/1","backend":"local","cluster":"local","address":'
  out_has '"status":"FAILED","error_type":"JOB_ENTRYPOINT_COMMAND_ERROR"'
  out_has '"failure_class":"user","driver_exit_code":1,"start_time":'
  out_has '"target":"t","tests":null,"device":null,"verdict":{"overall":"WRONG","cases":0,"vectors":0,"counts":{}},"tpu_evidence":false'
  err_has 'in-the-log'
}

test_no_wait_prints_the_id() {
  setup '"echo later"'
  expect 0 "$GDNCTL" ray-test --cluster local --no-wait --submission-id my-job
  printf '[gdnctl] submission_id=my-job\n' | cmp - "$WORK/out" || fail "stdout"
  expect 0 "$GDNCTL" ray-wait --cluster local my-job --poll 0.05 --show-logs
  printf 'later\n' | cmp - "$WORK/out" || fail "log"
  expect 2 "$GDNCTL" ray-test --cluster local --submission-id my-job
  err_has 'Job with submission_id my-job already exists. Please use a different submission_id.'
}

test_the_job_sees_a_copy_of_the_repository() {
  git init -q . && echo one >tracked && mkdir docs && echo d >docs/x && echo secret >ignored && echo ignored >.gitignore
  git add tracked docs .gitignore && git commit -qm init
  echo two >untracked && rm -f gone
  setup '"ls; ls -a | grep -c ignored; git rev-parse 2>/dev/null; echo changed >tracked"'
  expect 0 "$GDNCTL" ray-test --cluster local
  out_has tracked
  out_has untracked
  out_lacks docs
  grep -qx one tracked || fail "the job changed the repository"
  expect 0 "$GDNCTL" ray-test --cluster local --working-dir none
  out_lacks tracked
}

test_environment_options() {
  setup '"echo [$A] [$B] [$RAY_ADDRESS] [$GDNCTL_SUBMISSION_ID]"'
  RAY_ADDRESS=127.0.0.1:6379 expect 0 "$GDNCTL" ray-test --cluster local -e A=x=y -e B= -e ' ' --submission-id e-1
  printf '[x=y] [] [] [e-1]\n' | cmp - "$WORK/out" || fail "environment"
  for bad in MISSING_EQUALS 1BAD=v =v; do
    expect 2 "$GDNCTL" ray-test --cluster local -e "$bad"
  done
  expect 0 "$GDNCTL" ray-test --cluster local -e TOKEN=hunter2hunter2
  err_has 'environment of the job: TOKEN'
  err_lacks hunter2
  ! grep -r hunter2 "$XDG_STATE_HOME" || fail "the value is in the state directory"
}

test_a_named_cluster_never_becomes_local() {
  setup '"echo ran"'
  mkdir "$WORK/bin" && printf '#!/bin/sh\n' >"$WORK/bin/gcloud" && chmod +x "$WORK/bin/gcloud"  # finds no head node
  PATH=$WORK/bin:$PATH
  expect 2 "$GDNCTL" ray-test --cluster mars
  err_has 'No cluster config found for region mars'
  git init -q . && mkdir infra && echo 'cluster_name: x' >infra/marin-us-central1.yaml
  expect 4 "$GDNCTL" ray-test --cluster us-central1
  expect 4 "$GDNCTL" ray-test
  expect 2 "$GDNCTL" ray-test --cluster mars
  err_has us-central1
  expect 4 "$GDNCTL" ray-test --cluster-config infra/marin-us-central1.yaml
  expect 4 "$GDNCTL" ray-list --ray-address http://127.0.0.1:1
  rm -r infra
  RAY_API_SERVER_ADDRESS=http://127.0.0.1:1 expect 4 "$GDNCTL" ray-test
  GDNCTL_CLUSTER=us-east5-a expect 2 "$GDNCTL" ray-test
  RAY_ADDRESS=127.0.0.1:6379 expect 0 "$GDNCTL" ray-test
  err_has 'RAY_ADDRESS=127.0.0.1:6379 is not a dashboard address: ignored'
  expect 4 "$GDNCTL" ray-test --no-local
  GDNCTL_NO_LOCAL=1 expect 4 "$GDNCTL" ray-test --cluster local
  [ "$("$GDNCTL" ray-list --cluster local 2>/dev/null | grep -c SUCCEEDED)" = 1 ] || fail "something else ran"
}

test_options_that_local_cannot_serve() {
  setup '"true"'
  echo torch >req.txt
  expect 2 "$GDNCTL" ray-test --cluster local --pip-requirements req.txt
  expect 2 "$GDNCTL" ray-test --cluster local --working-dir gs://bucket/x.zip
  expect 2 "$GDNCTL" ray-test --cluster local --working-dir nowhere
  expect 2 "$GDNCTL" ray-test --cluster local --pytest-args -x
  expect 2 "$GDNCTL" ray-test --cluster local --require-passed 3
  expect 2 "$GDNCTL" ray-test --cluster local --tpu v5p-128
  err_has 'Only single tpu nodes are supported with the CLI'
  expect 2 "$GDNCTL" ray-test --cluster local --submission-id latest
  expect 2 "$GDNCTL" ray-profile --cluster local
  err_has "target 't' has no profile"
  [ ! -e "$XDG_STATE_HOME/gdnctl/local/jobs" ] || [ -z "$(ls -A "$XDG_STATE_HOME/gdnctl/local/jobs")" ] || fail "a job was made"
}

test_a_job_over_the_targets_time_is_stopped() {
  printf 'target = "t"\n[targets.t.test]\nargv = ["sh", "-c", "echo up; sleep 300"]\ntimeout_s = 1\n' >gdnctl.toml
  expect 124 "$GDNCTL" ray-test --cluster local --submission-id slow
  [ "$(status_of slow)" = STOPPED ] || fail "not stopped: $(status_of slow)"
}

test_client_killed_the_job_still_succeeds() {
  setup '"echo up; while [ ! -e '"$WORK"'/go ]; do sleep 0.05; done; echo end"'
  "$GDNCTL" ray-test --cluster local --submission-id survivor >"$WORK/o" 2>&1 &
  local client=$!
  for _ in $(seq 600); do grep -q up "$WORK/o" && break; sleep 0.05; done
  kill -9 $client
  wait $client 2>/dev/null
  touch "$WORK/go"
  expect 0 "$GDNCTL" ray-wait --cluster local survivor --poll 0.05 --show-logs
  out_has end
}

interrupt() { # SIGNAL EXPECTED-CODE STATUS-AFTER EXTRA...
  local sig=$1 code=$2 after=$3 id="int-$1-$3"
  shift 3
  setup '"echo up; while [ ! -e '"$WORK"'/go ]; do sleep 0.05; done"'
  # bash starts background commands with SIGINT ignored; setsid and a fresh shell do not.
  python3 - "$sig" "$WORK/rc" "$GDNCTL" ray-test --cluster local --submission-id "$id" "$@" <<'P' >"$WORK/o" 2>&1
import os, signal, subprocess, sys, time
sig, rc, argv = sys.argv[1], sys.argv[2], sys.argv[3:]
signal.signal(signal.SIGINT, signal.SIG_DFL)
p = subprocess.Popen(argv, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
while b"up" not in p.stdout.readline():
    pass
p.send_signal(getattr(signal, sig))
open(rc, "w").write(str(p.wait()))
P
  [ "$(cat "$WORK/rc")" = "$code" ] || fail "exit $(cat "$WORK/rc") of $sig: $(cat "$WORK/o")"
  [ "$(status_of "$id")" = "$after" ] || fail "after $sig: $(status_of "$id")"
  touch "$WORK/go"
  expect 0 "$GDNCTL" ray-stop --cluster local "$id" --wait
  rm "$WORK/go"
}
test_ctrl_c_leaves_the_job_running() { interrupt SIGINT 130 RUNNING && grep -q 'gdnctl ray-wait --cluster local int-' "$WORK/o" || fail "no next commands"; }
test_sigterm_leaves_the_job_running() { interrupt SIGTERM 143 RUNNING; }
test_a_closed_terminal_leaves_the_job_running() { interrupt SIGHUP 130 RUNNING; }
test_ctrl_c_with_auto_stop_stops_the_job() { interrupt SIGINT 130 STOPPED --auto-stop; }

test_100_submits_at_once_as_processes() {
  local i
  printf 'target = "t"\n[targets.t.test]\nargv = ["sh", "-c", %s]\nresources = { SLOT = 1 }\n' \
    '"mkdir -p '"$WORK"'/busy; touch '"$WORK"'/busy/$GDNCTL_SUBMISSION_ID; n=$(ls '"$WORK"'/busy | wc -l); [ $n -le 4 ] || echo $n at once; rm '"$WORK"'/busy/$GDNCTL_SUBMISSION_ID"' >gdnctl.toml
  export GDNCTL_LOCAL_RESOURCES='{"SLOT":4}'
  for i in $(seq 100); do
    { "$GDNCTL" ray-test --cluster local --working-dir none --no-wait --submission-id "p-$i" >"$WORK/out-$i" 2>"$WORK/err-$i"
      echo $? >"$WORK/rc-$i"; } &
  done
  wait
  for i in $(seq 100); do
    [ "$(cat "$WORK/rc-$i")" = 0 ] || fail "submit $i: exit $(cat "$WORK/rc-$i"): $(cat "$WORK/err-$i")"
    [ "$(cat "$WORK/out-$i")" = "[gdnctl] submission_id=p-$i" ] || fail "submit $i says $(cat "$WORK/out-$i")"
  done
  for _ in $(seq 300); do
    "$GDNCTL" ray-list --cluster local --limit 200 >"$WORK/out" 2>"$WORK/err"
    grep -qE '^(PENDING|RUNNING)' "$WORK/out" || break
    sleep 0.2
  done
  [ "$(grep -cE '^SUCCEEDED .* p-[0-9]+$' "$WORK/out")" = 100 ] || fail "not all succeeded: $(grep -v ^SUCCEEDED "$WORK/out")"
  cat "$XDG_STATE_HOME"/gdnctl/local/jobs/p-*/log >"$WORK/logs"
  [ ! -s "$WORK/logs" ] || fail "more jobs at once than there were slots: $(head -3 "$WORK/logs")"
  [ "$(wc -l <"$XDG_STATE_HOME/gdnctl/jobs.jsonl")" = 100 ] || fail "$(wc -l <"$XDG_STATE_HOME/gdnctl/jobs.jsonl") submissions on record"
  [ "$(grep -oE '"submission_id":"p-[0-9]+"' "$XDG_STATE_HOME/gdnctl/jobs.jsonl" | sort -u | wc -l)" = 100 ] || fail "records are torn"
}

test_processes_that_submit_one_id_at_once() {
  local round i won lost
  setup '"echo once"'
  for round in 1 2 3; do
    for i in 1 2; do
      { "$GDNCTL" ray-test --cluster local --no-wait --submission-id "same-$round" >"$WORK/out-$i" 2>"$WORK/err-$i"
        echo $? >"$WORK/rc-$i"; } &
    done
    wait
    won='' lost=''
    for i in 1 2; do [ "$(cat "$WORK/rc-$i")" = 0 ] && won+=$i || lost+=$i; done
    [ ${#won} = 1 ] && [ "$(cat "$WORK/rc-$lost")" = 2 ] || fail "exit codes $(cat "$WORK/rc-1") and $(cat "$WORK/rc-2")"
    grep -qF "Job with submission_id same-$round already exists. Please use a different submission_id." "$WORK/err-$lost" ||
      fail "the loser says: $(cat "$WORK/err-$lost")"
    [ ! -s "$WORK/out-$lost" ] || fail "the loser printed an id"
    expect 0 "$GDNCTL" ray-wait --cluster local "same-$round" --poll 0.05 --show-logs
    printf 'once\n' | cmp - "$WORK/out" || fail "it did not run exactly once"
  done
  [ "$(wc -l <"$XDG_STATE_HOME/gdnctl/jobs.jsonl")" = 3 ] || fail "the losers are on record"
  [ -z "$(find "$XDG_STATE_HOME/gdnctl/local/jobs" -maxdepth 1 -name '.*' -type d)" ] || fail "left-overs"
}

test_a_folder_that_is_not_there_is_exit_2_and_no_job() {
  git init -q
  printf 'target = "t"\n[targets.t.test]\nargv = ["true"]\nworkdir = "nosuch"\n' >gdnctl.toml
  expect 2 "$GDNCTL" ray-test --cluster local
  err_has "target 't': its test runs in nosuch, which is not a folder with files in"
  mkdir nosuch  # git knows no empty folders, so the job would not find it
  expect 2 "$GDNCTL" ray-test --cluster local
  touch nosuch/file
  expect 0 "$GDNCTL" ray-test --cluster local --submission-id there
  expect 2 "$GDNCTL" ray-test --cluster local --working-dir absent
  err_has 'absent'
  expect 2 "$GDNCTL" ray-test --cluster local --target marin
  err_has 'lib/levanter'
  expect 0 "$GDNCTL" ray-list --cluster local --json
  [ "$(grep -o submission_id "$WORK/out" | wc -l)" = 1 ] || fail "more jobs than one"
}

test_json_after_a_signal() {
  setup '"echo up >&2; sleep 300"'
  for words in "130 RUNNING none" "130 STOPPED --auto-stop"; do
    set -- $words
    [ "$3" = none ] && option= || option=$3
    launch "$GDNCTL" ray-test --cluster local --json --submission-id "j-$2" $option
    for _ in $(seq 600); do grep -qx up "$WORK/err" && break; sleep 0.05; done
    kill -INT "$pid"
    wait "$pid"
    [ $? = "$1" ] || fail "exit code"
    [ "$(wc -l <"$WORK/out")" = 1 ] || fail "not one object"
    out_has "\"submission_id\":\"j-$2\",\"status\":\"$2\""
    err_has interrupted
  done
  launch "$GDNCTL" ray-wait --cluster local --json j-RUNNING
  for _ in $(seq 600); do grep -q RUNNING "$WORK/err" && break; sleep 0.05; done
  kill -INT "$pid"
  wait "$pid"
  [ $? = 130 ] || fail "exit code of ray-wait"
  out_has '"schema":"gdnctl.ray-wait/1"'
  out_has '"status":"RUNNING"'
  expect 0 "$GDNCTL" ray-stop --cluster local j-RUNNING --wait
}

test_ctrl_c_while_packing_submits_nothing() {
  git init -q
  printf 'target = "t"\n[targets.t]\ntest = ["true"]\n' >gdnctl.toml
  truncate -s 3900M large  # nothing on disk, seconds to pack
  launch "$GDNCTL" ray-test --cluster local --json --submission-id packed
  for _ in $(seq 600); do [ -n "$(find "$XDG_STATE_HOME" -name package.zip -size +1 2>/dev/null)" ] && break; sleep 0.05; done
  kill -INT "$pid"
  wait "$pid"
  [ $? = 130 ] || fail "exit code"
  out_has '"submission_id":"packed","status":null'
  expect 6 "$GDNCTL" ray-wait --cluster local packed
  [ -z "$(find "$XDG_STATE_HOME" -name package.zip)" ] || fail "a package is left"
}

test_files_that_nobody_added_make_the_tree_dirty() {
  git init -q . && git -c user.name=t -c user.email=t@example.org commit -q --allow-empty -m start
  expect 0 "$GDNCTL" ray-test --cluster local --target cpu-gdn --dry-run --json
  out_has '"dirty":"false"'
  echo new >new.txt
  expect 0 "$GDNCTL" ray-test --cluster local --target cpu-gdn --dry-run --json
  out_has '"dirty":"true"'
}

submodule() { # NAME FOLDER: a repository with one file, as a submodule
  git init -q "$WORK/$1" && echo "of $1" >"$WORK/$1/$1.c" && echo '*.o' >"$WORK/$1/.gitignore"
  git -C "$WORK/$1" add . && git -C "$WORK/$1" commit -qm init
  git -c protocol.file.allow=always submodule add -q "$WORK/$1" "$2" 2>/dev/null
}

test_submodules_and_folders_behind_links_are_in_the_package() {
  git init -q . && mkdir src && echo f >src/f.c && echo a >a.txt
  submodule inner vendor
  (cd "$WORK/inner" && submodule deep third && git commit -qm deep)
  git -C vendor -c protocol.file.allow=always pull -q && git -C vendor -c protocol.file.allow=always submodule update -q --init
  echo x >vendor/built.o && echo new >vendor/new.c
  git init -q nested && echo n >nested/n.c  # a repository that nobody has added
  ln -s src code && ln -s vendor/third linked && ln -s a.txt file && mkdir sub && ln -s ../code sub/again
  setup '"find . -name .git -prune -o -type f -print | LC_ALL=C sort"'
  git add . 2>/dev/null && git commit -qm all
  expect 0 "$GDNCTL" ray-test --cluster local
  diff "$WORK/out" - <<'TEXT' || fail "other files"
./.gitmodules
./a.txt
./code/f.c
./file
./gdnctl.toml
./linked/.gitignore
./linked/deep.c
./nested/n.c
./src/f.c
./sub/again/f.c
./vendor/.gitignore
./vendor/.gitmodules
./vendor/inner.c
./vendor/new.c
./vendor/third/.gitignore
./vendor/third/deep.c
TEXT
  err_lacks "not in the job's working directory"
  # Without git the links lead as far.
  find . -name .git -prune -exec rm -rf {} +
  expect 0 "$GDNCTL" ray-test --cluster local
  for file in ./code/f.c ./sub/again/f.c ./linked/deep.c; do out_has "$file"; done
}

test_what_is_left_out_of_the_package_is_named() {
  git init -q . && echo a >a.txt
  submodule inner vendor
  mkdir build sub && echo build >.gitignore && echo o >build/o
  ln -s build out && ln -s nowhere broken && ln -s . self && ln -s .. sub/up
  setup '"find . -type f | LC_ALL=C sort"'
  git add . && git commit -qm all && git submodule -q deinit -f vendor
  expect 0 "$GDNCTL" ray-test --cluster local --dry-run
  expect 0 "$GDNCTL" ray-test --cluster local
  err_has "not in the job's working directory: vendor (a submodule that is not checked out: git submodule update --init)"
  err_has 'out (a link to a folder without tracked files)'
  err_has 'broken (a broken link)'
  err_has 'self (a link to a folder that contains it)'
  err_has 'sub/up (a link to a folder that contains it)'
  out_has ./a.txt
  # Links that lead to each other's folders: finite, and said.
  mkdir p q && echo 1 >p/1 && echo 2 >q/2 && ln -s ../q p/q && ln -s ../p q/p
  expect 0 "$GDNCTL" ray-test --cluster local
  out_has ./p/q/2
  out_has ./q/p/1
  err_has 'p/q/p (a link to a folder that contains it)'
  # A deleted folder of a submodule is like a deleted file.
  rm -rf vendor
  expect 0 "$GDNCTL" ray-test --cluster local
  err_lacks vendor
  ln -s /usr outside
  expect 8 "$GDNCTL" ray-test --cluster local
  err_has 'outside'
}
