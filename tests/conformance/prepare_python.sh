#!/usr/bin/env bash
# prepare_python.sh FOLDER: a virtual environment in FOLDER with Debian's NumPy and the official safetensors package.
# Does nothing when it is there. Needs the network once.
set -euo pipefail
folder=$1
[ ! -e "$folder/ready" ] || exit 0
rm -rf "$folder"
/usr/bin/python3 -m venv --system-site-packages "$folder"
"$folder/bin/pip" install --quiet --disable-pip-version-check 'safetensors==0.4.5' </dev/null
"$folder/bin/python" -c 'import numpy, safetensors.numpy'
: >"$folder/ready"
