#!/bin/sh
# test_browser.sh BUILD_DIR: the HTML pages in a headless Chromium. Installs what is missing: chromium, nodejs and npm
# with apt-get, playwright-core with npm below BUILD_DIR. With nothing missing it needs neither root nor network.
# CHROMIUM names a browser; with SCREENSHOTS a folder, pictures are left there.
set -eu
. "$(dirname -- "$0")/common.sh"
build=$(CDPATH= cd -- "$1" && pwd)

# ---- programs ----
browser=${CHROMIUM:-}
find_browser() {
  [ -z "$browser" ] || return 0
  for name in chromium chromium-browser google-chrome; do
    if browser=$(command -v "$name"); then return 0; fi
  done
  browser=""
}
missing=""
find_browser
[ -n "$browser" ] || missing="$missing chromium"
have node || missing="$missing nodejs"
have npm || [ -d "$build/browser/node_modules/playwright-core" ] || missing="$missing npm"
if [ -n "$missing" ]; then
  echo "missing:$missing"
  # shellcheck disable=SC2086
  install_packages test-browser $missing || exit 2
  find_browser
fi
major=$(node --version | sed 's/^v\([0-9]*\).*/\1/')
if [ "$major" -lt 18 ]; then
  echo "test-browser: Node.js 18 or later is needed; this is $(node --version)"
  exit 2
fi

# ---- playwright-core, below the build folder: again only when the lock file changes ----
packages=$build/browser
mkdir -p "$packages"
if ! { [ -d "$packages/node_modules/playwright-core" ] &&
       cmp -s "$root/tests/browser/package-lock.json" "$packages/installed"; }
then
  cp "$root/tests/browser/package.json" "$root/tests/browser/package-lock.json" "$packages/"
  (cd "$packages" && npm ci --no-audit --no-fund --loglevel=error)
  cp "$packages/package-lock.json" "$packages/installed"
fi

# ---- a page and a picture from sinter itself ----
page=$packages/memory.html
svg=$packages/memory.svg
rm -f "$page" "$svg"
failed=""
if "$build/sinter" memory model --help >/dev/null 2>&1; then
  for file in "$page" "$svg"; do
    "$build/sinter" memory model --predict --size tiny --device cpu --plot "$file" >"$packages/sinter.log" 2>&1 &&
      continue
    tail -n 5 "$packages/sinter.log" | sed 's/^/  /'
    failed="$failed $(basename "$file")"
  done
else
  echo "test-browser: this sinter has no \`memory model\`: only pages made from the template are tested"
fi
[ -f "$page" ] || page=""
[ -f "$svg" ] || svg=""

CHROMIUM=$browser NODE_MODULES=$packages/node_modules PAGE=$page SVG=$svg node --test "$root"/tests/browser/*.test.mjs
[ -z "$failed" ] || { echo "test-browser: FAILED, sinter did not write:$failed"; exit 1; }
