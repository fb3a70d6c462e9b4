#!/bin/sh
# examples/torch_flash.py checks itself against torch's own attention, where some python3 has torch.
set -eu
if ldd "$SINTER_LIBRARY" | grep -qE 'lib[at]san'; then
  echo "skipped: a library built with sanitizers cannot be loaded into python"
  exit 77
fi
for python in /usr/bin/python3 python3; do
  "$python" -c 'import torch' 2> /dev/null || continue
  exec "$python" "$SINTER_SOURCE_DIR/examples/torch_flash.py" --quick
done
echo "skipped: no python3 here has torch (Debian/Ubuntu: python3-torch)"
exit 77
