#!/bin/sh
# gcloud for the tests of Iris: writes down its words, and answers what $FAKE_GCLOUD (words, separated by spaces) lets it do:
# identity (prints the token that the identity service of $GOOGLE mints), access (prints an access token), anything else
# fails as where nobody has logged in.
printf '%s\n' "$*" >>"$WORK/gcloud.log"
case "$*" in
  'auth print-identity-token --audiences='*)
    case " $FAKE_GCLOUD " in *' identity '*) ;; *) echo 'ERROR: (gcloud.auth.print-identity-token) Invalid account type for `--audiences`. Requires valid service account.' >&2; exit 1 ;; esac
    audience=${3#--audiences=}
    exec curl -sf -A gdnctl/0.1 -H 'Metadata-Flavor: Google' "$GOOGLE/computeMetadata/v1/instance/service-accounts/default/identity?audience=$audience&format=full" ;;
  'auth print-access-token'*)
    case " $FAKE_GCLOUD " in *' access '*) echo ya29.gcloud-0123456789; exit 0 ;; esac
    echo 'ERROR: (gcloud.auth.print-access-token) You do not currently have an active account selected.' >&2
    exit 1 ;;
esac
echo "ERROR: unexpected: $*" >&2
exit 1
