#!/bin/sh
# build.sh FOLDER OUT: the page's sources in FOLDER become OUT.html, one file that needs no other,
# and OUT.csp, the Content-Security-Policy under which its scripts and styles, known by their
# hashes, are all that runs.
set -eu
LC_ALL=C
export LC_ALL
from=$1 out=$2
scripts="" styles=""

fail() {
    echo "build.sh: $*" >&2
    exit 1
}
element() { # opening tag, name, files: one element of their texts; sets hash
    open=$1 name=$2
    shift 2
    cat "$@" >"$out.part"
    ! grep -qi "<[/]*$name" "$out.part" || fail "$* would end the <$name> that holds it"
    { printf '<%s>' "$open"; cat "$out.part"; printf '</%s>\n' "$name"; } >>"$out.new"
    hash=$(sha256sum <"$out.part" | cut -c 1-64 | tr a-f A-F | basenc --base16 -d | base64 -w 0)
    [ ${#hash} = 44 ] || fail "no hash of $*"
}

cat "$from/head.html" >"$out.new"
element style style "$from/style.css"
styles="$styles 'sha256-$hash'"
for file in vendor/marked.js vendor/purify.js; do
    element script script "$from/$file"
    scripts="$scripts 'sha256-$hash'"
done
set --
for name in dom markdown store chat settings api answer message thread side main; do
    set -- "$@" "$from/$name.js"
done
element 'script type="module"' script "$@"
scripts="$scripts 'sha256-$hash'"
cat "$from/body.html" >>"$out.new"

printf '%s' "default-src 'none'; connect-src 'self'; img-src data:; style-src$styles; script-src$scripts;" \
    " base-uri 'none'; form-action 'none'; frame-ancestors 'none';" \
    " require-trusted-types-for 'script'; trusted-types dompurify" >"$out.csp"
mv "$out.new" "$out.html"
rm -f "$out.part"
