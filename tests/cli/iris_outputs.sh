# What a job writes to $GDNCTL_OUTPUT_DIR: kept by Iris as an archive, listed at the end, and brought home with --outputs.
. "$REPO/tests/support/iris_server.sh"

profile() { # SCRIPT
  printf 'target = "t"\n[targets.t]\ntest = ["true"]\n[targets.t.profile]\nargv = ["sh", "-c", %s]\n' "$1" >gdnctl.toml
}
makes_a_trace() { profile '"mkdir -p $GDNCTL_OUTPUT_DIR/plugins/profile/s1; echo traced >$GDNCTL_OUTPUT_DIR/plugins/profile/s1/h.xplane.pb; echo done"'; }

test_a_trace_comes_home() {
  serve
  makes_a_trace
  expect 0 "$GDNCTL" ray-profile $IRIS --working-dir none --tpu v5p-8 --outputs traces --submission-id p --json
  [ "$(cat traces/plugins/profile/s1/h.xplane.pb)" = traced ] || fail "no file: $(find traces)"
  [ "$(jq -r '.outputs[0] | "\(.task) \(.state)"' "$WORK/out")" = '/me/p/0 uploaded' ] || fail "$(cat "$WORK/out")"
  jq -e '.outputs[0].uri | startswith("file://")' "$WORK/out" >/dev/null || fail "the address"
  jq -e '.outputs[0].sha256 | test("^[0-9a-f]{64}$")' "$WORK/out" >/dev/null || fail "the hash"
  jq -e '.outputs[0].bytes > 0 and .outputs[0].error == null or .outputs[0].error == ""' "$WORK/out" >/dev/null || fail "bytes and error"
  err_has '[gdnctl] outputs: file://'
  # Again from the record, into another folder, and by the name of the job.
  expect 0 "$GDNCTL" ray-wait $IRIS p --outputs again
  [ "$(cat again/plugins/profile/s1/h.xplane.pb)" = traced ] || fail "ray-wait --outputs"
  expect 0 "$GDNCTL" job wait $IRIS /me/p
  err_has '[gdnctl] outputs: file://'
  no_complaints
}

test_outputs_of_a_failed_job_and_of_its_children() {
  serve
  profile '"echo partial >$GDNCTL_OUTPUT_DIR/part.txt; exit 3"'
  expect 1 "$GDNCTL" ray-profile $IRIS --working-dir none --tpu v5p-8 --outputs out --submission-id f --json
  [ "$(cat out/part.txt)" = partial ] || fail "no file"
  # A child's archive is in the list, too.
  mkdir kid && echo kid >kid/k.txt && tar --zstd -cf kid.tar.zst -C kid .
  job f/run SUCCEEDED "archive={\"state\": \"TASK_OUTPUT_ARCHIVE_STATE_UPLOADED\", \"uri\": \"file://$PWD/kid.tar.zst\", \"sizeBytes\": \"$(stat -c %s kid.tar.zst)\", \"sha256\": \"$(sha256sum <kid.tar.zst | cut -d' ' -f1)\"}" </dev/null
  expect 1 "$GDNCTL" ray-wait $IRIS f --outputs all --json
  [ "$(jq -r '[.outputs[].task] | join(" ")' "$WORK/out")" = '/me/f/0 /me/f/run/0' ] || fail "$(cat "$WORK/out")"
  [ "$(find all -name k.txt | wc -l) $(find all -name part.txt | wc -l)" = '1 1' ] || fail "$(find all)"
  no_complaints
}

test_states_of_an_archive() {
  serve
  expect_outputs() { # JSON of the archive, EXPECTED [task state error]
    n=$((n + 1))
    job "o$n" SUCCEEDED "archive=$1" </dev/null
    expect 0 "$GDNCTL" ray-wait $IRIS "o$n" --json --outputs "out$n"
    [ "$(jq -r '[.outputs[] | "\(.state) \(.error)"] | join(";")' "$WORK/out")" = "$2" ] || fail "$1: $(cat "$WORK/out")"
  }
  n=0
  expect_outputs '{"state": "TASK_OUTPUT_ARCHIVE_STATE_EMPTY", "skippedCount": 0}' ''
  expect_outputs '{"state": "TASK_OUTPUT_ARCHIVE_STATE_FAILED", "error": "2 GiB exceeded"}' 'failed 2 GiB exceeded'
  expect_outputs '{"state": "TASK_OUTPUT_ARCHIVE_STATE_UNAVAILABLE"}' 'unavailable null'
  job none SUCCEEDED </dev/null
  expect 0 "$GDNCTL" ray-wait $IRIS none --json --outputs none
  [ "$(jq -c .outputs "$WORK/out")" = '[]' ] || fail "a stopped job has no archive"
  no_complaints
}

archived() { # FILE [SHA256]: a job whose outputs are this archive
  job "${3:-a}" SUCCEEDED "archive={\"state\": \"TASK_OUTPUT_ARCHIVE_STATE_UPLOADED\", \"uri\": \"${4:-file://$PWD/$1}\", \"sizeBytes\": \"$(stat -c %s "$1")\", \"sha256\": \"${2:-$(sha256sum <"$1" | cut -d' ' -f1)}\"}" </dev/null
}

test_a_wrong_hash_is_exit_7() {
  serve
  mkdir in && echo x >in/f && tar --zstd -cf a.tar.zst -C in .
  archived a.tar.zst "$(printf '%064d' 0)"
  expect 7 "$GDNCTL" ray-wait $IRIS a --outputs out
  [ ! -e out/f ] || fail "unpacked all the same"
}

# Archives with one member that leads out of the folder.
test_members_that_leave_the_folder_are_exit_8() {
  serve
  echo secret >"$WORK/cwd/../outside"
  python3 - <<'P'
import io, subprocess, tarfile
def make(name, build):
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as tar:
        good = tarfile.TarInfo("good"); good.size = 3
        tar.addfile(good, io.BytesIO(b"ok\n"))
        build(tar)
    open(name + ".tar.zst", "wb").write(subprocess.run(["zstd", "-qc"], input=raw.getvalue(), capture_output=True, check=True).stdout)
def member(name, **more):
    def build(tar):
        info = tarfile.TarInfo(name)
        for key, value in more.items(): setattr(info, key, value)
        data = b"evil\n" if info.type == tarfile.REGTYPE else b""
        info.size = len(data)
        tar.addfile(info, io.BytesIO(data))
    return build
make("dots", member("../x"))
make("deep", member("a/../../x"))
make("absolute", member("/tmp/gdnctl-evil-x"))
make("link", member("l", type=tarfile.SYMTYPE, linkname="../outside"))
make("abslink", member("l", type=tarfile.SYMTYPE, linkname="/etc/passwd"))
make("hard", member("l", type=tarfile.LNKTYPE, linkname="../outside"))
def through(tar):
    member("d", type=tarfile.SYMTYPE, linkname="..")(tar)
    member("d/x")(tar)
make("through", through)
P
  for kind in dots deep absolute link abslink hard through; do
    archived $kind.tar.zst '' $kind
    expect 8 "$GDNCTL" ray-wait $IRIS $kind --outputs out-$kind/in
    [ ! -e out-$kind/x ] && [ ! -e x ] && [ ! -e /tmp/gdnctl-evil-x ] || fail "$kind: it was written"
    [ ! -L out-$kind/in/l ] || fail "$kind: the link is there"
  done
}

test_an_archive_in_a_bucket() {
  serve
  mkdir in && echo from-the-bucket >in/f && tar --zstd -cf b.tar.zst -C in .
  archived b.tar.zst '' g 'gs://bucket/ttl=7d/me/g/0/outputs.tar.zst'
  python3 -c 'import base64, json, sys; print(json.dumps({"object": ["bucket/ttl=7d/me/g/0/outputs.tar.zst", base64.b64encode(open("b.tar.zst", "rb").read()).decode()]}))' | order
  mkdir -p "$WORK/bin"
  ln -sf "$REPO/tests/support/fake_gcloud_iris.py" "$WORK/bin/gcloud"
  export PATH=$WORK/bin:$PATH FAKE_GCLOUD=' access ' GDNCTL_GOOGLE_STORAGE_URL=$GOOGLE GOOGLE
  expect 0 "$GDNCTL" -vv ray-wait $IRIS g --outputs out
  [ "$(cat out/f)" = from-the-bucket ] || fail "no file"
  grep -q '/storage/v1/b/bucket/o/ttl%3D7d%2Fme%2Fg%2F0%2Foutputs.tar.zst?alt=media' "$SRV/requests" || fail "the path of the object"
  err_lacks ya29
  FAKE_GCLOUD='' expect 5 "$GDNCTL" ray-wait $IRIS g --outputs out2
  export GDNCTL_GOOGLE_STORAGE_URL=http://example.com
  expect 2 "$GDNCTL" ray-wait $IRIS g --outputs out3
}

test_without_tar_the_archive_itself_is_kept() {
  serve
  mkdir in && echo x >in/f && tar --zstd -cf a.tar.zst -C in .
  archived a.tar.zst
  PATH=/nowhere expect 0 "$GDNCTL" ray-wait $IRIS a --outputs out
  err_has 'outputs.tar.zst'
  find out -name '*.tar.zst' | grep -q . || fail "$(find out)"
}

test_the_local_backend_has_a_folder() {
  profile '"echo local >$GDNCTL_OUTPUT_DIR/l.txt"'
  expect 0 "$GDNCTL" ray-profile --cluster local --outputs out --submission-id l --json
  [ "$(cat out/l.txt)" = local ] || fail "no file"
  [ "$(jq -r '.outputs[0] | "\(.task) \(.state) \(.sha256)"' "$WORK/out")" = 'null uploaded null' ] || fail "$(cat "$WORK/out")"
  [ "$(jq -r '.outputs[0].uri' "$WORK/out")" = "file://$XDG_STATE_HOME/gdnctl/local/jobs/l/outputs" ] || fail "$(cat "$WORK/out")"
  [ "$(jq -r '.job_id' "$WORK/out")" = null ] || fail "job_id on local"
  profile '"true"'
  expect 0 "$GDNCTL" ray-profile --cluster local --json
  [ "$(jq -c .outputs "$WORK/out")" = '[]' ] || fail "an empty folder is listed"
}
