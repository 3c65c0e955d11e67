# Kernels that are Python functions: every fault, in the first call and in a later one, and what is left afterwards.
PY=''
for each in /usr/bin/python3 python3; do "$each" -c 'import numpy' 2>/dev/null && PY=$each && break; done

# An adapter that computes as it should, and does something else where $FAULT says so: in call number $AT (1 to 6).
adapter() {
    [ -n "$PY" ] || skip 'no python3 with numpy'
    cat >mine.py <<'PYTHON'
import os
import sys

import numpy as np

framework = os.environ.get("FRAMEWORK", "numpy")
contract = "marin"
fields = {"head_map": "interleaved"}
FAULT, AT, calls = os.environ.get("FAULT", ""), int(os.environ.get("AT", "1")), [0]
if FAULT == "import": import no_such_module
if FAULT == "syntax": exec("def f(:")
if FAULT == "exit": sys.exit(3)
if FAULT == "_exit": os._exit(3)
if FAULT in ("prints", "prints in import"):
    print('{"id": 1, "error": {}}')
    os.write(1, b"by C\n")


def supports(case):
    return {"no": False, "why": "needs dk = 999"}.get(FAULT, True)


def compute(q, k, v, g, beta, s, contract, case):
    B, T, Hv = g.shape
    r = case["Hv"] // case["Hk"]
    q, k = (np.repeat(x.astype(np.float64), r, axis=2) for x in (q, k))
    q, k = (x / np.sqrt((x * x).sum(-1, keepdims=True) + contract["eps"]) for x in (q, k))
    q = q * case["dk"] ** -0.5
    out = np.zeros(v.shape)
    S = np.zeros((B, Hv, case["dk"], case["dv"])) if s is None else s.astype(np.float64)
    for t in range(T):
        S = S * np.exp(g[:, t].astype(np.float64))[..., None, None]
        d = beta[:, t, :, None] * (v[:, t] - np.einsum("bhkv,bhk->bhv", S, k[:, t]))
        S = S + np.einsum("bhk,bhv->bhkv", k[:, t], d)
        out[:, t] = np.einsum("bhkv,bhk->bhv", S, q[:, t])
    return out.astype(np.float32), S.astype(np.float32)


def forward(fn, q, k, v, g, beta, initial_state, *, cu_seqlens=None, scale=None, contract, case):
    calls[0] += 1
    hit = calls[0] == AT
    if FAULT == "prints": os.write(1, b"{}\n")
    if FAULT == "floods": sys.stderr.write("x" * 79 + "\n" * (26_000_000 // 80))
    if FAULT == "reads" and os.read(0, 1) != b"": raise RuntimeError("read something")
    if FAULT == "forks" and hit and os.fork() == 0:
        if os.environ.get("DAEMON"): os.setsid()
        import time
        time.sleep(7013)
    if hit:
        if FAULT == "raises": raise ValueError("of no use")
        if FAULT == "input": input()
        if FAULT == "long": raise ValueError("y" * 10_000_000)
        if FAULT == "not implemented": raise NotImplementedError("only dk = 64")
        if FAULT == "sleeps": import time; time.sleep(600)
        if FAULT == "stubborn":
            import signal, time
            for s in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP): signal.signal(s, signal.SIG_IGN)
            open("asleep", "w").close()
            while True: time.sleep(600)
        if FAULT == "dies": os._exit(0)
        if FAULT == "segfault": os.kill(os.getpid(), 11)
        if FAULT == "closes": os.closerange(0, 4096); import time; time.sleep(600)
        if FAULT == "memory": np.zeros(2**58, np.uint8)
        if FAULT == "deletes":
            import glob, shutil
            for folder in glob.glob("/dev/shm/gdnctl-tensors.*") + glob.glob(os.environ["TMPDIR"] + "/gdnctl-kernel.*"):
                shutil.rmtree(folder, ignore_errors=True)
        if FAULT == "writes": q[...] = 0
        if FAULT == "none": return None
        if FAULT == "three": return 1, 2, 3
    if FAULT == "remembers" and calls[0] > 1: return tuple(x.copy() for x in first)
    out, state = compute(q, k, v, g, beta, initial_state, contract, case)
    if hit:
        if FAULT == "shape": out = out[:, :, :, :-1]
        if FAULT == "double": out = out.astype(np.float64)
        if FAULT == "list": out = out.tolist()
        if FAULT == "nan": out[0, 0] = np.nan
        if FAULT == "wrong": out *= 1.01
    if FAULT == "no state": state = None
    globals().setdefault("first", (out, state))
    return out, state
PYTHON
}

# verify CODE FAULT AT [ARGUMENT...]: of three small cases.
verify() {
    local code=$1 fault=$2 at=$3
    shift 3
    expect "$code" "$GDNCTL" oracle verify gdn --kernel py:mine.py --python "$PY" --env "FAULT=$fault" --env "AT=$at" \
        --case device_001 --case device_006 --case marin_7_C4 "$@"
    ! pgrep -f "$TMPDIR/gdnctl-kernel" >/dev/null || fail "a process is left: $(pgrep -af "$TMPDIR/gdnctl-kernel")"
    [ -z "$(ls "$TMPDIR")" ] || fail "left in TMPDIR: $(ls "$TMPDIR")"
}

test_an_honest_function_is_ok_and_the_verdict_says_where_it_ran() {
    adapter
    verify 0 '' 1
    out_has 'network: open'
    grep -A1 '^verdict: OK (3 cases)' "$WORK/out" | grep -q '^on: numpy [0-9.]*, cpu' || fail 'no second line'
    verify 0 '' 1 --json
    jq -e '.environment.framework == "numpy" and .environment.variables.FAULT == "" and .groups == [] and
           .kernel == "py:mine.py" and .network_barrier == "open"' "$WORK/out" >/dev/null || fail 'not the promised JSON'
    verify 0 '' 1 --no-network
    out_has 'network: blocked'
}

test_an_adapter_that_cannot_be_imported_is_no_entry_point() {
    adapter
    for fault in import syntax exit _exit; do
        verify 9 "$fault" 1
        out_has 'NO_ENTRY_POINT'
    done
    verify 9 import 1
    out_has "No module named 'no_such_module'"
    verify 9 '' 1 --env FRAMEWORK=tensorflow
    out_has 'framework = '
    echo 'framework = "numpy"' >empty.py
    expect 9 "$GDNCTL" oracle verify gdn --kernel py:./empty.py --python "$PY" --case device_001
    out_has 'no function forward()'
    expect 9 "$GDNCTL" oracle verify gdn --kernel py:mine.py:no.such.function --python "$PY" --case device_001
    out_has "No module named 'no'"
}

test_what_is_no_interpreter_or_no_adapter_is_a_usage_error() {
    adapter
    expect 2 "$GDNCTL" oracle verify gdn --kernel py:mine.py --python ./no-such-python --case device_001
    err_has 'cannot run Python kernels with'
    expect 2 "$GDNCTL" oracle verify gdn --kernel py:mine.py --python true --case device_001
    expect 2 "$GDNCTL" oracle verify gdn --kernel py:mine.py --python "sleep 600;" --time-limit 0.5 --case device_001
    err_has 'no result after 0.5 s'
    expect 2 "$GDNCTL" oracle verify gdn --kernel py:mine.py --python 'echo {}' --case device_001
    expect 2 "$GDNCTL" oracle verify gdn --kernel py:mine.py --env FAULT --case device_001
    err_has 'expected NAME=VALUE'
    expect 2 "$GDNCTL" oracle verify gdn --kernel py:nothing --case device_001
    err_has 'known: '
    expect 2 "$GDNCTL" oracle verify gdn --kernel py:no/such.py --case device_001
    err_has 'no such adapter: no/such.py'
    expect 2 "$GDNCTL" oracle verify gdn --kernel builtin:chunk --python python3 --case t_hand
    err_has 'are for py: kernels'
}

test_what_a_kernel_prints_reads_and_forks_is_no_harm() {
    adapter
    for fault in prints floods reads forks; do verify 0 "$fault" 1; done
    verify 0 forks 4 --env DAEMON=1
    ! pgrep -f 'sleep.7013' >/dev/null || fail 'a child is left'
}

test_exceptions_are_refused_and_other_cases_are_judged() {
    adapter
    for at in 1 4; do
        verify 1 raises $at
        out_has 'REFUSED'
        out_has 'ValueError: of no use'
        out_has '(3 cases; 1 failed)'
        verify 1 input $at
        out_has 'EOFError'
        verify 1 long $at
        [ "$(wc -c <"$WORK/out")" -lt 8000 ] || fail "$(wc -c <"$WORK/out") bytes"
        verify 1 'not implemented' $at
        out_has 'UNSUPPORTED'
        verify 1 memory $at
        out_has 'MEMORY_LIMIT'
        out_has '3 cases'
    done
}

test_wrong_results_are_told_apart() {
    adapter
    for at in 1 4; do
        for fault in none three shape double list; do
            verify 9 $fault $at
            out_has 'WRONG_SHAPE'
        done
        verify 1 nan $at
        out_has 'NON_FINITE'
        verify 1 writes $at
        out_has 'wrote to input q'
        verify 1 wrong $at
        out_has 'WRONG '
    done
    verify 1 wrong 2
    out_has 'UNSTEADY'
    verify 1 remembers 1
    grep -qE 'UNSTEADY|WRONG' "$WORK/out" || fail 'not seen'
    verify 0 'no state' 1
    out_has 'final_state was not returned: not judged'
}

test_a_kernel_that_ends_its_process_is_crashed_and_the_rest_is_judged() {
    adapter
    for at in 1 4; do
        for fault in dies segfault closes; do
            # A new process counts its calls from 1, and so dies in its first call again.
            [ $at = 1 ] && cases='3 cases; 3 failed' || cases='3 cases; 1 failed'
            verify 1 $fault $at
            out_has 'CRASHED'
            out_has "($cases"
        done
    done
}

test_after_three_in_a_row_it_stops() {
    adapter
    expect 1 "$GDNCTL" oracle verify gdn --kernel py:mine.py --python "$PY" --env FAULT=dies --case 'device_00*'
    out_has '; 3 failed, 6 not run)'
}

test_a_time_limit_is_124() {
    adapter
    verify 124 sleeps 4 --time-limit 2
    out_has 'TIMED_OUT'
    out_has '(3 cases; 1 failed)'
}

test_a_deleted_folder_costs_at_most_its_case() {
    adapter
    for at in 1 4; do
        "$GDNCTL" oracle verify gdn --kernel py:mine.py --python "$PY" --env FAULT=deletes --env "AT=$at" \
            --case device_001 --case device_006 --case marin_7_C4 >"$WORK/out" 2>"$WORK/err"
        case $? in 0 | 1) ;; *) fail 'another exit code' ;; esac
        grep -qE '^verdict: [A-Z_]* \(3 cases(; 1 failed)?\)$' "$WORK/out" || fail 'the rest was not judged'
    done
}

test_a_case_that_is_not_supported_is_skipped_and_nothing_judged_is_no_data() {
    adapter
    verify 9 no 1
    out_has 'not supported'
    out_has 'verdict: NO_DATA'
    verify 9 why 1
    out_has '3  needs dk = 999'
}

# The test of a process that is asked to end: which signal, and the exit code.
ended_by() {
    local signal=$1 code=$2 at
    adapter
    rm -f asleep
    launch "$GDNCTL" oracle verify gdn --kernel py:mine.py --python "$PY" --env FAULT=stubborn --case device_001
    for at in $(seq 200); do [ -e asleep ] && break; sleep 0.05; done
    [ -e asleep ] || fail 'it was never called'
    tensors=$(pgrep -af "$TMPDIR/gdnctl-kernel" | sed -n 's/.* --tensors \([^ ]*\) .*/\1/p')
    [ -d "$tensors" ] || fail "no folder of tensors: $tensors"
    kill -"$signal" $pid
    wait $pid
    local got=$?
    [ $got = "$code" ] || fail "exit code $got, expected $code"
    for at in $(seq 100); do pgrep -f "$TMPDIR/gdnctl-kernel" >/dev/null || break; sleep 0.05; done
    ! pgrep -f "$TMPDIR/gdnctl-kernel" >/dev/null || fail "left: $(pgrep -af "$TMPDIR/gdnctl-kernel")"
    [ -z "$(ls "$TMPDIR")" ] && [ ! -e "$tensors" ] || fail "left: $(ls -d "$TMPDIR"/* "$tensors")"
}
test_ctrl_c_in_a_call_ends_a_kernel_that_ignores_signals() { ended_by INT 130; }
test_sigterm_in_a_call_ends_it() { ended_by TERM 143; }
test_kill_9_leaves_neither_process_nor_file() { ended_by KILL 137; }

test_secrets_do_not_reach_it() {
    adapter
    cat >>mine.py <<'PYTHON'
bad = [n for n, v in os.environ.items() if "s3cret" in v]
if bad: raise RuntimeError(f"sees {bad}")
PYTHON
    expect 0 env HF_TOKEN=s3cret WANDB_API_KEY=s3cret AWS_SECRET_ACCESS_KEY=s3cret "$GDNCTL" oracle verify gdn \
        --kernel py:mine.py --python "$PY" --case device_001
}

# An ordinary user's process may read the memory and the environment of its ancestors unless they forbid it.
test_it_reads_neither_memory_nor_environment_of_gdnctl() {
    adapter
    cat >>mine.py <<'PYTHON'
ours = open(f"/proc/{os.getppid()}/stat").read().rsplit(")", 1)[1].split()[1]  # the keeper's parent
for name, mode in ("environ", "rb"), ("mem", "rb"), ("mem", "r+b"):
    try:
        open(f"/proc/{ours}/{name}", mode)
    except OSError:
        continue
    raise RuntimeError(f"may open {name}")
PYTHON
    expect 0 "$GDNCTL" oracle verify gdn --kernel py:mine.py --python "$PY" --case device_001
    powerless
    chmod 777 "$TMPDIR" "$WORK/cwd"
    expect 0 "${as[@]}" "$GDNCTL" oracle verify gdn --kernel py:mine.py --python "$PY" --case device_001
}

test_a_secret_among_its_variables_is_not_printed() {
    adapter
    verify 0 '' 1 --env MY_TOKEN=s3cret
    out_has 'MY_TOKEN=***'
    out_lacks s3cret
    verify 0 '' 1 --env MY_TOKEN=s3cret --json
    out_lacks s3cret
    verify 0 '' 1 --env MY_TOKEN=s3cret --save-failures failed -v
    out_lacks s3cret
}

test_what_it_says_changes_nothing_on_a_terminal() {
    adapter
    cat >>mine.py <<'PYTHON'
def forward(*arguments, **named):
    exec(compile('raise ValueError("\\x1b[2J")', "\x1b[2J.py", "exec"))
PYTHON
    verify 1 '' 1
    out_has '\x1b[2J'
    ! grep -q "$(printf '\033')" "$WORK/out" || fail 'a control character is printed'
}

test_a_shared_memory_without_room_is_not_used() {
    adapter
    unshare -m true 2>/dev/null || skip 'mounting a small /dev/shm needs root'
    # $WORK may be below it.
    expect 0 unshare -m sh -c 'mount --bind "$WORK" /mnt && mount -t tmpfs -o size=256k none /dev/shm && mkdir -p "$WORK" &&
        mount --bind /mnt "$WORK" && cd "$PWD" && exec "$@"' sh "$GDNCTL" oracle verify gdn --kernel py:mine.py --python "$PY" --case device_006
}

test_a_pipe_instead_of_results_ends_with_its_case() {
    adapter
    cat >>mine.py <<'PYTHON'
sys.modules["__main__"].write_tensors = lambda path, tensors: os.mkfifo(path)
PYTHON
    verify 1 '' 1
    out_has INCOMPLETE
}

test_two_at_once_do_not_meet() {
    adapter
    "$GDNCTL" oracle verify gdn --kernel py:mine.py --python "$PY" --case 'device_00[1-6]' >one 2>&1 &
    expect 0 "$GDNCTL" oracle verify gdn --kernel py:mine.py --python "$PY" --case 'device_00[1-6]'
    wait $! || fail "$(cat one)"
}

test_the_device_cases_are_few_shapes_with_every_pair_of_kinds() {
    expect 0 "$GDNCTL" oracle cases gdn --cases device --json
    jq -e '.cases | ([.[].signature] | unique | length) == 15 and (length >= 60 and length <= 120) and
           ([.[] | select(.passes | index("backward")) | .signature] | unique | length) <= 6 and
           ([.[] | select((.passes | index("forward")) and (.cu_seqlens == null)) | .signature] | unique | length) == 12' \
        "$WORK/out" >/dev/null || fail 'other shapes'
}

test_adapters_are_listed_and_printed() {
    expect 0 "$GDNCTL" oracle adapter
    for name in levanter fla transformers levanter-ce torch-ce; do out_has "$name "; done
    expect 0 "$GDNCTL" oracle adapter levanter
    out_has 'def forward(fn, q, k, v, g, beta, initial_state, *, cu_seqlens=None, scale=None, contract, case):'
    expect 0 "$GDNCTL" oracle adapter --host
    out_has 'def serve():'
    expect 2 "$GDNCTL" oracle adapter levant
    err_has 'known: '
}

# --- as a job, and on a held TPU --------------------------------------------------------------------------------------
repository() {
    adapter
    git init -q . && git add -A && git commit -qm 'A kernel'
}

test_as_a_local_job_the_verdict_there_is_the_verdict_here() {
    repository
    mkdir sub && cd sub || exit 1
    there() { "$GDNCTL" oracle verify gdn --kernel py:../mine.py --python "$PY" --cluster local --case 'device_00[1-4]' "$@"; }
    expect 0 there
    out_has 'verdict: OK (4 cases)'
    out_has 'on: numpy '
    out_lacks '{"schema"'
    expect 0 there --json
    jq -e '.schema == "gdnctl.oracle-verify/1" and .verdict == "OK" and .job.backend == "local" and .job.status == "SUCCEEDED"' \
        "$WORK/out" >/dev/null || fail 'not the promised JSON'
    err_has 'verdict: OK (4 cases)'
    expect 1 there --env FAULT=wrong
    out_has 'verdict: WRONG (4 cases; 1 failed)'
    expect 124 there --env FAULT=sleeps --time-limit 2
    expect 9 there --env FAULT=import
    expect 1 there --env FAULT=wrong --json
    jq -e '.verdict == "WRONG" and .job.driver_exit_code == 1' "$WORK/out" >/dev/null || fail 'not the promised JSON'
    expect 1 there --env FAULT=wrong --save-failures failed
    [ -e failed/device_001.outputs.safetensors ] || fail "$(ls failed)"
    expect 2 there --submission-id 'not/valid'
}

test_a_job_that_is_not_waited_for_is_no_verdict() {
    repository
    expect 0 "$GDNCTL" oracle verify gdn --kernel py:mine.py --python "$PY" --cluster local --case device_001 --no-wait --submission-id judged
    out_lacks 'verdict'
    expect 0 "$GDNCTL" ray-wait --cluster local --show-logs judged
    grep -qF 'verdict: OK (1 case)' "$WORK/out" "$WORK/err" || fail 'no verdict in its log'
}

# bench [ARGUMENT...]: mine.py, or what the arguments say.
bench() {
    "$GDNCTL" oracle bench gdn --python "$PY" --shape 1,1,2,32,16,16 --rounds 3 --runs 1 --threads 1 "$@"
}

test_times_of_a_local_job_are_printed_as_here() {
    adapter
    cp mine.py other.py
    git init -q . && git add -A && git commit -qm 'Two kernels'
    mkdir sub && cd sub || exit 1
    there() { bench --kernel py:../mine.py --cluster local "$@"; }
    expect 0 there --peer py:../other.py
    grep -qE '^py:./other.py is [0-9.]+x (slower|faster) than py:./mine.py ' "$WORK/out" || fail 'no ratio'
    out_lacks '{"schema"'
    expect 0 there --json
    jq -e '.schema == "gdnctl.oracle-bench/1" and .rounds == 3 and .shape.dk == 16 and .forward.verified and
           .environment.framework == "numpy" and .job.backend == "local" and .job.status == "SUCCEEDED"' "$WORK/out" >/dev/null ||
        fail 'not the promised JSON'
    err_has 'multiply-add peak'
    expect 1 there --env FAULT=wrong
    out_has 'not timed, because the result is wrong'
    expect 9 there --env FAULT=import
    expect 124 there --env FAULT=sleeps --time-limit 2
    expect 0 "$GDNCTL" oracle bench linear-ce --batch 8 --hidden 8 --vocab 32 --rounds 2 --runs 1 --threads 1 --cluster local --json
    jq -e '.op == "linear-ce" and .shape.vocab == 32 and .job.status == "SUCCEEDED"' "$WORK/out" >/dev/null || fail 'not its sizes'
    expect 2 bench --kernel py:../mine.py --no-wait
    err_has 'need --cluster or --tpu-name'
}

test_on_a_held_tpu_of_this_machine() {
    repository
    expect 0 "$GDNCTL" dev-tpu-allocate --cluster local --tpu-name here --detach
    expect 0 "$GDNCTL" oracle verify gdn --kernel py:mine.py --python "$PY" --cluster local --tpu-name here --case 'device_00[1-4]'
    out_has 'verdict: OK (4 cases)'
    expect 1 "$GDNCTL" oracle verify gdn --kernel py:mine.py --python "$PY" --cluster local --tpu-name here --case device_001 --env FAULT=wrong
    expect 0 bench --kernel py:mine.py --cluster local --tpu-name here --json
    jq -e '.schema == "gdnctl.oracle-bench/1" and .forward.verified and .job.status == "SUCCEEDED"' "$WORK/out" >/dev/null ||
        fail 'not the promised JSON'
    expect 0 "$GDNCTL" dev-tpu-release --cluster local --tpu-name here
}

test_options_of_a_job_need_a_place() {
    expect 2 "$GDNCTL" oracle verify gdn --kernel builtin:chunk --case t_hand --no-wait
    err_has 'need --cluster or --tpu-name'
}

# --- times ------------------------------------------------------------------------------------------------------------
test_times_are_of_right_results_with_a_ratio_and_its_interval() {
    adapter
    cp mine.py other.py
    mine() { bench --kernel py:mine.py "$@"; }
    expect 0 mine --peer py:other.py
    out_has 'network of py:mine.py: open'
    grep -qE '^py:other.py is [0-9.]+x (slower|faster) than py:mine.py \([0-9.]+-[0-9.]+x\)$' "$WORK/out" || fail 'no ratio'
    expect 0 mine --peer py:other.py --json
    jq -e '.environment.framework == "numpy" and .forward.verified and .forward.median_ms > 0 and .forward.peak_fraction == null and
           .peers[0].forward.ratio.low <= .peers[0].forward.ratio.median' "$WORK/out" >/dev/null || fail 'not the promised JSON'
    expect 1 mine --env FAULT=wrong
    out_has 'not timed, because the result is wrong'
    expect 9 mine --env FAULT=import
}

test_a_time_without_a_final_state_says_so() {
    adapter
    expect 0 bench --kernel py:mine.py --env 'FAULT=no state'
    out_has 'final_state was not returned: not judged'
    expect 0 bench --kernel py:mine.py --env 'FAULT=no state' --json
    jq -e '.forward.verified and .forward.not_returned == ["final_state"]' "$WORK/out" >/dev/null || fail 'not the promised JSON'
    expect 0 bench --kernel py:mine.py --json
    jq -e '.forward | has("not_returned") | not' "$WORK/out" >/dev/null || fail 'said of one that returns all'
}

test_timed_calls_rotate_among_three_buffers() {
    adapter
    cat >>mine.py <<'PYTHON'


seen = []


def forward(fn, q, *rest, of=forward, **named):
    address = q.__array_interface__["data"][0]
    if address in seen[-2:]: raise RuntimeError("q is where one of the last two was")
    seen.append(address)
    return of(fn, q, *rest, **named)
PYTHON
    expect 0 bench --kernel py:mine.py --shape 1,2,2,512,64,64 --rounds 4 --runs 3
}

# Two adapters with a library that looks like jax on a TPU. The first call in a program takes `dispatch` longer.
jax_adapters() {
    adapter
    cat >jax.py <<'PYTHON'
import time
import types

import numpy

__version__, programs, passed = "9.9", [0], [0]
time.perf_counter = lambda: passed[0]  # for the time on the device; exact on a busy machine as well
config = types.SimpleNamespace(jax_default_matmul_precision="highest")
tpu = types.SimpleNamespace(platform="tpu", device_kind="TPU v9", memory_stats=lambda: None)


class Array(numpy.ndarray):
    def is_deleted(self): return False


def devices(): return [tpu]
def device_count(): return 4
def device_put(array, device): return array.view(Array)
def block_until_ready(values): return values
def eval_shape(function, *given): return function(*given)


class jit:
    def __init__(self, function): self.function = function
    def lower(self, *_): return self
    def compile(self): return self
    def __call__(self, *given):
        programs[0] += 1
        return self.function(*given)


class lax:
    @staticmethod
    def dynamic_update_slice(array, values, first):
        array = array.copy()
        array[first] = values.reshape(())
        return array

    @staticmethod
    def fori_loop(first, last, step, state):
        for i in range(first, last): state = step(i, state)
        return state
PYTHON
    for name in mine other; do
        [ $name = mine ] || cp mine.py other.py
        cat >>$name.py <<PYTHON


import time

import jax

framework, backward, programs = "jax", None, [0]
if os.environ.get("PLATFORM"): jax.tpu.platform = os.environ["PLATFORM"]
dispatch, takes = (0, 0.012) if "$name" == "mine" else (0.1, 0.001)


def forward(*given, of=forward, **named):
    if programs[0] != jax.programs[0]: time.sleep(dispatch)
    programs[0] = jax.programs[0]
    jax.passed[0] += takes
    return tuple(x.view(jax.Array) for x in of(*given, **named))
PYTHON
    done
}

test_on_a_tpu_the_time_on_the_device_is_that_of_chained_calls() {
    jax_adapters
    expect 0 bench --kernel py:mine.py --peer py:other.py
    grep -qE '^  [0-9.]+ ms on the device$' "$WORK/out" || fail 'no time on the device'
    grep -qE '^  on the device [0-9.]+x faster \(' "$WORK/out" || fail 'no ratio there'
    out_has 'the two disagree about which is faster'
    expect 0 bench --kernel py:mine.py --peer py:other.py --chained 4 --json
    jq -e '.environment.platform == "tpu" and .forward.device_ms >= 12 and .peers[0].forward.device_ms < 50 and
           .peers[0].forward.ratio.low > 1 and .peers[0].forward.device_ratio.high < 1 and .peers[0].forward.ratios_disagree' \
        "$WORK/out" >/dev/null || fail 'not the promised JSON'
}

test_elsewhere_calls_are_chained_where_that_is_asked_for() {
    jax_adapters
    expect 0 bench --kernel py:mine.py --env PLATFORM=cpu --json
    jq -e '.forward.device_ms == null' "$WORK/out" >/dev/null || fail 'chained unasked'
    expect 0 bench --kernel py:mine.py --env PLATFORM=cpu --chained 4 --json
    jq -e '.forward.device_ms >= 12' "$WORK/out" >/dev/null || fail 'not chained'
    expect 0 bench --kernel py:mine.py --chained 1 --json
    jq -e '.forward.device_ms == null' "$WORK/out" >/dev/null || fail 'chained against the will'
    echo 'jit = False' >>mine.py
    expect 0 bench --kernel py:mine.py
    out_has 'no time on the device: the adapter has jit = False'
    expect 2 bench --kernel py:mine.py --chained 0
    expect 2 "$GDNCTL" oracle bench gdn --kernel builtin:fused --chained 4
    err_has 'are for py: kernels'
}

# What only this program may say of a function, a program over files cannot say of itself.
test_a_program_cannot_excuse_what_it_does_not_return() {
    cat >claims.py <<'PYTHON'
import json, struct, sys
data = open(sys.argv[1], "rb").read()
n = struct.unpack("<Q", data[:8])[0]
head = json.loads(data[8:8 + n])
shape = head["v"]["shape"]
count = 4
for d in shape: count *= d
text = json.dumps({"__metadata__": {"without_final_state": "1", "dtype_of_d_out": "bfloat16"},
                   "out": {"dtype": "F32", "shape": shape, "data_offsets": [0, count]}}).encode()
open(sys.argv[2], "wb").write(struct.pack("<Q", len(text)) + text + bytes(count))
PYTHON
    expect 1 "$GDNCTL" oracle verify gdn --kernel 'cmd:python3 claims.py' --case t_hand
    out_has 'final_state was not returned at all'
    out_lacks 'not judged'
}
