#!/bin/sh
# Sees to it that the tests of the page find a Chromium. It never fails: without one they are left out.
# Debian's package is installed where that needs no question: as root, or in CI where sudo asks for no password.

if [ -n "${MEGALABEL_CHROMIUM:-}" ]; then exit 0; fi
for name in chromium chromium-browser google-chrome-stable google-chrome; do
  if command -v "$name" >/dev/null 2>&1; then exit 0; fi
done
if [ -x "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome" ]; then exit 0; fi

left_out() {
  echo "tests of the page are left out: $1; apt install chromium, or set MEGALABEL_CHROMIUM to a Chromium or Chrome"
  exit 0
}

command -v apt-get >/dev/null 2>&1 || left_out "there is no Chromium"
grep -qx 'ID=debian' /etc/os-release 2>/dev/null || left_out "there is no Chromium" # Ubuntu's is a snap
if [ "$(id -u)" = 0 ]; then
  become=
elif [ "${CI:-}" = true ] && sudo -n true 2>/dev/null; then
  become="sudo -n"
else
  left_out "there is no Chromium"
fi

patience="-o Acquire::Retries=2 -o Acquire::http::Timeout=30 -o DPkg::Lock::Timeout=120"
log=$(mktemp)
install() {
  # shellcheck disable=SC2086
  timeout 600 $become env DEBIAN_FRONTEND=noninteractive apt-get $patience install -y -qq --no-install-recommends \
    chromium fonts-dejavu-core </dev/null >>"$log" 2>&1
}
echo "installing Debian's chromium for the tests of the page (once)"
# shellcheck disable=SC2086
install || { timeout 300 $become apt-get $patience update -qq </dev/null >>"$log" 2>&1 && install; } ||
  left_out "Debian's chromium could not be installed ($(grep -m1 '^E: ' "$log" || echo "see $log"))"
rm -f "$log"
