#!/bin/sh
# Makes Chromium available to the tests of the page. Never fails: without Chromium the tests are skipped.
# Installs Debian's package if that needs no password: as root, or in CI with password-less sudo.

if [ -n "${MEGALABEL_CHROMIUM:-}" ]; then exit 0; fi
for name in chromium chromium-browser google-chrome-stable google-chrome; do
  if command -v "$name" >/dev/null 2>&1; then exit 0; fi
done
if [ -x "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome" ]; then exit 0; fi

skip() {
  echo "tests of the page are skipped: $1; apt install chromium, or set MEGALABEL_CHROMIUM to a Chromium or Chrome"
  exit 0
}

command -v apt-get >/dev/null 2>&1 || skip "Chromium is not installed"
grep -qx 'ID=debian' /etc/os-release 2>/dev/null || skip "Chromium is not installed" # Ubuntu's is a snap
if [ "$(id -u)" = 0 ]; then
  become=
elif [ "${CI:-}" = true ] && sudo -n true 2>/dev/null; then
  become="sudo -n"
else
  skip "Chromium is not installed"
fi

patience="-o Acquire::Retries=2 -o Acquire::http::Timeout=30 -o DPkg::Lock::Timeout=120"
log=$(mktemp)
install() {
  # shellcheck disable=SC2086
  timeout 600 $become env DEBIAN_FRONTEND=noninteractive apt-get $patience install -y -qq --no-install-recommends \
    chromium fonts-dejavu-core </dev/null >>"$log" 2>&1
}
echo "installing Debian's chromium for the tests of the page, once"
# shellcheck disable=SC2086
install || { timeout 300 $become apt-get $patience update -qq </dev/null >>"$log" 2>&1 && install; } ||
  skip "cannot install Debian's chromium ($(grep -m1 '^E: ' "$log" || echo "see $log"))"
rm -f "$log"
