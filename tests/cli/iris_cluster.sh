# Iris clusters: which one is meant, what is listed and said about it, the tunnel to one, and the names of commands.
. "$REPO/tests/support/iris_server.sh"

checkout() { # with the Iris cluster `marin`, and one behind gcloud
  git init -q . && mkdir -p lib/iris/config "$HOME/.config/marin/clusters"
  printf 'name: marin\nauth: {iap: {url: "https://iris.invalid"}}\ntpu_pools: {p: {family: v5e, sizes: {4: {}, 16: {}}}}\n' >lib/iris/config/marin.yaml
  printf 'name: dev\nplatform: {label_prefix: dev1, gcp: {project_id: proj}}\ncontroller: {gcp: {zone: us-west1-b}}\nscale_groups: {g: {resources: {device_type: tpu, device_variant: v5p-8}}}\n' \
    >"$HOME/.config/marin/clusters/dev.yml"
}
gcloud() { # that finds the controller's machine, and forwards
  mkdir -p bin
  cat >bin/gcloud <<'G'
#!/bin/sh
echo "$*" >>"$WORK/gcloud"
case "$1 $2" in
  'compute instances') [ -e "$WORK/no-vm" ] || printf 'iris-vm\tus-central1-a\n' ;;
  'compute ssh') shift 2; exec python3 "$REPO/tests/support/fake_ssh.py" "$@" ;;
  *) echo "ERROR: unexpected" >&2; exit 1 ;;
esac
G
  chmod +x bin/gcloud
  export PATH=$PWD/bin:$PATH FAKE_SSH_DIR=$WORK FAKE_SSH_TO=$PORT
}
no_tunnel_is_left() {
  while read -r pid _; do
    case $(awk '{print $3}' "/proc/$pid/stat" 2>/dev/null) in '' | Z | X) ;; *) fail "the tunnel $pid is still there" ;; esac
  done <"$WORK/pids"
}

test_list_shows_every_place() {
  checkout
  mkdir infra && printf 'cluster_name: marin-us-east5\n' >infra/marin-us-east5.yaml
  printf '[clusters.mine]\nkind = "iris"\nurl = "http://127.0.0.1:9"\ntpu = "v6e-8"\n[clusters.odd]\nkind = "slurm"\n' >gdnctl.toml
  expect 0 "$GDNCTL" cluster list
  out_has 'local                  this machine         -              -            -'
  out_has 'marin                  iris                 -              v5litepod-4  v5litepod-4 v5litepod-16  (in use)'
  out_has 'dev                    iris                 us-west1-b     v5p-8        v5p-8'
  out_has 'mine                   iris                 -              v6e-8        -'
  out_has 'us-east5               marin-us-east5       -              -            -'
  out_has "odd                    gdnctl.toml:6: clusters.odd.kind: unknown kind 'slurm'"
  expect 0 "$GDNCTL" cluster list --json
  out_has '{"name":"mine","in_use":false,"file":null,"cluster_name":"mine","zone":null,"project":null,"tpu":"v6e-8","tpu_types":[],"backend":"iris"}'
  out_has '"tpu_types":["v5litepod-4","v5litepod-16"],"backend":"iris"}'
  expect 0 "$GDNCTL" __complete -- ray-test --cluster ''
  [ "$(xargs <"$WORK/out")" = 'local dev marin mine odd us-east5' ] || fail "$(cat "$WORK/out")"
}

test_order_of_selection() {
  checkout
  chosen() { # WHERE COMMAND WORDS...: the origin and the cluster that cluster check names
    local wanted=$1
    shift
    env "$@" >"$WORK/json" 2>/dev/null
    python3 -c 'import json, sys; r = json.load(open(sys.argv[1])); print(r["backend"], r["cluster"], r["origin"])' "$WORK/json" >"$WORK/chosen"
    [ "$(cat "$WORK/chosen")" = "$wanted" ] || fail "$* chose $(cat "$WORK/chosen")"
  }
  check=("$GDNCTL" cluster check --json)
  export GDNCTL_GOOGLE_TOKEN_URL=http://127.0.0.1:9
  chosen 'iris marin built-in default' "${check[@]}"
  chosen 'iris None option --iris-url' "${check[@]}" --iris-url http://127.0.0.1:9
  chosen 'iris dev option --cluster' "${check[@]}" --cluster dev --iris-url http://127.0.0.1:9
  chosen 'ray None environment RAY_ADDRESS' RAY_ADDRESS=http://127.0.0.1:9 "${check[@]}"
  chosen 'iris marin option --cluster' RAY_ADDRESS=http://127.0.0.1:9 "${check[@]}" marin
  chosen 'local local environment GDNCTL_CLUSTER' GDNCTL_CLUSTER=local "${check[@]}"
  # Every Iris task has this variable; it says nothing about where its user wants jobs.
  chosen 'iris marin built-in default' IRIS_CONTROLLER_URL=http://127.0.0.1:9 "${check[@]}"
  mkdir infra && printf 'cluster_name: c\nprovider: {project_id: p}\n' >infra/marin-us-central1.yaml
  chosen 'ray us-central1 built-in default' "${check[@]}"
  printf 'cluster = "marin"\n[clusters.marin]\nkind = "iris"\nurl = "http://127.0.0.1:9"\n' >gdnctl.toml
  chosen 'iris marin gdnctl.toml:1' "${check[@]}"
  rm -r infra lib gdnctl.toml
  chosen 'local local no other cluster is configured' "${check[@]}"
}

test_faults_of_a_description() {
  checkout
  expect 2 "$GDNCTL" cluster check nowhere
  err_has 'No cluster config found for region nowhere: looked for infra/marin-nowhere.yaml'
  err_has '~/.config/marin/clusters/nowhere.yaml, ~/.config/marin/clusters/nowhere.yml, lib/iris/config/nowhere.yaml, lib/iris/config/nowhere.yml'
  err_has 'known clusters: local, dev, marin'
  printf 'a: b\n' >kind.yaml
  expect 2 "$GDNCTL" cluster check --cluster-config kind.yaml
  err_has 'kind.yaml: neither a Ray nor an Iris cluster file'
  for kind in manual coreweave local; do
    printf 'name: x\ncontroller: {%s: {port: 1}}\n' $kind >x.yaml
    expect 2 "$GDNCTL" ray-list --cluster-config x.yaml
    err_has "cluster x.yaml: its controller is reached through $kind, which gdnctl does not do: open the tunnel yourself and pass --iris-url"
  done
  printf '[clusters.x]\nkind = "iris"\nurl = "http://127.0.0.1:9"\nadress = "y"\n' >gdnctl.toml
  expect 2 "$GDNCTL" ray-list --cluster x
  err_has 'gdnctl.toml:4: unknown key clusters.x.adress'
  printf '[clusters.x]\nkind = "iris"\nurl = "http://192.0.2.1:9"\nconfig = "lib/iris/config/marin.yaml"\n' >gdnctl.toml
  expect 2 "$GDNCTL" ray-list --cluster x
  err_has 'gdnctl.toml:3: http://192.0.2.1:9 uses plain HTTP; the login to cluster x would be sent unencrypted'
  for keys in '' 'kind = "iris"\n'; do
    printf "[clusters.x]\n$keys" >gdnctl.toml
    expect 2 "$GDNCTL" cluster check x
    err_has 'gdnctl.toml:1: [clusters.x] has neither `url` nor `config`, and no cluster file has its name'
    err_has 'hint: add url = "https://HOST", or config = "FILE"'
  done
  printf '[clusters.x]\nkind = "ray"\nconfig = "lib/iris/config/marin.yaml"\n' >gdnctl.toml
  expect 2 "$GDNCTL" cluster check x
  err_has 'marin.yaml is a file of kind "iris"'
  expect 2 "$GDNCTL" ray-list --iris-url http://127.0.0.1:9 --ray-address http://127.0.0.1:9
  err_has '--ray-address and --iris-url both select a cluster'
  expect 2 "$GDNCTL" ray-list --cluster marin --ray-address http://127.0.0.1:9
  err_has 'marin is an Iris cluster: drop --ray-address'
  expect 2 "$GDNCTL" ray-list --cluster local --iris-url http://127.0.0.1:9
  expect 2 "$GDNCTL" ray-list --iris-url 'ray://h'
  err_has 'not the address of an Iris controller: ray://h'
}

test_a_type_that_the_cluster_does_not_offer() {
  behind_iap
  target '"true"'
  expect 2 "$GDNCTL" ray-test $IRIS --working-dir none --tpu v6e-8
  err_has 'no node type of c offers v6e-8; it has v5p-8'
  err_lacks 'wait forever'
  err_has 'hint: `gdnctl cluster check c` shows what it offers'
}

test_user_and_project_tables_are_merged_key_by_key() {
  serve
  mkdir -p "$XDG_CONFIG_HOME/gdnctl"
  printf '[clusters.c]\nkind = "iris"\ntpu = "v6e-8"\nurl = "http://127.0.0.1:9"\n' >"$XDG_CONFIG_HOME/gdnctl/config.toml"
  printf '[clusters.c]\nurl = "http://127.0.0.1:%s"\n' "$PORT" >gdnctl.toml
  expect 0 "$GDNCTL" cluster check c
  out_has "address    http://127.0.0.1:$PORT (gdnctl.toml:2)"
  expect 0 "$GDNCTL" cluster list
  out_has 'c                      iris                 -              v6e-8'
}

test_a_dead_cluster_never_becomes_local() {
  printf 'cluster = "c"\ntarget = "t"\n[targets.t]\ntest = ["true"]\n[clusters.c]\nkind = "iris"\nurl = "http://127.0.0.1:9"\n' >gdnctl.toml
  expect 4 "$GDNCTL" ray-test --working-dir none
  err_has 'Connection refused'
  err_lacks 'local backend'
}

test_check_of_an_open_controller() {
  serve
  # shellcheck disable=SC2086
  expect 0 "$GDNCTL" cluster check $IRIS
  out_has "address    http://127.0.0.1:$PORT (option --iris-url)"
  out_has 'login      none needed'
  out_has 'answers    yes: Iris, authentication none, user '
  out_has 'tasks      0 running, 0 pending'
  out_lacks 'budget'
  ctl '{"budgets": [{"userId": "me", "budgetLimit": "1000", "budgetSpent": "4279", "effectiveBand": "PRIORITY_BAND_BATCH"}]}'
  # shellcheck disable=SC2086
  expect 0 "$GDNCTL" cluster check $IRIS
  out_has 'budget     spent (4279 of 1000): new jobs of me run as BATCH and are preempted first'
  # shellcheck disable=SC2086
  expect 0 "$GDNCTL" cluster check $IRIS --json
  out_has '"backend":"iris","cluster":null,"origin":"option --iris-url","file":null'
  out_has '"token_origin":null,"token_withheld":false,"tpu_types":[],"answers":true,"ray_version":null,"session_name":null,"authentication_mode":"none","load":null,"error":null,"iris":{"user":'
  out_has ',"pending":0,"effective_band":"PRIORITY_BAND_BATCH"}}'
  no_complaints
}

test_check_behind_a_login() {
  behind_iap
  expect 0 "$GDNCTL" cluster check c
  out_has "file       $HOME/.config/marin/clusters/c.yaml"
  out_has "address    http://127.0.0.1:$PORT ($HOME/.config/marin/clusters/c.yaml: auth.iap.url)"
  out_has "login      $HOME/.config/marin/credentials/c.json"
  out_has 'offers     v5p-8'
  out_has 'answers    yes: Iris, authentication iap, user '
  expect 0 "$GDNCTL" cluster check c --json
  out_has "\"token_origin\":\"$HOME/.config/marin/credentials/c.json\""
  out_has '"authentication_mode":"iap"'
  out_lacks refresh-good
  rm "$HOME/.config/marin/credentials/c.json"
  expect 5 "$GDNCTL" cluster check c
  out_has 'login      none'
  out_has 'answers    no'
  err_has 'not logged in to cluster c'
  err_has 'hint: iris --cluster c login'
  expect 0 "$GDNCTL" -C / doctor
  out_lacks 'Iris login'
  GDNCTL_CLUSTER=c expect 0 "$GDNCTL" doctor
  out_has 'absent  Iris login       not logged in to cluster c'
  out_has 'to fix it: iris --cluster c login'
  log_in
  GDNCTL_CLUSTER=c expect 0 "$GDNCTL" doctor
  out_has "ok      Iris login       $HOME/.config/marin/credentials/c.json"
  no_complaints
}

test_check_of_something_else() {
  serve
  fault GetCurrentUser '"status": 200, "body": "<html>a page</html>", "times": -1'
  # shellcheck disable=SC2086
  expect 4 "$GDNCTL" cluster check $IRIS
  err_has "not an Iris controller: http://127.0.0.1:$PORT returned "
  fault GetCurrentUser '"status": 302, "headers": {"location": "https://accounts.google.com/"}, "times": -1'
  serve
  fault GetCurrentUser '"status": 302, "headers": {"location": "https://accounts.google.com/"}'
  # shellcheck disable=SC2086
  expect 5 "$GDNCTL" cluster check $IRIS
  err_has "http://127.0.0.1:$PORT asks for a login"
}

test_tunnel_through_gcloud() {
  checkout
  serve
  gcloud
  export MARIN_CLUSTER_TOKEN=task-token-0123456789
  expect 0 "$GDNCTL" cluster check dev
  out_has 'address    ssh tunnel to the controller of dev, now http://127.0.0.1:'
  out_has 'login      none needed'
  out_has 'answers    yes: Iris'
  port=$(grep -oE '^127\.0\.0\.1:[0-9]+' "$WORK/argv" | cut -d: -f2)
  grep -qxF 'compute instances list --filter labels.iris-dev1-controller=true AND status=RUNNING --format value(name,zone) --limit 1 --project=proj' "$WORK/gcloud" ||
    fail "$(cat "$WORK/gcloud")"
  grep -qxF "compute ssh iris-vm --project proj --zone us-west1-b -- -L 127.0.0.1:$port:localhost:10000 -N -o BatchMode=yes -o ExitOnForwardFailure=yes -o ServerAliveInterval=15 -o ServerAliveCountMax=4" "$WORK/gcloud" ||
    fail "$(cat "$WORK/gcloud")"
  # The controller trusts its own machine, and rejects a token that it does not know.
  [ "$(sent GetCurrentUser '"authorization" in h')" = False ] || fail "a token went through the tunnel"
  no_tunnel_is_left
  target '"echo through the tunnel"'
  expect 0 "$GDNCTL" ray-test --cluster dev --working-dir none
  out_has 'through the tunnel'
  no_tunnel_is_left
  touch "$WORK/no-vm"
  expect 4 "$GDNCTL" cluster check dev
  err_has 'No controller found for cluster dev'
  rm "$WORK/no-vm"
  echo deny >"$WORK/script"
  expect 5 "$GDNCTL" cluster check dev
  err_has 'try by hand: gcloud compute ssh iris-vm'
  FAKE_SSH_TO=9 expect 4 "$GDNCTL" cluster check dev
  err_has 'no controller answers at the machine iris-vm of cluster dev'
  no_tunnel_is_left
  rm bin/gcloud
  PATH=$PWD/bin expect 4 "$GDNCTL" cluster check dev
  err_has 'gcloud'
}

test_tokens_only_to_where_they_belong() {
  serve
  export MARIN_CLUSTER_TOKEN=task-token-0123456789
  # shellcheck disable=SC2086
  expect 0 "$GDNCTL" cluster check $IRIS -v
  [ "$(sent GetCurrentUser 'h.get("authorization")')" = 'Bearer task-token-0123456789' ] || fail 'the token of the task is not sent'
  out_lacks task-token
  err_lacks task-token
}
