#!/bin/sh
# examples/torch_flash.py checks itself against torch's own attention, where some python3 has torch.
set -eu
for python in /usr/bin/python3 python3; do
  "$python" -c 'import torch' 2> /dev/null || continue
  exec "$python" "$SINTER_SOURCE_DIR/examples/torch_flash.py" --quick
done
echo "skipped: no python3 here has torch (Debian/Ubuntu: python3-torch)"
exit 77
