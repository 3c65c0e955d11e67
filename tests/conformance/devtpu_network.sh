# A held TPU's host at the end of a link that is cut or slow: sshd in a network namespace of its own.
# rooms: src/services/devtpu src/jobs
. "$REPO/tests/support/sshd_host.sh"

cut_link() {
  linked_host
  "$GDNCTL" dev-tpu-allocate "${HOLD[@]}" --tpu-type v5p-8 --username root --no-setup --lease 8 2>"$WORK/held" >/dev/null &
  holder=$!
  for _ in $(seq 400); do grep -q 'is active' "$WORK/held" && break; sleep 0.05; done
  launch "$GDNCTL" dev-tpu-execute "${HOLD[@]}" -- sh -c 'echo on; setsid sleep 64501 & sleep 64501'
  until_out on
  ip link set v0 down
  wait "$pid"
  [ $? = 4 ] || fail 'exit code of a command whose link is cut'
  err_has 'ssh: '
  err_has 'the command may still be running on the host for up to 8.0 s'
  # The hold goes on by jobs beside it; the command ends on the host, whose link is still cut, because nobody renews it.
  for _ in $(seq 200); do grep -q "jobs on the holder's host renew the lease" "$WORK/held" && break; sleep 0.05; done
  nothing_runs 'sleep 64501' 16
  ! is_free || fail 'the hold was lost with its link'
  ip link set v0 up
  for _ in $(seq 400); do grep -q 'the lease is renewed by ssh again' "$WORK/held" && break; sleep 0.05; done
  grep -q 'the lease is renewed by ssh again' "$WORK/held" || fail "never again: $(cat "$WORK/held")"
  expect 0 "$GDNCTL" dev-tpu-execute "${HOLD[@]}" cat note
  kill -TERM "$holder"
  wait "$holder"
  is_free || fail 'still held'
}

# The cluster answers, but the host is away for good.
cut_for_good() {
  linked_host
  allocate --lease 4
  launch "$GDNCTL" dev-tpu-execute "${HOLD[@]}" --no-sync -- sh -c 'echo on; sleep 64502'
  until_out on
  ip link set v0 down
  kill -9 "$pid"
  wait "$pid" 2>/dev/null
  free_within 16
  nothing_runs 'sleep 64502' 24
  expect 4 "$GDNCTL" dev-tpu-execute "${HOLD[@]}" true
  expect 0 "$GDNCTL" dev-tpu-release "${HOLD[@]}"
}

slow_link() {
  linked_host
  tc qdisc add dev v0 root tbf rate 400kbit burst 4kb latency 2s 2>/dev/null || skip 'the link cannot be made slow: tc has no tbf here'
  head -c 100000 /dev/urandom >blob # 2 s on this link
  allocate --lease 10
  expect 0 "$GDNCTL" dev-tpu-execute "${HOLD[@]}" sha1sum blob
  [ "$(cut -d' ' -f1 "$WORK/out")" = "$(sha1sum <blob | cut -d' ' -f1)" ] || fail 'the file'
  expect 0 "$GDNCTL" dev-tpu-execute "${HOLD[@]}" --no-sync -- sh -c 'head -c 200000 /dev/zero; sleep 9'
  [ "$(wc -c <"$WORK/out")" = 200000 ] || fail 'the output'
  ! is_free || fail 'lost on a slow link'
  release
}

test_a_cut_link() { in_own_network cut_link; }
test_a_link_that_stays_cut() { in_own_network cut_for_good; }
test_a_slow_link() { in_own_network slow_link; }
