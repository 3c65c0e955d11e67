#include "services/devtpu/holder_script.h"

namespace gdnctl::devtpu {

// Threads ask the metadata server, so that one that never answers, or only slowly, delays nothing by more than 5 s and
// the lease not at all. A redirect is refused, since the server belongs to the machine. The clock is monotonic, as in
// LeaseWatch, which implements the same rule.
const std::string_view k_holder_script = R"py(
import glob, json, os, re, signal, socket, stat, sys, threading, time, urllib.request
E = os.environ.get
BASE = E("GDNCTL_METADATA_BASE") or "http://metadata.google.internal/computeMetadata/v1"
LEASE, GRACE, CAP = (float(E("GDNCTL_HOLD_" + n)) for n in ("LEASE_S", "GRACE_S", "MAX_S"))
FILE = "/tmp/gdnctl-hold/" + E("GDNCTL_HOLD_ID")

class Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *a):
        return None

PLAIN = urllib.request.build_opener(urllib.request.ProxyHandler({}), Stay)
over = []
end = over.append

def fetch(path, box):
    try:
        request = urllib.request.Request(BASE + path, headers={"Metadata-Flavor": "Google"})
        with PLAIN.open(request, timeout=5) as answer:
            if answer.headers.get_content_type() == "text/html":
                raise ValueError("HTML")
            text = answer.read(4096).decode("utf-8", "replace").strip()
            if len(text) > 512 or any(ord(c) < 32 for c in text):
                raise ValueError("not one line of text")
            box.append((text, None))
    except Exception as e:
        box.append(("", "%s: %s" % (path, getattr(e, "code", None) or e)))

def ask(paths):
    boxes = [[] for p in paths]
    threads = [threading.Thread(target=fetch, args=(p, b), daemon=True) for p, b in zip(paths, boxes)]
    for t in threads:
        t.start()
    limit = time.monotonic() + 5
    for t in threads:
        t.join(max(0, limit - time.monotonic()))
    return [b[0] if b else ("", p + ": no answer in 5 s") for p, b in zip(paths, boxes)]

def lease_file():
    try:
        os.mkdir("/tmp/gdnctl-hold", 0o1777)
        os.chmod("/tmp/gdnctl-hold", 0o1777)
    except FileExistsError:
        pass
    fd = os.open(FILE, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    os.fchmod(fd, 0o666)
    os.close(fd)

def touched():
    try:
        found = os.lstat(FILE)
        return found.st_mtime_ns if stat.S_ISREG(found.st_mode) else None
    except OSError:
        return None

def say(word, value):
    sys.stdout.write("\n%s %s\n" % (word, json.dumps(value)))
    sys.stdout.flush()

def node_ip():
    try:
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        s.connect(("192.0.2.1", 9))
        return s.getsockname()[0]
    except OSError:
        return "127.0.0.1"

def host_info():
    a = ask(["/instance/network-interfaces/0/access-configs/0/external-ip", "/instance/network-interfaces/0/ip",
             "/instance/attributes/instance-id", "/instance/zone", "/instance/attributes/accelerator-type",
             "/project/project-id"])
    values = [v for v, e in a]
    bad = "; ".join(e for v, e in a[:5] if e)
    address = r"^[0-9A-Fa-f.:]+$"
    outside, inside = (v if re.match(address, v) else "" for v in values[:2])
    name = values[2] if re.match(r"^[A-Za-z0-9._-]+$", values[2]) else ""
    zone = values[3].rsplit("/", 1)[-1] if re.match(r"^projects/[^/]+/zones/[a-z0-9-]+$", values[3]) else ""
    project = values[5] if re.match(r"^[a-z][a-z0-9.:-]*$", values[5]) else ""
    kind = values[4] if re.match(r"^v\d+[a-zA-Z]*-\d+$", values[4]) else ""
    chips = len(glob.glob("/dev/accel*")) or len([p for p in glob.glob("/dev/vfio/*") if p[10:].isdigit()])
    return {"hostname": socket.gethostname(), "ip_address": outside or inside, "username": E("GDNCTL_HOLD_USER") or "",
            "tpu_name": E("GDNCTL_HOLD_NAME"), "gcloud_tpu_name": name, "gcloud_zone": zone,
            "gcloud_region": zone.rpartition("-")[0], "gcloud_project": project,
            "tpu_type": E("GDNCTL_HOLD_TYPE") or kind, "error": bad, "node_ip": node_ip(), "pid": os.getpid(), "accel_count": chips}

def watch_preemption():
    while not over:
        if ask(["/instance/preempted"])[0][0].upper() == "TRUE":
            return end("preempted")
        time.sleep(2)

signal.signal(signal.SIGTERM, lambda *a: end("stop"))
signal.signal(signal.SIGHUP, signal.SIG_IGN)
start = time.monotonic()
try:
    lease_file()
except OSError as e:
    sys.stdout.write("lease file: %s\n" % e)
seen, renewed = touched(), None
if not over:
    say("GDNCTL_HOST_INFO", host_info())
threading.Thread(target=watch_preemption, daemon=True).start()
tick = min(0.2, LEASE / 4)
while not over:
    time.sleep(tick)
    now, mark = time.monotonic(), touched()
    if mark is not None and mark != seen:
        seen, age = mark, time.time() - mark / 1e9
        if age > -300:
            renewed = max(renewed or 0, now - max(age, 0))
    if now - start >= CAP:
        end("max-hold")
    elif now - (start if renewed is None else renewed) >= (GRACE if renewed is None else LEASE):
        end("lease")
for path in ["/tmp/libtpu_lockfile", FILE] + glob.glob(FILE + ".*"):
    try:
        os.unlink(path)
    except OSError:
        pass
say("GDNCTL_RELEASED", {"reason": over[0]})
os._exit(0)
)py";

}  // namespace gdnctl::devtpu
