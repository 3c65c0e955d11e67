#!/usr/bin/env python3
"""gcloud for the tests of Iris: writes its words to $WORK/gcloud.log, and answers what $FAKE_GCLOUD (words) lets it do:
identity (the token that the identity service at $GOOGLE mints), access (an access token). Anything else fails as where
nobody has logged in."""
import os
import sys
import urllib.request

words, able = sys.argv[1:], os.environ.get("FAKE_GCLOUD", "").split()
with open(os.environ["WORK"] + "/gcloud.log", "a", encoding="utf-8") as log:
    log.write(" ".join(words) + "\n")
if words[:2] == ["auth", "print-identity-token"] and len(words) > 2 and words[2].startswith("--audiences="):
    if "identity" not in able:
        sys.exit("ERROR: (gcloud.auth.print-identity-token) Invalid account type for `--audiences`. Requires valid service account.")
    url = os.environ["GOOGLE"] + "/computeMetadata/v1/instance/service-accounts/default/identity?format=full&audience="
    request = urllib.request.Request(url + words[2].partition("=")[2], headers={"Metadata-Flavor": "Google", "User-Agent": "gdnctl/0"})
    print(urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request).read().decode())
elif words[:2] == ["auth", "print-access-token"]:
    if "access" not in able:
        sys.exit("ERROR: (gcloud.auth.print-access-token) You do not currently have an active account selected.")
    print("ya29.gcloud-0123456789")
else:
    sys.exit("ERROR: unexpected: " + " ".join(words))
