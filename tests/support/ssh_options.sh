# shellcheck shell=bash
# What a user's ssh configuration may say for all hosts. Source it, then:
#   options_ready        what some of the options need; ends with `kill $taken`
#   options_that_break   prints groups of options, a group a line, separated by `|`

options_ready() {
  cat >"$WORK/relay.py" <<'P'
import os, socket, sys, threading
s = socket.create_connection((sys.argv[1], int(sys.argv[2])))
def up():
    while data := os.read(0, 65536):
        s.sendall(data)
    s.shutdown(socket.SHUT_WR)
threading.Thread(target=up, daemon=True).start()
while data := s.recv(65536):
    os.write(1, data)
P
  python3 -c 'import socket, time
s = socket.create_server(("127.0.0.1", 0)); print(s.getsockname()[1], flush=True); time.sleep(300)' >"$WORK/taken" &
  taken=$!
  for _ in $(seq 100); do [ -s "$WORK/taken" ] && break; sleep 0.05; done
  TAKEN=$(cat "$WORK/taken")
}

# Options of ssh_config(5) that break a command, a sync, a tunnel or the diagnosis if they apply.
options_that_break() {
  cat <<O
RequestTTY force
RequestTTY yes
RemoteCommand echo other; cat
SessionType none
SessionType subsystem
StdinNull yes
ForkAfterAuthentication yes
LogLevel QUIET
LogLevel DEBUG3
LogVerbose *
ControlMaster auto|ControlPath $WORK/users-%C|ControlPersist 5
ControlMaster ask|ControlPath none
PermitLocalCommand yes|LocalCommand echo local
BatchMode no
EscapeChar a
SendEnv *
SetEnv GDNCTL_RUN=1
ClearAllForwardings yes
LocalForward $TAKEN 127.0.0.1:1|ExitOnForwardFailure yes
RemoteForward 1 127.0.0.1:1|ExitOnForwardFailure yes
DynamicForward $TAKEN|ExitOnForwardFailure yes
Tunnel yes|ExitOnForwardFailure yes
ForwardX11 yes|ExitOnForwardFailure yes
VisualHostKey yes
CanonicalizeHostname always|CanonicalizeFallbackLocal no|CanonicalDomains example.org
ProxyCommand python3 $WORK/relay.py %h %p
UserKnownHostsFile /dev/null|GlobalKnownHostsFile /dev/null|StrictHostKeyChecking yes
HostKeyAlias other
KnownHostsCommand /bin/false
UpdateHostKeys ask
VerifyHostKeyDNS ask
HashKnownHosts yes
AddKeysToAgent confirm
IdentityAgent none
IdentityFile $WORK/no-such-key
IdentitiesOnly no
PubkeyAuthentication no
PreferredAuthentications password
NumberOfPasswordPrompts 0
AddressFamily inet6
User nobody
HostName 203.0.113.1
ConnectTimeout 1
ConnectionAttempts 3
ServerAliveInterval 1
Compression yes
CheckHostIP yes
IgnoreUnknown NoSuchOption|NoSuchOption yes
O
}
